"""State evolution with quadrature rules of low degree, as behind the published fixed points.

Seven files of theirs follow from the rule with 12 nodes per pair of Gaussians (degree seven), two
from one with 18 (degree nine); their losses and errors were integrated with a rule of degree eleven
at these overlaps. The minimiser of the envelope is the one that descent from zero reaches, as in
the authors' notebook: where both wells are equally deep it stays on the saddle between them.

Since this minimiser jumps, the fixed points have errors from a few permille to tens of percent
(`fixed_point.solve` converges).
"""

from __future__ import annotations

from functools import cache
from typing import Annotated

import numpy as np
import scipy.optimize

from theory import scope
from theory.arguments import checked
from theory.parameters import Allowed
from theory.positional_semantic.numbers import prox
from theory.positional_semantic.numbers.channel import Averages, State, integrands, target
from theory.positional_semantic.numbers.evolution import (
    Branch,
    conjugates,
    damped,
    in_range,
    update,
)
from theory.positional_semantic.numbers.fixed_point import FixedPoint
from theory.positional_semantic.parameters import Parameters
from theory.positional_semantic.scope import MINIMUM

DEGREES = (7, 9)
Degree = Annotated[int, Allowed(choices=DEGREES)]
DAMPING, ITERATIONS, TOLERANCE = 0.8, 2000, 1e-10
# Degree nine, Haegemans and Piessens 1977: rows x, y, weight of each set of mirror images, to three
# digits, which is enough to find the solution of the moment equations that is meant.
ROUGH = [(2.85, 0.94, 0.0057), (1.39, 1.81, 0.033), (4.33, 6.63, 9.4e-7)]
ROUGH += [(1.34, 0, 0.156), (0, 0.865, 0.255), (0, 2.77, 0.0109)]


@cache
def rule(degree: Degree = 7) -> tuple[np.ndarray, np.ndarray]:
    """Nodes ``(2, n)`` and weights ``(n,)`` for two independent standard normals.

    Degree 7 is Stroud's E_2^{r^2} 7-1 with 12 nodes; degree 9, with 18, solves its 15 moment
    equations.
    """
    if degree == 7:
        r, s, t = np.sqrt(6), *(np.sqrt((9 + k * 3 * np.sqrt(5)) / 4) for k in (-1, 1))
        shares = (5 + 2 * np.sqrt(5)) / 45, (5 - 2 * np.sqrt(5)) / 45
        rows = [(r, 0, 1 / 36), (0, r, 1 / 36), (s, s, shares[0]), (t, t, shares[1])]
    else:
        rough = np.array(ROUGH)
        free = rough != 0
        even = [(i, j) for i in range(0, 9, 2) for j in range(0, 9 - i, 2)]
        normal = {0: 1, 2: 1, 4: 3, 6: 15, 8: 105}

        def gaps(x: np.ndarray) -> np.ndarray:
            full = np.zeros_like(rough)
            full[free] = x
            a, b, weight = full.T
            images = weight * 2.0 ** free[:, :2].sum(1)
            return np.array([images @ (a**i * b**j) / (normal[i] * normal[j]) - 1 for i, j in even])

        rough[free] = scipy.optimize.fsolve(gaps, rough[free], xtol=1e-12)
        rows = [tuple(row) for row in rough]
    sets = [
        (a * u, b * v, weight)
        for u, v, weight in rows
        for a in ((1, -1) if u else (1,))
        for b in ((1, -1) if v else (1,))
    ]
    *nodes, weights = np.array(sets).T
    return np.array(nodes), weights


def averages(p: Parameters, state: State, degree: int = 7) -> Averages:
    """Output averages over the rule's nodes for both pairs of fields, with the minimiser reached
    from zero.
    """
    nodes, weights = rule(degree)
    xi, eta = np.repeat(nodes, weights.size, 1), np.tile(nodes, weights.size)
    total = np.outer(weights, weights).ravel()
    spread = np.sqrt(p.sigma**2 - state.theta**2 / state.q)
    w = np.array([[state.m], [-state.m]]) + np.sqrt(state.q) * xi
    h = state.theta / np.sqrt(state.q) * xi + spread * eta
    Y = target(p, h)
    z, value, _ = prox.descend(np.zeros_like(w), w, Y, state.V, p.sigma)
    numbers = {"E_M": value, **integrands(p, state, h, w, z, Y)}
    return Averages(
        {k: float(total @ v) for k, v in numbers.items()}, np.nan, np.nan, np.empty(0), z
    )


@scope.guard(MINIMUM)
@checked
def solve(
    p: Parameters, branch: Branch, start: State | None = None, degree: Degree = 7
) -> FixedPoint:
    """Fixed point by damped steps.

    Raises
    ------
    ParameterError
        If it does not converge.
    """

    def step(state: State, before: Averages | None) -> tuple[State, Averages]:
        averaged = averages(p, state, degree)
        return update(p, state, averaged), averaged

    with in_range(p):
        state, averaged, change = damped(step, branch, start, DAMPING, TOLERANCE, ITERATIONS)
    hats = conjugates(p, state, averaged)
    return FixedPoint(p, branch, state, hats, averaged, change, np.empty(0))
