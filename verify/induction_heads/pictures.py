"""Quantitative checks of the figures of trained students: the mechanism (Fig. 2), the
structure of the weights (Figs. 3, 6-14), all weights against three directions (Figs. 4,
15, 16).
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import xarray as xr

from simulate.induction_heads import standard, train
from simulate.induction_heads.student import NAMES, THREE, assemble, project
from theory.induction_heads import Parameters
from theory.induction_heads.parameters import StandardParameters
from verify.checks.check import Band, Check, at_least, listed, near, sampled
from verify.induction_heads.flow_laws import dropped

SEEDS, ABLATED = range(8), range(6)
# App. C: N, steps.
STRUCTURE = {4: (100, 200, 400), 8: (200, 400, 800), 16: (250, 500, 1000)}
ABLATION = {(16, 32): 300, (32, 16): 600, (8, 32): 200}  # App. D: (N, D), steps
OTHERS = (
    "the other sixteen directions take part; items and labels are not orthonormal; no"
    " order: neither is small"
)
# Ratio of T_drop, all weights over three directions: mean +- 3.5 s.e. of the seeds 100
# to 103 (at N = 16 to 107), which no check uses.
BANDS = {
    (16, 32): Band(0.071, 0.083, OTHERS),
    (32, 16): Band(0.155, 0.193, OTHERS),
    (8, 32): Band(0.068, 0.085, OTHERS),
}


def structure(N: int) -> Parameters:
    """App. C: all weights, D = 16, measured after the printed numbers of steps."""
    shown = STRUCTURE[N]
    return Parameters.structure().replace(
        N=N, steps=shown[-1], eval_every=int(np.gcd.reduce(shown))
    )


def ablation(size: tuple[int, int], trained: str = "all") -> Parameters:
    """App. D: all weights, or three directions."""
    N, D = size
    p = Parameters.ablation().replace(N=N, D=D, trained=trained)
    return p.replace(steps=ABLATION[size], eval_every=2)


def outside(runs: xr.Dataset) -> np.ndarray:
    """Component of every student's weights outside the 19 directions,
    one row per seed.
    """
    rows = []
    for seed in range(runs.sizes["seed"]):
        weights = {k: torch.as_tensor(runs[k].values[seed]) for k in ("W1", "W2", "W3")}
        numbers = dict(zip(NAMES, project(weights), strict=True))
        inside = assemble(numbers, weights["W3"].shape[1], weights["W3"].dtype)
        rows.append(
            torch.cat([(weights[k] - inside[k]).ravel() for k in weights]).numpy()
        )
    return np.stack(rows)


def shared(rows: np.ndarray) -> np.ndarray:
    """Cosine of every pair of rows; zero on average if seeds are independent."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.array(
        [unit[i] @ unit[j] for i, j in itertools.combinations(range(len(unit)), 2)]
    )


def sizes(runs: xr.Dataset) -> tuple[xr.DataArray, xr.DataArray]:
    """Smallest of the three pseudo-parameters, and largest of the other sixteen."""
    size = np.abs(runs.pseudo)
    three = size.sel(parameter=list(THREE))
    return three.min("parameter"), size.drop_sel(parameter=list(THREE)).max("parameter")


def lead(runs: xr.Dataset) -> float:
    """`sizes` of the three divided by that of the other sixteen; minimum over seeds."""
    three, others = sizes(runs)
    return float((three / others).min())


@listed
def weights(**more: Any) -> Iterator[Check]:
    """Weights have the predicted structure: the three pseudo-parameters dominate, and
    components outside the 19 directions are noise, uncorrelated between students.
    """
    for N in STRUCTURE:
        runs = train(structure(N), seeds=SEEDS, keep_weights=True, **more)
        for step in STRUCTURE[N]:
            there = runs.isel(t=int(np.flatnonzero(runs.step.values == step)[0]))
            where = f"N = {N}, D = 16, step {step}"
            yield at_least(
                f"smallest of the three over the largest of sixteen, {where}",
                "Sec. 5",
                1.0,
                lead(there),
                "least over seeds",
            )
            yield sampled(
                f"cosine between two students outside the 19 directions, {where}",
                "Theorem 1",
                0.0,
                shared(outside(there)),
                scale=1.0,
            )


@listed
def ablations(**more: Any) -> Iterator[Check]:
    """All weights against three directions: the three pseudo-parameters dominate, and
    the losses drop at almost the same time.
    """
    for N, D in ABLATION:
        where = f"Gaussian data, uniform q, N = {N}, D = {D}"
        every_weight, three = (
            train(ablation((N, D), weights), seeds=ABLATED, **more)
            for weights in ("all", "projected")
        )
        yield at_least(
            f"smallest of the three over the largest of sixteen, {where}, end of"
            " training",
            "Sec. 5",
            1.0,
            lead(every_weight.isel(t=-1)),
            "least over seeds",
        )
        yield sampled(
            f"drop of all weights over that of three directions, {where}",
            "Hypothesis 2",
            1.0,
            dropped(every_weight).values / dropped(three).values,
            band=BANDS[N, D],
        )


@listed
def mechanism(p: StandardParameters | None = None, **more: Any) -> Iterator[Check]:
    """Fraction of rows of the matrices of Fig. 2 in which the predicted column is the
    largest; minimum over seeds.
    """
    p = p or StandardParameters()
    runs = standard.train(p, seeds=SEEDS, **more)
    tokens, block = p.vocabulary, p.block
    # Directions of the embeddings, and of the output of every head.
    each = tokens + block
    scores = runs.scores_1.values[:, tokens:, tokens:]
    previous = np.where(np.tri(block, dtype=bool), scores, -np.inf)[:, 1:]
    written = runs.scores_2.values[:, :tokens, each : each + tokens]
    read = runs.readout.values[:, :, 2 * each : 2 * each + tokens]
    matrices = {
        "layer 1 finds the position before": previous,
        "layer 2 finds the token that layer 1 wrote": written,
        "the output reads the token that layer 2 wrote": read,
    }
    for what, matrix in matrices.items():
        rows = matrix.shape[1]
        hit = matrix.argmax(2) == np.arange(rows)
        yield near(
            f"{what}, standard transformer, share of rows",
            "Sec. 2.3",
            1.0,
            hit.mean(1).min(),
            0.05,
            f"one row in {rows} may lie at the edge of what was trained; least over"
            " seeds",
        )


def everything(**more: Any) -> list[Check]:
    """All of the above."""
    return [*mechanism(**more), *weights(**more), *ablations(**more)]
