"""Separable convex regularisers in the input channel (App. C.6): one proximal map of the
regulariser per weight.

Each weight minimises ``r(Q) + D Q^2/2 - b Q`` with ``D = sigma^2 V_hat`` and a Gaussian ``b`` of
mean ``m_hat`` and variance ``sigma^2 q_hat + sigma^2 rho theta_hat^2`` (p has the same entry
everywhere, the teacher is Gaussian). For the ridge the average over b is the closed form of
`evolution.input_channel`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from theory import Allowed, checked, scope
from theory.positional_semantic.numbers.channel import State, averages
from theory.positional_semantic.numbers.evolution import Branch, conjugates, damped, in_range
from theory.positional_semantic.parameters import Parameters
from theory.positional_semantic.scope import MINIMUM

# Trapezoidal rule on +-9 standard deviations: error 1e-6 from kinks of the proximal map, 1e-18 from
# the cutoff.
POINTS = np.linspace(-9, 9, 4001)
WEIGHTS = np.exp(-(POINTS**2) / 2) / np.exp(-(POINTS**2) / 2).sum()
Strength = Annotated[float, Allowed(low=0)]
DAMPING, ITERATIONS, TOLERANCE = 0.7, 600, 1e-8


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
    slope = float(WEIGHTS @ (Q * POINTS)) / spread  # E dQ/db by parts avoids derivatives at kinks
    averages = (
        p.sigma**2 * WEIGHTS @ Q**2,
        WEIGHTS @ Q,
        p.sigma**2 * slope,
        p.sigma**2 * rho * hats["theta_hat"] * slope,
    )
    return State(*map(float, averages)), Q


@scope.guard(MINIMUM)
@checked
def solve(
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
        state, (averaged, hats, Q), _ = damped(step, branch, start, DAMPING, TOLERANCE, ITERATIONS)
    penalty = float(WEIGHTS @ regulariser.value(Q))
    loss = p.complexity * averaged.numbers["E_M"] - hats["q_hat"] * state.V / 2 + penalty
    return Solution(state, float(loss), float(WEIGHTS[Q == 0].sum()))
