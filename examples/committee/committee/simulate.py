"""Students: a committee of erf units, one fresh example per step."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy.special
import torch

from committee.parameters import Parameters
from simulate import training
from simulate.learner import Unstacked
from simulate.streams import keyed

MEANING = {
    "R": "mean overlap with the own teacher",
    "S": "mean overlap with other teachers",
    "Q": "mean squared length",
    "C": "mean overlap of two units",
    "loss": "generalisation error, exact at these overlaps",
}


def start(p: Parameters) -> np.ndarray:
    """Weights (K, N) with the overlaps of the parameters; teachers are the first K directions."""
    same, w = np.eye(p.K), np.zeros((p.K, p.N))
    w[:, : p.K] = p.S_0 + (p.R_0 - p.S_0) * same
    left = p.C_0 + (p.Q_0 - p.C_0) * same - w[:, : p.K] @ w[:, : p.K].T
    values, vectors = np.linalg.eigh(left)
    w[:, p.K : 2 * p.K] = vectors * np.sqrt(values.clip(0)) @ vectors.T
    return w


class Student:
    """Online descent on half the squared error."""

    def __init__(self, p: Parameters, seed: int, device: torch.device, dtype: torch.dtype) -> None:
        self.p, self.seed, self.w = p, seed, start(p)

    def step(self, number: int) -> None:
        """One example."""
        p, random = self.p, keyed(self.seed, number)
        xi = random.normal(size=p.N)
        label = scipy.special.erf(xi[: p.K] / 2**0.5).sum() + p.sigma * random.normal()
        x = self.w @ xi
        error = label - scipy.special.erf(x / 2**0.5).sum()
        slope = (2 / np.pi) ** 0.5 * np.exp(-(x**2) / 2)
        self.w += p.eta / p.N * error * slope[:, None] * xi

    def measure(self) -> dict[str, Any]:
        """Quantities in `MEANING`."""
        p, w = self.p, self.w
        every = np.vstack([w, np.eye(p.K, p.N)])
        gram, sign = every @ every.T, np.repeat([1.0, -1.0], p.K)
        size = 1 + gram.diagonal()
        mean = 2 / np.pi * np.arcsin(gram / np.sqrt(size[:, None] * size))
        same = np.eye(p.K, dtype=bool)
        different = ~np.eye(p.K, dtype=bool)
        to, among = gram[: p.K, p.K :], gram[: p.K, : p.K]
        parts = {"R": to[same], "S": to[different], "Q": among[same], "C": among[different]}
        return {n: x.mean() for n, x in parts.items()} | {"loss": sign @ mean @ sign / 2}

    def state(self) -> dict[str, Any]:
        """The weights."""
        return {"w": torch.as_tensor(self.w)}

    def load(self, state: dict[str, Any]) -> None:
        """Set the weights."""
        self.w = state["w"].numpy().copy()


def memory(p: Parameters, itemsize: int = 8) -> float:
    """Peak memory of one run in bytes, estimated from array shapes."""
    return 8 * p.N * (8 * p.K + 4) + training.records(p, len(MEANING))


SYSTEM = training.System(
    "committee",
    Parameters,
    partial(Unstacked, Student),
    MEANING,
    memory,
    default_dtype="float64",
    devices=("cpu",),
)
SYSTEMS = {"online": SYSTEM}
train = SYSTEM.train
