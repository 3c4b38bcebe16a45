"""Factual recall by softmax attention over the tokens; derived from a statement
(`theory.statement`).
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import sympy as sp

from theory import Equation, Limit, Scope, proved, scope, symbol, table, vanishes, written_as
from theory.associative_memory import ramp
from theory.associative_memory.symbols import DERIVED, PAPER, ref, t
from theory.statement import (
    Statement,
    cross_entropy,
    draw,
    exp,
    sample,
    sizes,
    sort,
    statement,
    teacher,
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

# Factual recall by softmax attention

S, R, D, T, n = sizes("S R D T n")  # subjects, relations, answers per relation, tokens, noise words


def tokens() -> Statement:
    """Cross-entropy of the answer, from all tokens of the input."""
    subject = sort("subject", S)
    relation = sort("relation", R)
    noise = sort("noise", n)
    place = sort("place", T - 3)
    choice = sort("choice", D, of=relation)
    f = teacher("f", (subject, relation), choice)
    z = sample("z", (place,), noise)
    s, r = draw(subject), draw(relation)
    kinds = {"s": [subject], "r": [relation], "n": [noise], "e": []}
    w = {k: weight(f"w_{k}", *x) for k, x in kinds.items()}
    V = {k: weight(f"V_{k}", *x, relation, choice) for k, x in kinds.items()}

    def summed(of: Callable[..., Any]) -> Any:
        """Sum over all tokens, each weighed by the exponential of its score."""

        def part(k: str, *token: Any) -> Any:
            return exp(w[k][token]) * of(V[k], *token)

        return part("s", s) + part("r", r) + part("e") + total(lambda p: part("n", z(p)), place)

    mass = summed(lambda V, *token: 1)
    return statement(
        cross_entropy(
            lambda q, d: summed(lambda V, *token: V[(*token, q, d)]) / mass,
            over=(relation, choice),
            target=(r, f(s, r)),
        ),
        name="softmax_recall",
        title="Factual recall by softmax attention",
        paper=PAPER,
        observables={"a_s": exp(w["s"][s]) / mass, "a_r": exp(w["r"][r]) / mass},
        values=dict(S=16, R=4, D=4, T=16, n=16, eta=1.0, steps=400, eval_every=4, batch_size=512),
    )


stated = tokens()


# When softmax attention finds the relation

w, w_s, w_e = (
    symbol(f"delta_w_{k}", means=f"score of the {of} minus that of noise", real=True)
    for k, of in (("r", "relation"), ("s", "subject"), ("e", "end token"))
)
V, V_s = (
    symbol(f"delta_V_{k}", means=f"read-out of the {of}: right minus wrong", real=True)
    for k, of in (("r", "relation"), ("s", "subject"))
)
X, Y = (
    symbol(f"{x}_logit", x, f"logit that the {of} adds to right answers", real=True)
    for x, of in (("X", "relation"), ("Y", "subject"))
)
a_r, a_s, a_e, a_n = (
    symbol(f"a_{k}", means=f"attention to {of}", positive=True)
    for k, of in (
        ("r", "the relation"),
        ("s", "the subject"),
        ("e", "the end token"),
        ("n", "noise"),
    )
)
g_r, g_s = (
    symbol(f"g_{k}", means=f"probability that is not on right {of}", positive=True)
    for k, of in (("r", "relations"), ("s", "choices"))
)
whole = T - 3 + sp.exp(w) + sp.exp(w_s) + sp.exp(w_e)
T_r = symbol("T_relation", "T_r", "time at which attention to the relation is 1/2", positive=True)
loss = symbol("loss_recall", r"\mathcal{L}", "population loss", real=True)
ALONE = "subject and end token as at the start"
MANY = "many tokens"


def attention(name: str) -> sp.Expr:
    """Attention to the relation (``a_r``) or the subject (``a_s``)."""
    return flow().observables[name]


def split() -> sp.Expr:
    """The loss: one term for the relation and one for the subject, coupled by attention alone.

    Raises
    ------
    ArithmeticError
        If it is not that.
    """
    form = sp.log(1 + (R - 1) * sp.exp(-X)) + sp.log(1 + (D - 1) * sp.exp(-Y))
    x, y = attention("a_r") * V, attention("a_s") * V_s
    whole = sp.exp(flow().observables["loss"]) - sp.exp(form).subs({X: x, Y: y})
    proved(vanishes(sp.powsimp(sp.expand(whole))), "the loss does not split")
    return form


def moved(x: sp.Symbol) -> sp.Expr:
    """Rate of a score or a read-out, in attentions and in the slopes of both parts of the loss.

    Raises
    ------
    ArithmeticError
        If it is not that of the flow.
    """
    shares = {sizes: sp.exp(score) / whole for sizes, score in ((S, w_s), (R, w), (sp.S.One, w_e))}
    attentions = {a_s: shares[S], a_r: shares[R], a_e: shares[sp.S.One], a_n: (T - 3) / whole}
    gains = {
        g_r: (R - 1) / (sp.exp(attentions[a_r] * V) + R - 1),
        g_s: (D - 1) / (sp.exp(attentions[a_s] * V_s) + D - 1),
    }
    common = a_r * g_r * V + a_s * g_s * V_s
    form = {
        w_s: a_s * (g_s * V_s - common) / S,
        w: a_r * (g_r * V - common) / R,
        w_e: -a_e * common,
        V_s: D * a_s * g_s / (R * S * (D - 1)),
        V: a_r * g_r / (D * (R - 1)),
    }[x] + (a_n * common / n if x in (w_s, w, w_e) else 0)
    off = flow().rhs[x] - form.subs(gains).subs(attentions)
    off = sp.expand_power_exp(off.replace(sp.exp, lambda e: sp.exp(sp.expand(e))))
    proved(vanishes(off), f"not the rate of {x}")
    return form


@cache
def alone(x: sp.Symbol) -> sp.Expr:
    """A rate where only the relation has moved."""
    return sp.factor(flow().rhs[x].subs({w_s: 0, w_e: 0, V_s: 0}))


@cache
def law() -> sp.Expr:
    """Square of the relation's read-out as a function of its score."""
    mass = R * n * (T - 1) / (n * (T - 1) + R * (T - 3))
    form = 2 * mass / (D * (R - 1)) * (w + (sp.exp(w) - 1) / (T - 1))
    return ramp.squared(form, w, V, [alone(w), alone(V)])


@cache
def emergence() -> sp.Expr:
    """Time until attention to the relation is 1/2: an integral over its score."""
    return ramp.elapsed(w, sp.log(T - 1))


def many_tokens() -> sp.Expr:
    """The same for many tokens: all of the time passes while attention is of order 1/T."""
    rate = sp.limit(T * sp.limit(alone(w) / V, V, 0), T, sp.oo)
    time = ramp.many(rate, sp.limit(law(), T, sp.oo), w) * T
    form = T * R * sp.sqrt(sp.pi / 2) * sp.sqrt(D * n * R / ((R - 1) * (n + R)))
    return sp.sqrt(written_as(form**2, time**2))


@cache
def relation_equations() -> dict[str, Equation]:
    """Loss, attention and the relation's emergence."""
    exact = {"softmax_recall_split": (loss, split), "softmax_recall_a_r": (a_r, attention("a_r"))}
    exact |= {
        f"softmax_recall_rate_{x.name}": (sp.Derivative(x, t), partial(moved, x))
        for x in (w_s, w, w_e, V_s, V)
    }
    rate = "rate softmax_recall_alone, read-out softmax_recall_read_out"
    leading = {
        "softmax_recall_alone": (sp.Derivative(w, t), lambda: alone(w)),
        "softmax_recall_read_out": (V**2, law),
        "softmax_recall_emergence": (T_r, emergence, rate),
        "softmax_recall_many_tokens": (T_r, many_tokens, MANY),
    }
    where = ref(DERIVED)
    return table(where, status="exact", **exact) | table(
        where, ALONE, status="leading order", **leading
    )


relation_time = ramp.quadrature(lambda: (alone(w), law(), emergence()), V, S, R, D, T, n)


# Time at which the relation is found, as a number

FIRST = 2  # how much faster the relation has to be


def ahead(p: Any) -> float:
    """Time of the subject divided by that of the relation, each alone, for many tokens."""
    return float(p.S / p.R * np.sqrt((p.R - 1) / (p.D - 1)))


SCOPE = Scope(
    "softmax_recall_emergence",
    "gradient descent in small steps from zero weights, where the relation comes first",
    (
        Limit("T", "at least 8", lambda p, runs: p.T >= 8),
        Limit("n", "at least R", lambda p, runs: p.n >= p.R, reads=("R",)),
        Limit(
            "S",
            f"at least {FIRST} R sqrt((D - 1)/(R - 1)), with R and D at least 2",
            lambda p, runs: min(p.R, p.D) > 1 and ahead(p) >= FIRST,
            reads=("R", "D"),
        ),
    ),
    free=("eta", "steps", "eval_every", "batch_size"),
)
applies = scope.applies({"emergence": SCOPE})


@scope.pointwise(SCOPE)
def emergence_time(p: Any) -> float:
    """Time at which attention to the relation is 1/2, by the integral of
    `softmax_recall_emergence`.

    In time of the flow, at any learning rate; `emergence_times` refuses those with few steps.
    """
    return relation_time(p.S, p.R, p.D, p.T, p.n)


def plateau(p: Any) -> float:
    """Loss while only the relation is known."""
    return float(np.log(p.D))


NUMBERS = {
    "plateau": (plateau, "loss while only the relation is known, ln D"),
    "t_relation": (
        emergence_time,
        "time at which attention to the relation is 1/2, by an integral",
    ),
}


Parameters, derived, flow, flows, sections, equations, onset, emergence_times, predict = (
    package_theory(
        stated, {"Factual recall by softmax attention: emergence": [relation_equations]}, NUMBERS
    )
)
