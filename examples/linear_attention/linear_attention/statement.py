"""In-context linear regression, stated once, in the symbols of Zhang et al.; the
variants differ in how the matrix W between context and query is parametrised. Moments,
loss and force follow at any D and N, in the eigenbasis of Lambda: means of the
statement's loss over all inputs.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import sympy as sp

from theory import array, delta_gradient, linear_root, symbol, written_as
from theory.equations import equation
from theory.statement import Statement, gauss, sort, spectrum, statement, total, weight
from theory.statement.evaluation import wick

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
lam_1 = symbol(
    "lambda_1", r"\lambda_{1}", "eigenvalue of the direction at hand", positive=True
)
a_1 = symbol("a_1", means="a in that direction", positive=True)
c = symbol("c", means="a at Lambda = I", positive=True)

# Weights and training
t = symbol("t", means="gradient flow of unit rate on half the loss", nonnegative=True)
eta = symbol("eta", means="step in t", positive=True)
W = array("W", means="sum over heads of value times key-query matrix")
G = array("G", means="force: minus the gradient of half the loss in W")
U = array("U", means="merged key-query matrices of the heads")
K = array("K", means="keys of the heads")
Q = array("Q", means="queries of the heads")
v = array("v", means="values of the heads")
u = array("u", means="weight along a direction")
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
kappa = symbol(
    "kappa", means="invariant of the one head: unbalance of its start", positive=True
)
tau = symbol("tau", means="integral of v over t", real=True)
error = symbol("L", r"\mathcal{L}", "squared error of the last token", real=True)
drop = symbol(
    "T_drop", r"T_{\mathrm{drop}}", "time of half the drop of the loss", positive=True
)

dim, pair = sort("dim", D, vector=True), sort("pair", N)
head, row = sort("head", H), sort("row", R)


def table(place: str, *assumptions: str, **rows: Any) -> dict[str, equation.Equation]:
    """Equations of one origin; references to the paper give the topic, as its equation
    numbers were not available.
    """
    return equation.table(f"zhang2025, {place}", *assumptions, **rows)


@cache
def regression(kind: str = "W") -> Statement:
    """Half the squared error of ``sum_n y_n (x_n^T W x_q) / N``, with ``y = w.x``: of W
    itself, one head, heads with one matrix or with two.
    """
    heads = () if kind == "one head" else (head,)
    v = weight("v", *heads, start=1)
    U = weight("U", *heads, dim, dim, start=1)
    K = weight("K", head, row, dim)
    Q = weight("Q", head, row, dim)
    whole = weight("W", dim, dim)
    W = {
        "W": lambda i, j: whole[i, j],
        "one head": lambda i, j: v[()] * U[i, j],
        "merged": lambda i, j: total(lambda h: v[h] * U[h, i, j], head),
        "separate": lambda i, j: total(
            lambda h: v[h] * total(lambda r: K[h, r, i] * Q[h, r, j], row), head
        ),
    }[kind]
    lam = spectrum("lambda")
    x = gauss("x", pair, dim, var=lam)
    q = gauss("q", dim, var=lam)
    w = gauss("w", dim)
    label = lambda n: total(lambda k: w[k] * x[n, k], dim)
    score = lambda n: total(lambda i, j: x[n, i] * W(i, j) * q[j], dim, dim)
    gap = (
        total(lambda i: w[i] * q[i], dim)
        - total(lambda n: label(n) * score(n), pair) / N
    )
    return statement(sp.Rational(1, 2) * gap**2, name=f"regression_{kind.split()[0]}")


PROMPTS = ("x ~ N(0, Lambda), w ~ N(0, I), y = w.x", "eigenbasis of Lambda")
ODD = "weights that start at zero left out"


@cache
def averaged() -> dict[int, sp.Expr]:
    """E (y_q - beta^T W x_q)^2, twice the statement's loss, as a sum over indices: its
    parts by how many indices they have.
    """
    mean = 2 * wick.mean(regression(), (i, j, d), {lam[d]: trace})
    parts = [term.as_independent(sp.Sum) for term in sp.Add.make_args(mean)]
    return {
        len(x.limits) if x.has(sp.Sum) else 0: c * getattr(x, "function", x)
        for c, x in parts
    }


@cache
def second_moment(of: sp.Symbol = d) -> sp.Expr:
    """Eigenvalue of E beta beta^T, the coefficient of W_ij^2 lambda_j."""
    form = lam[i] ** 2 * (1 + 1 / N) + lam[i] * trace / N
    return written_as(form, averaged()[2] / (lam[j] * W[i, j] ** 2)).subs(i, of)


@cache
def loss() -> sp.Expr:
    """The mean squared error."""
    linear = -averaged()[1] / 2
    square = a[i] * lam[j] * W[i, j] ** 2
    return (
        averaged()[0]
        - 2 * sp.Sum(linear, (i, 1, D))
        + sp.Sum(square, (i, 1, D), (j, 1, D))
    )


@cache
def force() -> sp.Expr:
    """-(1/2) dL/dW at (k, l)."""
    return wick.force(loss(), W[k, l]) / 2


def early_force() -> sp.Expr:
    """Force at (i, j) while W is small."""
    return force().subs(W[k, l], 0).subs({k: i, l: j})


def diagonal_force(weight: sp.Expr) -> sp.Expr:
    """Force at (d, d) on a diagonal W, which stays diagonal;
    its entries in terms of k.
    """
    return force().subs(W[k, l], weight * sp.KroneckerDelta(k, l)).subs(l, k).subs(k, d)


def rates(part: sp.Expr, *weights: sp.Expr, over: Sequence[Any]) -> Iterator[sp.Expr]:
    """Rates of weights of which W_ij is a sum of parts, over heads and more."""
    pulled = sp.Sum(G[i, j] * part, (h, 1, H), (i, 1, D), (j, 1, D), *over)
    return (delta_gradient(pulled, x) for x in weights)


@cache
def gained(entry: sp.Expr) -> sp.Expr:
    """Reduction of the loss by an entry of a diagonal W."""
    to = sp.integrate(diagonal_force(w[k]), (w[d], 0, w[d]))
    return sp.factor(2 * to).subs(w[d], entry)


@cache
def equations() -> dict[str, equation.Equation]:
    """Moments, loss, force, and the loss of a diagonal W with its minimum."""
    best = linear_root(diagonal_force(w[k]), w[d])
    gone = sp.factor(gained(best))
    white = second_moment().subs(lam[d], 1).subs(trace, D)
    after = symbol("L_m", r"\mathcal{L}_{m}", "loss on the plateau of m directions")
    moments = dict(a=(a[d], second_moment), c=(c, white))
    slope = dict(loss=(error, loss), force=(G[k, l], force))
    lows = dict(
        w_best=(w[d], best),
        loss_least=(error, trace - sp.Sum(gone, (d, 1, D))),
        plateau=(after, trace - sp.Sum(gone, (d, 1, m))),
    )
    return {
        **table("task: moments of the prompt", *PROMPTS, status="exact", **moments),
        **table("loss", *PROMPTS, ODD, status="exact", **slope),
        **table("minimum, and separate: plateaus", *PROMPTS, status="exact", **lows),
    }
