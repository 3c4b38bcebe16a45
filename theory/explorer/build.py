"""The page: flows printed to JavaScript, what their numbers follow from, and students to draw."""

from __future__ import annotations

import dataclasses
import html
import itertools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import sympy as sp
import xarray as xr
from sympy.printing.jscode import JavascriptCodePrinter
from sympy.printing.mathml import mathml

from theory import sweep
from theory.flow import Flow
from theory.parameters import BaseParameters, ParameterError
from theory.registry import Model

HERE = Path(__file__).parent
STEPS = 20  # places of a slider on either side of its value
FACTOR = {int: 16.0, float: 100.0}  # from the value to either end
LONGEST = 600  # operations of a formula that is shown
PROBES, CLOSE = (
    24,
    1e-9,
)  # of the product that a derived number is tabulated as, and how well it holds
POINTS = 200  # of a student's curve


class Printer(JavascriptCodePrinter):
    """JavaScript of expressions, polygamma functions included."""

    def _print_polygamma(self, expr: sp.Expr) -> str:
        return f"polygamma({', '.join(map(self._print, expr.args))})"


def written(expr: sp.Expr) -> str:
    """An expression in JavaScript.

    Raises
    ------
    NotImplementedError
        Naming what JavaScript has no function for.
    """
    expr = expr.xreplace({c: c.evalf(17) for c in expr.atoms(sp.NumberSymbol)})
    _, missing, text = Printer({"human": False}).doprint(expr)
    if missing:
        raise NotImplementedError(f"no JavaScript for {', '.join(map(str, missing))}")
    return text


def function(arguments: Mapping[str, list[sp.Symbol]], value: list[Any]) -> str:
    """JavaScript function of arrays, such as ``(y, p) => [...]``; lists may be nested once."""
    places = {
        x: sp.Symbol(f"{name}[{i}]") for name, of in arguments.items() for i, x in enumerate(of)
    }
    nested = isinstance(value[0], list)
    rows = value if nested else [value]
    flat = [sp.sympify(e, strict=True).xreplace(places) for row in rows for e in row]
    shared, flat = sp.cse(flat, symbols=sp.numbered_symbols("c"))
    lines = "".join(f"const {x} = {written(e)}; " for x, e in shared)
    parts = iter(map(written, flat))
    lists = [f"[{', '.join(next(parts) for _ in row)}]" for row in rows]
    result = f"[{', '.join(lists)}]" if nested else lists[0]
    return f"({', '.join(arguments)}) => {{ {lines}return {result}; }}"


def script(flow: Flow, needs: list[sp.Symbol]) -> tuple[str, list[str], list[str]]:
    """JavaScript of a flow, the observables that it carries, and those that it has no words for."""
    y, carried, left = list(flow.state), {}, []
    for name, expr in flow.observables.items():
        spelled = flow._spell(sp.sympify(expr, strict=True))
        try:
            if not spelled.free_symbols <= {*y, *needs}:
                raise NotImplementedError
            function({"y": y, "p": needs}, [spelled])
            carried[name] = spelled
        except NotImplementedError:
            left.append(name)
    both = {"y": y, "p": needs}
    rates = list(flow.expanded.values())
    parts = {
        "rates": function(both, rates),
        "slopes": function(both, flow.jacobian().tolist()),
        "start": function({"p": needs}, [flow.initial[x] for x in y]),
        "seen": function(both, list(carried.values())) if carried else "(y, p) => []",
    }
    return ", ".join(f"{k}: {v}" for k, v in parts.items()), list(carried), left


def formulas(flow: Flow) -> str:
    """MathML of the equations and of their abbreviations."""
    shown = [(e.lhs, e.rhs) for e in flow.equations().values()] + list(flow.where.items())
    lines = []
    for left, right in shown:
        if sp.count_ops(right) > LONGEST:
            lines.append(
                f"<p>{html.escape(str(left))} = ... (<code>python -m theory.latex</code>)</p>"
            )
            continue
        body = mathml(sp.Eq(left, right, evaluate=False), printer="presentation").replace(
            "&dd;", "d"
        )
        lines.append(f'<math display="block">{body}</math>')
    return "".join(lines)


def steps(p: BaseParameters, field: dataclasses.Field[Any], flow: Flow) -> list[Any]:
    """Values that a field may take on its slider: allowed, and described by the flow."""
    value = getattr(p, field.name)
    whole = isinstance(value, int)
    if value > 0:
        factor = FACTOR[int if whole else float]
        found = np.geomspace(value / factor, value * factor, 2 * STEPS + 1)
    else:
        found = np.linspace(value - 1, value + 1, 2 * STEPS + 1)
    tried = {round(v) for v in found} if whole else {float(f"{v:.6g}") for v in found}
    good = []
    for v in sorted(tried | {value}):
        try:
            q = p.replace(**{field.name: v})
            flow._ask(q)
            if all(x.name in sweep.numbers(q) for x in flow._compiled[0]):
                good.append(v)
        except ParameterError:
            continue
    return good


def clashes(p: BaseParameters, flow: Flow, moves: dict[str, list[Any]]) -> dict[str, list[str]]:
    """Pairs of values that are not allowed together: per pair of fields ``"f g"`` a row of letters
    for each value of f, ``x`` where a value of g does not fit.
    """

    def fits(**change: Any) -> bool:
        try:
            flow._ask(p.replace(**change))
        except ParameterError:
            return False
        return True

    found = {}
    for f, g in itertools.combinations(moves, 2):
        rows = ["".join(".x"[not fits(**{f: v, g: w})] for w in moves[g]) for v in moves[f]]
        if any("x" in row for row in rows):
            found[f"{f} {g}"] = rows
    return found


def followed(
    p: BaseParameters, names: list[str], moves: dict[str, list[Any]]
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Numbers that follow from fields, as a value times a factor per place of a slider; fields
    whose effect is no such factor are taken out.
    """

    def numbers(**change: Any) -> dict[str, float]:
        found = sweep.numbers(p.replace(**change), names)
        return {n: float(found[n]) for n in names}

    base, kept = numbers(), dict(moves)
    fields = {f.name for f in dataclasses.fields(p) if getattr(p, f.name) is not None}
    derived = [n for n in names if n not in fields]
    tables = {f: [numbers(**{f: v}) for v in values] for f, values in moves.items()}
    factors: dict[str, dict[str, list[float]]] = {n: {} for n in derived}
    rng = np.random.default_rng(0)
    for f, table in tables.items():
        for n in derived:
            along = [row[n] for row in table]
            if any(v != base[n] for v in along):
                factors[n][f] = [v / base[n] if base[n] else math.nan for v in along]
        for n in derived:
            among = [g for g in factors[n] if g in kept]
            for _ in range(PROBES if f in factors[n] else 0):
                drawn = {g: int(rng.integers(len(kept[g]))) for g in among}
                made = base[n] * math.prod(factors[n][g][k] for g, k in drawn.items())
                true = numbers(**{g: kept[g][k] for g, k in drawn.items()})[n]
                if not abs(made - true) <= CLOSE * abs(true):
                    kept.pop(f, None)
                    break
        if f not in kept:
            for n in derived:
                factors[n].pop(f, None)
    read = {f for f in kept if f in names or any(f in factors[n] for n in derived)}
    return (
        {n: {"value": base[n], "factors": factors[n]} for n in derived},
        {f: v for f, v in kept.items() if f in read},
    )


def students(path: Path | None, flows: list[Flow]) -> tuple[dict[str, Any], str | None]:
    """Curves of the students in a file, and the parameters that it names.

    Raises
    ------
    ParameterError
        If the file cannot be read, or holds none of the flows' quantities over seed and time.
    """
    if path is None:
        return {}, None
    try:
        with xr.open_dataset(path) as file:
            runs = file.load()
    except (OSError, ValueError) as error:
        raise ParameterError(f"--runs {path}: {error}") from None
    time = flows[0].time.name
    known = {x.name for f in flows for x in f.state}.union(*(f.observables for f in flows))
    curves = [
        n
        for n in sorted(known & set(map(str, runs.data_vars)))
        if set(runs[n].dims) == {"seed", time}
    ]
    if not curves:
        raise ParameterError(
            f"--runs {path}: holds none of {', '.join(sorted(known))} over seed and {time}"
        )
    thin = runs.isel({time: slice(None, None, max(1, runs.sizes[time] // POINTS))})
    values = {
        n: [[float(f"{v:.5g}") for v in row] for row in thin[n].transpose("seed", time).values]
        for n in curves
    }
    return {"times": thin[time].values.tolist(), "values": values}, runs.attrs.get("parameters")


def page(model: Model, p: BaseParameters, runs: Path | None = None) -> str:
    """Self-contained HTML page of a model's flows: sliders, curves that it integrates, formulas.

    Parameters
    ----------
    model : Model
        Whose flows.
    p : Parameters
        Where the sliders start.
    runs : path, optional
        netCDF file of students over ``(seed, time)``, drawn behind the curves; the sliders start at
        its parameters.

    Returns
    -------
    str
        HTML without any address: it needs no network.

    Raises
    ------
    ParameterError
        If the model has no flow, if none describes these parameters, or if the file is of no use.
    """
    theory = model.wing("theory")
    flows: dict[str, Flow] = theory.flows()
    if not flows:
        raise ParameterError(
            f"{model.name}: has no flow to explore; python -m theory.onset {model.name}"
        )
    drawn, trained = students(runs, list(flows.values()))
    if trained:
        own = {f.name for f in dataclasses.fields(p)}
        p = p.replace(**{k: v for k, v in json.loads(trained).items() if k in own})
    made: dict[str, Any] = {
        "flows": {},
        "fields": {},
        "follows": {},
        "numbers": {},
        "words": {},
        "runs": drawn,
    }
    code, refused = [], []
    for name, flow in flows.items():
        try:
            flow._ask(p)
            code.append(f"{json.dumps(name)}: {_add(made, model, flow, p)}")
        except (ParameterError, NotImplementedError) as error:
            refused.append(f"{name}: {error}")
    if not code:
        raise ParameterError(f"{model.name}: no flow to explore; {'; '.join(refused)}")
    data = json.dumps(made | {"flows": "FLOWS"}).replace('"FLOWS"', "{" + ", ".join(code) + "}")
    fixed = {k: v for k, v in p.as_dict().items() if k not in made["fields"]}
    words = {
        "TITLE": html.escape(model.title),
        "CAPTION": html.escape(
            "Fixed: " + ", ".join(f"{k} = {v}" for k, v in fixed.items() if v is not None)
        ),
        "CODE": (HERE / "flow.js").read_text(),
        "DATA": data.replace("</", "<\\/"),
    }
    text = (HERE / "page.html").read_text()
    for word, value in words.items():
        text = text.replace(word, value)
    return text


def word(name: str) -> str:
    """A name as letters and subscripts, or in words where it is made of such."""
    _, *subscripts = name.split("_")
    if max(map(len, subscripts), default=0) > 2 and not name.endswith("_omega"):
        return name.replace("_", " ")
    return str(sp.pretty(sp.Symbol(name)))


def length(model: Model, flow: Flow, p: BaseParameters) -> float | None:
    """Run length of the figure of ``theory.onset``, if there is one."""
    try:
        curves = model.wing("theory", "onset").onset(p).curves().values()
    except (ModuleNotFoundError, ParameterError):
        return None
    time, state = flow.time.name, {x.name for x in flow.state}
    ends = [float(c[time].max()) for c in curves if time in c.coords and state & set(c.data_vars)]
    return max(ends, default=None)


def _moves(p: BaseParameters, field: str, names: list[str]) -> bool:
    """Whether a number follows from a field, by its value doubled or halved."""
    value = getattr(p, field)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    base = sweep.numbers(p, names)
    for other in (2 * value or 1, value // 2 if isinstance(value, int) else value / 2):
        try:
            found = sweep.numbers(p.replace(**{field: other}), names)
        except ParameterError:
            continue
        if any(found.get(n) != base[n] for n in names):
            return True
    return False


def _add(made: dict[str, Any], model: Model, flow: Flow, p: BaseParameters) -> str:
    """One flow in JavaScript; the sliders and tables that it needs go into the page's data."""
    needs = flow._compiled[0]
    names = [s.name for s in needs]
    if missing := set(names) - set(sweep.numbers(p)):
        raise ParameterError(f"no value for {', '.join(sorted(missing))}")
    tried = {
        f.name: values
        for f in dataclasses.fields(p)
        if f.name in names or _moves(p, f.name, names)
        if isinstance(v := getattr(p, f.name), int | float)
        and not isinstance(v, bool)
        and len(values := steps(p, f, flow)) > 1
    }
    follows, moves = followed(p, names, tried)
    parts, seen, left = script(flow, needs)
    made["follows"] |= follows
    made["numbers"] |= {n: float(v) for n, v in sweep.numbers(p, names).items() if n in names}
    for f in dataclasses.fields(p):
        if f.name in moves:
            doc = f.metadata.get("doc", "")
            values = moves[f.name]
            start = values.index(getattr(p, f.name))
            made["fields"][f.name] = {"values": values, "start": start, "doc": doc}
    source = [flow.reference, flow.status, *flow.assumptions]
    if left:
        source.append(f"not carried here: {', '.join(left)}")
    about = {
        "state": [x.name for x in flow.state],
        "observables": seen,
        "time": flow.time.name,
        "needs": names,
        "moves": list(moves),
        "formulas": formulas(flow),
        "source": "; ".join(source),
        "end": length(model, flow, p),
        "clashes": clashes(p, flow, moves),
    }
    for n in (*about["state"], *seen, flow.time.name, *names, *moves):
        made["words"][n] = word(n)
    return f"{{{parts}, {json.dumps(about)[1:-1]}}}"
