"""Numerical hitting times."""

import math
from typing import Annotated, Any

import numpy as np
import scipy.integrate
import scipy.optimize
import scipy.special

from theory import Allowed, ParameterError, scope, sweep
from theory.associative_memory.factual_recall import dynamics
from theory.associative_memory.factual_recall.dynamics import Part
from theory.associative_memory.factual_recall.parameters import RECALL, Parameters
from theory.associative_memory.factual_recall.timescales import equations

Share = Annotated[float, Allowed(low=1e-300, below=1)]


def constants(p: Parameters, part: Part) -> dict[str, float]:
    """Growth rate, ratio c and number of choices of a part, as numbers."""
    numbers = p.values()
    return {
        "lambda_recall": float(equations()[f"growth_{part.name}"].evaluate(numbers)),
        "c_recall": float(dynamics.equations()[f"ratio_{part.name}"].evaluate(numbers)),
        "K": numbers[part.choices.name],
        "epsilon": p.epsilon,
    }


def angle_of_share(p: Parameters, part: Part, share: float) -> float:
    """Angle theta at which a part of the loss has fallen to a share of its initial value."""
    numbers = constants(p, part)
    goal = gain(share, numbers["K"])
    return 0.5 * float(np.arcsinh(2 * np.sqrt(numbers["c_recall"]) * goal / p.epsilon**2))


def gain(share: float, choices: float) -> float:
    """Equation ``gain_at_share``, evaluated without cancellation in K^share - 1 and 1 - share."""
    left = math.expm1(share * math.log(choices))
    return math.log1p(-math.expm1((share - 1) * math.log(choices)) * choices / left)


@scope.guard(RECALL)
@sweep.over_fields
def time_of_share(p: Parameters, part: Part, share: Share) -> float:
    """Flow time at which a part of the loss has decreased to a share of its initial value, at any
    epsilon.

    Parameters
    ----------
    p : Parameters
        Sizes and start.
    part : Part
        `dynamics.RELATION` or `dynamics.SUBJECT`.
    share : float
        Strictly between 0 and 1, and at least 1e-300. The share at time 0 lies below 1 by a term
        that vanishes with epsilon; for larger values the time is 0.

    Returns
    -------
    float
        In units of ``t = eta * steps``, by quadrature of ``hitting_time_exact``.
    """
    numbers = constants(p, part)
    end = angle_of_share(p, part, share)
    lam, choices = numbers["lambda_recall"], numbers["K"]
    # Integral of e^X over theta, with X = X_end sinh(2 theta)/sinh(2 theta_end); for X > 0 only the
    # last 40 units contribute.
    amplitude = p.epsilon**2 / (2 * np.sqrt(numbers["c_recall"]))
    start = max(0.0, end - 20)
    area, _ = scipy.integrate.quad(
        lambda q: np.expm1(amplitude * np.sinh(2 * q)), start, end, epsabs=0, epsrel=1e-12
    )
    return float((choices * end + area) / (lam * choices))


@scope.guard(RECALL)
@sweep.over_fields
def closed_form(p: Parameters, part: Part, share: Share) -> float:
    """Flow time by the closed form for a small start (`hitting_time`).

    Raises
    ------
    ParameterError
        For a share so close to 1 that the start is not small compared with its gain.
    """
    numbers: dict[str, Any] = constants(p, part)
    numbers["X_gain"] = gain(share, numbers["K"])
    time = float(equations()["hitting_time"].evaluate(numbers))
    if time < 0:
        raise ParameterError(
            f"share = {share:.17g}: reached while weights are still at their start, epsilon = "
            f"{p.epsilon:g}, where the closed form does not hold; see time_of_share"
        )
    return time
