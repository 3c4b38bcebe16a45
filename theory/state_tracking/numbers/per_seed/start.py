"""Initial values of seeds: measured in an ensemble, or drawn from the initialisation."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import xarray as xr

from theory.parameters import Allowed, ParameterError, number
from theory.runtime import memory
from theory.state_tracking import task
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.scope import ARCHITECTURE

MEASURED = {  # names in the students' datasets
    "W_Q": "W_Q_start",
    "W_K": "W_K_start",
    "R": "R",
    "S": "S",
    "zeta": "zeta",
    "variance_right": "M_variance_correct",
    "variance_wrong": "M_variance_other",
}


@dataclass(frozen=True)
class Start:
    """Initial values of seeds; arrays over seeds.

    Attributes
    ----------
    W_Q, W_K : ndarray, shape (B, d_h)
        Keys and queries.
    R, S, zeta : ndarray, shape (B,)
        Overlaps, and the conserved mean zeta of the logit sum.
    variance_right, variance_wrong : ndarray, shape (B,)
        Variance of the entries of M at the teachers' ones, and of the other entries.
    """

    W_Q: np.ndarray
    W_K: np.ndarray
    R: np.ndarray
    S: np.ndarray
    zeta: np.ndarray
    variance_right: np.ndarray
    variance_wrong: np.ndarray

    @classmethod
    def measured(cls, runs: xr.Dataset) -> Self:
        """Initial values of the seeds of an ensemble over ``(seed, alpha)``.

        Raises
        ------
        ParameterError
            Naming a variable that is not finite at time 0.
        """
        first = runs.isel(alpha=0).transpose("seed", ...)
        start = {field: first[name].values for field, name in MEASURED.items()}
        if runs.attrs.get("parameters") and json.loads(runs.attrs["parameters"]).get("d_g") == 1:
            start["S"] = np.zeros_like(start["R"])  # a single action has no S
        for field, values in start.items():
            if not np.isfinite(values).all():
                raise ParameterError(f"runs: {MEASURED[field]} at time 0 must be finite")
        return cls(**start)

    @classmethod
    def of_seeds(cls, p: Parameters, seeds: Iterable[int]) -> Self:
        """Initial values of the students that training with these seeds produces."""
        rows = []
        for seed in seeds:
            stream, pairs = task.streams(int(seed), p.data_draw), p.d_g * p.N
            teachers = task.draw_permutations(p, stream["task"])
            right = teachers[:, None, :] == np.arange(p.N)[:, None]
            weights = task.draw_weights(p, stream["initialisation"])
            W_Q, W_K, M = weights["W_Q"][:, 0], weights["W_K"][:, 0], weights["M"]
            R = M[right].sum() / pairs
            S = ((right.sum(0) * M.sum(0)).sum() / pairs - R) / max(p.d_g - 1, 1)
            rows.append((W_Q, W_K, R, S, M.sum() / pairs, M[right].var(), M[~right].var()))
        return cls(*map(np.stack, zip(*rows, strict=True)))

    @classmethod
    def drawn(cls, p: Parameters, seeds: int, rng: np.random.Generator) -> Self:
        """Random initial values from the distribution of the students: independent uniform weights.

        R, S and zeta, sums of many entries of M, are drawn as jointly Gaussian; the variances of
        entries are set to their mean.

        Raises
        ------
        ParameterError
            If too many starts are requested, or embeddings are learned.
        """
        ARCHITECTURE.require(p)
        number("seeds", seeds, Allowed(low=1, high=10**6), int)
        memory.require(lambda p: 32.0 * seeds * p.d_h, p, "initial weights")
        var = p.initial_variance
        bound = np.sqrt(3 * var)
        W_Q, W_K = rng.uniform(-bound, bound, (2, seeds, p.d_h))
        mean = rng.normal(scale=np.sqrt(var / p.d_g), size=seeds)
        scatter = np.sqrt(var * (1 - 1 / p.N) / (p.N * p.d_g))
        R = mean / p.N + rng.normal(scale=scatter, size=seeds)
        S = mean / p.N + rng.normal(scale=scatter / np.sqrt(max(p.d_g - 1, 1)), size=seeds)
        return cls(W_Q, W_K, R, S, mean, np.full(seeds, var), np.full(seeds, var))


def started(p: Parameters, start: Start) -> None:
    """Check that initial values are those of students of these sizes.

    Raises
    ------
    ParameterError
        If they are none, or have another head dimension.
    """
    if not isinstance(start, Start):
        raise ParameterError("start: must be a Start, measured or drawn")
    if start.W_Q.shape[-1] != p.d_h:
        raise ParameterError(f"start: has d_h = {start.W_Q.shape[-1]}, must have d_h = {p.d_h}")
