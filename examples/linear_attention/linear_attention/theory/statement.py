"""In-context linear regression, stated once: what differs is how W, between context and query, is
made of weights.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import sympy as sp

from linear_attention.theory.symbols import D, H, N, R
from theory.statement import Statement, gauss, sort, spectrum, statement, total, weight

dim, pair = sort("dim", D, vector=True), sort("pair", N)
head, row = sort("head", H), sort("row", R)


def _entry(kind: str) -> Any:
    """W[i, j] in the weights: one matrix, one head, heads with one matrix or with two."""
    if kind == "W":
        return weight("W", dim, dim).__getitem__
    if kind == "one head":
        v, U = weight("v", start=1), weight("U", dim, dim, start=1)
        return lambda ij: v[()] * U[ij]
    v = weight("v", head, start=1)
    if kind == "merged":
        U = weight("U", head, dim, dim, start=1)
        return lambda ij: total(lambda h: v[h] * U[h, *ij], head)
    K, Q = (weight(x, head, row, dim) for x in "KQ")
    rows = lambda h, i, j: total(lambda r: K[h, r, i] * Q[h, r, j], row)  # noqa: E731
    return lambda ij: total(lambda h: v[h] * rows(h, *ij), head)


@cache
def regression(kind: str = "W") -> Statement:
    """Half the squared error of ``sum_n y_n (x_n^T W x_q) / N``, with ``y = w.x``."""
    lam, W = spectrum("lambda"), _entry(kind)
    x, q, w = gauss("x", pair, dim, var=lam), gauss("q", dim, var=lam), gauss("w", dim)
    label = lambda n: total(lambda k: w[k] * x[n, k], dim)  # noqa: E731
    score = lambda n: total(lambda i, j: x[n, i] * W((i, j)) * q[j], dim, dim)  # noqa: E731
    found = total(lambda n: label(n) * score(n), pair) / N
    answer = total(lambda i: w[i] * q[i], dim)
    return statement(
        sp.Rational(1, 2) * (answer - found) ** 2, name=f"regression_{kind.split()[0]}"
    )
