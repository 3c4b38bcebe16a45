"""k-fold composition: the agreement identity and learning by curriculum (slides; Wang
et al. 2025).
"""

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np
import scipy.integrate
import sympy as sp
import xarray as xr

from theory import Allowed, Equation, Flow, ParameterError, number, until
from theory.associative_memory.k_hop import overlaps
from theory.associative_memory.k_hop.overlaps import (
    KERNEL_LEARNERS,
    STAGE,
    Parameters,
    Pointers,
    agreement_equations,
    applies,
    flow,
    k,
    mixture,
)
from theory.associative_memory.symbols import N, m
from theory.call import scope
from theory.dynamics import prediction
from theory.dynamics.catalogue import catalogue
from theory.numbers import numeric
from theory.symbols.reading import sympified

__all__ = [
    "Parameters",
    "Pointers",
    "applies",
    "curriculum_times",
    "direct_time",
    "equations",
    "flow",
    "flows",
    "mixture",
    "mixture_time",
    "predict",
    "sections",
]


# Agreement, and training times with and without a curriculum, as numbers

Kernels = Annotated[str, Allowed(choices=tuple(overlaps.LEARNERS))]
Product = Annotated[float, Allowed(above=0, high=0.99999)]  # 1 is never reached
LONGEST = {"mixture": 200.0, "sphere": 100.0, "softmax": 1e5}  # longest time of a stage


def time_of_product(system: Flow, p: Any, product: float, longest: float) -> float:
    """Time at which the product of all overlaps reaches a value; NaN if it does not
    before ``longest``.
    """
    goal = {"end": sp.Mul(*system.state) - product}
    return float(system.solve(p, at=[0.0], events=goal, t=longest).end)


def in_time(time: float, what: str, longest: float) -> float:
    """The time of an event.

    Raises
    ------
    ParameterError
        If it is NaN: the event does not occur before ``longest``.
    """
    if np.isnan(time):
        raise ParameterError(f"{what}: not reached before t = {longest:g}")
    return time


def starting_at(p: Parameters, overlaps: Sequence[float]) -> Any:
    """Numbers of a flow that starts with these overlaps."""
    return p.values() | {f"m_{hop}_0": value for hop, value in enumerate(overlaps, 1)}


@scope.pointwise(KERNEL_LEARNERS)
def mixture_time(p: Parameters, product: Product = 0.5) -> float:
    """Time of training on the mixture until the product of all overlaps reaches a
    value; 0 if it starts above.

    Raises
    ------
    ParameterError
        For a product outside (0, 0.99999], or one not reached before t = 200.
    """
    if product <= p.m_0**p.k:
        return 0.0
    longest = LONGEST["mixture"]
    what = f"product = {product:.17g} from m_0 = {p.m_0:g}"
    return in_time(time_of_product(mixture(p.k), p, product, longest), what, longest)


@scope.pointwise(KERNEL_LEARNERS)
def direct_time(
    p: Parameters, product: Product = 0.5, kernels: Kernels = "sphere"
) -> float:
    """Time of direct training from equal overlaps until their product reaches a value,
    by quadrature; 0 if it starts above.

    In the time unit of `flow` for these kernels. With ``s = ln m`` the integrand is
    smooth on all scales.

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

    def slowness(s: float) -> float:
        return np.exp(s) / rate(np.exp(s), p.k, p.N)

    ends = np.log(p.m_0), np.log(end)
    try:
        with warnings.catch_warnings(), np.errstate(all="raise", under="ignore"):
            warnings.simplefilter("error", scipy.integrate.IntegrationWarning)
            value, _ = scipy.integrate.quad(
                slowness, *ends, epsabs=0, epsrel=1e-11, limit=400
            )
    except (ArithmeticError, scipy.integrate.IntegrationWarning):
        raise ParameterError(
            f"product = {product:.17g} from m_0 = {p.m_0:g}: too extreme for double"
            " precision"
        ) from None
    return float(value)


@scope.pointwise(KERNEL_LEARNERS)
def curriculum_times(p: Parameters, kernels: Kernels = "sphere") -> list[float]:
    """Time at which each stage 1 .. k of the curriculum ends.

    Stage j trains the first j overlaps on the j-hop objective until their product is
    `STAGE`.

    Raises
    ------
    ParameterError
        For unknown kernels, or if a stage takes longer than t = 100 (sphere) or 1e5
        (softmax).
    """
    return np.cumsum([length for _, _, length in stages(p, kernels)]).tolist()


def stages(
    p: Parameters, kernels: str
) -> Iterator[tuple[Flow, dict[str, float], float]]:
    """Flow, initial values and length of each stage of the curriculum."""
    longest = LONGEST[kernels]
    overlaps: list[float] = []
    for hops in range(1, p.k + 1):
        system = flow(hops, kernels)
        start = starting_at(p, [*overlaps, p.m_0])
        length = time_of_product(system, start, STAGE, longest)
        yield system, start, in_time(length, f"m_0 = {p.m_0:g}: stage {hops}", longest)
        final = system.solve(start, at=[length], t=length or 1.0)
        overlaps = [float(final[q.name][0]) for q in system.state]


def product_curve(
    p: Parameters, t: float, curriculum: bool, kernels: str
) -> list[tuple[Any, Any]]:
    """Times and product of all overlaps until ``t``, in pieces: one, or one for each
    stage.
    """
    if not curriculum:
        part = flow(p.k, kernels).solve(starting_at(p, [p.m_0] * p.k), t=t)
        return [(part.t, part["product"])]
    begun = 0.0
    pieces = []
    for system, start, length in stages(p, kernels):
        hops = len(system.state)
        part = system.solve(start, t=length if hops < p.k else t - begun)
        pieces.append((begun + part.t, part["product"] * p.m_0 ** (p.k - hops)))
        begun += length
    return pieces


def over_hops(
    equation: Equation, entries: sp.IndexedBase, values: Sequence, size: int
) -> sp.Expr:
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
    form = equation.rhs.subs({k: len(values), N: size}).doit()
    return form.subs({entries[j]: sympified(v) for j, v in enumerate(values, 1)})


# Predicted curves of a training run of softmax kernels, by stage of the curriculum


@until("t")
@scope.pointwise(KERNEL_LEARNERS)
def predict(
    p: Parameters, runs: xr.Dataset | None = None, *, until: float | None = None
) -> xr.Dataset:
    """Predict a training run: flow of the overlaps of softmax kernels without batch
    noise, the same for every seed.

    Parameters
    ----------
    p : Parameters
        Parameters of the training run.
    runs : Dataset, optional
        Students over ``(seed, t)``; the curve is evaluated at their times.
    until : float, optional
        Length of the curve without runs, in ``t = eta * steps`` (also ``t=``); by
        default that of ``p.steps``.

    Returns
    -------
    Dataset
        ``overlap`` over ``(t, hop)``; ``product``, ``hops`` (number in training) and
        ``accuracy`` over ``t``.

    Raises
    ------
    ParameterError
        If the runs lack their times or were trained with other parameters.
    """
    if runs is None:
        end = p.eta * p.steps
        if until is not None:
            end = number("until", until, Allowed(above=0))
        times = np.linspace(0, end, 601)
    else:
        prediction.check_runs(p, runs, ("t",), free=("batch_size",))
        times = runs.t.values.astype(float)
    overlaps = np.full((len(times), p.k), p.m_0)
    trained = np.zeros(len(times), int)
    state = [p.m_0] * p.k
    begun = 0.0
    hops = 1 if p.curriculum else p.k
    while True:
        system = flow(hops, "softmax")
        remaining = times[-1] - begun
        start = starting_at(p, state[:hops])
        end = np.nan
        if hops < p.k:
            end = time_of_product(system, start, STAGE, remaining)
        later = times >= begun
        inside = times[later & ~(times > begun + end)] - begun  # times of this stage
        last = remaining if np.isnan(end) else end
        path = system.solve(start, at=np.append(inside, last), t=remaining)
        now = np.flatnonzero(later)[: len(inside)]
        overlaps[now] = state
        trained[now] = hops
        for j, q in enumerate(system.state):
            overlap = path[q.name].values
            overlaps[now, j] = overlap[:-1]
            state[j] = float(overlap[-1])
        if np.isnan(end) or end >= remaining:
            break
        begun += end
        hops += 1
    product = overlaps.prod(1)
    curves = {
        "overlap": (("t", "hop"), overlaps),
        "product": ("t", product),
        "hops": ("t", trained),
        "accuracy": ("t", 1 / p.N + (1 - 1 / p.N) * product),
    }
    attributes = {
        "kind": "theory",
        "reference": system.reference,
        "status": system.status,
        "parameters": p.as_json(),
    }
    return xr.Dataset(curves, coords={"t": times}, attrs=attributes)


flows, sections, equations = catalogue(
    {
        "k hops: agreement": [agreement_equations],
        "k hops: overlaps": [overlaps, partial(flow, 3)],
    },
    *(partial(flow, hops, kind) for kind in overlaps.LEARNERS for hops in (1, 2, 3)),
)
