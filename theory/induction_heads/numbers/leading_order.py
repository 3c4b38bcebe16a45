"""Leading-order law of the drop with all weights trained, for sizes at which sums over rows are too
expensive.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import numpy as np
import scipy.integrate
import scipy.optimize
import sympy as sp

from theory import numeric
from theory.arguments import checked
from theory.induction_heads.all_weights import plateau
from theory.induction_heads.all_weights.law import EXPLICIT, FAR, NODES
from theory.induction_heads.all_weights.plateau import BURST, FIVE, e, phi
from theory.induction_heads.all_weights.scores import THETA
from theory.induction_heads.numbers import all_weights as times
from theory.induction_heads.numbers.all_weights_loss import NAMES
from theory.induction_heads.symbols import N, q
from theory.parameters import Allowed
from theory.special import gauss_legendre


def names(right: int = 1) -> tuple[str, ...]:
    """Pseudo-parameters that move at leading order, with ``right`` right pairs."""
    return FIVE if right == 1 else (*FIVE, *BURST)


@cache
def _compiled(query: str, right: int = 1) -> tuple[Callable, Callable]:
    """Compiled loss: the part common to all pairs, then the part of one pair (for a burst: none),
    each with its gradient with respect to `names`.
    """
    state = [THETA[n] for n in names(right)]
    if query == "uniform":
        common, one = plateau.loss_uniform()
    elif right > 1:
        common, one = plateau.loss_last(right), sp.S.Zero
    else:
        common, one = plateau.loss_last() - plateau.right_label().subs(q, N), plateau.right_label()

    def with_gradient(expr: sp.Expr, *more: sp.Symbol) -> Callable:
        return sp.lambdify(
            [*state, *more],
            [expr, *(sp.diff(expr, x) for x in state)],
            ["scipy", "numpy"],
            cse=True,
        )

    return with_gradient(common, N), with_gradient(one, N, q)


@cache
def nodes(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights for averages over all pairs: the first `EXPLICIT` pairs one by one, then
    Gauss-Legendre in ln q.

    The averaged function depends on q only through e/(e + 2q - 2), smooth in ln q. Replacing the
    sum by an integral that starts half a step earlier has a relative error of 1/(24 q^2).
    """
    pairs = np.arange(1.0, min(size, EXPLICIT) + 1)
    weights = np.ones_like(pairs)
    if size > EXPLICIT:
        log, weight = gauss_legendre(NODES, math.log(EXPLICIT + 0.5), math.log(size + 0.5))
        far = np.exp(log)
        pairs, weights = np.append(pairs, far), np.append(weights, weight * far)
    return pairs, weights / size


def loss_and_gradient(
    theta: np.ndarray, size: int, query: str = "last", right: int = 1
) -> tuple[float, np.ndarray]:
    """Loss of the five pseudo-parameters, or eight for a burst, and its gradient, in the layout of
    all nineteen (equations ``plateau_loss``, ``plateau_loss_burst``).
    """
    common, one = _compiled(query, right)
    state = [float(theta[NAMES.index(n)]) for n in names(right)]
    pairs, weights = (np.array([float(size)]), np.ones(1)) if query == "last" else nodes(size)
    total = np.array(common(*state, size), float) + [
        float(np.sum(weights * x)) for x in one(*state, size, pairs)
    ]
    gradient = np.zeros(len(NAMES))
    gradient[[NAMES.index(n) for n in names(right)]] = total[1:]
    return float(total[0]), gradient


@checked
def predicted(
    size: Annotated[int, Allowed(low=2, high=10**5)],
    query: times.Query = "last",
    right: times.Right = 1,
    **options: Any,
) -> dict[str, float]:
    """Emergence times by the flow of five pseudo-parameters (eight for a burst of ``right`` right
    pairs), strict mask, without fitted constants; relative error of order B^2/N.

    O(1) per step for either query. Valid up to N = 10^4; at 10^6 rounding errors of the gammas stop
    the integrator, see `slow_drop`. Units and names as in `all_weights.times`; infinite if not
    reached before the drop.
    """
    times.loss_of(size, query, "strict", right)  # refuses bursts that it does not know
    run = times.descend(
        lambda x: loss_and_gradient(x, size, query, right), size, names(right), **options
    )
    return times.crossings(run, size)


@checked
def slow_drop(log_size: Annotated[float, Allowed(low=0, high=1e3)]) -> float:
    """T_drop / N^2 for the last pair in the limit 1/N -> 0 at fixed ln N: one ODE for alpha_3 as a
    function of beta_2.
    """
    of_e = numeric.function(plateau.sums()[phi], [e])

    def rates(beta: float, state: np.ndarray) -> list[float]:
        drop = float(np.exp(-state[0]))  # e^-alpha
        third = np.sqrt(1 + beta**2 / 2)
        return [beta + (log_size + float(of_e(1 / drop))) / 2 / third, 2 * drop / third]

    def gone(_: float, state: np.ndarray) -> float:
        return float(state[0]) - FAR

    gone.terminal = True  # type: ignore[attr-defined]
    run = scipy.integrate.solve_ivp(
        rates, (0, FAR), [0.0, 0.0], method="LSODA", rtol=1e-10, atol=1e-14, events=gone
    )
    return float(run.y[1, -1])
