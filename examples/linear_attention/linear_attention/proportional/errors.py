"""Errors of linear attention on trained and on new tasks: with a ridge, without, where they
diverge, and how many tasks it takes.
"""

from functools import cache
from typing import Any

import sympy as sp

from linear_attention import statement as task
from linear_attention.statement import D, N, lam, trace
from theory import Equation, equation, symbol
from theory.algebra import linear_root, proved, vanishes, written_as

# Symbols of the proportional limit (those of Lu et al., arXiv:2405.11751, where it has one),
# and tables of equations in them

alpha = symbol("alpha", means="pairs in the context over d", positive=True)
kappa = symbol("kappa", means="training tasks over d", positive=True)
tau = symbol("tau", means="training sequences over d^2", positive=True)
rho = symbol("rho", means="variance of label noise, that of labels being 1", positive=True)
ridge = symbol("ridge", r"\lambda", "ridge, per training sequence", nonnegative=True)
x = symbol("x_star", r"x^{\star}", "variance with which a context shows its task", positive=True)
r = symbol("r", means="eigenvalue of the tasks' second moment R", nonnegative=True)
z = symbol("z", means="argument of the Stieltjes transform", positive=True)
M = M_z = symbol("M_z", "M(z)", "mean of 1/(r + z) over the eigenvalues of R", positive=True)
slope = symbol("dM_z", "M'(z)", "its derivative", negative=True)
M_x = symbol("M_x", r"M(x^{\star})", "M at x", positive=True)
slope_x = symbol("dM_x", r"M'(x^{\star})", "its derivative at x", negative=True)
xi = symbol("xi", means="effective ridge", positive=True)
trained = symbol("error_trained", r"e^{\mathrm{IDG}}", "error on the trained tasks", positive=True)
new = symbol("error_new", r"e^{\mathrm{ICL}}", "error on new tasks", positive=True)
width = symbol("s", means="distance of kappa from 1, (kappa - 1)/sqrt(x)", real=True)

GAUSSIAN = "products of token and context act like Gaussian features of their covariance"
LARGE = "d large at fixed alpha, kappa, tau; tasks N(0, I), tokens N(0, I/d)"


def table(place: str, *assumptions: str, **rows: Any) -> dict[str, equation.Equation]:
    """Equations of one origin."""
    return equation.table(f"zhang2025, beside it: Lu et al. 2024, {place}", *assumptions, **rows)


# Spectrum of the training tasks


@cache
def transform() -> sp.Expr:
    """M(z), the mean of 1/(r + z) over the eigenvalues r of R = (1/k) sum_mu w_mu w_mu^T.

    Leave one task w out of the resolvent: w^T (R + z)^-1 w / k follows from the same number without
    w, which is a mean, tr (R + z)^-1 / k.

    Raises
    ------
    ArithmeticError
        If it is not 1/z for large z.
    """
    left_out, whole = M / kappa, sp.Dummy("whole")
    whole = linear_root(whole - left_out + left_out * whole, whole)  # Sherman-Morrison
    # 1 = tr (R + z) (R + z)^-1 / d, and the k terms of R are alike
    roots = sp.solve(sp.numer(sp.together(kappa * whole + z * M - 1)), M)
    form = 2 / (z + 1 - 1 / kappa + sp.sqrt((z + 1 - 1 / kappa) ** 2 + 4 * z / kappa))
    decaying = [x for x in roots if sp.limit(x.subs(kappa, 2) * z, z, sp.oo) == 1]
    if len(decaying) != 1:
        raise ArithmeticError(f"M(z) is one of {decaying}")
    return written_as(form, decaying[0])


@cache
def derivative() -> sp.Expr:
    """M'(z) in terms of M and z, from the quadratic equation for M."""
    equation = z * M + M / (1 + M / kappa) - 1
    slope = -sp.diff(equation, z) / sp.diff(equation, M)
    return written_as(-M / (z + 1 / (1 + M / kappa) ** 2), slope)


def mean(of: sp.Expr) -> sp.Expr:
    """Mean over the eigenvalues r of a function whose only pole is at r = -z.

    In u = 1/(r + z), which has the mean M, and u^2 the mean -M'; r has the mean 1.

    Raises
    ------
    ArithmeticError
        For another function.
    """
    u = sp.Dummy("u")
    inside = sp.cancel(sp.together(of.subs(r, 1 / u - z)) * u)
    known = {0: 1 + z, 1: 1, 2: M_z, 3: -slope}
    if not inside.is_polynomial(u) or sp.degree(inside, u) > 3:
        raise ArithmeticError(f"{of}: no mean by M(z) and its derivative")
    return sum(c * known[n] for (n,), c in sp.Poly(inside, u).terms())


# Ridge regression on Gaussian features, about as many as samples

F = r + x  # variance of a feature: of a context along an eigenvector of R
TARGET = r / F  # best weight there, which shrinks the noisy context
T, b, s, c = sp.symbols("T b s c", positive=True)
v, g = sp.symbols("v g", real=True)


@cache
def weight() -> tuple[sp.Expr, sp.Expr]:
    """Deviation v of the weight of a feature of variance s from its target c, in units of the
    feature: its mean, and its coefficient of T g / sqrt(n), g Gaussian, given xi.

    The mean squared error of the fit is max_b 2 b |e| - b^2; Gordon's comparison replaces the
    residual |e| by sqrt(sigma^2 + |v|^2) - g.v, and a square root is min_T (T + (...)/T)/2.
    """
    mode = b / T * v**2 - 2 * b * g * v + ridge * (c + v / sp.sqrt(s)) ** 2
    solution = linear_root(sp.diff(mode, v), v).subs(b, ridge * T / xi)
    return sp.factor(solution.subs(g, 0)), sp.factor(sp.diff(solution, g) / T)


def at_mode(of: sp.Expr) -> sp.Expr:
    """A function of s and c at an eigenvalue r."""
    return of.subs({s: F, c: TARGET})


def over(of: sp.Expr) -> sp.Expr:
    """Mean over eigenvalues at z = x + xi."""
    return mean(of.subs(xi, z - x)).subs(z, x + xi)


@cache
def penalty() -> sp.Expr:
    """Ridge at which xi is the effective one, from stationarity in b: T - g.v = b."""
    _, noise = weight()
    share = over(at_mode(noise)) / tau  # d^2 weights over n samples
    return sp.expand(xi * (1 - share))


@cache
def error() -> sp.Expr:
    """Error on the trained tasks, T^2 = sigma^2 + |v|^2 (stationarity in T), solved for T^2; the
    error sigma^2 of the best weights is what no weight explains.
    """
    bias, noise = weight()
    stationary = sp.diff(b * T + b * (trained + v**2) / T, T)  # trained stands for sigma^2
    proved(vanishes(stationary.subs(trained, T**2 - v**2)), "T^2 is not the error")
    least = rho + r * (1 - TARGET)
    loss = over(sp.cancel(least + at_mode(bias) ** 2 - rho)) + rho
    above = rho + x + (xi**2 - x**2) * M_z + xi * (x + xi) ** 2 * slope
    form = tau * above / (tau - 1 + 2 * xi * M_z + xi**2 * slope)
    return written_as(form, loss / (1 - over(at_mode(noise) ** 2) / tau))


@cache
def second_moment() -> sp.Expr:
    """Mean square of the weights themselves, c + v/sqrt(s), given the error on trained tasks."""
    bias, noise = (at_mode(part / sp.sqrt(s)) for part in weight())
    return over(sp.cancel((TARGET + bias) ** 2)) + trained * over(noise**2) / tau


@cache
def overlap() -> sp.Expr:
    """Mean of the weights that pass a task on: the diagonal ones."""
    return over(sp.cancel(TARGET + at_mode(weight()[0] / sp.sqrt(s))))


AT_X = {M_z: M_x, slope: slope_x}
MANY = "no ridge, tau > 1"


@cache
def shown() -> sp.Expr:
    """Variance x with which a context of N = alpha d pairs shows its task, from the second moment
    of beta at any N; label noise of variance rho adds its own, as to the labels' variance 1.
    """
    white = task.second_moment().subs(lam[task.d], 1).subs(trace, D)
    pure = sp.limit(white.subs(N, alpha * D), D, sp.oo) - 1
    return written_as((1 + rho) / alpha, pure * (1 + rho))


@cache
def on_new() -> sp.Expr:
    """Error on new tasks: their R is the identity, so that every weight counts with variance
    1 + x, and every diagonal one helps.
    """
    return 1 + rho - 2 * overlap() + (1 + x) * second_moment()


@cache
def without_ridge() -> tuple[sp.Expr, sp.Expr]:
    """Both errors for tau > 1, where the effective ridge vanishes with the ridge.

    Raises
    ------
    ArithmeticError
        If it does not.
    """
    proved(vanishes(penalty().subs(xi, 0)), "the effective ridge does not vanish")
    first, second = (e.subs(xi, 0).subs(AT_X) for e in (error(), on_new()))
    form = tau * (rho + x - x**2 * M_x) / (tau - 1)
    return written_as(form, first), second.subs(trained, form)


@cache
def xi_below() -> sp.Expr:
    """Effective ridge without a ridge for tau < 1: the positive root of 1 - tau = xi M(x + xi).

    Raises
    ------
    ArithmeticError
        If it is not.
    """
    m = (1 - tau) / xi
    proved(vanishes(penalty().subs(M_z, m)), "the effective ridge has another equation")
    lean = x + 1 - tau / kappa
    root = (1 - tau) / (2 * tau) * (lean + sp.sqrt(lean**2 + 4 * x * tau / kappa))
    proved(vanishes(((x + xi) * m + m / (1 + m / kappa) - 1).subs(xi, root)), "not a root")
    return root  # positive; the product of both roots is negative


@cache
def peak() -> sp.Expr:
    """|tau - 1| times the error on new tasks at tau = 1, from above."""
    return sp.factor(sp.limit((tau - 1) * without_ridge()[1], tau, 1))


@cache
def unlimited() -> sp.Expr:
    """Error on new tasks without limit on training sequences."""
    return sp.expand(sp.limit(without_ridge()[1], tau, sp.oo))


@cache
def transition() -> sp.Expr:
    """Leading excess error around kappa = 1 for long contexts, (kappa - 1) = s sqrt(x), over
    sqrt(x): the share of directions that no training task has, smoothed.
    """
    small = sp.Dummy("sqrt_x", positive=True)
    near = {kappa: 1 / (1 - width * small)}
    M = transform()
    excess = unlimited() - rho
    values = {M_x: M.subs(z, x), slope_x: sp.diff(M, z).subs(z, x)}
    scaled = excess.subs(values).subs(near).subs(x, small**2) / small
    root = sp.sqrt(width**2 + 4)
    return written_as((root - width) ** 2 / (4 * root), sp.simplify(sp.limit(scaled, small, 0)))


@cache
def equations() -> dict[str, Equation]:
    """Spectrum, effective ridge, both errors, and their limits."""
    share = symbol("sqrt_share", r"(e^{\mathrm{ICL}}-\rho)/\sqrt{x^{\star}}", "scaled excess")
    height = symbol("peak", r"|\tau-1|\,e^{\mathrm{ICL}}", "height of the peak")
    spectral = dict(shown=(x, shown), mp_transform=(M_z, transform), mp_slope=(slope, derivative))
    at_z = "M at z = x + xi"
    fits = dict(
        effective_ridge=(ridge, penalty, at_z),
        error_trained=(trained, error, at_z),
        error_new=(new, on_new, at_z),
    )
    ridgeless = dict(
        xi_below=(xi, xi_below, "no ridge, tau < 1"),
        trained_above=(trained, lambda: without_ridge()[0], MANY),
        new_above=(new, lambda: without_ridge()[1], MANY),
        error_peak=(height, peak, "no ridge, tau -> 1"),
    )
    many = dict(
        new_unlimited=(new, unlimited, "tau -> infinity"),
        transition=(share, transition, "tau, alpha -> infinity at given (kappa - 1)/sqrt(x)"),
    )
    ansatz = LARGE, GAUSSIAN
    return {
        **table("tasks and contexts", LARGE, status="leading order", **spectral),
        **table("errors with a ridge", *ansatz, status="closure", **fits),
        **table("errors without a ridge", *ansatz, status="closure", **ridgeless),
        **table("how many tasks", *ansatz, status="closure", **many),
    }
