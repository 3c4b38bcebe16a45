"""Input validation shared by all predict functions and comparisons. It checks that
parameters, runs and curve belong to the same students and that the runs contain the
required variables, and gives the evaluation times.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import xarray as xr

from theory.call import scope
from theory.call.parameters import BaseParameters, Stepped
from theory.call.refusal import ParameterError
from theory.dynamics.flow import Flow
from theory.dynamics.optimisers import Optimiser

MOST_STEPS = 10**7  # followed one by one, in an hour or so
MEASURED = ("epochs", "steps", "eval_every", "n_test")  # run length and measurement


def check_runs(
    p: BaseParameters, runs: xr.Dataset, needed: Iterable[str], free: Iterable[str] = ()
) -> None:
    """Raise an error if runs were not trained with the parameters ``p``, or lack a
    variable.

    Parameters
    ----------
    p : Parameters
        Parameters of the predicted curve.
    runs : Dataset
        Students, or any dataset with the required variables.
    needed : iterable of str
        Required variables and coordinates.
    free : iterable of str
        Fields that do not affect the curve, in addition to `MEASURED`.

    Raises
    ------
    ParameterError
        Naming a missing variable, a field of ``p`` in which the runs differ, or a
        weight that did not move.
    """
    if not isinstance(runs, xr.Dataset):
        raise ParameterError(f"runs: must be a Dataset, got {type(runs).__name__}")
    missing = [name for name in needed if name not in runs.variables]
    if missing:
        alone = "parameters" not in runs.attrs  # curves from elsewhere
        hint = (
            "; for curves alone take verify.trajectories.compare(flow().solve(p,"
            " until=6), runs)"
        )
        raise ParameterError(
            f"runs: variable {', '.join(missing)} is missing{hint if alone else ''}"
        )
    if held := scope.configuration(runs).get("held"):
        raise ParameterError(
            f"runs: {', '.join(held)} is held; solve flow().held(...) instead"
        )
    trained = parameters_of(runs, "runs", p)
    for name, value in p.as_dict(training_only=True).items():
        if name in (*MEASURED, *free) or name not in trained:
            continue
        if trained[name] != value:
            raise ParameterError(
                f"{name} = {value}: the runs were trained with {trained[name]}"
            )
    _check_clock(p, runs)


def _check_clock(p: BaseParameters, runs: xr.Dataset) -> None:
    """Raise an error if the times of runs are not those of their steps."""
    if not isinstance(p, Stepped):
        return
    time = p.TIME
    counter = p.LENGTH.removesuffix("s")
    if swept := [str(d) for d in runs.dims if d in p.as_dict() and d != time]:
        raise ParameterError(
            f"runs: of several {', '.join(swept)}: pick one: runs.sel({swept[0]}=...)"
        )
    if not {time, counter} <= {str(name) for name in runs.coords}:
        return
    times = runs[time].values
    steps = runs[counter].values
    wrong = ~np.isclose(times, steps * p.time_per_step, rtol=1e-6, atol=0)
    if wrong.any():
        raise ParameterError(
            f"runs: {time} = {times[wrong][0]:g} at {counter} {steps[wrong][0]:g}: must"
            f" be {steps[wrong][0] * p.time_per_step:g} at these parameters"
        )


def parameters_of(data: xr.Dataset, whose: str, kind: Any = None) -> dict[str, Any]:
    """Parameters in the attributes of a dataset, with the defaults of fields of their
    kind that were added later; empty if there are none.
    """
    try:
        p = json.loads(data.attrs.get("parameters", "{}"))
    except (TypeError, ValueError, RecursionError):
        p = None
    if not isinstance(p, dict):
        raise ParameterError(f"{whose}: attribute parameters is not a JSON object")
    return kind.filled(p) if p and kind is not None else p


def evaluations(last: int, every: int, name: str = "steps") -> np.ndarray:
    """Steps at which a run is measured: multiples of ``every``, and the last step.

    Raises
    ------
    ParameterError
        If a descent of that many steps cannot be followed.
    """
    if last > MOST_STEPS:
        raise ParameterError(
            f"{name} = {last:g}: a predicted curve has at most {MOST_STEPS:g}"
        )
    return np.unique(np.append(np.arange(0, last, every), last))


def finite(p: Any, follow: Callable[[], xr.Dataset]) -> xr.Dataset:
    """What ``follow()`` gives: curves of a descent with the learning rate ``p.eta``.

    Raises
    ------
    ParameterError
        If they are finite at first and do not stay so: the descent diverges.
    """
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            curves = follow()
    except OverflowError:
        raise diverged(p) from None
    except ParameterError as error:
        # of what depends on the curves: a variance below zero
        raise (diverged(p) if "= nan" in str(error) else error) from None
    real = [np.isfinite(curve.values) for curve in curves.data_vars.values()]
    if any(where.any() and not where.all() for where in real):
        raise diverged(p)
    return curves


def diverged(p: Any) -> ParameterError:
    """Of a descent with too large steps."""
    return ParameterError(f"eta = {p.eta:g}: the descent diverges; take it smaller")


def optimiser(runs: xr.Dataset | None) -> Optimiser | None:
    """The optimiser of students; none if it is plain descent."""
    stored = scope.configuration(runs).get("optimizer")
    return None if stored is None else Optimiser(**stored)


def linear(how: Optimiser | None) -> bool:
    """Whether steps are linear in the gradients, so that the noise of batches averages
    out.
    """
    return how is None or (how.optimizer == "sgd" and how.clip is None)


LINEAR = scope.Limit(
    "batch_size",
    "trained by sgd without clipping (other optimisers divide by the size of a batch's"
    " gradient)",
    lambda p, runs: p.batch_size == 0 or linear(optimiser(runs)),
    lambda p, runs: (
        f"{p.batch_size} under {getattr(optimiser(runs), 'optimizer', 'sgd')}"
    ),
)


def descent(
    flow: Flow, p: Any, runs: xr.Dataset | None, until: float | None
) -> xr.Dataset:
    """Steps of the students' optimiser on a flow, without batch noise: one curve for
    all seeds.

    Parameters
    ----------
    flow : Flow
        In the time ``t = eta * steps``.
    p, runs, until
        As for `clock`.

    Returns
    -------
    Dataset
        Variables of the flow over ``t``, with the steps as a second coordinate.

    Raises
    ------
    ParameterError
        As `clock` and `finite`.
    """
    steps, times = clock(p, runs, until)
    how = optimiser(runs)
    last = int(np.max(steps[-1]))
    trained = {} if runs is None or how is None else parameters_of(runs, "runs", p)
    length = trained.get("steps", last)  # a schedule knows the length of the run
    follow = lambda: flow.descend(p, p.eta, length, optimizer=how).isel(t=steps)
    return finite(p, follow).assign_coords(t=times, step=("t", steps))


def clock(
    p: Any, runs: xr.Dataset | None, t: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Steps and times at which to evaluate a curve that is the same for all seeds.

    Parameters
    ----------
    p : Parameters
        `Stepped`, with ``eval_every``; the curve does not depend on the batch size.
    runs : Dataset or None
        Students over ``(seed, t)``; the curve is evaluated at their times.
    t : float or None
        Length of the curve if there are no runs; ``p.steps`` if None.

    Raises
    ------
    ParameterError
        As `check_runs` and `evaluations`.
    """
    if runs is not None:
        free = ("batch_size",) if linear(optimiser(runs)) else ()
        check_runs(p, runs, ("t", "step"), free)
        return runs.step.values, runs.t.values
    p = p.run_to(t)
    steps = evaluations(p.steps, p.eval_every)
    return steps, p.time_per_step * steps
