"""Gaussian items, labels and codes of unit variance, as in the paper's experiments.

Vectors have squared norm D instead of 1. In terms of D alpha and D beta, the loss
divided by D is that of normalised vectors; gamma then moves D times faster, and the
other two D^3 times faster. For D >> N^(1/2) attention therefore forms while gamma = D
t/N is still small, at times of order N^(3/2) / D^2 (at gamma = 1 it would take N^2 /
D^3); the loss drops ln 2 / (4 D) later. Inner products divided by D deviate from their
means with variance of order 1/D: to first order in 1/D, the loss over D changes by half
the sum of its second derivatives with respect to them times their variances.
"""

from functools import cache, partial

import sympy as sp

from theory import Chapter, Equations, symbol
from theory.induction_heads import dynamics, expansions
from theory.induction_heads.all_weights import plateau, scores
from theory.induction_heads.all_weights.scores import THETA, e
from theory.induction_heads.expansions import theta
from theory.induction_heads.symbols import (
    D,
    E,
    F,
    N,
    T_drop,
    alpha,
    gamma,
    k,
    r,
    ref,
    s,
    t,
    tau,
    u,
    x,
)
from theory.numbers.numeric import wright_omega
from theory.symbols.algebra import gaussian_moment, proved, vanishes

beta_2, gamma_3, gamma_4 = (THETA[n] for n in ("beta_2", "gamma_3", "gamma_4"))
T_beta_scaled = symbol(
    "T_beta_scaled", r"T_{\beta}(\theta / D)", "time of D beta = theta", positive=True
)


def _variance(name: str, product: str, means: str) -> sp.Symbol:
    """Symbol of a variance of an inner product over D."""
    tex = rf"\mathrm{{Var}}\,({product} / D)"
    return symbol(f"var_{name}", tex, f"variance of {means} over D", positive=True)


var_other = _variance(
    "other", r"a \cdot b", "the inner product of two different vectors"
)
var_own = _variance("own", "|a|^{2}", "a squared norm")
var_swapped = _variance(
    "swapped", r"p M p^{\top}", "a code's inner product with its own swap"
)
GIVEN = (
    "Gaussian data of unit variance",
    "strict mask",
    "D >> N^(1/2)",
    "leading order in 1/N",
    "unit rate on the parameters, loss summed over D",
)
QUERIES = {
    "last": ("q = N", "three numbers"),
    "uniform": (
        "uniform q",
        "alpha_3, beta_2, gamma_3, gamma_4",
        "leading order in 1 / ln N",
    ),
}


def variances() -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """Variances of x.y, |x|^2 and x M x^T, divided by D, for independent standard
    normal coordinates.
    """
    same = lambda a, b: int(a == b)

    def of(product: str) -> sp.Expr:
        square = gaussian_moment(2 * product, same)
        return square - gaussian_moment(product, same) ** 2

    return D * of("xy") / D**2, D * of("xx") / D**2, D / 2 * 4 * of("xy") / D**2


@cache
def needed_last() -> sp.Expr:
    """Integral of D^3 gamma over time until D beta = theta, last pair.

    After the first steps d(beta)/dt = gamma E / (2 N^2) to leading order, proportional
    to gamma however small, and alpha = beta^2/2 for any gamma(t), since the invariant
    does not depend on a common rate of the two.
    """
    shift = expansions.manifold()[0].coeff(x, 0)
    rate, _ = expansions.scaled_rates({sp.exp(alpha): E * sp.exp(shift)}, 2)
    leading = sp.expand(rate).coeff(x, 1)
    proved(vanishes(leading - gamma * E), "the rate of beta is not linear in gamma")
    return expansions.equations()["T_beta_theta"].rhs  # the same at gamma = 1


@cache
def drive() -> sp.Expr:
    """Coefficient of ln N in the decrease of the loss for a uniform query, at small
    gammas and attention, times N^2.

    The loss decreases by 2 (gamma_3 w + gamma_4 r), with w the attention on the correct
    label and r its weight in what other attended rows have retrieved. To first order in
    beta a row has attention (1 + beta (score - mean score)) / (2 N). The mean scores
    and higher orders do not contribute to ln N after averaging over pairs.
    """
    weights = {
        name: weight.subs(scores.E, 0)
        for name, weight in scores.context_weights().items()
    }
    summand = gamma_3 * beta_2 * weights["label_item"]
    later = [weights["item_other"], weights["label_other"]]  # of a label in row pair k
    retrieved = sum(w + beta_2 * w**2 for w in later)
    summand += gamma_4 * (k - 1) * retrieved  # k - 1 earlier pairs
    v = sp.Symbol("v")
    # c_0 + c_1 / k, which sums to c_1 ln N
    far = sp.cancel(sp.together(summand.subs(k, 1 / v)))
    return sp.expand(sp.diff(far, v).subs(v, 0))


@cache
def needed_uniform() -> sp.Expr:
    """Integral of D^3 gamma over time until D beta = theta, uniform query, gamma_3 =
    gamma_4 = gamma.

    d(alpha)/d(beta) separates; its solution is a Wright omega function.
    """
    equal = drive().subs({gamma_4: gamma_3})
    of_beta = sp.factor(sp.diff(equal, beta_2))
    of_alpha = sp.factor(e * sp.diff(equal, e))
    omega = wright_omega(1 - beta_2 * (beta_2 - 1) / 2)
    along = -sp.diff(sp.log(omega), beta_2) - (of_alpha / of_beta).subs(e, 1 / omega)
    from_zero = omega.subs(beta_2, 0).rewrite(sp.LambertW) == 1
    proved(vanishes(along) and from_zero, "e^-alpha is not this omega function of beta")
    factor, slowness = sp.cancel(gamma_3 / of_beta.subs(e, 1 / omega)).as_coeff_Mul()
    integral = sp.Integral(slowness.subs(beta_2, u), (u, 0, theta))
    return factor * N**2 / sp.log(N) * integral


@cache
def fast_time(query: str) -> sp.Expr:
    """Time of D beta = theta while gamma = D t/N.

    Raises
    ------
    ArithmeticError
        If gamma, assumed to be t/N for normalised vectors, starts with another rate.
    """
    if query == "last":
        start = [expansions.layer()[1].coeff(x, 0)]
        integral = needed_last()
    else:
        solution = plateau.layer()
        start = [solution["uniform_Gamma"] / 2, solution["uniform_gamma_4"]]
        integral = needed_uniform()
    slopes = {sp.expand(sp.diff(path, tau).subs(tau, 0)) for path in start}
    proved(slopes == {1}, "gammas do not start as t / N")
    needed = sp.Symbol("needed", positive=True)
    passed = D**3 * sp.integrate(D * u / N, (u, 0, t))
    (time,) = (v for v in sp.solve(passed - needed, t) if v.is_positive)
    return time.subs(needed, integral)


@cache
def after_attention() -> sp.Expr:
    """Time for gamma to grow from zero until the loss is 1/2, with all attention on the
    correct label.
    """

    def at_large_s(expr: sp.Expr) -> sp.Expr:
        return sp.cancel(expr.subs(r, s + F).subs(s, 1 / u)).subs(u, 0)

    rate = at_large_s(dynamics.flow().rhs[gamma])
    late = at_large_s(dynamics.equations()["loss"].rhs)
    half = min(sp.solve(late - sp.Rational(1, 2), gamma))
    return sp.expand_log(sp.integrate(1 / rate, (gamma, 0, half)) / D, force=True)


def drop_time(query: str) -> sp.Expr:
    """Time until beta diverges (theta to infinity),
    plus the time of gamma after that.
    """
    return fast_time(query).subs(theta, sp.oo) + after_attention()


@cache
def equations() -> Equations:
    """Variances of inner products,
    and emergence times in the regime of fast attention.
    """
    chapter = Chapter(ref, GIVEN[0], status="leading order")
    of_other, of_own, of_swapped = variances()
    words = (f"{dynamics.NEW}: Gaussian data", "exact")
    chapter.state("gram_variance_other", var_other, of_other, *words)
    chapter.state("gram_variance_own", var_own, of_own, *words)
    chapter.state("gram_variance_swapped", var_swapped, of_swapped, *words)
    for query, special in QUERIES.items():
        fast = (f"{dynamics.NEW}: fast attention, {special[0]}", *GIVEN[1:], *special)
        late = partial(fast_time, query)
        chapter.state(f"T_beta_gaussian_{query}", T_beta_scaled, late, *fast)
        drop = partial(drop_time, query)
        chapter.state(f"T_drop_gaussian_{query}", T_drop, drop, *fast)
    return chapter.equations
