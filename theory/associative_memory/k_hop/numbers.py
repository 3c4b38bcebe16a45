"""Numerical agreement, and training times with and without a curriculum."""

import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import scipy.integrate
import sympy as sp

from theory import Allowed, Equation, ParameterError, checked, numeric, scope, sweep
from theory.associative_memory.k_hop import agreement, overlaps
from theory.associative_memory.k_hop.agreement import k
from theory.associative_memory.k_hop.overlaps import STAGE, flow, mixture
from theory.associative_memory.k_hop.parameters import Parameters
from theory.associative_memory.k_hop.scope import KERNEL_LEARNERS
from theory.associative_memory.symbols import N, m

Kernels = Annotated[str, Allowed(choices=tuple(overlaps.LEARNERS))]
Product = Annotated[float, Allowed(above=0, high=0.99999)]  # 1 is never reached
LONGEST = {"mixture": 200.0, "sphere": 100.0, "softmax": 1e5}  # longest time of a stage


def _reached(found: Any, what: str, horizon: float) -> float:
    """Time of the event ``end`` in a solution.

    Raises
    ------
    ParameterError
        If the event does not occur before the end.
    """
    if np.isnan(time := float(found.end)):
        raise ParameterError(f"{what}: not reached before t = {horizon:g}")
    return time


@scope.guard(KERNEL_LEARNERS)
@sweep.over_fields
def mixture_time(p: Parameters, product: Product = 0.5) -> float:
    """Time of training on the mixture until the product of all overlaps reaches a value; 0 if it
    starts above.

    Raises
    ------
    ParameterError
        For a product outside (0, 0.99999], or one not reached before t = 200.
    """
    if product <= p.m_0**p.k:
        return 0.0
    system, horizon = mixture(p.k), LONGEST["mixture"]
    goal = {"end": sp.Mul(*system.state) - product}
    what = f"product = {product:.17g} from m_0 = {p.m_0:g}"
    return _reached(system.solve(p, at=[0.0], events=goal, t=horizon), what, horizon)


@scope.guard(KERNEL_LEARNERS)
@sweep.over_fields
def direct_time(p: Parameters, product: Product = 0.5, kernels: Kernels = "sphere") -> float:
    """Time of direct training from equal overlaps until their product reaches a value, by
    quadrature; 0 if it starts above.

    In the time unit of `flow` for these kernels. With ``s = ln m`` the integrand is smooth on all
    scales.

    Raises
    ------
    ParameterError
        For a product outside (0, 0.99999], unknown kernels, or a time that overflows.
    """
    end = product ** (1 / p.k)
    if end <= p.m_0:
        return 0.0
    alike = {"sphere": "equal_overlaps", "softmax": "equal_overlaps_softmax"}[kernels]
    rate = numeric.function(overlaps.equations()[alike].rhs, [m, k, N])
    try:
        with warnings.catch_warnings(), np.errstate(all="raise", under="ignore"):
            warnings.simplefilter("error", scipy.integrate.IntegrationWarning)
            value, _ = scipy.integrate.quad(
                lambda s: np.exp(s) / rate(np.exp(s), p.k, p.N),
                np.log(p.m_0),
                np.log(end),
                epsabs=0,
                epsrel=1e-11,
                limit=400,
            )
    except (ArithmeticError, scipy.integrate.IntegrationWarning):
        raise ParameterError(
            f"product = {product:.17g} from m_0 = {p.m_0:g}: too extreme for double precision"
        ) from None
    return float(value)


class _Start:
    """Parameters with initial overlaps under the flow's symbol names."""

    def __init__(self, p: Parameters, overlaps: list[float]) -> None:
        self.N, self.overlaps = p.N, overlaps

    def values(self) -> dict[str, float]:
        """Numbers by symbol name."""
        return {"N": self.N, **{f"m_{q}_0": value for q, value in enumerate(self.overlaps, 1)}}


@scope.guard(KERNEL_LEARNERS)
@sweep.over_fields
def curriculum_times(p: Parameters, kernels: Kernels = "sphere") -> list[float]:
    """Time at which each stage 1 .. k of the curriculum ends.

    Stage j trains the first j overlaps on the j-hop objective until their product is `STAGE`.

    Raises
    ------
    ParameterError
        For unknown kernels, or if a stage takes longer than t = 100 (sphere) or 1e5 (softmax).
    """
    horizon = LONGEST[kernels]
    reached: list[float] = []
    passed, times = 0.0, []
    for hops in range(1, p.k + 1):
        reached = [*reached, p.m_0]
        system = flow(hops, kernels)
        goal = {"end": sp.Mul(*system.state) - STAGE}
        solution: Any = system.solve(_Start(p, reached), at=[0.0], events=goal, t=horizon)
        length = _reached(solution, f"m_0 = {p.m_0:g}: stage {hops}", horizon)
        if length:
            final = system.solve(_Start(p, reached), at=[length], t=length)
            reached = [float(final[q.name][0]) for q in system.state]
        passed += length
        times.append(passed)
    return times


def over_hops(equation: Equation, entries: sp.IndexedBase, values: Sequence, size: int) -> sp.Expr:
    """Evaluate an equation's product over hops; exactly if the values are exact.

    Parameters
    ----------
    equation : Equation
        ``agreement`` or ``hop_accuracy``.
    entries : IndexedBase
        Array with one entry per hop: `phi` or `overlap`.
    values : sequence, shape (k,)
        Their values.
    size : int
        Number of things N.
    """
    spelled = equation.rhs.subs({k: len(values), N: size}).doit()
    return spelled.subs({entries[j]: sp.sympify(v, strict=True) for j, v in enumerate(values, 1)})


@checked
def probability(
    fixed_points: Annotated[Sequence[int], Allowed(low=0)], size: Annotated[int, Allowed(low=2)]
) -> float:
    """Agreement of two sets of hidden permutations.

    Parameters
    ----------
    fixed_points : sequence of int, shape (k,)
        Number of points at which hop j of the two sets coincides.
    size : int
        Number of things N.

    Raises
    ------
    ParameterError
        For a number of points at which two permutations of N things cannot coincide.
    """
    points = np.asarray(fixed_points).tolist()
    for alike in points:
        if alike != int(alike) or alike > size or alike == size - 1:
            raise ParameterError(
                f"fixed_points = {alike:g}: must be whole, at most N = {size} and not N - 1"
            )
    whole = [int(alike) for alike in points]
    return float(over_hops(agreement.equations()["agreement"], agreement.phi, whole, size))
