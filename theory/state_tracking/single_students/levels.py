"""The levels of theory of state tracking, by name, from the paper's curve to the
fixed-disorder theory. Each gives the curves of given students, nothing fitted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from theory import Scope
from theory.call import scope
from theory.state_tracking import inversion
from theory.state_tracking.model.mean_field import initial_variance
from theory.state_tracking.model.parameters import Parameters
from theory.state_tracking.model.scope import FLOW, ONE_START, REALISATION
from theory.state_tracking.rollout import trajectory, with_accuracy
from theory.state_tracking.single_students.cavity import Cavity
from theory.state_tracking.single_students.fixed_disorder import (
    INPUTS,
    SE,
    lists_all_words,
)
from theory.state_tracking.single_students.integrate import solve
from theory.state_tracking.single_students.optimised_disorder import system
from theory.state_tracking.single_students.realisation import Realisation, Start

BEST = "fixed_disorder"  # knows most, and is the default
OWN = ("A", "R", "S", "zeta")
WEIGHTS = ("R", "S", "zeta", "W_Q_start", "W_K_start", "M_variance_correct")
Curves = Callable[[Parameters, xr.Dataset], xr.Dataset]
Known = Callable[[Parameters, xr.Dataset], Realisation]
GAUSSIAN = "Eqs. (17)-(18), Gaussian logits"
BY_STEPS = "accuracy of each step, its recursion (84)"


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
        ``system(p, start, given, accuracies)``: equations of every seed, to be
        integrated.
    known : callable, optional
        ``known(p, runs)``: the realisation of the students that it follows.
    flow : callable, optional
        ``flow(p, runs)``: curves in closed form, in place of a system.
    accuracies : callable
        ``accuracies(p)``: by which road it computes accuracies, in words.
    """

    title: str
    knows: str
    scope: Scope
    needs: tuple[str, ...] = WEIGHTS
    system: Any = None
    known: Known | None = None
    flow: Curves | None = None
    accuracies: Callable[[Parameters], str] = lambda p: GAUSSIAN

    def curves(
        self,
        p: Parameters,
        runs: xr.Dataset,
        given: Realisation | None = None,
        accuracies: bool = True,
    ) -> xr.Dataset:
        """Curves over ``(seed, alpha)`` at the times of the runs.

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
        start = Start.measured(runs)
        epochs = np.rint(runs.alpha.values * p.d_g * p.N).astype(int)
        if given is None and self.known:
            given = self.known(p, runs)
        return solve(self.system(p, start, given, accuracies), epochs)


def paper(p: Parameters, runs: xr.Dataset) -> xr.Dataset:
    """Eq. (15) with logit variances held at their initial value: one curve for all
    seeds.
    """
    curve = trajectory(p, float(runs.alpha[-1]), at=runs.alpha.values)
    return _held(p, curve).expand_dims(seed=runs.seed)


def own_start(p: Parameters, runs: xr.Dataset) -> xr.Dataset:
    """Exact solution of Eq. (15) from every seed's own A, R, S and zeta, with the
    paper's logits and accuracies.
    """
    curves = []
    for seed in runs.seed:
        first = runs.sel(seed=seed).isel(alpha=0)
        started = p.replace(
            A_0=float(first.A),
            R_0=float(first.R),
            S_0=float(first.S),
            zeta=float(first.zeta),
        )
        curve = inversion.solve(started, runs.alpha.values)
        curves.append(with_accuracy(curve, started))
    return xr.concat(curves, dim=runs.seed)


def _held(p: Parameters, curve: xr.Dataset) -> xr.Dataset:
    constant = xr.full_like(curve.A, initial_variance(p))
    return curve.assign(variance_correct=constant, variance_other=constant)


def _on_words(p: Parameters) -> str:
    """How the fixed-disorder theory computes accuracies."""
    if lists_all_words(p):
        return f"on all {p.d_g**p.L} words from all states"
    return f"on {INPUTS} sampled words; *{SE}: standard error"


LEVELS = {
    "flow": Level("paper, Eq. (15)", "the parameters", FLOW, (), flow=paper),
    "own_start": Level(
        "exact, own start",
        "also its initial A, R, S and zeta",
        FLOW,
        OWN,
        flow=lambda p, runs: _held(p, own_start(p, runs)),
    ),
    "cavity": Level(
        "cavity equations",
        "its initial weights, size of its training set",
        ONE_START,
        system=lambda p, start, given, accuracies: Cavity(p, start, accuracies),
        accuracies=lambda p: BY_STEPS,
    ),
    "fixed_disorder": Level(
        "fixed disorder",
        "its teachers, initial weights, training set",
        REALISATION,
        system=system,
        known=Realisation.of,
        accuracies=_on_words,
    ),
}
applies = scope.applies({name: level.scope for name, level in LEVELS.items()})
