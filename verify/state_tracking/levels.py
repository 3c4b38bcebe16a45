"""Levels of theory of the state-tracking model, from the paper's curve to the fixed-disorder
theory, each as curves per seed of an ensemble; and the fixed-disorder theory without one of its
terms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import xarray as xr

from theory import state_tracking as st
from theory.state_tracking import Parameters
from theory.state_tracking.numbers.per_seed import (
    Cavity,
    Dressed,
    FixedDisorder,
    Realisation,
    Start,
    solve,
)
from verify.emergence import first_crossing
from verify.state_tracking.trajectories import own_start

DRAWS = 4  # draws of the unknown disorder per seed; their mean adds 1/8 of the variance of one draw
LONG = 0.06  # step size for draws: changes times by 0.1%, against a scatter of 1%


def times(p: Parameters) -> dict[str, tuple[str, float]]:
    """Timed variables and their levels; with two actions, A = 1/2 is the chance level."""
    return {
        "half_time": ("A", 0.5 if p.L > 2 else 0.75),
        "rollout_half_time": ("rollout_accuracy", 0.5),
    }


def paper(p: Parameters, runs: xr.Dataset) -> xr.Dataset:
    """Eq. (15) with logit variances held at their initial value: one curve for all seeds."""
    curve = st.trajectory(p, float(runs.alpha[-1]), at=runs.alpha.values)
    return _frozen(p, curve).expand_dims(seed=runs.seed)


def exact(p: Parameters, runs: xr.Dataset) -> xr.Dataset:
    """Exact solution of Eq. (15) from a seed's own A, R, S and zeta, otherwise as in the paper."""
    return _frozen(p, own_start(p, runs))


def _frozen(p: Parameters, curve: xr.Dataset) -> xr.Dataset:
    constant = xr.full_like(curve.A, st.initial_variance(p))
    return curve.assign(variance_correct=constant, variance_other=constant)


def dressed(p: Parameters, runs: xr.Dataset) -> xr.Dataset:
    """Noise of M and exact attention geometry; Gaussian logits."""
    return solve(Dressed(p, Start.measured(runs)), runs.epoch.values)


def cavity(p: Parameters, runs: xr.Dataset) -> xr.Dataset:
    """Entries of M by their initial value, with an infinite training set."""
    return solve(Cavity(p, Start.measured(runs), finite_data=False), runs.epoch.values)


def finite_data(p: Parameters, runs: xr.Dataset) -> xr.Dataset:
    """Entries of M by their initial value and their column's share of the training set."""
    return solve(Cavity(p, Start.measured(runs)), runs.epoch.values)


def drawn(p: Parameters, runs: xr.Dataset) -> xr.Dataset:
    """Fixed-disorder theory with a seed's initial values but random teachers, matrices M and
    training sets: mean over draws, and the relative scatter of both times.
    """
    start = Start.measured(runs)
    curves = [
        solve(
            FixedDisorder(p, start, Realisation.drawn(p, start, np.random.default_rng(k))),
            runs.epoch.values,
            LONG,
        )
        for k in range(DRAWS)
    ]
    found = xr.concat(curves, "draw")
    scatter = {}
    for name, (of, level) in times(p).items():
        at = np.array([first_crossing(curve[of], level).values for curve in curves])
        scatter[f"{name}_scatter"] = ("seed", at.std(0, ddof=1) / at.mean(0))
    return found.mean("draw").assign(scatter)


def counts(p: Parameters, runs: xr.Dataset) -> xr.Dataset:
    """Fixed-disorder theory of a seed's teachers and counts per state, step and action; M drawn."""
    start = Start.measured(runs)
    known = Realisation.of(p, runs).redrawn(start, np.random.default_rng(0))
    return solve(FixedDisorder(p, start, known.without_pairs()), runs.epoch.values, LONG)


def fixed_disorder(p: Parameters, runs: xr.Dataset) -> xr.Dataset:
    """Fixed-disorder theory of a seed's teachers, initial M and training set."""
    return solve(FixedDisorder(p, Start.measured(runs), Realisation.of(p, runs)), runs.epoch.values)


PAPER, OWN, CAVITY = "paper, Eq. (15)", "exact, own start", "+ finite training set"
DRAWN, COUNTS, FULL = (f"fixed disorder, {of}" for of in ("all drawn", "counts", "counts + M"))
LEVELS: dict[str, Callable[[Parameters, xr.Dataset], xr.Dataset]] = {
    PAPER: paper,
    OWN: exact,
    "dressed": dressed,
    "+ cavity equations": cavity,
    CAVITY: finite_data,
    DRAWN: drawn,
    COUNTS: counts,
    FULL: fixed_disorder,
}


def _left(system: FixedDisorder, left: np.ndarray | float) -> FixedDisorder:
    """Variant with another share of the scatter within groups."""
    system.left = left + 0 * system.left
    return system


def _uniform(known: Realisation) -> Realisation:
    """Variant with the same number of rows in each group."""
    return replace(known, share=np.full_like(known.share, 1 / known.share[0].size), pairs=None)


# Fixed-disorder theory without one of its terms; the last three omissions are cumulative.
TERMS: dict[str, Callable[[Parameters, Start, Realisation], FixedDisorder]] = {
    "whole": FixedDisorder,
    "no scatter within groups": lambda p, s, g: _left(FixedDisorder(p, s, g), 0.0),
    "variance about the true mean": lambda p, s, g: _left(FixedDisorder(p, s, g), g.share),
    "no pairs": lambda p, s, g: FixedDisorder(p, s, g.without_pairs()),
    "no counts": lambda p, s, g: FixedDisorder(p, s, _uniform(g)),
    "no M": lambda p, s, g: FixedDisorder(p, s, _uniform(g).redrawn(s, np.random.default_rng(0))),
}
