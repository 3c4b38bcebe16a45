"""Numerical test error at given order parameters."""

from typing import Annotated

import numpy as np

from theory import Allowed, ParameterError, gauss_hermite, scope, sweep
from theory.positional_semantic.errors import NORMALISATIONS, equations
from theory.positional_semantic.numbers.channel import State, student_attention, target
from theory.positional_semantic.parameters import Parameters
from theory.positional_semantic.scope import MINIMUM

Normalise = Annotated[str, Allowed(choices=tuple(NORMALISATIONS))]
ROUNDING = 1e-9  # relative excess of theta that is taken for a rounding error
Order = Annotated[int, Allowed(low=2, high=64, multiple_of=2)]


@scope.guard(MINIMUM)
@sweep.over_fields
def test_error(
    p: Parameters, state: State, normalise: Normalise = "half", order: Order = 24
) -> float:
    """Test error (10) of a student with given order parameters.

    Parameters
    ----------
    p : Parameters
        Model.
    state : State
        Order parameters (6).
    normalise : {'half', 'full', 'entry'}
        ``full`` is ``E|y - f|^2/d``; the figures of the paper show ``half`` of it, which for two
        tokens is also the error per entry.
    order : int
        Gauss-Hermite nodes per axis; the integrand is smooth.

    Raises
    ------
    ParameterError
        For an unknown normalisation, an odd number of nodes, or order parameters of no student.
    """
    possible = state.q >= 0 and abs(state.theta) <= (1 + ROUNDING) * np.sqrt(state.q) * p.sigma
    if not (possible and np.isfinite(state.m)):
        raise ParameterError(f"state = {state}: must have q >= 0 and |theta| <= sigma sqrt(q)")
    x, weight = gauss_hermite(order)
    rho = p.sigma**2
    half = x > 0
    grids = [x[half], x, x, x]  # even under a common sign change, up to the sign of m
    factors = [2 * weight[half], weight, weight, weight]
    h = p.sigma * np.array(np.meshgrid(*grids[:2], indexing="ij"))[..., None, None]
    zeta = np.array(np.meshgrid(*grids[2:], indexing="ij"))[:, None, None]
    spread = np.sqrt(max(state.q - state.theta**2 / rho, 0.0))
    mean = np.array([state.m, -state.m]).reshape(2, 1, 1, 1, 1)
    Y = target(p, h)
    total = np.einsum("i,j,k,l->ijkl", *factors)
    gaps = (Y - student_attention(mean + state.theta / rho * h + spread * zeta)) ** 2
    first, second = (float((total * gap).sum()) for gap in gaps)
    values = {"sigma": p.sigma, "E_S_12": first, "E_S_21": second}
    return NORMALISATIONS[normalise] * float(equations()["test_error"].evaluate(values))
