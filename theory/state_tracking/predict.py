"""Theory of single students: one curve per seed, from the seed's own initial values."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from theory import prediction, scope, sweep
from theory.parameters import ParameterError
from theory.state_tracking.numbers.per_seed import (
    Cavity,
    Dressed,
    FixedDisorder,
    Realisation,
    Start,
    solve,
)
from theory.state_tracking.numbers.per_seed.cavity import Logits
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.scope import SCOPES

NEEDED = ("alpha", "R", "S", "zeta", "W_Q_start", "W_K_start", "M_variance_correct")
ACCURACIES = ["accuracy", "rollout_accuracy"]


class WithoutAccuracies(Cavity):
    """Column theory without accuracies, which take most of the time of an evaluation."""

    def _accuracy(self, found: Logits) -> np.ndarray:
        return np.full(found.own.shape, np.nan)


LEVELS: dict[str, Any] = {"cavity": Cavity, "dressed": Dressed, "fixed_disorder": FixedDisorder}
DRAW = 0  # seed of drawn initial values


@scope.guard({name: SCOPES[name] for name in LEVELS})
@sweep.over_fields
def predict(
    p: Parameters,
    runs: xr.Dataset | None = None,
    *,
    seeds: int | None = None,
    alpha: float | None = None,
    level: str = "cavity",
    accuracies: bool = True,
    given: Realisation | None = None,
) -> xr.Dataset:
    """Predict a training run seed by seed, without fitted parameters.

    Parameters
    ----------
    p : Parameters
        Parameters of the training run.
    runs : Dataset, optional
        Students over ``(seed, alpha)``, measured at time 0. Every seed is predicted from its own
        initial values, at its evaluation times.
    seeds : int, optional
        In place of runs: number of initial values to draw from the distribution of the initial
        weights.
    alpha : float, optional
        Length of the curves without runs; ``p.epochs`` by default.
    level : {'columns', 'dressed', 'fixed_disorder'}
        ``columns``: cavity equations for entries of M, with the size of the training set.
        ``dressed``: one variance of M and Gaussian logits; faster, and less accurate once logits
        are learned. ``fixed_disorder``: every entry of M at fixed disorder; slower, accurate to a few
        parts in a thousand.
    accuracies : bool
        Whether to compute accuracies, too. They take 60 ms of the 65 ms of an evaluation per seed;
        a step takes 0.2 ms per seed at the demo's sizes.
    given : Realisation, optional
        For the level ``fixed_disorder``: teachers, initial M and training sets. By default those of the
        runs, reconstructed from their seeds; without runs they are drawn.

    Returns
    -------
    Dataset
        ``A``, ``R``, ``S``, ``loss``, logits and accuracies, named as for students: over ``(seed,
        alpha)`` with the seeds of the runs, or over ``(draw, alpha)`` for drawn initial values,
        with mean and standard deviation ``.mean("draw")`` and ``.std("draw")``. Time in alpha =
        epochs / (d_g N).

    Raises
    ------
    ParameterError
        Unless either runs or seeds are given; if runs lack initial values or were trained with
        other parameters; if a realisation belongs to other students; or if the theory does not
        describe the training.
    """
    if level not in LEVELS:
        raise ParameterError(f"level = {level!r}: must be one of {', '.join(LEVELS)}")
    if given is not None and (level != "fixed_disorder" or runs is None):
        raise ParameterError("given: goes with runs and level = 'fixed_disorder'")
    if (runs is None) == (seeds is None):
        raise ParameterError("predict: needs the runs to follow, or seeds = a number of starts")
    if runs is not None:
        curves = _followed(p, runs, level, accuracies, given)
    else:
        if not isinstance(seeds, int | np.integer) or isinstance(seeds, bool) or seeds < 1:
            raise ParameterError(f"seeds = {seeds}: must be how many starts to draw, at least 1")
        p = p.run_to(alpha)
        rng = np.random.default_rng(DRAW)
        start = Start.drawn(p, int(seeds), rng)
        known = (
            Realisation.drawn(p, start, np.random.default_rng(DRAW))
            if level == "fixed_disorder"
            else None
        )
        epochs = prediction.evaluations(p.epochs, p.eval_every)
        curves = solve(_system(p, start, level, accuracies, known), epochs).rename(seed="draw")
    whose = "drawn starts" if runs is None else "each seed's own start"
    if level == "fixed_disorder":
        whose = "drawn realisations" if runs is None else "each seed's own realisation"
        whose = "the given realisations" if given is not None else whose
    return curves.drop_vars([] if accuracies else ACCURACIES).assign_attrs(
        kind="theory",
        reference=f"beyond forner2026: {level}, from {whose}",
        level=level,
        status="closure",
        parameters=p.as_json(),
    )


def _system(
    p: Parameters, start: Start, level: str, accuracies: bool, given: Realisation | None
) -> Any:
    """System of equations of a level with its initial values."""
    if given is not None:
        return FixedDisorder(p, start, given)
    kind = LEVELS[level]
    return (WithoutAccuracies if kind is Cavity and not accuracies else kind)(p, start)


def _followed(
    p: Parameters, runs: xr.Dataset, level: str, accuracies: bool, given: Realisation | None
) -> xr.Dataset:
    """Predict runs from their initial values, at their evaluation times."""
    free = () if level == "fixed_disorder" else ("data_draw",)
    prediction.check_runs(p, runs, NEEDED, free=free)
    students = runs if "seed" in runs.dims else runs.expand_dims("seed")
    times = students.alpha.values
    if float(times[0]) != 0 or not (np.diff(times) > 0).all():
        raise ParameterError(f"runs: alpha must rise from 0, begins {times[:3].tolist()}")
    if level == "fixed_disorder" and given is None:
        given = Realisation.of(p, students)
    epochs = np.rint(times * p.d_g * p.N).astype(int)
    curves = solve(_system(p, Start.measured(students), level, accuracies, given), epochs)
    # Use the students' stored times, whose last bits may differ from epochs / (d_g N).
    curves = curves.assign_coords(alpha=times, epoch=("alpha", epochs))
    if "seed" in students.coords:
        curves = curves.assign_coords(seed=students.seed)
    return curves if "seed" in runs.dims else curves.isel(seed=0)
