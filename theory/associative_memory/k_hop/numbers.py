"""Agreement, and times with and without a curriculum, in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.integrate
import sympy as sp

from theory import numeric, scope, sweep
from theory.associative_memory.k_hop import agreement, overlaps
from theory.associative_memory.k_hop.agreement import k
from theory.associative_memory.k_hop.overlaps import STAGE, flow, mixture
from theory.associative_memory.k_hop.parameters import Parameters
from theory.associative_memory.k_hop.scope import KERNEL_LEARNERS
from theory.associative_memory.symbols import N, m
from theory.equation import Equation


@scope.guard(KERNEL_LEARNERS)
@sweep.over_fields
def mixture_time(p: Parameters, product: float = 0.5) -> float:
    """Time of training on the mixture until the product of all overlaps reaches a value."""
    system = mixture(p.k)
    return float(
        system.solve(p, at=[0.0], events={"end": sp.Mul(*system.state) - product}, t=200.0).end
    )


@scope.guard(KERNEL_LEARNERS)
@sweep.over_fields
def direct_time(p: Parameters, product: float = 0.5, kernels: str = "sphere") -> float:
    """Time of direct training from equal overlaps until their product reaches a value, by
    quadrature.

    In units of the `flow` of those kernels; with ``s = ln m`` the integrand is smooth on all
    scales.
    """
    end = product ** (1 / p.k)
    if end <= p.m_0:
        return 0.0
    alike = {"sphere": "equal_overlaps", "softmax": "equal_overlaps_softmax"}[kernels]
    rate = numeric.function(overlaps.equations()[alike].rhs, [m, k, N])
    value, _ = scipy.integrate.quad(
        lambda s: np.exp(s) / rate(np.exp(s), p.k, p.N),
        np.log(p.m_0),
        np.log(end),
        epsabs=0,
        epsrel=1e-11,
        limit=400,
    )
    return float(value)


class _Start:
    """Starting overlaps under the names the flow wants."""

    def __init__(self, p: Parameters, overlaps: list[float]) -> None:
        self.N, self.overlaps = p.N, overlaps

    def values(self) -> dict[str, float]:
        """Numbers by symbol name."""
        return {"N": self.N, **{f"m_{q}_0": value for q, value in enumerate(self.overlaps, 1)}}


@scope.guard(KERNEL_LEARNERS)
@sweep.over_fields
def curriculum_times(p: Parameters, kernels: str = "sphere") -> list[float]:
    """Time at which each stage 1 .. k of the curriculum ends.

    Stage j trains the first j overlaps on the j-hop objective until their product is `STAGE`.
    """
    horizon = 100.0 if kernels == "sphere" else 1e5
    reached: list[float] = []
    passed, times = 0.0, []
    for hops in range(1, p.k + 1):
        reached = [*reached, p.m_0]
        system = flow(hops, kernels)
        goal = {"end": sp.Mul(*system.state) - STAGE}
        found: Any = system.solve(_Start(p, reached), at=[0.0], events=goal, t=horizon)
        length = float(found.end)
        final = system.solve(_Start(p, reached), at=[length], t=length)
        reached = [float(final[q.name][0]) for q in system.state]
        passed += length
        times.append(passed)
    return times


def over_hops(equation: Equation, entries: sp.IndexedBase, values: Sequence, size: int) -> sp.Expr:
    """An equation's product over hops, exactly where the values are.

    Parameters
    ----------
    equation : Equation
        ``agreement`` or ``hop_accuracy``.
    entries : IndexedBase
        What it has of every hop: `phi`, `overlap`.
    values : sequence, shape (k,)
        Their values.
    size : int
        Number of things N.
    """
    spelled = equation.rhs.subs({k: len(values), N: size}).doit()
    return spelled.subs({entries[j]: sp.sympify(v, strict=True) for j, v in enumerate(values, 1)})


def probability(fixed_points: Sequence[int], size: int) -> float:
    """Agreement of two sets of hidden permutations.

    Parameters
    ----------
    fixed_points : sequence of int, shape (k,)
        Number of points that hop j of both sets sends alike.
    size : int
        Number of things N.
    """
    return float(over_hops(agreement.equations()["agreement"], agreement.phi, fixed_points, size))
