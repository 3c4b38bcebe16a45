"""Moments, loss and force of in-context linear regression at any D and N, in the eigenbasis of
Lambda: means of the statement's loss over all inputs.
"""

from functools import cache

import sympy as sp

from linear_attention import statement as S
from linear_attention.statement import D, G, N, W, a, d, i, j, k, l, lam, regression, trace, w
from theory import Equation, delta_gradient, linear_root, symbol, vanishes, written_as
from theory.statement import entries

PROMPTS = ("x ~ N(0, Lambda), w ~ N(0, I), y = w.x", "eigenbasis of Lambda")
ODD = "weights that start at zero left out"


@cache
def averaged() -> dict[int, sp.Expr]:
    """E (y_q - beta^T W x_q)^2, twice the statement's loss, as a sum over indices."""
    found = 2 * entries.mean(regression(), (i, j, d), {lam[d]: trace})
    parts = [term.as_independent(sp.Sum) for term in sp.Add.make_args(found)]
    return {len(x.limits) if x.has(sp.Sum) else 0: c * getattr(x, "function", x) for c, x in parts}


@cache
def second_moment(of: sp.Symbol = d) -> sp.Expr:
    """Eigenvalue of E beta beta^T, the coefficient of W_ij^2 lambda_j."""
    form = lam[i] ** 2 * (1 + 1 / N) + lam[i] * trace / N
    return written_as(form, averaged()[2] / (lam[j] * W[i, j] ** 2)).subs(i, of)


@cache
def loss() -> sp.Expr:
    """The mean squared error."""
    linear, square = -averaged()[1] / 2, a[i] * lam[j] * W[i, j] ** 2
    return averaged()[0] - 2 * sp.Sum(linear, (i, 1, D)) + sp.Sum(square, (i, 1, D), (j, 1, D))


@cache
def force() -> sp.Expr:
    """-(1/2) dL/dW at (k, l)."""
    return entries.force(loss(), W[k, l]) / 2


def early_force() -> sp.Expr:
    """Force at (i, j) while W is small."""
    return force().subs(W[k, l], 0).subs({k: i, l: j})


def diagonal_force(weight: sp.Expr) -> sp.Expr:
    """Force at (d, d) on a diagonal W, which stays diagonal; its entries in terms of k."""
    return force().subs(W[k, l], weight * sp.KroneckerDelta(k, l)).subs(l, k).subs(k, d)


def pull(weight: sp.Expr, entry: sp.Expr) -> sp.Expr:
    """Rate of a factor of W as a summand, to be summed over i and j."""
    return G[i, j] * delta_gradient(weight, entry)


@cache
def gained(entry: sp.Expr) -> sp.Expr:
    """Reduction of the loss by an entry of a diagonal W."""
    to = sp.integrate(diagonal_force(w[k]), (w[d], 0, w[d]))
    return sp.factor(2 * to).subs(w[d], entry)


def euler(pace: sp.Expr, x: sp.Symbol, start: sp.Expr, end: sp.Expr) -> sp.Expr:
    """Correction of the time of dx/dt = f, with f the ``pace``, by steps of size eta, which to
    first order follow f - (eta/2) f f'.
    """
    f = sp.Function("f")(x)
    added = sp.diff(1 / (f - S.eta / 2 * f * sp.diff(f, x)), S.eta).subs(S.eta, 0)
    if not vanishes(added - sp.diff(sp.log(f), x) / 2):
        raise ArithmeticError("a step does not add the logarithm of the pace")
    return S.eta / 2 * sp.log(pace.subs(x, end) / pace.subs(x, start))


@cache
def equations() -> dict[str, Equation]:
    """Moments, loss, force, and the loss of a diagonal W with its minimum."""
    best = linear_root(diagonal_force(w[k]), w[d])
    gone = sp.factor(gained(best))
    white = second_moment().subs(lam[d], 1).subs(trace, D)
    after = symbol("L_m", r"\mathcal{L}_{m}", "loss on the plateau of m directions")
    moments = dict(a=(a[d], second_moment), c=(S.c, white))
    slope = dict(loss=(S.loss, loss), force=(G[k, l], force))
    lows = dict(
        w_best=(w[d], best),
        loss_least=(S.loss, trace - sp.Sum(gone, (d, 1, D))),
        plateau=(after, trace - sp.Sum(gone, (d, 1, S.m))),
    )
    return {
        **S.table("task: moments of the prompt", *PROMPTS, status="exact", **moments),
        **S.table("loss", *PROMPTS, ODD, status="exact", **slope),
        **S.table("minimum, and separate: plateaus", *PROMPTS, status="exact", **lows),
    }
