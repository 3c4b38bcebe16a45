"""Numerical values of the linear baseline."""

from functools import cache

import numpy as np

from theory import gauss_hermite, scope, sweep
from theory.positional_semantic.linear import equations
from theory.positional_semantic.numbers.channel import student_attention
from theory.positional_semantic.parameters import Parameters
from theory.positional_semantic.scope import LINEAR


@cache
def moments(sigma_: float, order: int = 96) -> tuple[float, float]:
    """Mean and variance of an off-diagonal entry of ``softmax(h h^T)``, ``h ~ N(0, sigma^2)``."""
    x, weight = gauss_hermite(order)
    P = student_attention(sigma_ * np.array(np.meshgrid(x, x, indexing="ij")))[0]
    mean = float(weight @ P @ weight)
    return mean, float(weight @ (P - mean) ** 2 @ weight)


@scope.guard(LINEAR)
@sweep.over_fields
def baseline(p: Parameters) -> dict[str, float]:
    """Values of the baseline: ``W_12``, ``W_21``, ``epsilon_lin`` (full error) and ``half_test``,
    half of it, as in the figures.
    """
    mean, variance = moments(p.sigma)
    values = p.values() | {"P_mean": mean, "P_var": variance}
    entries = {x: float(equations()[x].evaluate(values)) for x in ("W_12", "W_21")}
    error = float(equations()["linear_error"].evaluate(values))
    return {**entries, "epsilon_lin": error, "half_test": error / 2}
