"""An explorer of a model: one HTML page that integrates its flows, evaluates its closed
forms and shows tables of the rest.
"""

import contextlib
import dataclasses
import html
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import sympy as sp
import xarray as xr

from theory.call import sweep
from theory.call.parameters import BaseParameters
from theory.call.refusal import ParameterError, error_summary
from theory.call.scope import Limit
from theory.dynamics import prediction
from theory.dynamics.flow import Flow
from theory.explorer import curves, sliders
from theory.explorer.curves import function, written
from theory.models.model import Model
from theory.runtime import hdf5, sealed
from theory.statement.words.tree import Random

HERE = Path(__file__).parent
POINTS = 200  # of a student's curve
_HELD: dict[tuple[Any, ...], bool] = {}


def script(flow: Flow, needs: list[sp.Symbol]) -> tuple[str, list[str], list[str]]:
    """JavaScript of a flow, its observables that JavaScript can evaluate, and those it
    cannot.
    """
    if flow.driven:
        raise ParameterError(
            f"{flow.name}: depends on {flow.time}, which a page has not; use solve"
        )
    y, carried = list(flow.state), {}
    for name, expr in flow.observables.items():
        spelled = flow._spell(expr)
        with contextlib.suppress(ParameterError):
            if spelled.free_symbols <= {*y, *needs} and written(spelled):
                carried[name] = spelled
    refused = [name for name in flow.observables if name not in carried]
    both = {"y": y, "p": needs}
    start = [flow.initial[x] for x in y]
    seen = "(y, p) => []"
    if carried:
        seen = function(both, list(carried.values()))
    parts = {
        "rates": function(both, list(flow.expanded.values())),
        "slopes": function(both, flow.jacobian().tolist()),
        "start": function({"p": needs}, start),
        "seen": seen,
    }
    code = ", ".join(f"{name}: {value}" for name, value in parts.items())
    return code, list(carried), refused


def students(
    path: Path | None, flows: list[Flow]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Curves of the students in a file, and the parameters that it names.

    Raises
    ------
    ParameterError
        If the file cannot be read, or holds none of the flows' quantities over seed and
        time.
    """
    if path is None:
        return {}, {}
    if not path.is_file():
        raise ParameterError(f"--runs {path}: must be a file")
    try:
        hdf5.inspect(path.read_bytes())
        with xr.open_dataset(path) as file:
            if file.attrs.get("kind") == sealed.KIND:
                sealed.unseal(path)
            runs = file.load()
    except Exception as error:  # netCDF4 raises various errors for what it cannot read
        said = f"is no netCDF file of students ({error_summary(error)})"
        raise ParameterError(f"--runs {path}: {said}") from None
    time = flows[0].time.name
    known: set[str] = set()
    for flow in flows:
        known.update((x.name for x in flow.state), flow.observables)

    def is_curve(name: str) -> bool:
        if set(runs[name].dims) != {"seed", time}:
            return False
        return all(runs[x].dtype.kind in "iuf" for x in (name, time))

    curves = [*filter(is_curve, sorted(known & set(map(str, runs.data_vars))))]
    if not curves:
        raise ParameterError(
            f"--runs {path}: holds no numbers of {', '.join(sorted(known))} over seed"
            f" and {time}"
        )
    trained = prediction.parameters_of(runs, f"--runs {path}")
    thin = runs.isel({time: slice(None, None, max(1, runs.sizes[time] // POINTS))})

    def rounded(name: str) -> list[list[float]]:
        curves_by_seed = thin[name].transpose("seed", time).values
        return [[float(f"{v:.5g}") for v in curve] for curve in curves_by_seed]

    values = {name: rounded(name) for name in curves}
    return {"times": thin[time].values.tolist(), "values": values}, trained


def opening(model: Model) -> BaseParameters:
    """Default parameters, or those of the first preset that a flow of the model
    describes.
    """
    theory = model.wing("theory")
    kind = theory.Parameters
    for make, flow in itertools.product(
        (kind, *kind.presets().values()), theory.flows().values()
    ):
        with contextlib.suppress(ParameterError):
            flow._ask(p := make())
            return p
    return kind()


def offers(model: Model) -> bool:
    """Whether a page of the model would have something to draw, without drawing it."""
    return bool(
        model.wing("theory").flows()
        or curves.charts(model)
        or curves.closed(model, opening(model))
    )


def page(
    model: Model,
    p: BaseParameters,
    runs: Path | None = None,
    fluctuations: bool = False,
) -> str:
    """Self-contained HTML page of a model: sliders, curves of its flows, which the page
    integrates, of its closed forms, and from tables, formulas.

    Parameters
    ----------
    model : Model
        Which model.
    p : Parameters
        Where the sliders start.
    runs : path, optional
        netCDF file of students over ``(seed, time)``, drawn behind the curves; the
        sliders start at its parameters.
    fluctuations : bool
        Draw mean and standard deviation of students on batches, where the sliders
        start.

    Returns
    -------
    str
        HTML without any address: it needs no network.

    Raises
    ------
    ParameterError
        If the model has neither a flow nor other curves, if its flows do not describe
        these parameters, or if the file is of no use.
    """
    weights = getattr(getattr(model, "statement", None), "weights", ())
    if any(isinstance(w.start, Random) for w in weights):
        raise ParameterError(
            f"{model.name}: weights start at random, and a page has one start; python"
            " -m theory.onset FILE --plot draws several"
        )
    flows: dict[str, Flow] = model.wing("theory").flows()
    if runs and not flows:
        raise ParameterError(
            f"--runs {runs}: {model.name} has no flow, whose students are drawn"
        )
    drawn, trained = students(runs, list(flows.values()))
    if trained:
        fields = {f.name for f in dataclasses.fields(p)}
        p = p.replace(**{k: v for k, v in trained.items() if k in fields})
    code, refused = [], []
    for name, flow in flows.items():
        try:
            flow._ask(p)
            code.append(
                f"{json.dumps(name)}: {described(model, flow, p, fluctuations)}"
            )
        except ParameterError as error:
            refused.append(f"{name}: {error}")
    if refused and not code and not curves.charts(model):
        raise ParameterError(f"{model.name}: no flow to explore; {'; '.join(refused)}")
    code += curves.entries(model, p)
    if not code:
        raise ParameterError(
            f"{model.name}: has no flow and no curve to explore; see python -m theory"
            f" {model.name}"
        )
    setting = ", ".join(f"{k} = {v}" for k, v in p.stored().items() if v is not None)
    data = f"{{flows: {{{', '.join(code)}}}, runs: {json.dumps(drawn)}}}"
    # What would end the script, or begin another; the page escapes names where it
    # shows them.
    script_tag = re.compile("<(?=/?script|!--)", re.IGNORECASE)
    words = {
        "TITLE": html.escape(model.title),
        "CAPTION": html.escape(f"Start: {setting}"),
        "CODE": (HERE / "flow.js").read_text(encoding="utf-8"),
        "DATA": script_tag.sub(r"\\u003c", data),
    }
    text = (HERE / "page.html").read_text(encoding="utf-8")
    placeholder = re.compile(rf"\b({'|'.join(words)})\b")
    return placeholder.sub(lambda match: words[match[0]], text)  # in one pass


def length(model: Model, flow: Flow, p: BaseParameters) -> float | None:
    """Run length of the figure of ``theory.onset``, if there is one."""
    try:
        curves = model.wing("theory", "onset").onset(p).curves().values()
    except ParameterError:
        return None
    time, state = flow.time.name, {x.name for x in flow.state}
    ends = [
        float(c[time].max())
        for c in curves
        if time in c.coords and state & set(c.data_vars)
    ]
    return max(ends, default=None)


def held(limit: Limit, q: BaseParameters) -> bool:
    """Whether a limit of a flow's scope holds, which is asked once for the fields that
    it reads: many pairs of sliders share them, and flows of a model their limits.
    """
    read = (limit, *(getattr(q, name) for name in (limit.field, *limit.reads)))
    if read not in _HELD:
        _HELD[read] = bool(limit.holds(q, None))
    return _HELD[read]


def errors(flow: Flow, p: Any, end: float) -> dict[str, Any]:
    """Mean and standard deviation of students on batches over time, for a page."""
    solved = flow.solve(p, until=end, at=np.linspace(0, end, POINTS), fluctuations=True)
    names = [*(x.name for x in flow.state), *flow.observables]
    means = {n: (solved[n] + solved[f"{n}_bias"]).values.tolist() for n in names}
    spreads = {n: solved[f"{n}_sd"].values.tolist() for n in names}
    on = (
        f"dotted, band: mean and deviation on batches of {p.batch_size} at eta ="
        f" {p.eta:g}"
    )
    times = solved[flow.time.name].values.tolist()
    return {"times": times, "means": means, "spreads": spreads, "note": on}


def described(
    model: Model, flow: Flow, p: BaseParameters, fluctuations: bool = False
) -> str:
    """One flow as a JavaScript object: its functions, its sliders, and the quantities
    derived from them.
    """
    needs = flow._compiled[0]
    names = [s.name for s in needs]
    numbers = sweep.numbers(p)
    if missing := [n for n in names if n not in numbers]:
        raise ParameterError(f"no value for {', '.join(missing)}")

    limits = flow.scope.limits if flow.scope else ()

    def asked(q: BaseParameters) -> bool:
        return all(held(limit, q) for limit in limits)

    def fits(q: BaseParameters) -> bool:
        return asked(q) and all(n in sweep.numbers(q) for n in names)

    parts, seen, refused = script(flow, needs)
    source = [flow.reference, flow.status, *flow.assumptions]
    if refused:
        source.append(f"not carried here: {', '.join(refused)}")
    state = [x.name for x in flow.state]
    about = {
        "state": state,
        "observables": seen,
        "time": flow.time.name,
        **sliders.described(p, names, fits, asked),
        "formulas": curves.of_flow(flow),
        "source": "; ".join(source),
        "end": length(model, flow, p),
    }
    if fluctuations:
        end = about["end"] or p.eta * p.steps  # type: ignore[attr-defined]
        about["errors"] = errors(flow, p, end)
    shown = (*state, *seen, flow.time.name, *names, *about["fields"])
    about["words"] = {n: curves.word(n) for n in shown}
    return f"{{{parts}, {json.dumps(about)[1:-1]}}}"
