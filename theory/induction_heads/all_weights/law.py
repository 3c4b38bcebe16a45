"""Asymptotic law of the emergence times when all weights are trained: flow of five
pseudo-parameters, and its limit of large N.

For both kinds of queries the times scale as N^2 / ln N. For the last pair alpha_3 does not wait for
beta_2: because gamma_4 is negative, retrieved tokens are harmful, and attention of labels on their
own items collects them; alpha_3 is driven by e^alpha_3 ln N / (4 N^2). For a uniform query gamma_4
has no effect and the average over positions gives the ln N, but gamma_2 and gamma_3 share the
output.
"""

from __future__ import annotations

from functools import cache

import scipy.integrate
import scipy.optimize
import sympy as sp

from theory import numeric
from theory.equation import Equation, table
from theory.induction_heads.all_weights import plateau
from theory.induction_heads.all_weights.plateau import LEADING, e, phi
from theory.induction_heads.all_weights.scores import PLACE, THETA
from theory.induction_heads.numbers import all_weights as times
from theory.induction_heads.symbols import N, T_alpha, T_drop, T_gamma, ref, tau, u
from theory.notation import symbol

EXPLICIT, NODES = 2048, 64
FAR = 18.0  # largest alpha_3: e^-18 of the time is left; beyond it polygammas cancel in phi
LARGE = (*LEADING[:1], "N to infinity: the next term is smaller by 1 / ln N", *LEADING[2:])
mean_phi, variance_phi = (
    symbol("mean_phi", r"\langle\varphi\rangle", "mean of phi until the drop", real=True),
    symbol("variance_phi", r"\mathrm{Var}\,\varphi", "its variance", positive=True),
)
beta_2, gamma_3, alpha_3 = (THETA[n] for n in ("beta_2", "gamma_3", "alpha_3"))


@cache
def constants() -> dict[str, float]:
    """Mean and variance of phi(1/u) over u in (0, 1), and the time of gamma_3 = 1/2 divided by N,
    for the last pair.
    """
    of_e = numeric.function(plateau.sums()[phi], [e])
    moments = [
        scipy.integrate.quad(
            lambda v, n=n: float(of_e(1 / v)) ** n, 0, 1, epsabs=1e-12, epsrel=1e-12
        )[0]
        for n in (1, 2)
    ]
    path = numeric.function(
        plateau.layer()["last_Gamma"] / 2, [tau]
    )  # gamma_3 is half of Gamma until t = O(N^2 / ln N)
    first = scipy.optimize.brentq(lambda v: float(path(v)) - times.HALF, 0.1, 10, xtol=1e-14)
    return {
        "mean_phi": moments[0],
        "variance_phi": moments[1] - moments[0] ** 2,
        "T_gamma_over_N": float(first),
    }


@cache
def uniform_integral() -> sp.Expr:
    """Integral of exp(-b^2/2) / sqrt(1 + 2 b^2) over b > 0: T_drop ln N / (4 N^2) for a uniform
    query.

    Substituting b = sinh(v) / sqrt(2) gives the integral of exp((1 - cosh 2v) / 8) / sqrt(2), and
    K_0(z) is the integral of exp(-z cosh w) over w > 0.
    """
    v = sp.Symbol("v", positive=True)
    b = sp.sinh(v) / sp.sqrt(2)
    gaps = (
        1 + 2 * b**2 - sp.cosh(v) ** 2,
        b**2 / 2 - (sp.cosh(2 * v) - 1) / 8,
        sp.diff(b, v) - sp.cosh(v) / sp.sqrt(2),
    )
    if any(sp.expand(gap.rewrite(sp.exp)) != 0 for gap in gaps):
        raise ArithmeticError("the substitution does not lead to a Bessel function")
    z = sp.Rational(1, 8)
    return sp.exp(z) / sp.sqrt(2) * sp.besselk(0, z) / 2


@cache
def equations() -> dict[str, Equation]:
    """Limits of large N; for the last pair with the first corrections."""
    new, log = f"{PLACE}: law", sp.log(N)
    # Last pair: e^-alpha decreases at the rate (ln N + phi(e) + 4 alpha / ln N) / (4 N^2), using
    # beta_2 = 2 alpha / ln N.
    mean_alpha = sp.integrate(-sp.log(u), (u, 0, 1))
    corrected = 4 * N**2 / (log + mean_phi + (4 * mean_alpha - variance_phi) / log)
    two_gamma = sp.Rational(
        1, 2
    )  # uniform q: gamma_3 at the start; gamma_3 - gamma_2 grows with beta_2
    rest = sp.sqrt(two_gamma**2 + beta_2**2 / 2)
    return table(
        ref,
        *LARGE,
        status="leading order",
        all_gamma_last=(gamma_3, sp.sqrt(1 + beta_2**2 / 2), f"{new}: behind the layer, q = N"),
        all_gamma_uniform=(gamma_3, rest, f"{new}: behind the layer, uniform q"),
        all_alpha_uniform=(alpha_3, beta_2**2 / 2, f"{new}: behind the layer, uniform q"),
        T_drop_all_last=(T_drop, corrected, f"{new}: q = N, to relative order 1 / (ln N)^2"),
        T_alpha_all_last=(
            T_alpha,
            4 * (1 - sp.exp(-sp.Rational(1, 2))) * N**2 / log,
            f"{new}: q = N",
        ),
        T_drop_all_uniform=(T_drop, 4 * uniform_integral() * N**2 / log, f"{new}: uniform q"),
        T_gamma_all_uniform=(T_gamma, N * log / (2 - sp.sqrt(2)), f"{new}: uniform q"),
    )
