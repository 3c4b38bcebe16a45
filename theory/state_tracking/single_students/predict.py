"""Theory of single students: one curve per seed, from the seed's own initial values."""

import json
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from theory import ParameterError, until
from theory.call import grid, scope, sweep
from theory.call.refusal import Allowed, number
from theory.dynamics import prediction
from theory.state_tracking.model.parameters import Parameters
from theory.state_tracking.model.scope import FLOW
from theory.state_tracking.onset import ONE_TIME
from theory.state_tracking.quadrature import emergence_time
from theory.state_tracking.single_students.fixed_disorder import INPUTS, SE
from theory.state_tracking.single_students.integrate import System, half_times, solve
from theory.state_tracking.single_students.levels import BEST, LEVELS, Level
from theory.state_tracking.single_students.realisation import (
    MEASURED,
    SINGLE,
    Realisation,
    Start,
)

ACCURACIES = ["accuracy", "rollout_accuracy"]
ERRORS = [name + SE for name in ACCURACIES]
DRAW = 0  # seed of drawn initial values
NOTED = 0.05  # deviation, of what is at most one, from which on a curve says so
JUDGED = ("A", "R", "S", "loss", *ACCURACIES)  # what a note is about


@until("alpha")
@scope.guard({name: level.scope for name, level in LEVELS.items()})
@sweep.over_fields
def predict(
    p: Parameters,
    runs: xr.Dataset | None = None,
    *,
    seeds: int | None = None,
    until: float | None = None,
    level: str = BEST,
    accuracies: bool = True,
    given: Realisation | None = None,
) -> xr.Dataset:
    """Predict a training run seed by seed, without fitted parameters.

    Parameters
    ----------
    p : Parameters
        Parameters of the training run.
    runs : Dataset, optional
        Students over ``(seed, alpha)``, measured at time 0. Every seed is predicted
        from its own initial values, at its evaluation times.
    seeds : int, optional
        In place of runs: number of initial values to draw from the distribution of the
        initial weights.
    until : float, optional
        Length of the curves without runs; ``p.epochs`` by default.
    level : str
        A name in `theory.state_tracking.single_students.levels.LEVELS`. The default
        follows every entry of M, given teachers, initial weights and training set,
        under any optimiser, schedule and batch size. ``cavity`` knows the size of the
        training set only; it is off where training sequences or actions are few.
        ``own_start`` and ``flow`` solve the paper's Eq. (15), from each seed's own
        start or one for all.
    accuracies : bool
        Whether to compute accuracies, too, at every evaluation. At the demo's sizes
        they take most of the time of the level ``cavity``.
    given : Realisation, optional
        For the level ``fixed_disorder``: teachers, initial M and training sets. By
        default those of the runs, reconstructed from their seeds; without runs they are
        drawn.

    Returns
    -------
    Dataset
        ``A``, ``R``, ``S``, ``loss``, logits and accuracies, named as for students:
        over ``(seed, alpha)`` with the seeds of the runs, or over ``(draw, alpha)`` for
        drawn initial values, with mean and standard deviation ``.mean("draw")`` and
        ``.std("draw")``. Time in alpha = epochs / (d_g N). The attribute ``accuracies``
        says how accuracies were computed; those on sampled words have their standard
        errors beside them, ``accuracy_se`` and ``rollout_accuracy_se``. Of runs that
        were followed each variable has an attribute ``off_by``, its largest deviation
        from the students; where some are large, a warning and ``note`` say so.

    Raises
    ------
    ParameterError
        Unless either runs or seeds are given; if runs lack initial values or were
        trained with other parameters; if a realisation belongs to other students; or if
        the theory does not describe the training.
    """
    if level not in LEVELS:
        raise ParameterError(f"level = {level!r}: must be one of {', '.join(LEVELS)}")
    row = LEVELS[level]
    if not row.flow:
        _own_constants(p, level)
    if given is not None and (row.known is None or runs is None):
        raise ParameterError("given: goes with runs and level = 'fixed_disorder'")
    if (runs is None) == (seeds is None):
        raise ParameterError(
            "predict: needs the runs to follow, or seeds = a number of starts"
        )
    if runs is not None:
        curves = prediction.finite(
            p, lambda: _followed(p, runs, row, accuracies, given)
        )
    else:
        if row.system is None:
            raise ParameterError(f"level = {level!r}: follows runs, not drawn starts")
        p = p.run_to(until)
        epochs = prediction.evaluations(p.epochs, p.eval_every, "epochs")
        _, system = _drawn(p, row, seeds, DRAW, accuracies)
        curves = prediction.finite(p, lambda: solve(system, epochs)).rename(seed="draw")
    whose = "drawn starts" if runs is None else "each seed's own start"
    if row.known:
        whose = "drawn realisations" if runs is None else "each seed's own realisation"
        whose = "the given realisations" if given is not None else whose
    if not accuracies:
        curves = curves.drop_vars([*ACCURACIES, *ERRORS], errors="ignore")
    curves = curves.assign_attrs(_attributes(p, level, whose))
    if accuracies:
        curves.attrs["accuracies"] = row.accuracies(p)
    return curves if runs is None else _compared(p, curves, runs, level)


TOGETHER = 20  # drawn starts that share their strides


@until("alpha")
@scope.guard({name: level.scope for name, level in LEVELS.items() if level.system})
@sweep.over_fields
def drawn_times(
    p: Parameters,
    seeds: int,
    *,
    seed: int = DRAW,
    until: float | None = None,
    level: str = BEST,
) -> xr.Dataset:
    """Times of A = 1/2 over initial weights that are drawn, from sizes alone.

    Parameters
    ----------
    p : Parameters
        Parameters of the training.
    seeds : int
        How many starts.
    seed : int
        Of the draws, which are none of the students'.
    until : float, optional
        Length of the runs in alpha; ``p.epochs`` by default.
    level : str
        A level of `predict` that follows drawn starts. The default draws teachers and
        training sets, too; ``cavity`` is several times faster, and some percent late
        where actions are few.

    Returns
    -------
    Dataset
        Over ``draw``: ``alpha_half`` in alpha, NaN where a run ends before, and the
        initial values ``A_0``, ``R_0``, ``S_0`` that it depends on.

    Raises
    ------
    ParameterError
        If there is no such level, or the theory does not describe these students.
    """
    rows = {name: row for name, row in LEVELS.items() if row.system}
    if level not in rows:
        raise ParameterError(f"level = {level!r}: must be one of {', '.join(rows)}")
    seed = number("seed", seed, Allowed(low=0), int)
    _own_constants(p, level)
    p = p.run_to(until)
    start, system = _drawn(p, rows[level], seeds, seed, False)
    A_0 = system.attention.parts(start.W_Q, start.W_K)[1].mean(1)
    size = 1 if rows[level].known else TOGETHER
    try:
        with np.errstate(over="raise", invalid="raise"):
            data = {"alpha_half": half_times(system, p.epochs, size=size)}
    except FloatingPointError:
        raise prediction.diverged(p) from None
    data |= {"A_0": A_0, "R_0": start.R, "S_0": start.S}
    over_draws = {name: ("draw", values) for name, values in data.items()}
    times = xr.Dataset(over_draws, {"draw": range(len(A_0))})
    times.alpha_half.attrs["units"] = "alpha = epochs / (d_g N)"
    return times.assign_attrs(_attributes(p, level, "drawn starts"))


def _own_constants(p: Parameters, level: str) -> None:
    """Refuse given constants where a level follows each student's weights."""
    flows = [repr(name) for name, row in LEVELS.items() if row.flow]
    for name, value in p.constants.items():
        raise ParameterError(
            f"{name} = {value:g}: is given, but level = {level!r} follows weights,"
            f" which have their own; take level = {' or '.join(flows)}"
        )


def _drawn(
    p: Parameters, row: Level, seeds: Any, seed: int, accuracies: bool
) -> tuple[Start, System]:
    """Starts, and the equations of a level from there."""
    start = Start.drawn(p, seeds, np.random.default_rng(seed))
    known = None
    if row.known:
        known = Realisation.drawn(p, start, np.random.default_rng(seed))
    return start, row.system(p, start, known, accuracies)


def _attributes(p: Parameters, level: str, whose: str) -> dict[str, str]:
    beyond = f"beyond forner2026: {level}, from {whose}"
    return {
        "kind": "theory",
        "reference": "forner2026, Eq. (15)" if LEVELS[level].flow else beyond,
        "level": level,
        "status": "closure",
        "parameters": p.as_json(),
    }


def labelled(
    name: str, values: Any, given: Mapping[str, Any], **attributes: str
) -> xr.Dataset:
    """One variable over the fields that were swept.

    Parameters
    ----------
    name : str
        Name of the variable.
    values : array_like or DataArray
        Result of array code for ``given``; a DataArray has its dimensions already.
    given : mapping of str to array_like
        Swept fields and overridden derived quantities, which broadcast.
    """
    if isinstance(values, xr.DataArray):
        return values.rename(name).assign_attrs(attributes).to_dataset()
    arrays = {field: np.asarray(v) for field, v in given.items()}
    dims, coordinates = grid.axes(arrays, np.shape(values), {f: f for f in arrays})
    return xr.Dataset({name: (dims, values, attributes)}, coordinates)


@scope.guard(FLOW)
def emergence_times(
    p: Any, level: float = 0.5, seeds: int | None = None, **fields: Any
) -> xr.Dataset:
    """Training time at which attention reaches a level, by the exact solution of the
    flow (15); or the times of single students, from initial weights that are drawn.

    Parameters
    ----------
    p : Parameters
        Model parameters.
    level : float
        Value of A, inside (0, 1).
    seeds : int, optional
        How many starts to draw: then ``alpha_half`` is over ``draw``, as of
        `theory.state_tracking.drawn_times`, whose ``seed`` and ``until`` may be given,
        too.
    **fields
        Arrays of fields, which broadcast and become dimensions of the result, and
        derived quantities to override: ``emergence_times(p, L=[3, 10, 22])``, ``...,
        c_omega=1.0``. A sweep of 10^4 points takes a fraction of a second.

    Returns
    -------
    Dataset
        ``alpha_half`` (``alpha_at_level`` for another level) in alpha: 0 if A starts at
        or above the level; NaN if A never reaches it; infinite if it overflows.

    Raises
    ------
    ParameterError
        As `theory.state_tracking.quadrature.emergence_time`.
    """
    level = number("level", level)
    if seeds is not None:
        if level != 0.5:
            raise ParameterError(f"level = {level:g}: must be 0.5 with seeds")
        return drawn_times(p, seeds, **fields)
    name = "alpha_half" if level == 0.5 else "alpha_at_level"
    words = {
        "long_name": f"time of A = {level:g}, flow (15), exact",
        "units": "alpha = epochs / (d_g N)",
    }
    if isinstance(p, Parameters) and not fields:
        words["note"] = ONE_TIME
    return labelled(name, emergence_time(p, level, **fields), fields, **words)


def _compared(
    p: Parameters, curves: xr.Dataset, runs: xr.Dataset, level: str
) -> xr.Dataset:
    """Curves that say of each variable how far it is at most from the students that
    were followed, with a warning where that is much; nothing where only their start is
    known.
    """
    # Three standard errors of the accuracy of two test sets.
    sampling = 1.5 * (1 / p.n_test + 1 / INPUTS) ** 0.5
    notes = []
    for name in curves.data_vars:
        if name not in runs or runs[name].sizes.get("alpha", 1) < 2:
            continue
        gaps = abs(curves[name] - runs[name])
        off = float(gaps.max())
        curves[name].attrs["off_by"] = off
        largest = float(abs(runs[name]).max())
        limit = NOTED * max(largest, 1.0) + sampling * (name in ACCURACIES)
        if name in JUDGED and off > limit:  # not for NaN
            worst = gaps.max("alpha")
            whose = ""
            if "seed" in worst.dims:
                whose = f" (seed {worst.seed.values[worst.values.argmax()]})"
            notes.append(f"{name} by up to {off:.2g}{whose}")
    if not notes:
        return curves
    better = "" if level == BEST else f"; level = {BEST!r} follows their training sets"
    note = f"level = {level!r}: off from these students: {', '.join(notes)}{better}"
    warnings.warn(note, scope.FarOff, stacklevel=6)
    return curves.assign_attrs(note=note)


def _followed(
    p: Parameters,
    runs: xr.Dataset,
    level: Level,
    accuracies: bool,
    given: Realisation | None,
) -> xr.Dataset:
    """Predict runs from their initial values, at their evaluation times."""
    free = () if level.known else ("data_draw",)
    prediction.check_runs(p, runs, ("alpha", *level.needs), free=free)
    length = json.loads(runs.attrs.get("parameters", "{}")).get("epochs", p.epochs)
    if p.schedule != "constant" and length != p.epochs:
        raise ParameterError(
            f"epochs = {p.epochs}: the runs were trained with {length}, which their"
            " schedule spans"
        )
    students = runs if "seed" in runs.dims else runs.expand_dims("seed")
    students = students.transpose("seed", ...)
    _same_start(p, students)
    times = students.alpha.values
    if float(times[0]) != 0 or not (np.diff(times) > 0).all():
        raise ParameterError(
            f"runs: alpha must rise from 0, begins {times[:3].tolist()}"
        )
    curves = level.curves(p, students, given, accuracies)
    # Use the students' stored times, whose last bits may differ from epochs / (d_g N).
    epochs = np.rint(times * p.d_g * p.N).astype(int)
    curves = curves.assign_coords(alpha=times, epoch=("alpha", epochs))
    if "seed" in students.coords:
        curves = curves.assign_coords(seed=students.seed)
    return curves if "seed" in runs.dims else curves.isel(seed=0)


def _same_start(p: Parameters, runs: xr.Dataset) -> None:
    """Raise an error if runs that our students left begin with other weights than their
    seeds draw. Edited weights would be followed as if they had been trained.
    """
    configuration = scope.configuration(runs)
    chosen = {"start", "given_permutations", "given_words"} & configuration.keys()
    if not configuration or chosen:
        return
    seeds = np.atleast_1d(runs.seed.values).tolist() if "seed" in runs.coords else []
    drawn = Start.of_seeds(p, seeds) if seeds else None
    for field, name in MEASURED.items():
        if drawn is None or name not in runs or (field == "S" and p.d_g == 1):
            continue
        values = runs[name].isel(alpha=0) if "alpha" in runs[name].dims else runs[name]
        want = getattr(drawn, field)
        gap = np.abs(values.values.reshape(want.shape) - want)
        if (gap > SINGLE).any():  # what is not finite is refused elsewhere
            raise ParameterError(
                f"runs: {name} at time 0 is not what seeds {seeds} draw (off by"
                f" {np.nanmax(gap):.2g})"
            )
