"""Students with correlated tokens, trained values of full or low rank, two columns of queries or
two heads beside the theory of these extensions, extrapolated to infinite d.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
import xarray as xr

from simulate.positional_semantic import task
from simulate.positional_semantic.learner import descended
from simulate.positional_semantic.measure import measure, test_error
from simulate.positional_semantic.student import Problem, initial_weights
from theory.positional_semantic import Parameters
from theory.positional_semantic.extensions import Point, solve
from verify.check import Check, listed, sampled
from verify.positional_semantic.limits import at_infinity, over_d

BASE = Parameters(steps=300, n_test=4000)
SUMS = 4096  # Sobol points; overlaps to half a percent
# What is changed, starts and sample complexities (well on the side of the start's transition), and
# two sizes.
CASES: dict[str, tuple[dict[str, Any], tuple[tuple[str, float], ...], tuple[int, ...]]] = {
    "correlation 0.2": ({"correlation": 0.2}, (("semantic", 3.0), ("positional", 1.0)), (200, 400)),
    "correlation -0.4": (
        {"correlation": -0.4},
        (("semantic", 2.0), ("positional", 1.0)),
        (200, 400),
    ),
    "values": ({"value": True}, (("semantic", 3.0), ("positional", 1.0)), (60, 120)),
    "two columns": (
        {"rank": 2},
        (("semantic", 2.0), ("positional", 2.0), ("mixed", 2.0)),
        (100, 200),
    ),
    "two heads": (
        {"rank": 2, "heads": True},
        (("mixed", 1.0), ("mixed", 1.5), ("mixed", 2.0)),
        (200, 400),  # at d = 100 m is 5% off what is linear in 1/d
    ),
    "low-rank values": (
        {"value_rank": 1},
        (("semantic", 4.0), ("semantic", 6.0), ("positional", 2.0)),
        (100, 200),
    ),
}
LIMITS = {"semantic": "m", "positional": "theta"}  # zero in the limit


def end(p: Parameters, seed: int) -> dict[str, float]:
    """Measurements of a student after descent and L-BFGS, with those of its value matrix."""
    teacher, data = task.sample(p, seed)
    problem, streams = Problem([data], p.lam, p.heads), task.streams(seed)
    start = initial_weights(p, teacher, streams["initialisation"])
    weights = {k: torch.as_tensor(v)[None] for k, v in start.items()}
    weights = descended(problem, weights, p.steps, p.eta)
    value, slope = problem.gradient(weights)
    size = float(sum(g.square().sum() for g in slope.values())) ** 0.5
    last = {k: w[0] for k, w in weights.items()}
    measured = measure(p, last, teacher, float(value[0]), size)
    measured["test_mse_half"] = test_error(p, last, teacher, streams["test"])
    if p.value:
        measured["theta_W"] = float(last["W"].trace()) / p.d
        measured["q_W"] = float(last["W"].square().sum()) / p.d
    if p.value_rank:
        V, size = last["V"].numpy(), p.d * p.value_rank
        measured["theta_W"] = float((V * task.value_teacher(p, teacher)).sum()) / size
        measured["q_W"] = float((V**2).sum()) / size
    return measured


def predicted(p: Parameters, point: Point) -> dict[str, float]:
    """What the theory says about the measurements of `end`, without overlaps that vanish."""
    out = point.summary()
    if p.value or p.value_rank:
        out |= {k: v for k, v in point.values._asdict().items() if k != "V_W"}
    if p.rank == 1:
        out.pop(LIMITS[p.start])
    return out


def limits(p: Parameters, sizes: Sequence[int], seeds: Iterable[int]) -> xr.Dataset:
    """Measurements of students at infinite d, over ``seed``."""
    seeds = list(seeds)
    runs = []
    for d in sizes:
        rows = [end(p.replace(d=d), seed) for seed in seeds]
        runs.append(
            xr.Dataset({k: ("seed", [r[k] for r in rows]) for k in rows[0]}, {"seed": seeds})
        )
    joined = over_d(runs, sizes).to_dataarray("name")
    return at_infinity(joined).to_dataset("name")


@listed
def checks(seeds: Iterable[int], cases: Iterable[str] = tuple(CASES)) -> Iterator[Check]:
    """Every measurement of every case against the theory."""
    seeds = list(seeds)
    for what in cases:
        change, starts, sizes = CASES[what]
        for start, alpha in starts:
            p = BASE.replace(start=start, alpha=alpha, **change)
            theory = predicted(p, solve(p, points=SUMS))
            runs = limits(p, sizes, seeds)
            yield from [
                sampled(f"{x}, {what}, {start} start, alpha = {alpha:g}", x, v, runs[x].values)
                for x, v in theory.items()
            ]
