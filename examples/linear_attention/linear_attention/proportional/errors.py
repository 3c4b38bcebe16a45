"""Errors of linear attention on trained and on new tasks: with a ridge, without, where they
diverge, and how many tasks it takes.
"""

from functools import cache

import sympy as sp

from linear_attention import statement as task
from linear_attention.proportional import ridge, spectrum
from linear_attention.proportional import symbols as S
from linear_attention.proportional.symbols import M_x, M_z, kappa, rho, tau, width, x, xi, z
from linear_attention.statement import D, N, lam, trace
from theory import Equation, proved, vanishes, written_as

AT_X = {M_z: M_x, S.slope: S.slope_x}
MANY = "no ridge, tau > 1"


@cache
def shown() -> sp.Expr:
    """Variance x with which a context of N = alpha d pairs shows its task, from the second moment
    of beta at any N; label noise of variance rho adds its own, as to the labels' variance 1.
    """
    white = task.second_moment().subs(lam[task.d], 1).subs(trace, D)
    pure = sp.limit(white.subs(N, S.alpha * D), D, sp.oo) - 1
    return written_as((1 + rho) / S.alpha, pure * (1 + rho))


@cache
def on_new() -> sp.Expr:
    """Error on new tasks: their R is the identity, so that every weight counts with variance
    1 + x, and every diagonal one helps.
    """
    return 1 + rho - 2 * ridge.overlap() + (1 + x) * ridge.second_moment()


@cache
def without_ridge() -> tuple[sp.Expr, sp.Expr]:
    """Both errors for tau > 1, where the effective ridge vanishes with the ridge.

    Raises
    ------
    ArithmeticError
        If it does not.
    """
    proved(vanishes(ridge.penalty().subs(xi, 0)), "the effective ridge does not vanish")
    first, second = (e.subs(xi, 0).subs(AT_X) for e in (ridge.error(), on_new()))
    form = tau * (rho + x - x**2 * M_x) / (tau - 1)
    return written_as(form, first), second.subs(S.trained, form)


@cache
def xi_below() -> sp.Expr:
    """Effective ridge without a ridge for tau < 1: the positive root of 1 - tau = xi M(x + xi).

    Raises
    ------
    ArithmeticError
        If it is not.
    """
    m = (1 - tau) / xi
    proved(vanishes(ridge.penalty().subs(M_z, m)), "the effective ridge has another equation")
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
    M = spectrum.transform()
    excess = unlimited() - rho
    values = {M_x: M.subs(z, x), S.slope_x: sp.diff(M, z).subs(z, x)}
    scaled = excess.subs(values).subs(near).subs(x, small**2) / small
    root = sp.sqrt(width**2 + 4)
    return written_as((root - width) ** 2 / (4 * root), sp.simplify(sp.limit(scaled, small, 0)))


@cache
def equations() -> dict[str, Equation]:
    """Spectrum, effective ridge, both errors, and their limits."""
    share = S.symbol("sqrt_share", r"(e^{\mathrm{ICL}}-\rho)/\sqrt{x^{\star}}", "scaled excess")
    height = S.symbol("peak", r"|\tau-1|\,e^{\mathrm{ICL}}", "height of the peak")
    spectral = dict(
        shown=(x, shown),
        mp_transform=(M_z, spectrum.transform),
        mp_slope=(S.slope, spectrum.derivative),
    )
    at_z = "M at z = x + xi"
    fits = dict(
        effective_ridge=(S.ridge, ridge.penalty, at_z),
        error_trained=(S.trained, ridge.error, at_z),
        error_new=(S.new, on_new, at_z),
    )
    ridgeless = dict(
        xi_below=(xi, xi_below, "no ridge, tau < 1"),
        trained_above=(S.trained, lambda: without_ridge()[0], MANY),
        new_above=(S.new, lambda: without_ridge()[1], MANY),
        error_peak=(height, peak, "no ridge, tau -> 1"),
    )
    many = dict(
        new_unlimited=(S.new, unlimited, "tau -> infinity"),
        transition=(share, transition, "tau, alpha -> infinity at given (kappa - 1)/sqrt(x)"),
    )
    ansatz = S.LARGE, S.GAUSSIAN
    return {
        **S.table("tasks and contexts", S.LARGE, status="leading order", **spectral),
        **S.table("errors with a ridge", *ansatz, status="closure", **fits),
        **S.table("errors without a ridge", *ansatz, status="closure", **ridgeless),
        **S.table("how many tasks", *ansatz, status="closure", **many),
    }
