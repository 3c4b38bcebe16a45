"""Leading-order law of the drop with all weights trained, for sizes at which sums over rows are too
expensive.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import numpy as np
import scipy.integrate
import scipy.optimize
import sympy as sp

from theory import Allowed, checked, gauss_legendre, number, numeric
from theory.induction_heads.all_weights import plateau
from theory.induction_heads.all_weights.law import EXPLICIT, FAR, NODES
from theory.induction_heads.all_weights.plateau import BURST, FIVE, e, phi
from theory.induction_heads.all_weights.scores import THETA
from theory.induction_heads.numbers import all_weights as times
from theory.induction_heads.numbers.running import total, with_gradient
from theory.induction_heads.symbols import B, N, q


def names(right: int = 1) -> tuple[str, ...]:
    """Pseudo-parameters that move at leading order, with ``right`` right pairs."""
    return FIVE if right == 1 else (*FIVE, *BURST)


weight = sp.Symbol("weight")  # of a pair in averages


@cache
def _compiled(query: str, right: int = 1) -> Callable:
    """Loss (equations ``plateau_loss``, ``plateau_loss_burst``) and its gradient by all nineteen
    pseudo-parameters; for a uniform query at pairs and weights.
    """
    loss = sp.Symbol("loss")
    if query == "last":
        return with_gradient({loss: plateau.loss_last(right)}, [*THETA.values()], (), (N,))
    common, one = plateau.loss_uniform()
    average = sp.Symbol("average")
    chain = {average: total(weight * one), loss: common + average}
    return with_gradient(chain, [*THETA.values()], (q, weight), (N, q, weight))


EFFECTIVE = 1e-5  # relative accuracy of an effective length: the flow is right to 1/N
SHORTEST = 8  # pairs of a context


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
    theta: np.ndarray, size: float, query: str = "last", right: int = 1
) -> tuple[float, np.ndarray]:
    """Loss of the five pseudo-parameters, or eight for a burst, and its gradient, in the layout of
    all nineteen.
    """
    pairs = () if query == "last" else nodes(int(size))
    return _compiled(query, right)(theta, float(size), *pairs)


@checked
def predicted(
    size: Annotated[int, Allowed(low=2, high=10**5)],
    query: times.Query = "last",
    right: times.Right = 1,
    **options: Any,
) -> dict[str, float]:
    """Emergence times by the flow of five pseudo-parameters (eight for a burst of ``right`` right
    pairs), strict mask, without fitted constants; relative error of order B/N.

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
def effective_length(
    size: Annotated[int, Allowed(low=SHORTEST, high=10**5)], right: times.Right
) -> float:
    """Context length at which a single right pair drops as late as ``right`` of ``size`` pairs,
    strict mask, by the flow of eight numbers and of five.

    Raises
    ------
    ParameterError
        For so many right pairs that the length, at least N/B^2, may be shorter than `SHORTEST`.
    """
    number("right", right, Allowed(high=math.isqrt(size // SHORTEST)), int)
    late = predicted(size, right=right, rtol=EFFECTIVE)["T_drop"]

    def gap(log_length: float) -> float:
        length = float(np.exp(log_length))
        run = times.descend(lambda x: loss_and_gradient(x, length), length, FIVE, rtol=EFFECTIVE)
        return math.log(times.crossings(run, length)["T_drop"] / late)

    ends = math.log(size / right**2 / 2), math.log(2 * size)
    return math.exp(scipy.optimize.brentq(gap, *ends, xtol=EFFECTIVE))


@checked
def slow_drop(
    log_size: Annotated[float, Allowed(low=0, high=1e3)], right: times.Right = 1
) -> float:
    """T_drop / N^2 for the last pair, or a burst, in the limit 1/N -> 0 at fixed ln N: alpha_3 as a
    function of beta_2, with the numbers that only a burst moves.
    """
    of_e = numeric.function(plateau.sums()[phi], [e])
    moved = [THETA[n] for n in ("alpha_3", *BURST)]
    state = [THETA["beta_2"], *moved, THETA["gamma_3"]]
    loss = plateau.slow_loss().subs({THETA["gamma_4"]: -right, B: right})
    slopes = numeric.function([-sp.diff(loss, x) for x in state[:-1]], state)
    start = np.zeros(1 + len(moved))

    def rates(beta: float, at: np.ndarray) -> list[float]:
        alpha, first, seventh, tenth, _ = at
        third = np.sqrt(right**2 + (beta**2 + seventh**2 + tenth**2) / 2)
        of_beta, of_alpha, *others = slopes(beta, alpha, first, seventh, tenth, third)
        grown = float(np.exp(alpha))
        of_alpha += right**2 * grown * (log_size + float(of_e(grown))) / 4
        return [float(x / of_beta) for x in (of_alpha, *others, 1)]

    def gone(_: float, at: np.ndarray) -> float:
        return float(at[0]) - FAR

    gone.terminal = True  # type: ignore[attr-defined]
    run = scipy.integrate.solve_ivp(
        rates, (0, FAR), start, method="LSODA", rtol=1e-10, atol=1e-14, events=gone
    )
    return float(run.y[-1, -1])
