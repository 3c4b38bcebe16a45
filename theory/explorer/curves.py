"""What a page draws besides its sliders: expressions as JavaScript and MathML, closed
forms of a model, and tables of what iterations or integrals give.
"""

import contextlib
import html
import itertools
import json
import math
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import sympy as sp
import xarray as xr
from sympy.printing.jscode import JavascriptCodePrinter
from sympy.printing.mathml import mathml

from theory.call import sweep
from theory.call.parameters import BaseParameters
from theory.call.refusal import ParameterError
from theory.dynamics.flow import Flow
from theory.equations.equation import Equation
from theory.explorer import sliders
from theory.models.model import Model
from theory.models.write_up import Meanings
from theory.symbols.reading import sympified

DIGITS = 9  # of a tabulated value
LONGEST = 600  # operations of a formula that is shown
CLOSED = "closed forms"


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
    """JavaScript function of arrays, such as ``(y, p) => [...]``; lists may be nested
    once.
    """
    places = {}
    for name, symbols in arguments.items():
        for i, x in enumerate(symbols):
            places[x] = sp.Symbol(f"{name}[{i}]")
    nested = isinstance(value[0], list)
    rows = value if nested else [value]
    entries = itertools.chain.from_iterable(rows)
    flat = [sympified(e).xreplace(places) for e in entries]
    shared, flat = sp.cse(flat, symbols=sp.numbered_symbols("c"))
    lines = "".join(f"const {x} = {written(e)}; " for x, e in shared)
    code = map(written, flat)
    lists = []
    for row in rows:
        lists.append(f"[{', '.join(itertools.islice(code, len(row)))}]")
    result = f"[{', '.join(lists)}]" if nested else lists[0]
    return f"({', '.join(arguments)}) => {{ {lines}return {result}; }}"


def of_flow(flow: Flow) -> str:
    """MathML of the equations and of their abbreviations."""
    shown = [(e.lhs, e.rhs) for e in flow.equations().values()] + list(
        flow.where.items()
    )
    return "".join(formula(left, right) for left, right in shown)


def formula(left: Any, right: sp.Expr) -> str:
    """MathML of one equation."""
    if sp.count_ops(right) > LONGEST:
        return (
            f"<p>{html.escape(str(left))} = ... (<code>python -m"
            " theory.latex</code>)</p>"
        )
    body = mathml(sp.Eq(left, right, evaluate=False), printer="presentation").replace(
        "&dd;", "d"
    )
    return f'<math display="block">{body}</math>'


def word(name: str) -> str:
    """A name as a letter with subscripts; one with a long subscript as words."""
    _, *subscripts = name.split("_")
    if max(map(len, subscripts), default=0) > 2 and not name.endswith("_omega"):
        return name.replace("_", " ")
    return str(sp.pretty(sp.Symbol(name)))


def entries(model: Model, p: BaseParameters) -> list[str]:
    """Closed forms and tables as JavaScript, each after its title."""
    made, tables = {CLOSED: closed(model, p)}, charts(model)
    if tables is not None:
        made |= {title: tabulated(p, data) for title, data in tables.charts(p).items()}
    return [f"{json.dumps(title)}: {code}" for title, code in made.items() if code]


def charts(model: Model) -> ModuleType | None:
    """The module with a function ``charts(p)``, the model's own or ``charts`` beside
    it, which computes tables: by title, datasets over fields of the parameters, each
    variable with the ``long_name`` under which curves are drawn together.
    """
    if callable(getattr(theory := model.wing("theory"), "charts", None)):
        return theory
    try:
        return model.wing("theory", "charts")
    except ParameterError:
        return None


def known(p: BaseParameters) -> set[str]:
    """Numbers of the parameters that a formula can be evaluated at."""
    return {
        n
        for n, value in sweep.numbers(p).items()
        if isinstance(value, int | float) and math.isfinite(value)
    }


def formulas(model: Model, p: BaseParameters) -> list[Equation]:
    """Equations of the model that are functions of its parameters alone, in closed
    form.
    """
    chosen, numbers = [], known(p)
    for equation in model.wing("theory").equations().values():
        right = equation.rhs
        if not isinstance(right, sp.Expr) or right.atoms(sp.Indexed):
            continue
        names = {s.name for s in right.free_symbols}
        with contextlib.suppress(ParameterError):
            if names and names <= numbers and written(right):
                chosen.append(equation)
    return chosen


def closed(model: Model, p: BaseParameters) -> str:
    """Closed forms as a JavaScript object; empty if there are none."""
    equations = formulas(model, p)
    reads = [{s.name for s in e.rhs.free_symbols} for e in equations]
    names = sorted({*itertools.chain.from_iterable(reads)})

    def fits(q: BaseParameters) -> bool:
        return set(names) <= known(q)

    about = sliders.described(p, names, fits, lambda q: True)
    moving = {n for n, of in about["follows"].items() if of["parts"]}
    moving |= {*about["fields"]}
    shown = [e for e, read in zip(equations, reads, strict=True) if read & moving]
    if not shown:
        return ""
    bare = []  # without assumptions on symbols, which differ between formulas
    for e in shown:
        plain = {s: sp.Symbol(s.name) for s in e.rhs.free_symbols}
        bare.append(e.rhs.xreplace(plain))
    groups, printed = grouped(model, shown)
    words = {n: word(n) for n in (*names, *about["fields"])}
    words |= {e.name: e.name.replace("_", " ") for e in shown}
    about |= {
        "curves": [e.name for e in shown],
        "groups": groups,
        "formulas": printed,
        "status": {e.name: e.status for e in shown},
        "source": (
            "Each formula holds under the assumptions that are said with it, whatever"
            " the start says."
        ),
        "words": words,
    }
    values = function({"p": [sp.Symbol(n) for n in names]}, bare)
    return f"{{values: {values}, {json.dumps(about)[1:-1]}}}"


def grouped(
    model: Model, found: list[Equation]
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Names of the equations for one quantity, by its meaning; and their formulas, with
    status.
    """
    meanings = Meanings(model)
    groups: dict[str, list[str]] = {}
    shown: dict[str, str] = {}
    for e in found:
        means = meanings.of(e.lhs)
        title = means[0] if means else e.name.replace("_", " ")
        groups.setdefault(title, []).append(e.name)
        name = html.escape(e.name.replace("_", " "))
        notes = html.escape("; ".join([e.reference, e.status, *e.assumptions]))
        shown[title] = (
            shown.get(title, "")
            + formula(e.lhs, e.rhs)
            + f'<p class="quiet">{name}: {notes}</p>'
        )
    return groups, shown


def tabulated(p: BaseParameters, data: xr.Dataset) -> str:
    """A table as a JavaScript object; its sliders are the dataset's dimensions."""
    fields = {
        str(d): sliders.slider(p, str(d), data[d].values.tolist()) for d in data.dims
    }
    groups: dict[str, list[str]] = {}
    for name, variable in data.data_vars.items():
        groups.setdefault(variable.attrs["long_name"], []).append(str(name))

    def rounded(variable: xr.DataArray) -> list[float]:
        values = variable.transpose(*data.dims).values.ravel()
        return [float(f"{value:.{DIGITS}g}") for value in values]

    about = {
        "table": {str(name): rounded(x) for name, x in data.data_vars.items()},
        "curves": list(map(str, data.data_vars)),
        "groups": groups,
        "fields": fields,
        "needs": [],
        "numbers": {},
        "follows": {},
        "clashes": {},
        "formulas": dict.fromkeys(groups, ""),
        "status": {},
        "source": "; ".join(data.attrs[n] for n in ("reference", "status", "note")),
        "words": {str(n): word(str(n)) for n in (*fields, *data.data_vars)},
    }
    return json.dumps(about)
