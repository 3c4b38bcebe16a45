"""Scores, attention and loss when only alpha, beta and gamma are nonzero (B.3), for any queried
pair and both masks.

Only three properties of the data are used, all from Assumption 7: tokens of the context are
orthonormal, positional codes are orthonormal, and codes are orthogonal to swapped codes. Rows are
addressed as ("item", k), ("label", k) and ("query", q).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import sympy as sp

from theory.algebra import delta_sum
from theory.equation import Equation
from theory.induction_heads.symbols import (
    N,
    P,
    Q,
    S,
    T,
    Z_q,
    alpha,
    beta,
    d,
    gamma,
    k,
    l,
    q,
    ref,
    squared_error,
)

ORTHONORMAL = "orthonormal items, labels and positions (Assumption 7, and every item orthogonal to every label)"
THREE = "only alpha_3, beta_2, gamma_3 differ from zero"
MASKS = {"strict": 0, "inclusive": 1}  # whether a row attends to itself
Row = tuple[str, sp.Expr]


def position_score(row: Row, column: Row) -> sp.Expr:
    """Entry of X (alpha M) X^T in the position block.

    A label carries its pair's code times M. M is an involution: with an even number of factors M
    the score is the inner product of two codes, with an odd number that of a code and a swapped
    code, which vanishes. The query has no positional code.
    """
    if "query" in (row[0], column[0]):
        return sp.S.Zero
    swaps = 1 + (row[0] == "label") + (column[0] == "label")
    return alpha * sp.KroneckerDelta(row[1], column[1]) if swaps % 2 == 0 else sp.S.Zero


def query_overlap(column: Row) -> sp.Expr:
    """Inner product of the queried item with the token of a row."""
    return {"item": sp.KroneckerDelta(q, column[1]), "label": sp.S.Zero, "query": sp.S.One}[
        column[0]
    ]


def over_visible(row: Row, own: int, entry: Callable[[Row], sp.Expr]) -> sp.Expr:
    """Sum an entry over all rows that ``row`` attends to, itself included if ``own``."""
    kind, number = row
    if kind == "query":
        total = sum((delta_sum(entry((c, l)), (l, 1, N)) for c in ("item", "label")), sp.S.Zero)
        return total + own * entry(row)
    items = number if kind == "label" else number - 1 + own
    labels = number - 1 + own if kind == "label" else number - 1
    return delta_sum(entry(("item", l)), (l, 1, items), within=False) + delta_sum(
        entry(("label", l)), (l, 1, labels), within=False
    )


def exponential(score: sp.Expr) -> sp.Expr:
    """Exponential of alpha times a Kronecker delta, rewritten as linear in the delta."""
    hits = score.atoms(sp.KroneckerDelta)
    return 1 + (sp.exp(alpha) - 1) * hits.pop() if hits else sp.exp(score)


def first_attention(row: Row, column: Row, own: int) -> sp.Expr:
    """Softmax weight of the first layer."""
    generic = (row[0], k)  # a symbol that SymPy knows to lie in the range of the sum
    normaliser = over_visible(generic, own, lambda c: exponential(position_score(generic, c)))
    return exponential(position_score(row, column)) / sp.expand(normaliser.subs(k, row[1]))


def key_score(row: Row, own: int) -> sp.Expr:
    """Score of the query on a row in the second layer, divided by beta: the weight of the queried
    item in what that row retrieved.
    """
    return sp.simplify(
        over_visible(row, own, lambda c: first_attention(row, c, own) * query_overlap(c))
    )


@cache
def key_scores(mask: str = "strict") -> dict[str, sp.Expr]:
    """Scores divided by beta: of rows before the queried pair, of its item and label, of the rows d
    pairs later, and of the query.
    """
    own = MASKS[mask]
    places = {
        "earlier_item": ("item", q - d),
        "earlier_label": ("label", q - d),
        "own_item": ("item", q),
        "own_label": ("label", q),
        "later_item": ("item", q + d),
        "later_label": ("label", q + d),
    }
    if own:
        places["query"] = ("query", q)
    return {name: key_score(row, own) for name, row in places.items()}


@cache
def normaliser_and_loss(mask: str = "strict") -> tuple[sp.Expr, sp.Expr]:
    """Z_q, and the loss in terms of Z_q.

    The output is gamma times the attention-weighted mean of the tokens. These are orthonormal,
    except that the query equals the queried item, so that their two weights add before squaring.
    """
    c = key_scores(mask)

    def total(power: int) -> sp.Expr:
        late = sp.exp(power * beta * c["later_item"]) + sp.exp(power * beta * c["later_label"])
        early = (q - 1) * (
            sp.exp(power * beta * c["earlier_item"]) + sp.exp(power * beta * c["earlier_label"])
        )
        return early + sp.exp(power * beta * c["own_label"]) + sp.Sum(late, (d, 1, N - q))

    same = [sp.exp(beta * c[name]) for name in ("own_item", "query") if name in c]
    squared_norm = total(2) + sp.Add(*same) ** 2
    loss = 1 - 2 * gamma * sp.exp(beta * c["own_label"]) / Z_q + gamma**2 * squared_norm / Z_q**2
    return total(1) + sp.Add(*same), loss


def loss_of_query(mask: str = "strict") -> sp.Expr:
    """Loss as a function of alpha, beta, gamma, N and q."""
    normaliser, loss = normaliser_and_loss(mask)
    return loss.subs(Z_q, normaliser)


@cache
def equations() -> dict[str, Equation]:
    """Scores and attention of both layers, and the loss for a general query."""
    given = (ORTHONORMAL, THREE)
    found = [
        Equation(
            "score_label_item",
            S[2 * k, 2 * l - 1],
            position_score(("label", k), ("item", l)),
            ref("B.3"),
            "exact",
            given,
        ),
        Equation(
            "score_item_label",
            S[2 * k - 1, 2 * l],
            position_score(("item", k), ("label", l)),
            ref("B.3, corrected: printed as 0; masked, as the label comes later"),
            "exact",
            given,
        ),
    ]
    for mask, own in MASKS.items():
        rules = (*given, f"{mask} mask")
        end = "" if mask == "strict" else "_inclusive"
        rows = [
            (
                "attention_own_item",
                T[2 * k, 2 * k - 1],
                first_attention(("label", k), ("item", k), own),
            ),
            (
                "attention_other_label",
                T[2 * k, 2 * l],
                first_attention(("label", k), ("label", l), own),
            ),
            (
                "attention_of_item",
                T[2 * k - 1, 2 * l],
                first_attention(("item", k), ("label", k - d), own),
            ),
        ]
        found += [
            Equation(name + end, lhs, rhs, ref("B.3"), "exact", rules) for name, lhs, rhs in rows
        ]
        place = {
            "earlier_item": 2 * (q - d) - 1,
            "earlier_label": 2 * (q - d),
            "own_item": 2 * q - 1,
            "own_label": 2 * q,
            "later_item": 2 * (q + d) - 1,
            "later_label": 2 * (q + d),
            "query": 2 * N + 1,
        }
        found += [
            Equation(
                f"key_{name}{end}",
                P[2 * N + 1, place[name]],
                beta * score,
                ref("beyond B.3: any q"),
                "exact",
                rules,
            )
            for name, score in key_scores(mask).items()
        ]
        normaliser, loss = normaliser_and_loss(mask)
        right = sp.exp(beta * key_scores(mask)["own_label"]) / Z_q
        found += [
            Equation(
                f"query_normaliser{end}", Z_q, normaliser, ref("beyond B.3: any q"), "exact", rules
            ),
            Equation(
                f"query_attention{end}",
                Q[2 * N + 1, 2 * q],
                right,
                ref("beyond B.3: any q"),
                "exact",
                rules,
            ),
            Equation(
                f"loss_query{end}", squared_error, loss, ref("beyond B.3: any q"), "exact", rules
            ),
        ]
    return {e.name: e for e in found}
