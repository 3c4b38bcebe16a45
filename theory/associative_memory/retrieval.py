"""Retrieval of a value by its key, by a softmax head and by a linear one; derived from a statement
(`theory.statement`).
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import sympy as sp

from theory import Equation, Limit, Scope, proved, scope, table, vanishes, written_as
from theory.associative_memory import ramp
from theory.associative_memory.symbols import DERIVED, PAPER, ref, t
from theory.notation import symbol
from theory.statement import (
    Statement,
    cross_entropy,
    draw,
    exp,
    kept,
    sample,
    sizes,
    sort,
    statement,
    total,
    weight,
)
from theory.statement.model import package_theory

__all__ = [
    "Parameters",
    "applies",
    "derived",
    "emergence_time",
    "emergence_times",
    "equations",
    "flow",
    "flows",
    "onset",
    "predict",
    "sections",
    "stated",
]

# Retrieval by a head

N, M, P = sizes("N M P")  # keys, values, pairs that are shown
epsilon = symbol("epsilon", means="initial weights of the linear head", positive=True)


def head(
    name: str, title: str, score: Callable[[Any], Any], start: Any, **values: Any
) -> Statement:
    """Attention with scores of query and key, normalised by the sum of scores at zero weights."""
    key = sort("key", N)
    value = sort("value", M)
    place = sort("place", P)
    x = sample("x", (place,), key, injective=True)
    y = sample("y", (place,), value, injective=True)
    K = weight("K", key, key, start=start)
    V = weight("V", value, value, start=start)
    asked = draw(place)

    def scored(p: Any) -> Any:
        return score(K[x(asked), x(p)])

    mass = total(scored, place) if score is exp else 1
    loss = cross_entropy(
        lambda v: total(lambda p: scored(p) * V[y(p), v], place) / mass, over=value, target=y(asked)
    )
    seen = {"A": scored(asked) / mass} if score is exp else {}
    return statement(loss, name=name, title=title, paper=PAPER, observables=seen, values=values)


stated = head(
    "retrieval",
    "Retrieval by a softmax head",
    exp,
    0,
    **dict(N=32, M=32, P=4, eta=2.0, steps=200, eval_every=2, batch_size=512),
)
linear = head(
    "linear_retrieval",
    "Retrieval by a linear head",
    lambda x: x,
    epsilon,
    **dict(N=32, M=32, P=4, epsilon=0.01),
)


# When a softmax head finds the key
#
# From attention 1/P to 1/2, from zero weights. The read-out grows on the mean of the shown
# values, and the score on the read-out. The ratio of their rates separates (`ramp`) as long as
# most of the probability lies on values that are not shown.

K = symbol("delta_K", means="score of the right key minus that of another", real=True)
V = symbol("delta_V", means="read-out of the right value minus that of another", real=True)
A = symbol("A", means="attention to the right key", positive=True)
unseen = symbol("u_unseen", "u", "probability of values that are not shown", positive=True)
balance = symbol("C_heads", "C", "balance of score and read-out", real=True)
time = symbol("T_half", r"T_{1/2}", "time at which attention is 1/2", positive=True)
FEW = "while most of the probability lies on values that are not shown"
LARGE = "N and M large at a given ratio, then P"


def attention() -> sp.Expr:
    """Attention as a function of the score."""
    return written_as(sp.exp(K) / (sp.exp(K) + P - 1), flow().observables["A"])


def small(rate: sp.Expr) -> sp.Expr:
    """A rate while logits are small: all values equally likely."""
    return sp.factor(rate.replace(lambda e: isinstance(e, sp.exp) and e.has(V), lambda e: sp.S.One))


@cache
def law() -> sp.Expr:
    """Square of the read-out as a function of the score, from the ratio of their rates."""
    form = (
        2 * (N - 1) / (M * (M - 1) * (P - 1))
        * ((M - 1) * (sp.exp(K) - 1) + (P - 1) * ((M - 2) * K - (P - 1) * (1 - sp.exp(-K))))
    )  # fmt: skip
    return ramp.squared(form, K, V, [small(flow().rhs[x]) for x in (K, V)])


@cache
def emergence() -> sp.Expr:
    """Time until attention is 1/2, along the path: an integral over the score."""
    return ramp.elapsed(K, sp.log(P - 1))


def many_pairs() -> sp.Expr:
    """The same for many pairs: all of the time passes while attention is of order 1/P."""
    square = sp.limit(sp.limit(law() * (M - 1) / (N - 1), M, sp.oo), P, sp.oo)
    rate = sp.limit((P - 1) * (N - 1) * small(flow().rhs[K]) / V, P, sp.oo)
    time = ramp.many(rate, square, K) * (P - 1) * sp.sqrt((N - 1) * (M - 1))
    return written_as((P - 1) * sp.sqrt(sp.pi / 2) * sp.sqrt((N - 1) * (M - 1)), time)


@cache
def plateau() -> sp.Expr:
    """Loss when probability is spread evenly over the values that are shown."""
    grown = symbol("grown", positive=True)
    loss = flow().observables["loss"].subs(K, 0).subs(V, P * sp.log(grown))
    return sp.limit(sp.logcombine(sp.powsimp(loss), force=True), grown, sp.oo)


@cache
def balanced() -> sp.Expr:
    """Conserved quantity if every value is shown (M = P); zero at the start."""
    F = law().subs(M, P) * (P - 1) / (N - 1)
    form = 2 * (sp.exp(K) - 1 + (P - 2) * K - (P - 1) * (1 - sp.exp(-K))) / P
    return (N - 1) * written_as(form, F) - (M - 1) * V**2


def hidden() -> sp.Expr:
    """Probability of values that are not shown."""
    B = (1 - A) / (P - 1)
    form = (M - P) / (M - P + sp.exp(A * V) + (P - 1) * sp.exp(B * V))
    loss = flow().observables["loss"]  # its exponential is one over the right value's probability
    proved(
        vanishes(form.subs(A, attention()) * sp.exp(loss + attention() * V) - (M - P)),
        "not the probability behind the loss",
    )
    return form


def drift() -> sp.Expr:
    """Rate of that balance for any M: it decreases by the probability of values that are not shown.

    Raises
    ------
    ArithmeticError
        If it is not that.
    """
    moved = sum(sp.diff(balanced(), x) * flow().rhs[x] for x in (K, V))
    form = -2 * unseen * V / P
    proved(
        vanishes(moved - form.subs(unseen, hidden().subs(A, attention()))),
        "the balance does not fall by what is not shown",
    )
    return form


def linear_growth() -> sp.Expr:
    """Growth rate of a linear head at zero weights, where nothing moves by itself."""
    (square,) = {sp.factor(x**2) for x in kept.derived(linear).growth} - {0}  # of both signs
    form = ((M - 1) ** 2 * (N - 1) + (P - 1) ** 2) / (M**2 * N * (N - 1) * (M - 1))
    return sp.sqrt(written_as(form, square))


@cache
def head_equations() -> dict[str, Equation]:
    """Attention, plateau, balance and emergence of the softmax head; growth rate of the linear
    head.
    """
    ((start, invariant),) = kept.derived(linear).invariants
    shown = symbol("loss_shown", r"\mathcal{L}_{\mathrm{shown}}", "plateau of the loss")
    rate = symbol("lambda_linear", r"\lambda_{\mathrm{lin}}", "growth rate of the linear head")
    path = "rate retrieval_ddelta_K_dt, read-out retrieval_read_out"
    exact = {
        "retrieval_attention": (A, attention),
        "retrieval_plateau": (shown, plateau),
        "retrieval_unseen": (unseen, hidden),
        "retrieval_balance": (balance, balanced, "conserved if all values are shown, M = P"),
        "retrieval_balance_rate": (sp.Derivative(balance, t), drift),
        "linear_retrieval_balance": (start, invariant, "linear head"),
        "linear_retrieval_growth": (rate, linear_growth, "linear head, small weights"),
    }
    leading = {
        "retrieval_read_out": (V**2, law, FEW),
        "retrieval_emergence": (time, emergence, FEW, path),
        "retrieval_many_pairs": (time, many_pairs, LARGE),
    }
    where = ref(DERIVED)
    return table(where, status="exact", **exact) | table(where, status="leading order", **leading)


def along() -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """Rate of the score, square of the read-out, and the time along both."""
    return flow().rhs[K], law(), emergence()


half_time = ramp.quadrature(along, V, N, M, P)


# Time at which attention emerges, as a number


@np.errstate(over="ignore")  # beyond all sizes that the limits allow
def half(p: Any) -> float:
    """Weight of the right value in the softmax's normaliser at attention 1/2, over M."""
    square = head_equations()["retrieval_read_out"]
    read_out = np.sqrt(square.evaluate({**p.as_dict(), K.name: float(np.log(p.P - 1))}))
    return float(np.exp(read_out / 2) / p.M)


SCOPE = Scope(
    "retrieval_emergence",
    "gradient descent in small steps from zero weights, whose attention emerges while most of the "
    "probability lies on values that are not shown",
    (
        Limit("P", "at least 3", lambda p, runs: p.P >= 3),
        Limit(
            "M",
            "above P, as nothing leaves zero weights where every value is shown",
            lambda p, runs: p.M > p.P,
            reads=("P",),
        ),
        Limit(
            "N",
            "so small that exp(read-out/2) stays below M/2 until attention is 1/2",
            lambda p, runs: p.P < 3 or half(p) < 1 / 2,
            reads=("M", "P"),
        ),
    ),
    free=("eta", "steps", "eval_every", "batch_size"),
)
applies = scope.applies({"emergence": SCOPE})


@scope.pointwise(SCOPE)
def emergence_time(p: Any) -> float:
    """Time at which attention to the right key is 1/2, by the integral of `retrieval_emergence`.

    In time of the flow, at any learning rate; `emergence_times` refuses those with few steps.

    Parameters
    ----------
    p : Parameters
        Of the softmax head.
    """
    return half_time(p.N, p.M, p.P)


TIMES = {"t_half": (emergence_time, "time at which attention is 1/2, by an integral")}


Parameters, derived, flow, flows, sections, equations, onset, emergence_times, predict = (
    package_theory(stated, {"Retrieval by a softmax head: emergence": [head_equations]}, TIMES)
)
