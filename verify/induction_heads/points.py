"""The full network at given values of the nineteen pseudo-parameters, and at random values of
three, for the checks of gradients.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import sympy as sp
import torch

from simulate.induction_heads import task
from simulate.induction_heads.student import NAMES, THREE, Student, assemble, project, squared_error
from theory.induction_heads import Parameters
from theory.induction_heads.symbols import N as N_symbol
from theory.induction_heads.symbols import alpha, beta, gamma, q

CLOSE = 1e-12, "both sides float64, few operations"
BY_AUTOGRAD = 1e-10, "autograd in float64"
SIZES = (2, 3, 5, 8)
GENERATOR = 20251103  # any fixed seed; the checks hold for all


def gradient_of(x: torch.Tensor) -> torch.Tensor:
    """Gradient left by ``backward``."""
    if x.grad is None:
        raise ValueError("no gradient: call backward first")
    return x.grad


def both(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Split pairs into predicted and measured values."""
    return [p for p, _ in pairs], [m for _, m in pairs]


class Network:
    """The full network on orthonormal sequences: loss and its gradient with respect to the nineteen
    pseudo-parameters, by autograd.

    Parameters
    ----------
    size : int
        Item-label pairs N.
    query : int or {'last', 'uniform'}
        Queried pair, counted from 1; of ``uniform``, each one once.
    mask : {'strict', 'inclusive'}
        Causal mask.
    right : int
        Right pairs, at the end of the context.
    """

    def __init__(self, size: int, query: int | str, mask: str, right: int = 1) -> None:
        asked = "last" if query == "last" else "each"
        p = Parameters(N=size, B=right, data="orthonormal", query=asked, mask=mask)
        random = torch.Generator().manual_seed(GENERATOR)
        drawn = task.sample(p, random, 1 if query == "last" else size, torch.float64)
        rows = [query - 1] if isinstance(query, int) else slice(None)
        self.batch = task.Batch(*(x[rows] for x in drawn))
        self.student = Student(p.dimension, mask, torch.float64)

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        D = self.student.D
        self.student.load_state_dict(assemble(dict(zip(NAMES, theta.tolist(), strict=True)), D))
        self.student.zero_grad()
        loss = squared_error(self.student(self.batch.X), self.batch.y, "sum")
        loss.backward()
        slopes = project({name: gradient_of(w) for name, w in self.student.weights().items()})
        # A pseudo-parameter multiplies a matrix of squared norm D.
        return float(loss.detach()), D * slopes.numpy()


class Point:
    """The full network at some alpha, beta, gamma on random orthonormal data."""

    def __init__(self, N: int, pair: int, mask: str, seed: int) -> None:
        random = torch.Generator().manual_seed(GENERATOR + seed)
        self.N, self.pair, self.mask = N, pair, mask
        p = Parameters(N=N, data="orthonormal", query="last", mask=mask)
        items, labels, codes = task.orthonormal(p, 3, random, torch.float64)
        self.batch = task.assemble(items, labels, codes, torch.full((3,), pair - 1))
        low, high = torch.tensor([-0.5, -1.0, 0.2]), torch.tensor([2.0, 3.0, 1.8])
        self.theta = (
            (low + (high - low) * torch.rand(3, generator=random)).double().requires_grad_()
        )
        self.D = p.dimension
        self.weights = assemble(dict(zip(THREE, self.theta, strict=True)), self.D)
        for w in self.weights.values():
            w.retain_grad()
        student = Student(self.D, mask, torch.float64)
        self.z = torch.func.functional_call(student, self.weights, (self.batch.X,))
        self.loss = squared_error(self.z, self.batch.y, "sum")
        self.loss.backward()
        self.gradient: torch.Tensor = gradient_of(self.theta)

    def values(self) -> dict[str, float]:
        """Numbers by symbol name, abbreviations included."""
        a, b, c = (float(v) for v in self.theta.detach())
        attended = np.exp(a) / (2 * self.N - 2 + np.exp(a))
        s, F = np.exp(b * attended), 2 * self.N - 1
        return {
            "N": self.N,
            "q": self.pair,
            "alpha": a,
            "beta": b,
            "gamma": c,
            "p": attended,
            "G": np.exp(a) / attended,
            "s": s,
            "F": F,
            "r": s + F,
        }

    def number(self, expr: sp.Expr) -> float:
        """Value of an expression in alpha, beta, gamma, N and q."""
        v = self.values()
        return float(compiled(expr)(v["alpha"], v["beta"], v["gamma"], self.N, self.pair))


@cache
def compiled(expr: sp.Expr) -> Callable[..., float]:
    """Compiled to plain Python, as sums run over few rows."""
    return sp.lambdify((alpha, beta, gamma, N_symbol, q), expr, "math")
