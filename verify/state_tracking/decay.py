"""Weight decay: overlaps of students in the end; what students keep, lose and never learn on
both sides of both critical decays; sharpness of the learned state and the largest stable
learning rate.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from simulate.state_tracking import continued, train
from simulate.state_tracking.continued import go_on
from simulate.state_tracking.learner import Learner
from theory.state_tracking import Parameters
from theory.state_tracking.decay import decay_thresholds, late_overlap, late_states
from theory.state_tracking.edge import largest_rate, sharpness
from verify.check import Band, Check, at_least, at_most, listed, near
from verify.measured import measured

DECAYS = (3e-4, 1e-3)  # at 3e-3 these students do not learn
STUDENTS = Parameters.demo().replace(eta=2.0, n_train=8192, n_test=16)
SEEDS = range(620, 622)
AGE = 6.0  # of runs, in times 1 / (eta decay): e^-6 of the start is left
REST = 0.005  # of R: attention below 1, unequal shares of the training set
ALIKE = 0.01  # S over R


@measured
def ends(p: Parameters, seeds: Iterable[int], **training: Any) -> np.ndarray:
    """R and S of students in the end."""
    steps = round(AGE / (p.eta * p.weight_decay))
    runs = train(p.replace(epochs=steps, eval_every=steps), seeds, **training)
    return np.stack([runs[name].isel(alpha=-1).values for name in "RS"])


@listed
def checks(
    p: Parameters = STUDENTS,
    decays: Iterable[float] = DECAYS,
    seeds: Iterable[int] = SEEDS,
    **training: Any,
) -> Iterator[Check]:
    """R against its closed form, S against zero."""
    for decay in decays:
        q = p.replace(weight_decay=decay)
        R, S = ends(q, seeds, **training)
        title = f"decay {decay:g}, N = {p.N}"
        yield from [
            near(
                f"R in the end, {title}",
                "R_decayed",
                float(late_overlap(q)),
                float(R.mean()),
                REST,
                "attention below 1; unequal shares of the training set; no order: neither is small",
            ),
            at_most(
                f"size of S over R in the end, {title}",
                "R_decayed",
                ALIKE,
                float(np.abs(S / R).max()),
                "nothing drives it but other teachers that agree by chance",
            ),
        ]


# Rows by title.
GROUPS = {f"ends under decay {x:g}": functools.partial(checks, decays=(x,)) for x in DECAYS}


# Both critical decays: what students keep, lose and never learn

BASE = Parameters.demo().replace(eta=2.0, n_train=4096, n_test=16)
SETTINGS = {
    "small": BASE,
    "L = 4": BASE.replace(L=4),
    "N = 24, d_g = 12, d_h = 64, L = 6": BASE.replace(N=24, d_g=12, d_h=64, L=6),
}
LEARNED = 1e-3  # decay under which the learned state is learned
KEPT, LOST = 0.9, 1.1  # of decay_lost, from the learned state
GROWS, DIES = 0.75, 1.25  # of decay_unlearned, from scratch
# Length of runs, in times 1 / (eta decay).
AGES = {"learned": 6.0, "kept": 10.0, "lost": 16.0, "grows": 10.0, "dies": 8.0}
NEAR_GUESSING = 0.1  # of A, beyond 1/L
UNEQUAL = "attention differs between positions and actions; unequal shares of the training set; no order: neither is small"
# Measured deviations of what students keep (seeds 300 and 301): attention on wrong actions is not
# uniform.
BANDS = {
    "A": Band(-0.03, 0.01, UNEQUAL),
    "R": Band(-0.03, 0.01, UNEQUAL),
    "P": Band(-0.01, 0.04, UNEQUAL),
}
WORDS = {"A": "attention", "R": "overlap R", "P": "squared norm of keys"}


def aged(p: Parameters, rate: float, age: float) -> Parameters:
    """Parameters of a run of so many times 1 / (eta decay), measured at its end; decays to the
    digits by which what comes with the code is known.
    """
    steps = round(age / (p.eta * rate))
    return p.replace(weight_decay=float(f"{rate:.6g}"), epochs=steps, eval_every=steps)


def ends_of_phases(runs: xr.Dataset) -> list[float]:
    """A, R and the squared norm of keys in the end, mean over seeds."""
    squares = [(runs[f"{w}_end"] ** 2).sum(("head", "model")).mean() for w in ("W_Q", "W_K")]
    return [*(float(runs[x].isel(alpha=-1).mean()) for x in "AR"), float(np.mean(squares))]


@measured
def from_scratch(
    p: Parameters, rate: float, age: float, seeds: Iterable[int], **training: Any
) -> np.ndarray:
    """`ends_of_phases` of students that start anew."""
    return np.array(ends_of_phases(train(aged(p, rate, age), seeds, keep=True, **training)))


@measured
def from_learned(
    p: Parameters, rate: float, age: float, seeds: Iterable[int], **training: Any
) -> np.ndarray:
    """`ends_of_phases` of students that go on from what they learned under the decay `LEARNED`."""
    start = train(aged(p, LEARNED, AGES["learned"]), seeds, keep=True, **training)
    return np.array(
        ends_of_phases(continued.train(aged(p, rate, age), seeds, start=start, **training))
    )


def rows(
    title: str,
    p: Parameters,
    seeds: Iterable[int],
    bands: Mapping[str, Band] = BANDS,
    **training: Any,
) -> list[Check]:
    """One setting: the learned state below and above `decay_lost`, and learning from scratch below
    and above `decay_unlearned`.
    """
    seeds, edges = [*seeds], decay_thresholds(p)
    lost = float(edges.decay_lost)
    scratch = float(edges.decay_unlearned)
    ways = (
        *(("kept", from_learned, KEPT * lost), ("lost", from_learned, LOST * lost)),
        *(("grows", from_scratch, GROWS * scratch), ("dies", from_scratch, DIES * scratch)),
    )
    kept, gone, grown, dead = (
        dict(zip("ARP", way(p, rate, AGES[name], seeds, **training), strict=True))
        for name, way, rate in ways
    )
    theory = late_states(p.replace(weight_decay=KEPT * lost)).sel(state="learned")
    of_A, guess = "decay_of_A", 1 / p.L + NEAR_GUESSING
    return [
        *(
            near(
                f"{words} of the learned state at {KEPT:g} times its largest decay, {title}",
                of_A,
                float(theory[x]),
                kept[x],
                0.0,
                UNEQUAL,
                None,
                bands[x],
            )
            for x, words in WORDS.items()
        ),
        at_most(
            f"attention from the learned state at {LOST:g} times its largest decay, {title}",
            of_A,
            guess,
            gone["A"],
            "only A = 1/L is left",
        ),
        at_least(
            f"attention from scratch at {GROWS:g} times the decay that prevents it, {title}",
            "decay_unlearned",
            float(edges.A_lost),
            grown["A"],
            "beyond it the learned state attracts",
        ),
        at_most(
            f"attention from scratch at {DIES:g} times the decay that prevents it, {title}",
            "decay_unlearned",
            guess,
            dead["A"],
            "keys and queries die out",
        ),
    ]


# Rows of all settings by title.
GROUPS_OF_PHASES = {
    f"both critical decays, {title}": functools.partial(rows, title, p, SEEDS)
    for title, p in SETTINGS.items()
}


# Large learning rates: students below and above the edge of stability of the learned state, and
# from scratch at a rate beyond the edge that the flow passes

EDGE_DECAYS = (2e-3, 5e-3, 8e-3)  # at the first nothing leaves the learned state within a run
LEAVES = 5e-3  # decay at which students are trained at rates below and above
BELOW, ABOVE = 0.8, 1.25  # of the largest stable rate
STEPS = 100  # of these runs
STILL, MOVED = 0.002, 0.02  # range of A over the second half of a run
RESOLVED = (1e-4, 2 * MOVED)  # smaller ranges are rounding, larger ones chaotic
BEYOND = 4.0  # of the edge on the way from scratch
ITERATIONS, DISTANCE = 40, 1e-4  # of the power method, and of its differences
BAND = Band(-0.06, 0.01, UNEQUAL)


def full_sharpness(p: Parameters, runs: xr.Dataset) -> float:
    """Largest eigenvalue of the Hessian in all weights, with decay, of the student of one seed, by
    the power method on differences of gradients.
    """
    learner = Learner(p, [*runs.seed.values], torch.device("cpu"), torch.float64)
    go_on(learner, runs)
    weights = [*learner.students.parameters()]
    start = parameters_to_vector(weights).detach()

    def slope(at: Tensor) -> Tensor:
        for w, part in zip(weights, at.split([w.numel() for w in weights]), strict=True):
            w.data.copy_(part.view_as(w))
        learner.full.gradients(learner.students)
        return parameters_to_vector([w.grad for w in weights if w.grad is not None])

    rng, eigenvalue = torch.Generator().manual_seed(0), np.nan
    moved = torch.randn(len(start), generator=rng, dtype=start.dtype)
    for _ in range(ITERATIONS):
        along = moved / moved.norm()
        up, down = (slope(start + sign * DISTANCE * along) for sign in (1, -1))
        moved = (up - down) / (2 * DISTANCE)
        eigenvalue = float(moved @ along)
    return eigenvalue + p.weight_decay


def settled(p: Parameters, rate: float, seeds: Iterable[int], **training: Any) -> xr.Dataset:
    """Students in the learned state under a decay."""
    age = AGES["learned"]
    learned = train(aged(p, LEARNED, age), seeds, keep=True, **training)
    q = aged(p, rate, AGES["kept"])
    return continued.train(q, seeds, start=learned, **training)


@measured
def sharpnesses(p: Parameters, rate: float, seeds: Iterable[int], **training: Any) -> np.ndarray:
    """`full_sharpness` of the learned state, per seed."""
    runs = settled(p, rate, seeds, **training)
    q = aged(p, rate, AGES["kept"])
    return np.array([full_sharpness(q, runs.sel(seed=[s])) for s in seeds])


@measured
def wandering(
    p: Parameters, rate: float, eta: float, seeds: Iterable[int], **training: Any
) -> np.ndarray:
    """Range of A over the second half of a run from the learned state, per seed."""
    q = aged(p, rate, AGES["kept"])
    q = q.replace(eta=float(eta), epochs=STEPS, eval_every=1)
    start = settled(p, rate, seeds, **training)
    A = continued.train(q, seeds, start=start, **training).A
    half = A.isel(alpha=slice(STEPS // 2, None))
    return (half.max("alpha") - half.min("alpha")).values


@measured
def last_attention(p: Parameters, eta: float, seeds: Iterable[int], **training: Any) -> np.ndarray:
    """A of students from scratch in the end, per seed."""
    q = p.replace(eta=float(eta), unit="step")
    q = q.run_to(12 / q.eta)
    return train(q.replace(eval_every=q.epochs), seeds, **training).A.isel(alpha=-1).values


@listed
def at_decay(
    rate: float,
    p: Parameters = BASE,
    seeds: Iterable[int] = SEEDS,
    band: Band = BAND,
    **training: Any,
) -> Iterator[Check]:
    """Sharpness under a decay; where students leave, stability on both sides."""
    edge = float(largest_rate(aged(p, rate, AGES["kept"])))
    yield near(
        f"sharpness of the learned state, decay {rate:g}",
        "eta_edge",
        2 / edge,
        float(sharpnesses(p, rate, seeds, **training).mean()),
        0.0,
        UNEQUAL,
        None,
        band,
    )
    if rate == LEAVES:
        below, above = (
            float(wandering(p, rate, f * edge, seeds, **training).min().clip(*RESOLVED))
            for f in (BELOW, ABOVE)
        )
        where = f"times the largest stable rate, decay {rate:g}"
        yield from [
            at_most(f"range of attention at {BELOW:g} {where}", "eta_edge", STILL, below, "stable"),
            at_least(
                f"range of attention at {ABOVE:g} {where}", "eta_edge", MOVED, above, "unstable"
            ),
        ]


def on_the_way(p: Parameters = BASE, seeds: Iterable[int] = SEEDS, **training: Any) -> list[Check]:
    """What lies beyond the edge on the way from scratch."""
    way = sharpness(p.replace(weight_decay=0.0), 12 / p.eta)
    edge = float(way.eta_edge.where(way.sharpness > 0).min())
    A = last_attention(p, BEYOND * edge, seeds, **training)
    return [
        at_least(
            f"attention from scratch at {BEYOND:g} times the edge on the way",
            "eta_edge",
            0.99,
            float(A.min()),
            "the sharp stretch is passed in a few steps, too few to leave",
        )
    ]


# Rows by title.
EDGE_GROUPS = {
    **{f"sharpness under decay {x:g}": functools.partial(at_decay, x) for x in EDGE_DECAYS},
    "edge on the way": on_the_way,
}
