"""Curves of a model besides those of its flows: closed forms, which the page evaluates, and
precomputed tables of results of iterations or integrals.
"""

import html
import json
import math
from types import ModuleType
from typing import Any

import sympy as sp
import xarray as xr

from theory import sweep
from theory.equation import Equation
from theory.explorer import display, sliders
from theory.explorer.javascript import function, written
from theory.latex import Meanings
from theory.parameters import BaseParameters, ParameterError
from theory.registry import Model

DIGITS = 9  # of a tabulated value
CLOSED = "closed forms"


def entries(model: Model, p: BaseParameters) -> list[str]:
    """Closed forms and tables as JavaScript, each after its title."""
    made = {CLOSED: closed(model, p)}
    made |= {title: tabulated(p, data) for title, data in tables(model, p).items()}
    return [f"{json.dumps(title)}: {code}" for title, code in made.items() if code]


def offered(model: Model, p: BaseParameters) -> bool:
    """Whether there are tables or closed forms, without computing the tables."""
    return _charts(model) is not None or bool(closed(model, p))


def tables(model: Model, p: BaseParameters) -> dict[str, xr.Dataset]:
    """What ``charts.charts(p)`` of the model computes: by title, datasets over fields of the
    parameters, each variable with the ``long_name`` under which curves are drawn together.
    """
    charts = _charts(model)
    return dict(charts.charts(p)) if charts else {}


def has_tables(model: Model) -> bool:
    """Whether the model computes tables, which a page shows in addition to its flows or instead of
    them.
    """
    return _charts(model) is not None


def _charts(model: Model) -> ModuleType | None:
    """The module with the function ``charts``: the model's own, or ``charts`` beside it."""
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
    """Equations of the model that are functions of its parameters alone, in closed form."""
    chosen, numbers = [], known(p)
    for equation in model.wing("theory").equations().values():
        right = equation.rhs
        if not isinstance(right, sp.Expr) or right.atoms(sp.Indexed):
            continue
        names = {s.name for s in right.free_symbols if isinstance(s, sp.Symbol)}
        if not names or not names <= numbers:
            continue
        try:
            written(right)
        except ParameterError:
            continue
        chosen.append(equation)
    return chosen


def closed(model: Model, p: BaseParameters) -> str:
    """Closed forms as a JavaScript object; empty if there are none."""
    chosen = formulas(model, p)

    def fits(q: BaseParameters) -> bool:
        return set(names) <= known(q)

    def symbols(equation: Equation) -> set[sp.Symbol]:
        return {s for s in equation.rhs.free_symbols if isinstance(s, sp.Symbol)}

    names = sorted({s.name for e in chosen for s in symbols(e)})
    about = sliders.described(p, names, fits, lambda q: True)
    moving = {*about["fields"]} | {n for n, of in about["follows"].items() if of["parts"]}
    chosen = [e for e in chosen if {s.name for s in symbols(e)} & moving]
    if not chosen:
        return ""
    needs = [sp.Symbol(n) for n in names]
    bare = [e.rhs.xreplace({s: sp.Symbol(s.name) for s in symbols(e)}) for e in chosen]
    groups, shown = grouped(model, chosen)
    about |= {
        "curves": [e.name for e in chosen],
        "groups": groups,
        "formulas": shown,
        "status": {e.name: e.status for e in chosen},
        "source": "Each formula holds under the assumptions that are said with it, whatever the start says.",
        "words": {n: display.word(n) for n in (*names, *about["fields"])}
        | {e.name: e.name.replace("_", " ") for e in chosen},
    }
    values = function({"p": needs}, bare)
    return f"{{values: {values}, {json.dumps(about)[1:-1]}}}"


def grouped(model: Model, found: list[Equation]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Names of the equations for one quantity, by its meaning; and their formulas, with status."""
    meanings = Meanings(model)
    groups: dict[str, list[str]] = {}
    shown: dict[str, str] = {}
    for e in found:
        means = meanings.of(e.lhs)
        title = means[0] if means else e.name.replace("_", " ")
        groups.setdefault(title, []).append(e.name)
        said = "; ".join([e.reference, e.status, *e.assumptions])
        shown[title] = shown.get(title, "") + (
            f"{display.formula(e.lhs, e.rhs)}"
            f'<p class="quiet">{html.escape(e.name.replace("_", " "))}: {html.escape(said)}</p>'
        )
    return groups, shown


def tabulated(p: BaseParameters, data: xr.Dataset) -> str:
    """A table as a JavaScript object; its sliders are the dataset's dimensions."""
    fields = {str(d): sliders.slider(p, str(d), data[d].values.tolist()) for d in data.dims}
    groups: dict[str, list[str]] = {}
    for name, variable in data.data_vars.items():
        groups.setdefault(variable.attrs["long_name"], []).append(str(name))

    def short(value: Any) -> float:
        return float(f"{value:.{DIGITS}g}")

    about = {
        "table": {
            str(n): [short(v) for v in x.transpose(*data.dims).values.ravel()]
            for n, x in data.data_vars.items()
        },
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
        "words": {str(n): display.word(str(n)) for n in (*fields, *data.data_vars)},
    }
    return json.dumps(about)
