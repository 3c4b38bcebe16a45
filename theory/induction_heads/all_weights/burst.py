"""All weights on a context that ends in a burst: its last B pairs are the queried one.

The scores are those of one right pair (`scores`): a right row scores by what it retrieved of the
right item and of the right label, which earlier pairs of the burst add to. Pairs before the burst
are as those before a single last pair.
"""

from functools import cache, partial
from typing import Any

import sympy as sp

from theory import Equation, array, symbol, table, vanishes
from theory.induction_heads import structure
from theory.induction_heads.all_weights.scores import (
    ALL_WEIGHTS,
    THETA,
    E,
    b_item,
    b_label,
    context_weights,
    e,
    network,
    spelled,
    x_first,
    x_item,
    x_label,
    x_self,
)
from theory.induction_heads.network import ENDS, MASKS, ORTHONORMAL, Row, number, overlap, value
from theory.induction_heads.symbols import B, N, P, d, k, l, ref
from theory.statement.tree import Node

R = array("R_1", "R", "what a row retrieves of the token of another one, first layer")
PLACE = "beyond Sec. 7.2: all weights, a burst of right pairs"
BEFORE = "every pair before the burst occurs once"
E_1 = symbol(
    "E_1", means="exp(alpha_1), of a right row on an earlier one of its kind", positive=True
)


def counted(expr: sp.Expr) -> sp.Expr:
    """Sums over right pairs that are all alike, as their number times one.

    Raises
    ------
    ArithmeticError
        If they are not alike.
    """

    def alike(term: sp.Expr, limits: sp.Tuple) -> sp.Expr:
        index, first, last = limits
        one = sp.factor(term)
        if one.has(index):
            raise ArithmeticError(f"{term}: depends on {index}")
        return (last - first + 1) * one

    return expr.replace(sp.Sum, alike)


def right_weights() -> dict[str, sp.Expr]:
    """Attention of first-layer rows of the burst's pair k: to the right item, to the right label,
    and to one other token.
    """
    of_item = E + (k - 1) * (E_1 + 1) + 2 * (N - B)
    of_label = e + of_item
    same = E + (k - 1) * E_1  # of rows of their kind
    return {
        "item_item": same / of_item,
        "item_label": (k - 1) / of_item,
        "item_other": 1 / of_item,
        "label_item": (e + k - 1) / of_label,
        "label_label": same / of_label,
        "label_other": 1 / of_label,
    }


def in_full(expr: sp.Expr, mask: str) -> sp.Expr:
    """Expression in the pseudo-parameters only."""
    return spelled(expr, mask, B).subs(E_1, sp.exp(THETA["alpha_1"]))


def retrieved(row: Row, token: Row, mask: str) -> sp.Expr:
    """What a row of the first layer retrieves of a token, from the network."""
    match = partial(overlap, structure.TOKEN, "I", token)
    weight: Node = network(mask, B).block(2, row, match)
    return counted(value(weight))


@cache
def weights(mask: str) -> dict[str, sp.Expr]:
    """`right_weights` and `context_weights` (of pair l), proved equal to the network's.

    Raises
    ------
    ArithmeticError
        If one is not.
    """
    net, made = network(mask, B), {}
    right = {"item": net.right_row("item", B), "label": net.right_row("label", B)}
    right["other"] = net.row("label", l)
    for name, form in right_weights().items():
        kind, token = name.split("_")
        made[f"right_{name}"] = form
        _same(name, form, retrieved(net.right_row(kind, k), right[token], mask), mask)
    earlier = {"item": net.row("item", l), "label": net.row("label", l)}
    earlier["other"] = net.row("label", l - d)
    for name, form in context_weights().items():
        kind, token = name.split("_")
        made[name] = form.subs(k, l)
        column = earlier[kind if token == "self" else token]
        _same(name, made[name], retrieved(earlier[kind], column, mask), mask)
    return made


def _same(name: str, form: sp.Expr, derived: sp.Expr, mask: str) -> sp.Expr:
    """A form in the pseudo-parameters, proved to be the network's."""
    whole = in_full(form, mask)
    if not vanishes(whole - derived):
        raise ArithmeticError(f"{form} is not the network's {name}: {derived}")
    return whole


def score_forms(mask: str) -> dict[str, sp.Expr]:
    """Scores of the query on the rows of the burst's pair k, on the first row (strict mask) and on
    itself, relative to other rows, which all have one score.
    """
    w = right_weights()
    forms = {
        f"right_{kind}": x + b_item * w[f"{kind}_item"] + b_label * w[f"{kind}_label"]
        for kind, x in (("item", x_item), ("label", x_label))
    }
    return forms | ({"query": x_self} if MASKS[mask] else {"first": x_first})


@cache
def key_scores(mask: str) -> dict[str, sp.Expr]:
    """`score_forms` in the pseudo-parameters, proved equal to the network's.

    Raises
    ------
    ArithmeticError
        If one is not.
    """
    net = network(mask, B)
    rows = {f"right_{kind}": net.right_row(kind, k) for kind in ("item", "label")}
    rows |= {"query": net.query, "first": net.row("item", sp.S.One)}
    rows |= {"other item": net.row("item", l), "other label": net.row("label", l)}
    score = {name: counted(value(net.key_score(row))) for name, row in rows.items()}
    others = score.pop("other item")
    _same("score of labels", others, score.pop("other label"), mask)
    return {
        name: _same(f"score of {name}", form, score[name] - others, mask)
        for name, form in score_forms(mask).items()
    }


@cache
def equations() -> dict[str, Equation]:
    """What rows of the burst retrieve in the first layer, and their scores in the second."""
    by_name: dict[str, Equation] = {}
    last = number("query", N)
    rows = {kind: number(kind, N - B + k) for kind in ("item", "label")}
    tokens = {kind: number(kind, N) for kind in rows} | {"other": 2 * l}
    for mask, end in ENDS.items():
        made: dict[str, Any] = {}
        for name in right_weights():
            kind, token = name.split("_")
            made[f"burst_first_{name}{end}"] = (
                R[rows[kind], tokens[token]],
                lambda name=name, mask=mask: in_full(weights(mask)[f"right_{name}"], mask),
            )
        for name in score_forms(mask):
            row = {"first": sp.S.One, "query": last}.get(name) or rows[name.removeprefix("right_")]
            made[f"burst_key_{name}{end}"] = (
                P[last, row] - P[last, 2 * l],
                lambda name=name, mask=mask: key_scores(mask)[name],
            )
        given = (ORTHONORMAL, ALL_WEIGHTS, BEFORE, f"{mask} mask")
        by_name |= table(ref(PLACE), *given, status="exact", **made)
    return by_name
