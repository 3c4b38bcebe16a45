"""Asymptotic law of the emergence times when all weights are trained: flow of five
pseudo-parameters, and its limit of large N.

For both kinds of queries the times scale as N^2 / ln N. For the last pair alpha_3 does
not wait for beta_2: because gamma_4 is negative, retrieved tokens are harmful, and
attention of labels on their own items collects them; alpha_3 is driven by e^alpha_3 ln
N / (4 N^2). For a uniform query gamma_4 has no effect and the average over positions
gives the ln N, but gamma_2 and gamma_3 share the output.

A burst of B right pairs multiplies the gammas by B, and the drive of alpha_3 by B^2.
What three numbers gain beside that, rows that see earlier right pairs, is smaller by B
/ ln N here.
"""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Annotated, Any

import numpy as np
import scipy.integrate
import scipy.optimize
import sympy as sp

from theory import (
    Allowed,
    Chapter,
    Equations,
    checked,
    gauss_legendre,
    number,
    proved,
    symbol,
)
from theory.induction_heads.all_weights import burst, descent, plateau
from theory.induction_heads.all_weights.plateau import (
    BURST,
    FIVE,
    beta_7,
    beta_10,
    e,
    phi,
)
from theory.induction_heads.all_weights.running import total, with_gradient
from theory.induction_heads.all_weights.scores import PLACE, THETA
from theory.induction_heads.bursty import emergence
from theory.induction_heads.network import ORTHONORMAL
from theory.induction_heads.symbols import (
    B,
    N,
    T_alpha,
    T_drop,
    T_gamma,
    mean_B,
    mean_B2,
    q,
    ref,
    tau,
    u,
)
from theory.numbers import numeric
from theory.symbols.fractions import factored

EXPLICIT = 2048
NODES = 64
# largest alpha_3: e^-18 of the time is left; beyond it polygammas cancel in phi
FAR = 18.0
LARGE = (
    plateau.STRICT,
    "N to infinity: the next term is smaller by 1 / ln N",
    ORTHONORMAL,
)
mean_phi = symbol(
    "mean_phi", r"\langle\varphi\rangle", "mean of phi until the drop", real=True
)
variance_phi = symbol(
    "variance_phi", r"\mathrm{Var}\,\varphi", "its variance", positive=True
)
beta_2, gamma_3, alpha_3 = (THETA[n] for n in ("beta_2", "gamma_3", "alpha_3"))
N_eff = symbol("N_eff", r"N_{\mathrm{eff}}", "effective context length", positive=True)


@cache
def constants() -> dict[str, float]:
    """Mean and variance of phi(1/u) over u in (0, 1), and the time of gamma_3 = 1/2
    divided by N, for the last pair.
    """
    of_e = numeric.function(plateau.sums()[phi], [e])

    def moment(n: int) -> float:
        power = lambda v: float(of_e(1 / v)) ** n
        return scipy.integrate.quad(power, 0, 1, epsabs=1e-12, epsrel=1e-12)[0]

    # gamma_3 is half of Gamma until t = O(N^2 / ln N)
    path = numeric.function(plateau.layer()["last_Gamma"] / 2, [tau])
    missing = lambda v: float(path(v)) - descent.HALF
    mean = moment(1)
    return {
        "mean_phi": mean,
        "variance_phi": moment(2) - mean**2,
        "T_gamma_over_N": float(scipy.optimize.brentq(missing, 0.1, 10, xtol=1e-14)),
    }


@cache
def uniform_integral() -> sp.Expr:
    """Integral of exp(-b^2/2) / sqrt(1 + 2 b^2) over b > 0: T_drop ln N / (4 N^2) for a
    uniform query.

    Substituting b = sinh(v) / sqrt(2) gives the integral of exp((1 - cosh 2v) / 8) /
    sqrt(2), and K_0(z) is the integral of exp(-z cosh w) over w > 0.
    """
    v = sp.Symbol("v", positive=True)
    b = sp.sinh(v) / sp.sqrt(2)
    gaps = (
        1 + 2 * b**2 - sp.cosh(v) ** 2,
        b**2 / 2 - (sp.cosh(2 * v) - 1) / 8,
        sp.diff(b, v) - sp.cosh(v) / sp.sqrt(2),
    )
    for gap in gaps:
        zero = sp.expand(gap.rewrite(sp.exp)) == 0
        proved(zero, "the substitution does not lead to a Bessel function")
    z = sp.Rational(1, 8)
    return sp.exp(z) / sp.sqrt(2) * sp.besselk(0, z) / 2


@cache
def drop_time() -> sp.Expr:
    """Time of the drop for the last pair, or bursts, with the first corrections.

    One head descends the mean loss over bursts. e^-alpha decreases at the rate <B>^2
    (ln N + phi(e)) / (4 N^2), and by the right labels, as beta_2 grows; u = e^-alpha.
    """
    log = sp.log(N)
    v = sp.Symbol("v", positive=True)
    scale = mean_B**2 / (4 * N**2)
    of_labels = emergence.mean(plateau.slow_loss().subs(gamma_3, mean_B)) / N**2
    of_beta = -sp.diff(of_labels, beta_2).subs(alpha_3, -sp.log(v))
    beta = sp.integrate(sp.expand(of_beta / (scale * log)), (v, u, 1))
    gain = sp.expand(-sp.diff(of_labels, alpha_3) * sp.exp(-alpha_3) / scale)
    gain = factored(gain.subs(beta_2, beta) * log)
    mean = sp.integrate(sp.expand(gain), (u, 0, 1))
    return 1 / scale / (log + mean_phi + (sp.expand(mean) - variance_phi) / log)


def of_size(right: int | sp.Symbol) -> sp.Expr:
    """`drop_time` of bursts of one size."""
    return drop_time().subs({mean_B: right, mean_B2: right**2})


def effective() -> sp.Expr:
    """Square of the context length at which a single right pair takes as long, without
    corrections in 1/ln N; ln(N/B) in its logarithm.
    """
    leading = 4 * N**2 / sp.log(N)
    return leading / B**2 / (leading / N**2).subs(N, N / B)


def uniform_drop_time() -> sp.Expr:
    """Time of the drop for a uniform query."""
    return 4 * uniform_integral() * N**2 / sp.log(N)


# Limits of large N

SINGLE = f"{PLACE}: law"
SINGLE_LAYER = f"{SINGLE}: behind the layer"
MANY = f"{burst.PLACE}: law"
CORRECTED = "to relative order 1 / (ln N)^2"
gamma_last = sp.sqrt(1 + beta_2**2 / 2)
gamma_burst = sp.sqrt(B**2 + (beta_2**2 + beta_7**2 + beta_10**2) / 2)
# uniform q: gamma_3 at the start; gamma_3 - gamma_2 grows with beta_2
two_gamma = sp.Rational(1, 2)
gamma_uniform = sp.sqrt(two_gamma**2 + beta_2**2 / 2)
alpha_time = 4 * (1 - sp.exp(-sp.Rational(1, 2))) * N**2 / (B**2 * sp.log(N))
gamma_time = N * sp.log(N) / (2 - sp.sqrt(2))

chapter = Chapter(ref, *LARGE, status="leading order")
state = chapter.state
state("all_gamma_last", gamma_3, gamma_last, f"{SINGLE_LAYER}, q = N")
state("all_gamma_uniform", gamma_3, gamma_uniform, f"{SINGLE_LAYER}, uniform q")
state("all_alpha_uniform", alpha_3, beta_2**2 / 2, f"{SINGLE_LAYER}, uniform q")
state("T_drop_all_last", T_drop, partial(of_size, 1), f"{SINGLE}: q = N, {CORRECTED}")
state("T_alpha_all_last", T_alpha, alpha_time.subs(B, 1), f"{SINGLE}: q = N")
state("all_gamma_burst", gamma_3, gamma_burst, f"{MANY}: behind the layer")
state("T_drop_all_burst", T_drop, partial(of_size, B), f"{MANY}, {CORRECTED}")
state("T_drop_all_bursts", T_drop, drop_time, f"{MANY}, B random")
state("T_alpha_all_burst", T_alpha, alpha_time, MANY)
state("N_eff_all", N_eff**2, effective, f"{MANY}: a single pair drops as late")
state("T_drop_all_uniform", T_drop, uniform_drop_time, f"{SINGLE}: uniform q")
state("T_gamma_all_uniform", T_gamma, gamma_time, f"{SINGLE}: uniform q")


def equations() -> Equations:
    """Limits of large N; for the last pair with the first corrections."""
    return chapter.equations


# Leading-order law of the drop with all weights trained, for sizes at which sums over
# rows are too expensive


def names(right: int = 1) -> tuple[str, ...]:
    """Pseudo-parameters that move at leading order, with ``right`` right pairs."""
    return FIVE if right == 1 else (*FIVE, *BURST)


weight = sp.Symbol("weight")  # of a pair in averages


@cache
def _compiled(query: str, right: int = 1) -> Callable:
    """Loss (equations ``plateau_loss``, ``plateau_loss_burst``) and its gradient by all
    nineteen pseudo-parameters; for a uniform query at pairs and weights.
    """
    loss = sp.Symbol("loss")
    theta = [*THETA.values()]
    if query == "last":
        return with_gradient({loss: plateau.loss_last(right)}, theta, (), (N,))
    common, one = plateau.loss_uniform()
    average = sp.Symbol("average")
    chain = {average: total(weight * one), loss: common + average}
    return with_gradient(chain, theta, (q, weight), (N, q, weight))


EFFECTIVE = 1e-5  # relative accuracy of an effective length: the flow is right to 1/N
SHORTEST = 8  # pairs of a context


@cache
def nodes(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights for averages over all pairs: the first `EXPLICIT` pairs one by
    one, then Gauss-Legendre in ln q.

    The averaged function depends on q only through e/(e + 2q - 2), smooth in ln q.
    Replacing the sum by an integral that starts half a step earlier has a relative
    error of 1/(24 q^2).
    """
    pairs = np.arange(1.0, min(size, EXPLICIT) + 1)
    weights = np.ones_like(pairs)
    if size > EXPLICIT:
        ends = math.log(EXPLICIT + 0.5), math.log(size + 0.5)
        log, weight = gauss_legendre(NODES, *ends)
        far = np.exp(log)
        pairs = np.append(pairs, far)
        weights = np.append(weights, weight * far)
    return pairs, weights / size


def loss_and_gradient(
    theta: np.ndarray, size: float, query: str = "last", right: int = 1
) -> tuple[float, np.ndarray]:
    """Loss of the five pseudo-parameters, or eight for a burst, and its gradient, in
    the layout of all nineteen.
    """
    pairs = () if query == "last" else nodes(int(size))
    return _compiled(query, right)(theta, float(size), *pairs)


@checked
def predicted(
    size: Annotated[int, Allowed(low=2, high=10**5)],
    query: descent.Query = "last",
    right: descent.Right = 1,
    **options: Any,
) -> dict[str, float]:
    """Emergence times by the flow of five pseudo-parameters (eight for a burst of
    ``right`` right pairs), strict mask, without fitted constants; relative error of
    order B/N.

    O(1) per step for either query. Valid up to N = 10^4; at 10^6 rounding errors of the
    gammas stop the integrator, see `slow_drop`. Units and names as in `descent.times`;
    infinite if not reached before the drop.
    """
    descent.loss_of(size, query, "strict", right)  # refuses unknown bursts
    of = partial(loss_and_gradient, size=size, query=query, right=right)
    run = descent.descend(of, size, names(right), **options)
    return descent.crossings(run, size)


@checked
def effective_length(
    size: Annotated[int, Allowed(low=SHORTEST, high=10**5)], right: descent.Right
) -> float:
    """Context length at which a single right pair drops as late as ``right`` of
    ``size`` pairs, strict mask, by the flow of eight numbers and of five.

    Raises
    ------
    ParameterError
        For so many right pairs that the length, at least N/B^2, may be shorter than
        `SHORTEST`.
    """
    number("right", right, Allowed(high=math.isqrt(size // SHORTEST)), int)
    late = predicted(size, right=right, rtol=EFFECTIVE)["T_drop"]

    def gap(log_length: float) -> float:
        length = np.exp(log_length)
        of = partial(loss_and_gradient, size=length)
        run = descent.descend(of, length, FIVE, rtol=EFFECTIVE)
        return math.log(descent.crossings(run, length)["T_drop"] / late)

    ends = math.log(size / right**2 / 2), math.log(2 * size)
    return math.exp(scipy.optimize.brentq(gap, *ends, xtol=EFFECTIVE))


@checked
def slow_drop(
    log_size: Annotated[float, Allowed(low=0, high=1e3)], right: descent.Right = 1
) -> float:
    """T_drop / N^2 for the last pair, or a burst, in the limit 1/N -> 0 at fixed ln N:
    alpha_3 as a function of beta_2, with the numbers that only a burst moves.
    """
    of_e = numeric.function(plateau.sums()[phi], [e])
    moved = [alpha_3, *(THETA[n] for n in BURST)]
    loss = plateau.slow_loss().subs({THETA["gamma_4"]: -right, B: right})
    downhill = [-sp.diff(loss, x) for x in (beta_2, *moved)]
    slopes = numeric.function(downhill, [beta_2, *moved, gamma_3])
    start = np.zeros(1 + len(moved))

    def rates(beta: float, at: np.ndarray) -> list[float]:
        alpha, first, seventh, tenth, _ = at
        third = np.sqrt(right**2 + (beta**2 + seventh**2 + tenth**2) / 2)
        of_beta, of_alpha, *others = slopes(beta, alpha, first, seventh, tenth, third)
        grown = np.exp(alpha)
        of_alpha += right**2 * grown * (log_size + of_e(grown)) / 4
        return [x / of_beta for x in (of_alpha, *others, 1)]

    def gone(_: float, at: np.ndarray) -> float:
        return at[0] - FAR

    gone.terminal = True  # type: ignore[attr-defined]
    run = scipy.integrate.solve_ivp(
        rates, (0, FAR), start, method="LSODA", rtol=1e-10, atol=1e-14, events=gone
    )
    return float(run.y[-1, -1])
