"""Which minimum full-batch descent reaches from random weights, beside the population's flow."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.stats
import torch

from simulate.positional_semantic import task
from simulate.positional_semantic.learner import polish
from simulate.positional_semantic.student import Problem, initial_weights
from theory.positional_semantic import Parameters, online

ENDS = ("semantic", "positional", "neither")
STEPS = {"gd": 600, "adam": 400}
RATE = {"gd": 0.15, "adam": 0.05}
INFORMED = 0.4  # cosine of an end; random ones are 1/sqrt(d), 0.1 at d = 100
SCALE = 0.1  # of random initial weights, entry by entry


def end(p: Parameters, seed: int) -> str:
    """Name of the minimum that a student reaches from random weights."""
    teacher, data = task.sample(p, seed)
    problem = Problem([data], p.lam)
    Q = initial_weights(p, teacher, task.streams(seed)["initialisation"])["Q"]
    weights = {"Q": torch.as_tensor(Q)[None]}
    rate = RATE[p.optimizer]
    adam = torch.optim.Adam(weights.values(), lr=rate) if p.optimizer == "adam" else None
    for _ in range(STEPS[p.optimizer]):
        _, slope = problem.gradient(weights)
        if adam is None:
            weights = {"Q": weights["Q"] - rate * slope["Q"]}
        else:
            weights["Q"].grad = slope["Q"]
            adam.step()
    Q = polish(problem, weights)["Q"][0, :, 0].numpy()
    size = np.linalg.norm(Q)
    cosines = {
        "positional": abs(Q.sum()) / size / math.sqrt(p.d),
        "semantic": abs(Q @ teacher) / size / math.sqrt(p.d),
    }
    best = max(cosines, key=cosines.__getitem__)
    return best if cosines[best] > INFORMED else "neither"


def shares(p: Parameters, seeds: Iterable[int]) -> dict[str, Any]:
    """Shares of the ends, and 95% intervals (Clopper and Pearson)."""
    found = [end(p.replace(start="random"), seed) for seed in seeds]
    out: dict[str, Any] = {"n": len(found)}
    for name in ENDS:
        count = found.count(name)
        between = scipy.stats.binomtest(count, len(found)).proportion_ci()
        out[name] = (count / len(found), float(between.low), float(between.high))
    return out


def predicted(p: Parameters) -> float:
    """Share of semantic ends by the flow of the population's gradient, with the decay that the
    ridge is for a full batch, ``lambda / alpha``.
    """
    flow = online.Parameters(
        omega=p.omega,
        sigma=p.sigma,
        target=p.target,
        scale=SCALE,
        decay=p.lam / p.complexity,
        d=p.d,
        batch=None,
    )
    return online.share(flow)
