"""The levels of theory of state tracking, by name, from the paper's curve to the
fixed-disorder theory. Each gives the curves of given students, nothing fitted.
"""

from collections.abc import Callable, Sequence
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
from theory.state_tracking.single_students.dressed import Dressed
from theory.state_tracking.single_students.integrate import solve
from theory.state_tracking.single_students.optimised_disorder import system
from theory.state_tracking.single_students.realisation import Realisation, Start

BEST = "fixed_disorder"  # knows most, and is the default
# draws of the unknown disorder per seed; their mean adds 1/8 of the variance of one
# draw
DRAWS = 4
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
        ``system(p, start, given, accuracies)``: equations of every seed, to be
        integrated.
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
        """Curves over ``(seed, alpha)`` at the times of the runs; with a dimension
        ``draw`` where the disorder is drawn several times.

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
        each: Sequence[Any] = (given,)
        if given is None and self.known:
            each = self.known(p, runs, start)
        solved = [solve(self.system(p, start, one, accuracies), epochs) for one in each]
        return solved[0] if len(solved) == 1 else xr.concat(solved, "draw")


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
        curves.append(
            with_accuracy(inversion.solve(started, runs.alpha.values), started)
        )
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
    """Entries of M by their initial value; with a finite training set also by their
    column's share of it.
    """
    return Level(
        title,
        knows,
        ONE_START,
        system=lambda p, start, given, accuracies: Cavity(
            p, start, finite_data, accuracies
        ),
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


# How far theories that do not know a student's training set are from single students

RANGES = {
    "N": (4, 40),
    "L": (2, 10),
    "d_g": (2, 32),
    "d_h": (8, 128),
    "n_train": (20, 30000),
}
# Coefficients of 1 and of the logarithms of N, L - 1, d_g, d_h and n_train, by level:
# of the logit of the largest deviation of A; two of three settings are within a factor
# of SPREAD.
OFF = {
    "flow": (-1.16, -0.08, 1.52, -0.29, -0.1, -0.05),
    "own_start": (-0.96, -0.23, 2.05, -0.49, -0.16, -0.07),
    "dressed": (-0.88, -0.11, 1.41, -0.51, 0.09, -0.35),
    "cavity_ample_data": (-1.08, -0.05, 1.39, -0.48, 0.1, -0.35),
    "cavity": (-1.01, -0.06, 1.39, -0.49, 0.08, -0.35),
}
SPREAD = {
    "flow": 1.4,
    "own_start": 1.55,
    "dressed": 2.05,
    "cavity_ample_data": 2.1,
    "cavity": 2.1,
}
# The same of the logarithm of how much earlier than the flow single students reach A =
# 1/2.
EARLY = (4.8, -0.96, 0.34, -1.19, -0.58, -0.07)
EARLY_SPREAD = 1.4
# Share of students that do not reach it by 1.6 times the flow's time, below a number of
# sequences.
NEVER = {80: 0.125, 200: 0.05}
# Largest deviation of A of the default level on the map: of descent, and under Adam or
# batches from a number of sequences on.
DESCENT, NOISY = 0.01, {500: 0.05, 0: 0.21}
# Learning rates of the map, over 1 - momentum; fields that it moves beside sizes.
RATES = {"sgd": 0.5, "batches": 0.25, "adam": 0.003, "adamw": 0.006}
MOVED = {
    "optimizer",
    "eta",
    "momentum",
    "weight_decay",
    "batch_size",
    "unit",
    "data_draw",
}
MOVED |= {"epochs", "eval_every", "n_test"}


def features(p: Parameters) -> np.ndarray:
    """What the fits multiply: sizes outside the ranges of the map count as its ends."""
    sizes = [
        np.clip(getattr(p, name), *ends) - (name == "L")
        for name, ends in RANGES.items()
    ]
    return np.array([1, *np.log(sizes)])


def off_by(p: Parameters, level: str) -> float:
    """Largest deviation of A from single students, mean over these; about, see
    `SPREAD`.
    """
    return float(1 / (1 + np.exp(-features(p) @ OFF[level])))


def note(p: Parameters, level: str) -> str:
    """The deviation in words."""
    return (
        f"level = {level!r}: A of single students is off by about"
        f" {off_by(p, level):.1g}, within a factor of {SPREAD[level]:g}; level ="
        " 'fixed_disorder' follows their training sets"
    )


def bound(p: Parameters) -> float:
    """Largest deviation of A of the default level from any student of the map like
    these.
    """
    if p.optimizer == "sgd" and p.batch_size is None:
        return DESCENT
    return next(most for sequences, most in NOISY.items() if p.n_train >= sequences)


def mapped(p: Parameters) -> bool:
    """Whether students are like those of the map, in sizes and training."""
    most = RANGES["n_train"][1]  # of more than which theory knows as much
    sizes = {name: min(getattr(p, name), most) for name in RANGES}
    usual = Parameters().as_dict()
    return (
        all(low <= sizes[name] <= high for name, (low, high) in RANGES.items())
        and all(
            x == usual[k] for k, x in p.as_dict().items() if k not in {*RANGES, *MOVED}
        )
        and p.eta
        <= RATES["batches" if p.batch_size else p.optimizer] * (1 - p.momentum) + 1e-12
        and p.weight_decay <= (0.1 if p.optimizer == "adamw" else 0)
        and (
            not p.batch_size
            or p.optimizer == "sgd"
            and p.batch_size >= max(16, p.n_train // 8)
        )
    )


def of_drawn(p: Parameters, level: str) -> dict[str, Any]:
    """What curves of drawn students say of single ones; of the default nothing off the
    map.
    """
    if level in OFF:
        return {"off_by": off_by(p, level), "note": note(p, level)}
    if level != BEST or not mapped(p):
        return {}
    most = bound(p)
    said = (
        f"under Adam or batches A of single students is off by up to {most}, of most by"
        " less "
    )
    return {"off_by": most} | (
        {"note": said + f"than {DESCENT}"} if most > DESCENT else {}
    )


def earlier(p: Parameters) -> float:
    """Time of A = 1/2 of single students over that of the flow,
    geometric mean; about.
    """
    return float(np.exp(-np.exp(features(p) @ EARLY)))


def students_of_flow(p: Parameters) -> str:
    """When single students reach A = 1/2, in words."""
    never = [share for sequences, share in NEVER.items() if p.n_train < sequences]
    late = (
        f"; with n_train = {p.n_train} about {never[0]:.0%} of them do not"
        if never
        else ""
    )
    return (
        f"single students are off by about {off_by(p, 'flow'):.1g} in A and reach A ="
        f" 1/2 at about {earlier(p):.1g} of this time, two of three within a factor of"
        f" {EARLY_SPREAD:g}{late}; predict(p, seeds=3) follows drawn students"
    )


def few(p: Parameters) -> bool:
    """Whether students have so few sequences or actions that the flow misses their
    mean, too.
    """
    return earlier(p) < 0.8 or p.n_train < max(NEVER)
