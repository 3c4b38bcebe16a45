"""Large learning rates: sharpness of the learned state under weight decay, students there at rates
below and above its edge of stability, and students from scratch at a rate beyond the edge that the
flow passes on its way.
"""

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
import xarray as xr

from simulate.state_tracking import rewards, train
from simulate.state_tracking.learner import Learner
from simulate.state_tracking.rewards import go_on
from theory.state_tracking import Parameters
from theory.state_tracking.edge import largest_rate, sharpness
from verify.check import Band, Check, at_least, at_most, listed, near
from verify.measured import measured
from verify.state_tracking import decay

DECAYS = (2e-3, 5e-3, 8e-3)  # at the first nothing leaves the learned state within a run
LEAVES = 5e-3  # decay at which students are trained at rates below and above
BELOW, ABOVE = 0.8, 1.25  # of the largest stable rate
STEPS = 100  # of these runs
STILL, MOVED = 0.002, 0.02  # range of A over the second half of a run
RESOLVED = (1e-4, 2 * MOVED)  # smaller ranges are rounding, larger ones chaotic
BEYOND = 4.0  # of the edge on the way from scratch
ITERATIONS, DISTANCE = 40, 1e-4  # of the power method, and of its differences
BAND = Band(-0.06, 0.01, decay.UNEQUAL)


def full_sharpness(p: Parameters, runs: xr.Dataset) -> float:
    """Largest eigenvalue of the Hessian in all weights, with decay, of the student of one seed, by
    the power method on differences of gradients.
    """
    learner = Learner(p, [*runs.seed.values], torch.device("cpu"), torch.float64)
    go_on(learner, runs)
    weights = [*learner.students.parameters()]
    start = [w.detach().clone() for w in weights]
    rng = torch.Generator().manual_seed(0)
    along = [torch.randn(w.shape, generator=rng, dtype=w.dtype) for w in weights]
    eigenvalue = np.nan
    for _ in range(ITERATIONS):
        norm = torch.stack([x.square().sum() for x in along]).sum().sqrt()
        along, sides = [x / norm for x in along], []
        for sign in (1, -1):
            with torch.no_grad():
                for w, before, x in zip(weights, start, along, strict=True):
                    w.copy_(before + sign * DISTANCE * x)
            learner.full.gradients(learner.students)
            sides.append([w.grad.clone() for w in weights if w.grad is not None])
        moved = [(a - b) / (2 * DISTANCE) for a, b in zip(*sides, strict=True)]
        eigenvalue = float(sum((a * b).sum() for a, b in zip(moved, along, strict=True)))
        along = moved
    return eigenvalue + p.weight_decay


def settled(p: Parameters, rate: float, seeds: Iterable[int], **training: Any) -> xr.Dataset:
    """Students in the learned state under a decay."""
    age = decay.AGES["learned"]
    learned = train(decay.aged(p, decay.LEARNED, age), seeds, keep=True, **training)
    q = decay.aged(p, rate, decay.AGES["kept"])
    return rewards.train(q, seeds, start=learned, **training)


@measured
def sharpnesses(p: Parameters, rate: float, seeds: Iterable[int], **training: Any) -> np.ndarray:
    """`full_sharpness` of the learned state, per seed."""
    runs, q = settled(p, rate, seeds, **training), decay.aged(p, rate, decay.AGES["kept"])
    return np.array([full_sharpness(q, runs.sel(seed=[s])) for s in seeds])


@measured
def wandering(
    p: Parameters, rate: float, eta: float, seeds: Iterable[int], **training: Any
) -> np.ndarray:
    """Range of A over the second half of a run from the learned state, per seed."""
    q = decay.aged(p, rate, decay.AGES["kept"])
    q, start = (
        q.replace(eta=float(eta), epochs=STEPS, eval_every=1),
        settled(p, rate, seeds, **training),
    )
    A = rewards.train(q, seeds, start=start, **training).A
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
    p: Parameters = decay.BASE,
    seeds: Iterable[int] = decay.SEEDS,
    band: Band = BAND,
    **training: Any,
) -> Iterator[Check]:
    """Sharpness under a decay; where students leave, stability on both sides."""
    edge = float(largest_rate(decay.aged(p, rate, decay.AGES["kept"])))
    yield near(
        f"sharpness of the learned state, decay {rate:g}",
        "eta_edge",
        2 / edge,
        float(sharpnesses(p, rate, seeds, **training).mean()),
        0.0,
        decay.UNEQUAL,
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


def on_the_way(
    p: Parameters = decay.BASE, seeds: Iterable[int] = decay.SEEDS, **training: Any
) -> list[Check]:
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
GROUPS = {
    **{f"sharpness under decay {x:g}": functools.partial(at_decay, x) for x in DECAYS},
    "edge on the way": on_the_way,
}
