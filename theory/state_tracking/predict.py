"""The theory of single students: one curve per seed, from where that seed starts."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import xarray as xr

from theory import prediction, sweep
from theory.parameters import ParameterError
from theory.state_tracking.numbers.per_seed import Columns, Dressed, Given, Quenched, Start, solve
from theory.state_tracking.numbers.per_seed.columns import Logits
from theory.state_tracking.parameters import Parameters

NEEDED = ("alpha", "R", "S", "zeta", "W_Q_start", "W_K_start", "M_variance_correct")
ACCURACIES = ["accuracy", "rollout_accuracy"]


class WithoutAccuracies(Columns):
    """Columns that leave out what takes most of the time of an evaluation."""

    def _accuracy(self, found: Logits) -> np.ndarray:
        return np.full(found.own.shape, np.nan)


LEVELS: dict[str, Any] = {"columns": Columns, "dressed": Dressed, "quenched": Quenched}
DRAW = 0  # seed of drawn starts
PLAIN = {"optimizer": "sgd", "weight_decay": 0.0, "fix_embedding": True, "batch_size": None}


@sweep.over_fields
def predict(
    p: Parameters,
    runs: xr.Dataset | None = None,
    *,
    seeds: int | None = None,
    alpha: float | None = None,
    level: str = "columns",
    accuracies: bool = True,
    given: Given | None = None,
) -> xr.Dataset:
    """Our best theory of a training run, seed by seed; nothing is fitted.

    Parameters
    ----------
    p : Parameters
        What was trained, or is to be.
    runs : Dataset, optional
        Students over ``(seed, alpha)``, evaluated at time 0: every seed is followed from its own
        start, at its evaluation times.
    seeds : int, optional
        In place of runs: that many starts from the law of the initial weights.
    alpha : float, optional
        Length of the curves of drawn starts; ``p.epochs`` by default.
    level : {'columns', 'dressed', 'quenched'}
        Entries of M by initial value and the size of the training set; one variance of M with
        Gaussian logits, faster and less accurate once logits are learned; or every entry of M,
        slower, and to a few parts in a thousand where training sets are given.
    accuracies : bool
        Whether to compute accuracies too: 60 ms of the 65 ms of an evaluation, per seed. A step
        takes 0.2 ms per seed at the demo's sizes.
    given : Given, optional
        For the level ``quenched``: the runs' teachers, initial M and training sets, as
        `simulate.state_tracking.given` counts them. Drawn, if left out.

    Returns
    -------
    Dataset
        ``A``, ``R``, ``S``, ``loss``, logits and accuracies under the students' names, over
        ``(seed, alpha)`` with the seeds of the runs; over ``(draw, alpha)`` for drawn starts, whose
        mean and band are ``.mean("draw")`` and ``.std("draw")``. Time in alpha = epochs / (d_g N).

    Raises
    ------
    ParameterError
        Unless either runs or seeds are given; if runs lack what theory starts from, or were trained
        with other parameters; for training that the theory does not describe.
    """
    if level not in LEVELS:
        raise ParameterError(f"level = {level!r}: must be one of {', '.join(LEVELS)}")
    if given is not None and (level != "quenched" or runs is None):
        raise ParameterError("given: goes with runs and level = 'quenched'")
    system = LEVELS[level]
    if not accuracies and system is Columns:
        system = WithoutAccuracies
    if system is Quenched:
        system = functools.partial(_quenched, given=given)
    for name, plain in PLAIN.items():
        if getattr(p, name) != plain and (name, p.batch_size) != ("batch_size", p.n_train):
            raise ParameterError(
                f"{name} = {getattr(p, name)}: must be {plain} here; the theory is of full-batch "
                "gradient descent on the weights themselves"
            )
    if (runs is None) == (seeds is None):
        raise ParameterError("predict: needs the runs to follow, or seeds = a number of starts")
    if runs is not None:
        found = _followed(p, runs, system)
        return _labelled(p, found, level, accuracies)
    if not isinstance(seeds, int | np.integer) or seeds < 1:
        raise ParameterError(f"seeds = {seeds}: must be how many starts to draw, at least 1")
    p = p.run_to(alpha)
    epochs = prediction.evaluations(p.epochs, p.eval_every)
    start = Start.drawn(p, int(seeds), np.random.default_rng(DRAW))
    return _labelled(p, solve(system(p, start), epochs).rename(seed="draw"), level, accuracies)


def _quenched(p: Parameters, start: Start, given: Given | None) -> Quenched:
    """With what is given, or drawn."""
    if given is None:
        given = Given.drawn(p, start, np.random.default_rng(DRAW))
    wanted = (len(start.R), p.N, p.L, p.d_g)
    if given.share.shape != wanted:
        raise ParameterError(
            f"given: of (students, N, L, d_g) = {given.share.shape}, must be of {wanted} as the runs"
        )
    return Quenched(p, start, given)


def _followed(p: Parameters, runs: xr.Dataset, system: Any) -> xr.Dataset:
    """From the start of every run, at its evaluations."""
    prediction.held(p, runs, NEEDED, free=("data_draw",))
    students = runs if "seed" in runs.dims else runs.expand_dims("seed")
    if float(students.alpha[0]) != 0:
        raise ParameterError(f"runs: alpha begins at {float(students.alpha[0]):g}, must be at 0")
    epochs = np.rint(students.alpha.values * p.d_g * p.N).astype(int)
    curves = solve(system(p, Start.measured(students)), epochs)
    # The students' own times, whose last bits may differ from epochs / (d_g N).
    curves = curves.assign_coords(alpha=students.alpha.values, epoch=("alpha", epochs))
    if "seed" in students.coords:
        curves = curves.assign_coords(seed=students.seed)
    return curves if "seed" in runs.dims else curves.isel(seed=0)


def _labelled(p: Parameters, curves: xr.Dataset, level: str, accuracies: bool) -> xr.Dataset:
    """With provenance."""
    return curves.drop_vars([] if accuracies else ACCURACIES).assign_attrs(
        kind="theory",
        reference=f"beyond forner2026: {level}, from each seed's own start",
        status="closure",
        parameters=p.as_json(),
    )
