"""State evolution with a 12-node quadrature rule of degree seven per pair of Gaussians, as behind
the overlaps of the authors' data.

The authors' losses and errors were integrated with a rule of degree eleven at these overlaps.

The rule (Stroud's E_2^{r^2} 7-1) is exact for polynomials up to degree seven. Since the minimiser
of the envelope jumps, its fixed points have errors from a few permille to tens of percent
(`fixed_point.solve` converges). It reproduces the published overlaps.
"""

from functools import cache

import numpy as np

from theory import ParameterError, checked
from theory.positional_semantic.numbers import prox
from theory.positional_semantic.numbers.channel import Averages, State, target
from theory.positional_semantic.numbers.fixed_point import (
    STARTS,
    Branch,
    FixedPoint,
    conjugates,
    in_range,
    update,
)
from theory.positional_semantic.parameters import Parameters

DAMPING, ITERATIONS, TOLERANCE = 0.8, 2000, 1e-9


@cache
def rule() -> tuple[np.ndarray, np.ndarray]:
    """Nodes ``(2, 12)`` and weights ``(12,)`` for two independent standard normals."""
    r, s, t = np.sqrt(6), *(np.sqrt((9 + k * 3 * np.sqrt(5)) / 4) for k in (-1, 1))
    nodes = [(r, 0), (-r, 0), (0, r), (0, -r)]
    nodes += [(a * u, b * u) for u in (s, t) for a in (1, -1) for b in (1, -1)]
    weights = [1 / 36] * 4 + [(5 + 2 * np.sqrt(5)) / 45] * 4 + [(5 - 2 * np.sqrt(5)) / 45] * 4
    return np.array(nodes).T, np.array(weights)


def averages(p: Parameters, state: State) -> Averages:
    """Output averages on 12 x 12 nodes with the global minimiser, found as the best of three
    starts.
    """
    nodes, weights = rule()
    xi, eta = (np.repeat(nodes, 12, 1), np.tile(nodes, 12))
    total = np.outer(weights, weights).ravel()
    rest = np.sqrt(p.sigma**2 - state.theta**2 / state.q)
    w = np.array([[state.m], [-state.m]]) + np.sqrt(state.q) * xi
    Y = target(p, state.theta / np.sqrt(state.q) * xi + rest * eta)
    far = prox.target_solution(Y)
    z, value, hessian = prox.descend(w, w, Y, state.V, p.sigma)
    for start in (far, -far):
        other, lower, bent = prox.descend(start, w, Y, state.V, p.sigma)
        better = lower < value - 1e-14
        z, value, hessian = (
            np.where(better, other, z),
            np.where(better, lower, value),
            np.where(better, bent, hessian),
        )
    g = (z - w) / state.V
    data = value - ((z - w) ** 2).sum(0) / (2 * state.V)
    numbers = {
        "E_gg": (g * g).sum(0),
        "E_g": g[0] - g[1],
        "E_gxi": (g * xi).sum(0),
        "E_geta": (g * eta).sum(0),
        "E_M": value,
        "E_loss": data,
    }
    return Averages(
        {k: float(total @ v) for k, v in numbers.items()}, np.nan, np.nan, np.empty(0), z
    )


@checked
def solve(p: Parameters, branch: Branch, start: State | None = None) -> FixedPoint:
    """Fixed point by damped steps.

    Raises
    ------
    ParameterError
        If it does not converge.
    """
    with in_range(p):
        state = start or STARTS[branch]
        for _ in range(ITERATIONS):
            averaged = averages(p, state)
            new = update(p, state, averaged)
            new = new._replace(**({"theta": 0.0} if branch == "positional" else {"m": 0.0}))
            residual = max(abs(a - b) for a, b in zip(new, state, strict=True))
            if residual < TOLERANCE:
                return FixedPoint(
                    p,
                    branch,
                    state,
                    conjugates(p, state, averaged),
                    averaged,
                    residual,
                    np.empty(0),
                )
            state = State(
                *(DAMPING * a + (1 - DAMPING) * b for a, b in zip(state, new, strict=True))
            )
        raise ParameterError(
            f"the degree-seven rule did not settle at omega = {p.omega:g}, alpha = {p.alpha:g}, {branch}"
        )
