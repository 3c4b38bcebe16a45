"""The levels of theory of state tracking, by name, from the paper's curve to the fixed-disorder
theory. Each gives the curves of given students, nothing fitted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from theory import Scope, scope
from theory.state_tracking.numbers import inversion
from theory.state_tracking.numbers.per_seed import (
    Cavity,
    Dressed,
    Realisation,
    Start,
    solve,
    system,
)
from theory.state_tracking.numbers.rollout import trajectory, with_accuracy
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.scope import FLOW, ONE_START, REALISATION
from theory.state_tracking.variance import initial_variance

DRAWS = 4  # draws of the unknown disorder per seed; their mean adds 1/8 of the variance of one draw
OWN = ("A", "R", "S", "zeta")
WEIGHTS = ("R", "S", "zeta", "W_Q_start", "W_K_start", "M_variance_correct")
Curves = Callable[[Parameters, xr.Dataset], xr.Dataset]
Known = Callable[[Parameters, xr.Dataset, Start], Sequence[Realisation]]


@dataclass(frozen=True)
class Level:
    """One level of theory.

    Attributes
    ----------
    title : str
        What tables and the documentation call it.
    knows : str
        What it knows of a student, in plain words.
    scope : Scope
        Which students it describes.
    needs : tuple of str
        What it reads of runs at time 0.
    system : callable, optional
        ``system(p, start, given, accuracies)``: equations of every seed, to be integrated.
    known : callable, optional
        ``known(p, runs, start)``: the realisations whose mean it takes, one or several.
    flow : callable, optional
        ``flow(p, runs)``: curves in closed form, in place of a system.
    """

    title: str
    knows: str
    scope: Scope
    needs: tuple[str, ...] = WEIGHTS
    system: Any = None
    known: Known | None = None
    flow: Curves | None = None

    def curves(
        self,
        p: Parameters,
        runs: xr.Dataset,
        given: Realisation | None = None,
        accuracies: bool = True,
    ) -> xr.Dataset:
        """Curves over ``(seed, alpha)`` at the times of the runs; with a dimension ``draw`` where
        the disorder is drawn several times.

        Parameters
        ----------
        p : Parameters
            Of the runs.
        runs : Dataset
            Students over ``(seed, alpha)``, measured at time 0.
        given : Realisation, optional
            In place of the level's own.
        accuracies : bool
            Whether to compute accuracies, where they can be left out.
        """
        if self.flow:
            return self.flow(p, runs)
        start, epochs = Start.measured(runs), np.rint(runs.alpha.values * p.d_g * p.N).astype(int)
        each: Sequence[Any] = (given,)
        if given is None and self.known:
            each = self.known(p, runs, start)
        solved = [solve(self.system(p, start, one, accuracies), epochs) for one in each]
        return solved[0] if len(solved) == 1 else xr.concat(solved, "draw")


def paper(p: Parameters, runs: xr.Dataset) -> xr.Dataset:
    """Eq. (15) with logit variances held at their initial value: one curve for all seeds."""
    curve = trajectory(p, float(runs.alpha[-1]), at=runs.alpha.values)
    return _held(p, curve).expand_dims(seed=runs.seed)


def own_start(p: Parameters, runs: xr.Dataset) -> xr.Dataset:
    """Exact solution of Eq. (15) from every seed's own A, R, S and zeta, with the paper's logits
    and accuracies.
    """
    curves = []
    for seed in runs.seed:
        first = runs.sel(seed=seed).isel(alpha=0)
        started = p.replace(
            A_0=float(first.A), R_0=float(first.R), S_0=float(first.S), zeta=float(first.zeta)
        )
        curves.append(with_accuracy(inversion.solve(started, runs.alpha.values), started))
    return xr.concat(curves, dim=runs.seed)


def _held(p: Parameters, curve: xr.Dataset) -> xr.Dataset:
    constant = xr.full_like(curve.A, initial_variance(p))
    return curve.assign(variance_correct=constant, variance_other=constant)


def _drawn(p: Parameters, runs: xr.Dataset, start: Start) -> list[Realisation]:
    """Random teachers, matrices M and training sets, with a seed's initial values."""
    return [Realisation.drawn(p, start, np.random.default_rng(k)) for k in range(DRAWS)]


def _counts(p: Parameters, runs: xr.Dataset, start: Start) -> list[Realisation]:
    """A seed's teachers and counts per state, step and action; M drawn."""
    redrawn = Realisation.of(p, runs).redrawn(start, np.random.default_rng(0))
    return [redrawn.without_pairs()]


def _cavity(title: str, knows: str, finite_data: bool) -> Level:
    """Entries of M by their initial value; with a finite training set also by their column's share
    of it.
    """
    return Level(
        title,
        knows,
        ONE_START,
        system=lambda p, start, given, accuracies: Cavity(p, start, finite_data, accuracies),
    )


LEVELS = {
    "flow": Level("paper, Eq. (15)", "the parameters", FLOW, (), flow=paper),
    "own_start": Level(
        "exact, own start",
        "also its initial A, R, S and zeta",
        FLOW,
        OWN,
        flow=lambda p, runs: _held(p, own_start(p, runs)),
    ),
    # Noise of M and exact attention geometry; Gaussian logits.
    "dressed": Level(
        "dressed",
        "its initial weights, the entries of M by one variance",
        ONE_START,
        system=lambda p, start, given, accuracies: Dressed(p, start),
    ),
    "cavity_ample_data": _cavity(
        "+ cavity equations", "its initial weights, the entries of M one by one", False
    ),
    "cavity": _cavity(
        "+ finite training set", "its initial weights, size of its training set", True
    ),
    "disorder_drawn": Level(
        "fixed disorder, all drawn",
        "its initial A, R, S and zeta; drawn teachers and training sets",
        REALISATION,
        system=system,
        known=_drawn,
    ),
    "disorder_counts": Level(
        "fixed disorder, counts",
        "its teachers; state-action counts of its data",
        REALISATION,
        system=system,
        known=_counts,
    ),
    "fixed_disorder": Level(
        "fixed disorder, counts + M",
        "its teachers, initial weights, training set",
        REALISATION,
        system=system,
        known=lambda p, runs, start: [Realisation.of(p, runs)],
    ),
}
applies = scope.applies({name: level.scope for name, level in LEVELS.items()})
