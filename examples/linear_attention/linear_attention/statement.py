"""In-context linear regression, stated once, in the symbols of Zhang et al.; the variants differ in
how the matrix W between context and query is parametrised.
"""

from functools import cache
from typing import Any

import sympy as sp

from theory import array, equation, symbol
from theory.statement import Statement, gauss, sort, spectrum, statement, total, weight

INTEGER = {"integer": True, "positive": True}

# Sizes and places; arrays run over directions d = 1..D, the eigenvectors of Lambda
D = symbol("D", means="dimension of tokens", **INTEGER)
N = symbol("N", means="examples in the prompt", **INTEGER)
H = symbol("H", means="heads", **INTEGER)
R = symbol("R", means="rank of key and query", **INTEGER)
m = symbol("m", means="directions that are learned", **INTEGER)
d, i, j, k, l = (symbol(x, means="a direction", **INTEGER) for x in "dijkl")
g, h = (symbol(x, means="a head", **INTEGER) for x in "gh")
r, s = (symbol(x, means="a row of key and query", **INTEGER) for x in "rs")

# Data
SIZE = "trace of Lambda, the covariance of tokens"
lam = array("lambda", r"\lambda", "eigenvalues of Lambda")
a = array("a", means="eigenvalues of E beta beta^T")
trace = symbol("tr_Lambda", r"\operatorname{tr}\Lambda", SIZE, positive=True)
lam_1 = symbol("lambda_1", r"\lambda_{1}", "eigenvalue of the direction at hand", positive=True)
a_1 = symbol("a_1", means="a in that direction", positive=True)
c = symbol("c", means="a at Lambda = I", positive=True)

# Weights and training
t = symbol("t", means="gradient flow of unit rate on half the loss", nonnegative=True)
eta = symbol("eta", means="step in t", positive=True)
W = array("W", means="sum over heads of value times key-query matrix")
G = array("G", means="force: minus the gradient of half the loss in W")
U = array("U", means="merged key-query matrices of the heads")
K, Q = array("K", means="keys of the heads"), array("Q", means="queries of the heads")
v, u = array("v", means="values of the heads"), array("u", means="weight along a direction")
w = array("w", means="best weight along a direction")
plus = array("p_plus", "p^{+}", "(k + q)/2 at the start, rank one")
minus = array("p_minus", "p^{-}", "(k - q)/2 at the start, rank one")
v_0 = symbol("v_0", means="value at the start", real=True)
u_0 = symbol("u_0", means="weight along the direction at the start", positive=True)
P_0 = symbol("P_0", means="squared value at the start", positive=True)
s_0 = symbol("s_0", means="s at the start", positive=True)
value = symbol("v", means="value of the one head", real=True)
along = symbol("u", means="weight of the one head along its direction", real=True)
scale = symbol("s", means="value times weight per direction, white data", real=True)
rate = symbol("gamma", means="early growth rate, the norm of Lambda^2", positive=True)
kappa = symbol("kappa", means="invariant of the one head: unbalance of its start", positive=True)
tau = symbol("tau", means="integral of v over t", real=True)
loss = symbol("L", r"\mathcal{L}", "squared error of the last token", real=True)
drop = symbol("T_drop", r"T_{\mathrm{drop}}", "time of half the drop of the loss", positive=True)

dim, pair = sort("dim", D, vector=True), sort("pair", N)
head, row = sort("head", H), sort("row", R)


def table(place: str, *assumptions: str, **rows: Any) -> dict[str, equation.Equation]:
    """Equations of one origin; references to the paper give the topic, as its equation numbers were
    not available.
    """
    return equation.table(f"zhang2025, {place}", *assumptions, **rows)


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
