"""Moments, loss and force of in-context linear regression at any D and N, by Isserlis' theorem.

Everything is written in the eigenbasis of Lambda. The prompt has pairs (x_n, y_n), n = 1..N, and a
query x_q; y = w.x, w ~ N(0, I), x ~ N(0, Lambda); beta = (1/N) sum_n y_n x_n; the prediction is
beta^T W x_q.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import sympy as sp

from linear_attention.theory import symbols as S
from linear_attention.theory.symbols import D, G, N, W, a, d, e, f, i, j, k, l, lam, n, o, trace, w
from theory.algebra import (
    delta_gradient,
    delta_sum,
    gaussian_moment,
    linear_root,
    vanishes,
    written_as,
)
from theory.equation import Equation
from theory.notation import symbol

PROMPTS = ("x ~ N(0, Lambda), w ~ N(0, I), y = w.x", "eigenbasis of Lambda")
ODD = "weights that start at zero left out"
Variable = tuple[Any, ...]  # ("w", i), ("x", n, i) or ("q", i)


def covariance(x: Variable, y: Variable) -> sp.Expr:
    """Covariance of two Gaussian variables."""
    if x[0] != y[0]:
        return sp.S.Zero
    same = sp.prod([sp.KroneckerDelta(p, q) for p, q in zip(x[1:], y[1:], strict=True)])
    return same if x[0] == "w" else same * lam[x[-1]]


def moment(variables: list[Variable], *summed: tuple[sp.Symbol, sp.Expr]) -> sp.Expr:
    """Mean of a product of Gaussians, summed over the given indices from 1."""
    limits = ((index, 1, end) for index, end in summed)
    total = delta_sum(gaussian_moment(variables, covariance), *limits)
    return sp.expand(total.replace(sp.Sum, _sum))


def _sum(term: sp.Expr, limit: sp.Tuple) -> sp.Expr:
    """Sum with factors that do not depend on its index in front; the sum of the eigenvalues is
    written as the trace.
    """
    before, inside = term.as_independent(limit[0])
    return before * (trace if inside == lam[limit[0]] else sp.Sum(inside, limit))


def beta(n: sp.Symbol, e: sp.Symbol, component: sp.Symbol) -> list[Variable]:
    """A component of beta as the summand of N times the mean over n, to be summed over n and e."""
    return [("w", e), ("x", n, e), ("x", n, component)]


def label(e: sp.Symbol) -> list[Variable]:
    """The label of the query, to be summed over e."""
    return [("w", e), ("q", e)]


@cache
def second_moment(of: sp.Symbol = d) -> sp.Expr:
    """Eigenvalue of E beta beta^T."""
    found = moment([*beta(n, e, i), *beta(o, f, j)], (n, N), (o, N), (e, D), (f, D)) / N**2
    if found.subs(sp.KroneckerDelta(i, j), 0) != 0:
        raise ArithmeticError("E beta beta^T is not diagonal")
    form = lam[of] ** 2 * (1 + 1 / N) + lam[of] * trace / N
    return written_as(form, found.subs(j, i).subs(i, of))


@cache
def loss() -> sp.Expr:
    """E (y_q - beta^T W x_q)^2."""
    labels = moment([*label(e), *label(f)], (e, D), (f, D))
    cross = moment([*beta(n, e, i), *label(f), ("q", j)], (n, N), (e, D), (f, D)) / N
    both = [*beta(n, e, i), *beta(o, f, k), ("q", j), ("q", l)]
    square = moment(both, (n, N), (o, N), (e, D), (f, D)) / N**2
    square = delta_sum(W[i, j] * W[k, l] * square, (k, 1, D), (l, 1, D))
    written_as(second_moment(i) * lam[j] * W[i, j] ** 2, square)
    cross, square = delta_sum(W[i, j] * cross, (j, 1, D)), a[i] * lam[j] * W[i, j] ** 2
    return labels - 2 * sp.Sum(cross, (i, 1, D)) + sp.Sum(square, (i, 1, D), (j, 1, D))


@cache
def force() -> sp.Expr:
    """-(1/2) dL/dW at (k, l)."""
    return -delta_gradient(loss() - trace, W[k, l]) / 2


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
    return {
        **S.table("task: moments of the prompt", *PROMPTS, status="exact", **moments),
        **S.table(
            "loss", *PROMPTS, ODD, status="exact", loss=(S.loss, loss), force=(G[k, l], force)
        ),
        **S.table(
            "minimum, and separate: plateaus",
            *PROMPTS,
            status="exact",
            w_best=(w[d], best),
            loss_least=(S.loss, trace - sp.Sum(gone, (d, 1, D))),
            plateau=(after, trace - sp.Sum(gone, (d, 1, S.m))),
        ),
    }
