"""Generalised approximate message passing (GAMP) for the attention layer of rank one
(Algorithm 1 of App. B).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from simulate.positional_semantic.student import Data
from theory import Allowed, ParameterError, checked
from theory.positional_semantic import Parameters, prox
from theory.positional_semantic.model.parameters import MINIMUM
from theory.positional_semantic.prox import target_solution

TOLERANCE = 1e-10  # convergence criterion: change of the weights divided by sqrt(d)


@dataclass(frozen=True)
class Message:
    """Result of message passing.

    Attributes
    ----------
    weights : ndarray, shape (d,)
        Estimate of Q.
    steps : ndarray
        Change of the weights divided by sqrt(d), in every iteration.
    gradient : float
        Norm of the gradient of the risk divided by sqrt(d), with Gram matrices at their
        limit.
    variance : float
        Mean variance, to compare with V/sigma^2.
    """

    weights: np.ndarray
    steps: np.ndarray
    gradient: float
    variance: float


@checked
def gamp(
    p: Parameters,
    data: Data,
    start: np.ndarray,
    *,
    damping: Annotated[float, Allowed(low=0, below=1)] = 0.7,
    iterations: Annotated[int, Allowed(low=1)] = 300,
) -> Message:
    """Iterate message passing from given weights.

    Parameters
    ----------
    p : Parameters
        Model; ``prox`` selects the minimiser: ``global`` tries both wells of every
        sentence, ``local`` descends from the last minimiser.
    data : Data
        Training sentences.
    start : ndarray, shape (d,)
        Initial weights.
    damping : float
        Weight of the old iterate.
    iterations : int
        Largest number of iterations.

    Raises
    ------
    ParameterError
        For parameters that the algorithm does not describe, a value out of range, or
        sentences or weights of another dimension.
    """
    MINIMUM.require(p)
    for name, size in {"data": data.tokens.shape[-1], "start": start.size}.items():
        if size != p.d:
            raise ParameterError(f"{name}: has dimension {size}, must have d = {p.d}")
    X, Y = data.arrays()
    squares = (X**2).mean((0, 1))  # concentrates as d grows; stored per entry
    far = target_solution(Y)
    weights = start.astype(float).copy()
    g = np.zeros((2, len(X)))
    spread = np.full(p.d, 1 / p.lam)
    curvature = p.n * squares
    z = (X @ weights).T
    steps = []
    for _ in range(iterations):
        variance = squares @ spread
        w = (X @ weights).T - variance * g
        if p.prox == "global":
            z, value, hessian = prox.descend(far, w, Y, variance, p.sigma)
            other, lower, bent = prox.descend(-far, w, Y, variance, p.sigma)
            better = lower < value
            z = np.where(better, other, z)
            hessian = np.where(better, bent, hessian)
        else:
            z, _, hessian = prox.descend(z, w, Y, variance, p.sigma)
        g = damping * g + (1 - damping) * (z - w) / variance
        a, b, c = variance * hessian
        determinant = a * c - b * b
        slope = np.stack([c / determinant - 1, a / determinant - 1]) / variance
        bend = -np.einsum("nld,ln->d", X**2, slope, optimize=True)
        # The estimate may pass through regions of concave risk; variances are kept
        # positive.
        curvature = np.maximum(damping * curvature + (1 - damping) * bend, -0.5 * p.lam)
        new = (np.einsum("nld,ln->d", X, g, optimize=True) + curvature * weights) / (
            p.lam + curvature
        )
        new = damping * weights + (1 - damping) * new
        spread = 1 / (p.lam + curvature)
        steps.append(np.linalg.norm(new - weights) / np.sqrt(p.d))
        weights = new
        if steps[-1] < TOLERANCE:
            break
    return Message(
        weights, np.array(steps), risk_gradient(p, data, weights), float(spread.mean())
    )


def risk_gradient(p: Parameters, data: Data, weights: np.ndarray) -> float:
    """Norm of the gradient of the idealised risk (Gram matrices sigma^2 times the
    identity), divided by sqrt(d).
    """
    X, Y = data.arrays()
    fields = (X @ weights).T
    # At w = z the gradient of the quadratic term vanishes, and only that of the loss
    # remains.
    _, first, second, *_ = prox.objective(fields, fields, Y, 1.0, p.sigma)
    gradient = (
        np.einsum("nld,ln->d", X, np.stack([first, second]), optimize=True)
        + p.lam * weights
    )
    return float(np.linalg.norm(gradient) / np.sqrt(p.d))
