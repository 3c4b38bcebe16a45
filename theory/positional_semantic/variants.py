"""Variants of the state evolution: other regularisers (App. C.6), quadrature rules of low degree
as behind the published fixed points.

Seven files of theirs follow from the rule with 12 nodes per pair of Gaussians (degree seven), two
from one with 18 (degree nine); their losses and errors were integrated with a rule of degree eleven
at these overlaps. The minimiser of the envelope is the one that descent from zero reaches, as in
the authors' notebook: where both wells are equally deep it stays on the saddle between them.

Since this minimiser jumps, the fixed points have errors from a few permille to tens of percent
(`fixed_point.solve` converges).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

import numpy as np

from theory import scope
from theory.arguments import checked
from theory.parameters import Allowed
from theory.positional_semantic import prox
from theory.positional_semantic.channel import Averages, State, averages, integrands, target
from theory.positional_semantic.fixed_point import FixedPoint
from theory.positional_semantic.parameters import MINIMUM, Parameters
from theory.positional_semantic.state_evolution import Branch, conjugates, damped, in_range, update

DEGREES = (7, 9)
Degree = Annotated[int, Allowed(choices=DEGREES)]
LOW_DEGREE_DAMPING = 0.8
LOW_DEGREE_ITERATIONS = 2000
LOW_DEGREE_TOLERANCE = 1e-10
# Degree nine, Haegemans and Piessens 1977: rows x, y, weight of each set of mirror images, which
# solve the 15 moment equations.
NINE = [
    (2.8524841441526654, 0.938695016837976, 0.0056736858282812825),
    (1.392672825530371, 1.805789775737658, 0.032973915741809405),
    (4.329399359783665, 6.633150001697311, 9.400916252550505e-07),
    (1.3369588790906308, 0.0, 0.15649404094802888),
    (0.0, 0.8651238873612095, 0.25529268131936605),
    (0.0, 2.7706754719307134, 0.01091619440917317),
]


@cache
def rule(degree: Degree = 7) -> tuple[np.ndarray, np.ndarray]:
    """Nodes ``(2, n)`` and weights ``(n,)`` for two independent standard normals.

    Degree 7 is Stroud's E_2^{r^2} 7-1 with 12 nodes; degree 9 has 18.
    """
    r, s, t = np.sqrt(6), *(np.sqrt((9 + k * 3 * np.sqrt(5)) / 4) for k in (-1, 1))
    shares = (5 + 2 * np.sqrt(5)) / 45, (5 - 2 * np.sqrt(5)) / 45
    seven = [(r, 0, 1 / 36), (0, r, 1 / 36), (s, s, shares[0]), (t, t, shares[1])]
    sets = [
        (a * u, b * v, weight)
        for u, v, weight in (seven if degree == 7 else NINE)
        for a in ((1, -1) if u else (1,))
        for b in ((1, -1) if v else (1,))
    ]
    *nodes, weights = np.array(sets).T
    return np.array(nodes), weights


def low_degree_averages(p: Parameters, state: State, degree: int = 7) -> Averages:
    """Output averages over the rule's nodes for both pairs of fields, with the minimiser reached
    from zero.
    """
    nodes, weights = rule(degree)
    xi = np.repeat(nodes, weights.size, 1)
    eta = np.tile(nodes, weights.size)
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
def solve_low_degree(
    p: Parameters, branch: Branch, start: State | None = None, degree: Degree = 7
) -> FixedPoint:
    """Fixed point by damped steps.

    Raises
    ------
    ParameterError
        If it does not converge.
    """

    def step(state: State, before: Averages | None) -> tuple[State, Averages]:
        averaged = low_degree_averages(p, state, degree)
        return update(p, state, averaged), averaged

    with in_range(p):
        state, averaged, change = damped(
            step, branch, start, LOW_DEGREE_DAMPING, LOW_DEGREE_TOLERANCE, LOW_DEGREE_ITERATIONS
        )
    hats = conjugates(p, state, averaged)
    return FixedPoint(p, branch, state, hats, averaged, change, np.empty(0))


# Separable convex regularisers in the input channel (App. C.6). Each weight minimises
# r(Q) + D Q^2/2 - b Q with D = sigma^2 V_hat and a Gaussian b of mean m_hat and variance
# sigma^2 q_hat + sigma^2 rho theta_hat^2 (p has the same entry everywhere, the teacher is
# Gaussian). For the ridge the average over b is the closed form of `state_evolution.input_channel`.

# Trapezoidal rule on +-9 standard deviations: error 1e-6 from kinks of the proximal map, 1e-18 from
# the cutoff.
POINTS = np.linspace(-9, 9, 4001)
WEIGHTS = np.exp(-(POINTS**2) / 2) / np.exp(-(POINTS**2) / 2).sum()
Strength = Annotated[float, Allowed(low=0)]
REGULARISER_DAMPING = 0.7
REGULARISER_ITERATIONS = 600
REGULARISER_TOLERANCE = 1e-8


@dataclass(frozen=True)
class Regulariser:
    """A convex function of one weight and its proximal map.

    Attributes
    ----------
    value : callable
        ``value(Q)``.
    minimise : callable
        ``minimise(D, b)``: the minimiser of ``value(Q) + D Q^2/2 - b Q``.
    """

    value: Callable[[np.ndarray], np.ndarray]
    minimise: Callable[[float, np.ndarray], np.ndarray]


@checked
def elastic_net(ridge: Strength, lasso: Strength) -> Regulariser:
    """``ridge Q^2/2 + lasso |Q|``."""
    return Regulariser(
        lambda Q: ridge / 2 * Q**2 + lasso * np.abs(Q),
        lambda D, b: np.sign(b) * np.maximum(np.abs(b) - lasso, 0) / (D + ridge),
    )


@dataclass(frozen=True)
class Solution:
    """Fixed point with a general regulariser: order parameters, training loss, share of weights
    that are zero.
    """

    state: State
    train_loss: float
    zeros: float


def input_channel(
    p: Parameters, hats: dict[str, float], regulariser: Regulariser
) -> tuple[State, np.ndarray]:
    """Order parameters from the conjugates, and the weights at the points of the average."""
    D, rho = p.sigma**2 * hats["V_hat"], p.sigma**2
    spread = p.sigma * np.sqrt(hats["q_hat"] + rho * hats["theta_hat"] ** 2)
    Q = regulariser.minimise(D, hats["m_hat"] + spread * POINTS)
    slope = (WEIGHTS @ (Q * POINTS)) / spread  # E dQ/db by parts avoids derivatives at kinks
    averages = (
        p.sigma**2 * WEIGHTS @ Q**2,
        WEIGHTS @ Q,
        p.sigma**2 * slope,
        p.sigma**2 * rho * hats["theta_hat"] * slope,
    )
    return State(*map(float, averages)), Q


@scope.guard(MINIMUM)
@checked
def solve_regularised(
    p: Parameters, branch: Branch, regulariser: Regulariser, start: State | None = None
) -> Solution:
    """Fixed point on a branch by damped steps; the regulariser stands in place of the ridge
    ``p.lam``.

    Raises
    ------
    ParameterError
        For an unknown branch, or if it does not converge.
    """

    def step(state: State, before: Any) -> tuple[State, Any]:
        averaged = averages(p, state, before and before[0])
        hats = conjugates(p, state, averaged)
        new, Q = input_channel(p, hats, regulariser)
        return new, (averaged, hats, Q)

    with in_range(p):
        state, (averaged, hats, Q), _ = damped(
            step, branch, start, REGULARISER_DAMPING, REGULARISER_TOLERANCE, REGULARISER_ITERATIONS
        )
    penalty = WEIGHTS @ regulariser.value(Q)
    loss = p.complexity * averaged.numbers["E_M"] - hats["q_hat"] * state.V / 2 + penalty
    return Solution(state, float(loss), float(WEIGHTS[Q == 0].sum()))
