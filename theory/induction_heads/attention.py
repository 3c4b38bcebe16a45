"""Scores, attention and loss when only alpha, beta and gamma are nonzero (B.3), for any queried
pair and both masks.
"""

from functools import cache, partial
from typing import Any

import sympy as sp

from theory.equation import Equation, table
from theory.induction_heads.network import ENDS, KEYS, ORTHONORMAL, Network, number, value
from theory.induction_heads.structure import HEAD
from theory.induction_heads.symbols import N, P, Q, S, T, Z_q, beta, d, k, l, q, ref, squared_error
from theory.statement import statement
from theory.statement.derived import Derived, derive

THREE = "only alpha_3, beta_2, gamma_3 differ from zero"
SHORT = {full: short for short, full in HEAD.items()}


@cache
def key_scores(mask: str = "strict") -> dict[str, sp.Expr]:
    """Scores divided by beta: of rows before the queried pair, of its item and label, of the rows d
    pairs later, and of the query.
    """
    scores = Network(mask, SHORT).key_scores()
    return {name: score / beta for name, score in scores.items() if name != "first"}  # as earlier


@cache
def derived(mask: str = "strict", place: Any = q) -> Derived:
    """Loss of a queried pair, and its normalisation Z_q."""
    normaliser, loss = Network(mask, SHORT, place).normaliser_and_loss()
    return derive(statement(loss, name="induction_heads", observables={Z_q.name: normaliser}))


def of_later(expr: sp.Expr) -> sp.Expr:
    """Write sums over later pairs as sums over their distance."""
    return expr.replace(
        sp.Sum, lambda term, limits: sp.Sum(term.subs(limits[0], q + d), (d, 1, N - q))
    )


def loss_of_query(mask: str = "strict") -> sp.Expr:
    """Loss as a function of alpha, beta, gamma, N and q."""
    return of_later(derived(mask).loss)


@cache
def equations() -> dict[str, Equation]:
    """Scores and attention of both layers, and the loss for a general query."""
    net, last = Network("strict", SHORT), number("query", q)
    by_name: dict[str, Equation] = {}
    corrected = "B.3, corrected: printed as 0; masked, as the label comes later"
    for row, column, place in (("label", "item", "B.3"), ("item", "label", corrected)):
        score = net.depending(partial(net.score, "W1", net.row(row, k)), column, l, k)
        rows = {f"score_{row}_{column}": (S[number(row, k), number(column, l)], score)}
        by_name |= table(ref(place), ORTHONORMAL, THREE, status="exact", **rows)
    pairs = {
        "own_item": ("label", "item", k),
        "other_label": ("label", "label", k - d),
        "of_item": ("item", "label", k - d),
    }
    for mask, end in ENDS.items():
        net = Network(mask, SHORT)
        given = (ORTHONORMAL, THREE, f"{mask} mask")
        first = {
            f"attention_{name}{end}": (
                T[number(row, k), number(column, k if pair == k else l)],
                value(net.first_attention(net.row(row, k), net.row(column, pair))),
            )
            for name, (row, column, pair) in pairs.items()
        }
        scores, made = key_scores(mask), derived(mask)
        keys = {
            f"key_{name}{end}": (P[last, number(*KEYS[name])], beta * score)
            for name, score in scores.items()
        }
        normaliser = made.observables[Z_q.name]
        query = {
            "query_normaliser": (Z_q, of_later(normaliser)),
            "query_attention": (
                Q[last, number("label", q)],
                sp.exp(beta * scores["own_label"]) / Z_q,
            ),
            "loss_query": (squared_error, of_later(made.loss.xreplace({normaliser: Z_q}))),
        }
        keys |= {f"{name}{end}": row for name, row in query.items()}
        by_name |= table(ref("B.3"), *given, status="exact", **first)
        by_name |= table(ref("beyond B.3: any q"), *given, status="exact", **keys)
    return by_name
