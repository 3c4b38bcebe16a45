"""Moments, loss and force of in-context linear regression at any D and N, by Isserlis' theorem.

Everything is written in the eigenbasis of Lambda. The prompt has pairs (x_n, y_n), n = 1..N, and a
query x_q; y = w.x, w ~ N(0, I), x ~ N(0, Lambda); beta = (1/N) sum_n y_n x_n; the prediction is
beta^T W x_q.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import sympy as sp

from linear_attention.theory import symbols as S
from linear_attention.theory.symbols import D, G, N, W, a, d, e, f, i, j, k, l, lam, n, o, trace, w
from theory.algebra import delta_gradient, delta_sum, written_as
from theory.equation import Equation
from theory.notation import symbol

PROMPTS = ("x ~ N(0, Lambda), w ~ N(0, I), y = w.x", "eigenbasis of Lambda")
ODD = "weights that start at zero left out"
Variable = tuple[Any, ...]  # ("w", i), ("x", n, i) or ("q", i)


def pairings(variables: list[Variable]) -> Iterator[list[tuple[Variable, Variable]]]:
    """All ways to split a list into pairs."""
    if not variables:
        yield []
    for place, other in enumerate(variables[1:], 1):
        for rest in pairings(variables[1:place] + variables[place + 1 :]):
            yield [(variables[0], other), *rest]


def covariance(x: Variable, y: Variable) -> sp.Expr:
    """Covariance of two Gaussian variables."""
    if x[0] != y[0]:
        return sp.S.Zero
    same = sp.prod([sp.KroneckerDelta(p, q) for p, q in zip(x[1:], y[1:], strict=True)])
    return same if x[0] == "w" else same * lam[x[-1]]


def moment(variables: list[Variable], *summed: tuple[sp.Symbol, sp.Expr]) -> sp.Expr:
    """Mean of a product of Gaussians, summed over the given indices from 1."""
    terms = (sp.prod([covariance(*pair) for pair in pairing]) for pairing in pairings(variables))
    total = delta_sum(sp.Add(*terms), *((index, 1, end) for index, end in summed))
    return sp.expand(total.replace(sp.Sum, _sum))


def _sum(term: sp.Expr, limit: sp.Tuple) -> sp.Expr:
    """Sum with what does not depend on its index in front; that of the eigenvalues is the trace."""
    before, inside = term.as_independent(limit[0])
    return before * (trace if inside == lam[limit[0]] else sp.Sum(inside, limit))


def beta(n: sp.Symbol, e: sp.Symbol, component: sp.Symbol) -> list[Variable]:
    """A component of beta: N times the mean over n, to be summed over n and e."""
    return [("w", e), ("x", n, e), ("x", n, component)]


def label(e: sp.Symbol) -> list[Variable]:
    """The label of the query, to be summed over e."""
    return [("w", e), ("q", e)]


def spelled(expr: sp.Expr) -> sp.Expr:
    """Expression with a_d written in the eigenvalues of Lambda."""
    return expr.replace(
        lambda x: isinstance(x, sp.Indexed) and x.base == a,
        lambda x: second_moment().subs(d, x.indices[0]),
    )


@cache
def second_moment() -> sp.Expr:
    """Eigenvalue d of E beta beta^T."""
    found = moment([*beta(n, e, i), *beta(o, f, j)], (n, N), (o, N), (e, D), (f, D)) / N**2
    if found.subs(sp.KroneckerDelta(i, j), 0) != 0:
        raise ArithmeticError("E beta beta^T is not diagonal")
    return written_as(lam[d] ** 2 * (1 + 1 / N) + lam[d] * trace / N, found.subs(j, i).subs(i, d))


@cache
def loss() -> sp.Expr:
    """E (y_q - beta^T W x_q)^2."""
    labels = moment([*label(e), *label(f)], (e, D), (f, D))
    cross = moment([*beta(n, e, i), *label(f), ("q", j)], (n, N), (e, D), (f, D)) / N
    square = (
        moment([*beta(n, e, i), *beta(o, f, k), ("q", j), ("q", l)], (n, N), (o, N), (e, D), (f, D))
        / N**2
    )
    square = delta_sum(W[i, j] * W[k, l] * square, (k, 1, D), (l, 1, D))
    square = written_as(spelled(a[i]) * lam[j] * W[i, j] ** 2, square).subs(spelled(a[i]), a[i])
    cross = delta_sum(W[i, j] * cross, (j, 1, D))
    return labels - 2 * sp.Sum(cross, (i, 1, D)) + sp.Sum(square, (i, 1, D), (j, 1, D))


@cache
def equations() -> dict[str, Equation]:
    """Moments, loss, force, and the loss of a diagonal W with its minimum."""
    total = loss()
    force = -delta_gradient(total - trace, W[k, l]) / 2
    # A diagonal W stays diagonal: one number w_d per direction.
    at_diagonal = sp.expand(force.subs({W[k, l]: w[k] * sp.KroneckerDelta(k, l)}).subs(l, k)).subs(
        k, d
    )
    best = sp.solve(at_diagonal, w[d])[0]
    step = sp.factor(2 * sp.integrate(at_diagonal, (w[d], 0, w[d])))  # what w_d takes off the loss
    gone = sp.simplify(step.subs(w[d], best))
    white = spelled(S.a[d]).subs(lam[d], 1).subs(trace, D)
    after = symbol("L_m", r"\mathcal{L}_{m}")
    return {
        **S.table(
            "task: moments of the prompt", PROMPTS, a=(S.a[d], second_moment), c=(S.c, white)
        ),
        **S.table("loss", (*PROMPTS, ODD), loss=(S.loss, total), force=(G[k, l], force)),
        **S.table(
            "minimum, and separate: plateaus",
            PROMPTS,
            w_best=(w[d], best),
            loss_least=(S.loss, trace - sp.Sum(gone, (d, 1, D))),
            plateau=(after, trace - sp.Sum(gone, (d, 1, S.m))),
        ),
    }


def at(expr: sp.Expr, values: Mapping[str, Any]) -> float:
    """Number of an expression with sums over several indices, whose ends are among the values.

    Parameters
    ----------
    values : mapping
        Numbers by symbol name, arrays by the name of their base; ``lambda_d`` stands for
        ``lambda[d]``.
    """
    given = {
        x: values[x.name]
        for x in expr.free_symbols
        if isinstance(x, sp.Symbol) and np.ndim(values.get(x.name, [])) == 0
    }
    expr = expr.subs(lam[d], values.get("lambda_d", lam[d])).subs(given).doit()
    entries = {
        x: values[x.base.label.name][tuple(int(y) - 1 for y in x.indices)]
        for x in expr.atoms(sp.Indexed)
    }
    return float(expr.xreplace(entries))
