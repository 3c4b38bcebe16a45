"""The page: flows printed to JavaScript, what their numbers follow from, and students to draw."""

from __future__ import annotations

import dataclasses
import html
import itertools
import json
import math
from collections.abc import Callable, Mapping
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
# Random places at which a derived number is compared with the product it is tabulated as, and the
# relative error allowed: roundings of a product of a few factors.
PROBES, CLOSE = 24, 1e-9
POINTS = 200  # of a student's curve


class Printer(JavascriptCodePrinter):
    """JavaScript of expressions, polygamma functions included."""

    def _print_polygamma(self, expr: sp.Expr) -> str:
        return f"polygamma({', '.join(map(self._print, expr.args))})"


def written(expr: sp.Expr) -> str:
    """An expression in JavaScript.

    Raises
    ------
    ParameterError
        Naming what JavaScript has no function for.
    """
    expr = expr.xreplace({c: c.evalf(17) for c in expr.atoms(sp.NumberSymbol)})
    _, missing, text = Printer({"human": False}).doprint(expr)
    if missing:
        raise ParameterError(f"no JavaScript for {', '.join(map(str, missing))}")
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
    y = list(flow.state)
    carried: dict[str, sp.Expr] = {}
    left: dict[str, sp.Expr] = {}
    for name, expr in flow.observables.items():
        spelled = flow._spell(sp.sympify(expr, strict=True))
        try:
            written(spelled)
            (carried if spelled.free_symbols <= {*y, *needs} else left)[name] = spelled
        except ParameterError:
            left[name] = spelled
    both = {"y": y, "p": needs}
    rates = list(flow.expanded.values())
    parts = {
        "rates": function(both, rates),
        "slopes": function(both, flow.jacobian().tolist()),
        "start": function({"p": needs}, [flow.initial[x] for x in y]),
        "seen": function(both, list(carried.values())) if carried else "(y, p) => []",
    }
    return ", ".join(f"{k}: {v}" for k, v in parts.items()), list(carried), list(left)


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
) -> tuple[dict[str, dict[str, list[float]]], dict[str, list[Any]]]:
    """What numbers that are no fields are multiplied by at each place of a slider; and the sliders,
    without those whose effect is no such factor.
    """

    def numbers(**change: Any) -> dict[str, float]:
        found = sweep.numbers(p.replace(**change), names)
        return {n: float(found[n]) for n in names}

    base, kept = numbers(), dict(moves)
    fields = {f.name for f in dataclasses.fields(p) if getattr(p, f.name) is not None}
    factors: dict[str, dict[str, list[float]]] = {n: {} for n in names if n not in fields}
    rng = np.random.default_rng(0)
    for f, values in moves.items():
        rows = [numbers(**{f: v}) for v in values]
        of_f = {n: [row[n] for row in rows] for n in factors}
        changed = [n for n, along in of_f.items() if any(v != base[n] for v in along)]
        for n in changed:
            factors[n][f] = [v / base[n] if base[n] else math.nan for v in of_f[n]]
        if not all(_is_product(numbers, base[n], n, factors[n], kept, rng) for n in changed):
            del kept[f]
            for n in changed:
                del factors[n][f]
    read = {f for f in kept if f in names or any(f in of for of in factors.values())}
    return factors, {f: v for f, v in kept.items() if f in read}


def _is_product(
    numbers: Callable[..., dict[str, float]],
    base: float,
    name: str,
    factors: dict[str, list[float]],
    values: dict[str, list[Any]],
    rng: np.random.Generator,
) -> bool:
    """Whether a number is its value times its factors, at random places of all its sliders."""
    for _ in range(PROBES):
        drawn = {f: int(rng.integers(len(values[f]))) for f in factors}
        try:
            true = numbers(**{f: values[f][k] for f, k in drawn.items()})[name]
        except ParameterError:  # values that clash: no curve there
            continue
        made = base * math.prod(factors[f][k] for f, k in drawn.items())
        if not abs(made - true) <= CLOSE * abs(true):
            return False
    return True


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


def opening(model: Model) -> BaseParameters:
    """Default parameters, or those of the first preset that a flow of the model describes."""
    theory = model.wing("theory")
    kind = theory.Parameters
    for make in (kind, *kind.presets().values()):
        for flow in theory.flows().values():
            try:
                flow._ask(p := make())
            except ParameterError:
                continue
            return p
    return kind()


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
    code, refused = [], []
    for name, flow in flows.items():
        try:
            flow._ask(p)
            code.append(f"{json.dumps(name)}: {described(model, flow, p)}")
        except ParameterError as error:
            refused.append(f"{name}: {error}")
    if not code:
        raise ParameterError(f"{model.name}: no flow to explore; {'; '.join(refused)}")
    setting = ", ".join(f"{k} = {v}" for k, v in p.stored().items() if v is not None)
    words = {
        "TITLE": html.escape(model.title),
        "CAPTION": html.escape(f"Start: {setting}"),
        "CODE": (HERE / "flow.js").read_text(),
        "DATA": f"{{flows: {{{', '.join(code)}}}, runs: {json.dumps(drawn)}}}".replace(
            "</", "<\\/"
        ),
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
    except ParameterError:
        return None
    time, state = flow.time.name, {x.name for x in flow.state}
    ends = [float(c[time].max()) for c in curves if time in c.coords and state & set(c.data_vars)]
    return max(ends, default=None)


def _moves(p: BaseParameters, field: str, names: list[str]) -> bool:
    """Whether a field is a number that others follow from: its value doubled or halved."""
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


def described(model: Model, flow: Flow, p: BaseParameters) -> str:
    """One flow as a JavaScript object: its functions, its sliders, and what follows from them."""
    needs = flow._compiled[0]
    names = [s.name for s in needs]
    numbers = sweep.numbers(p)
    if missing := [n for n in names if n not in numbers]:
        raise ParameterError(f"no value for {', '.join(missing)}")
    fields = {f.name: f for f in dataclasses.fields(p) if _moves(p, f.name, names)}
    tried = {n: v for n, f in fields.items() if len(v := steps(p, f, flow)) > 1}
    follows, moves = followed(p, names, tried)
    parts, seen, left = script(flow, needs)
    source = [flow.reference, flow.status, *flow.assumptions]
    if left:
        source.append(f"not carried here: {', '.join(left)}")
    about = {
        "state": [x.name for x in flow.state],
        "observables": seen,
        "time": flow.time.name,
        "needs": names,
        "numbers": {n: float(numbers[n]) for n in names},
        "fields": {
            n: {"values": v, "start": v.index(getattr(p, n)), "doc": fields[n].metadata["doc"]}
            for n, v in moves.items()
        },
        "follows": follows,
        "clashes": clashes(p, flow, moves),
        "formulas": formulas(flow),
        "source": "; ".join(source),
        "end": length(model, flow, p),
    }
    shown = (*about["state"], *seen, flow.time.name, *names, *moves)
    about["words"] = {n: word(n) for n in shown}
    return f"{{{parts}, {json.dumps(about)[1:-1]}}}"
