"""All weights on a context that ends in a burst: its last B pairs are the queried one.

The scores are those of one right pair (`scores`): a right row scores by what it
retrieved of the right item and of the right label, which earlier pairs of the burst add
to. Pairs before the burst are as those before a single last pair.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np
import sympy as sp

from theory import Equation, array, proved, symbol, table, vanishes
from theory.call.refusal import ParameterError
from theory.induction_heads import structure
from theory.induction_heads.all_weights.running import (
    after,
    first_layer,
    is_first,
    real,
    row_weights,
    rows,
    rows_before,
    total,
    with_gradient,
)
from theory.induction_heads.all_weights.scores import (
    ALL_WEIGHTS,
    THETA,
    E,
    H,
    b_item,
    b_label,
    c_item,
    c_label,
    context_weights,
    e,
    g,
    gamma,
    network,
    r_item,
    r_label,
    spelled,
    w_item,
    w_label,
    w_query,
    x_first,
    x_item,
    x_label,
    x_self,
)
from theory.induction_heads.network import (
    ENDS,
    MASKS,
    ORTHONORMAL,
    Row,
    number,
    overlap,
    value,
)
from theory.induction_heads.symbols import B, N, P, d, k, l, ref, squared_error
from theory.symbols.notation import Forms

R = array("R_1", "R", "what a row retrieves of the token of another one, first layer")
PLACE = "beyond Sec. 7.2: all weights, a burst of right pairs"
BEFORE = "every pair before the burst occurs once"
E_1 = symbol(
    "E_1",
    means="exp(alpha_1), of a right row on an earlier one of its kind",
    positive=True,
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
        proved(not one.has(index), "right pairs are not alike")
        return (last - first + 1) * one

    return expr.replace(sp.Sum, alike)


def right_weights() -> dict[str, sp.Expr]:
    """Attention of first-layer rows of the burst's pair k: to the right item, to the
    right label, and to one other token.
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
    weight = network(mask, B).block(
        2, row, partial(overlap, structure.TOKEN, "I", token)
    )
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
    proved(vanishes(whole - derived), f"not the network's {name}")
    return whole


def score_forms(mask: str) -> dict[str, sp.Expr]:
    """Scores of the query on the rows of the burst's pair k, on the first row (strict
    mask) and on itself, relative to other rows, which all have one score.
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
    """What rows of the burst retrieve in the first layer, and their scores in the
    second.
    """
    by_name: dict[str, Equation] = {}
    last = number("query", N)
    rows = {kind: number(kind, N - B + k) for kind in ("item", "label")}
    tokens = {kind: number(kind, N) for kind in rows} | {"other": 2 * l}
    for mask, end in ENDS.items():
        made = {}
        for name in right_weights():
            kind, token = name.split("_")
            made[f"burst_first_{name}{end}"] = (
                R[rows[kind], tokens[token]],
                lambda name=name, mask=mask: in_full(
                    weights(mask)[f"right_{name}"], mask
                ),
            )
        for name in score_forms(mask):
            row = {"first": sp.S.One, "query": last}.get(name) or rows[
                name.removeprefix("right_")
            ]
            made[f"burst_key_{name}{end}"] = (
                P[last, row] - P[last, 2 * l],
                lambda name=name, mask=mask: key_scores(mask)[name],
            )
        given = (ORTHONORMAL, ALL_WEIGHTS, BEFORE, f"{mask} mask")
        by_name |= table(ref(PLACE), *given, status="exact", **made)
    return by_name


# Loss of all nineteen pseudo-parameters on a context that ends in a burst

C_item, C_label = (
    symbol(f"C_{x}", rf"C^{{\mathrm{{{x}}}}}", f"output along the right {x}", real=True)
    for x in ("item", "label")
)
SIDES = {
    "retrieved_item": r_item[l],
    "retrieved_label": r_label[l],
    "output_item": c_item[l],
    "output_label": c_label[l],
    "output_right_item": C_item,
    "output_right_label": C_label,
}


def written(
    mask: str,
    w: Mapping[str, sp.Expr],
    query: Mapping[str, sp.Expr],
    before: Mapping[str, sp.Expr],
    right: Mapping[str, sp.Expr],
    retrieved: Mapping[str, sp.Expr],
    later: Callable[[sp.Expr], sp.Expr],
    over_burst: Callable[[sp.Expr], sp.Expr],
    Z: sp.Expr = sp.S.One,
) -> dict[str, sp.Expr]:
    """What both layers retrieve of each token, and the output along it.

    Parameters
    ----------
    mask : {'strict', 'inclusive'}
        Causal mask.
    w, query : mapping
        `weights` of the first layer, and those of the query, by token.
    before, right : mapping
        Attention of the second layer to items and labels of pair l before the burst,
        and of pair k in it.
    retrieved : mapping
        What both layers retrieve of items and labels of pair l.
    later, over_burst : callable
        Sum over pairs after l, before the burst; over pairs of the burst.
    Z : Expr
        What the attention of the second layer is still to be divided by.
    """
    to_itself = MASKS[mask]
    on_query = to_itself * w_query

    def from_burst(token: str) -> sp.Expr:
        rows = sum(right[kind] * w[f"right_{kind}_{token}"] for kind in right)
        return over_burst(rows) + on_query * query[token]

    def along(token: str, second: sp.Expr, deep: sp.Expr) -> sp.Expr:
        return gamma[1] * query[token] + (gamma[2] * second + gamma[3] * deep) / Z

    after = later(
        sum(before[kind] * w[f"{kind}_other"] for kind in before)
    ) + from_burst("other")
    itself = {kind: to_itself * before[kind] * w[f"{kind}_self"] for kind in before}
    items, labels = (over_burst(right[kind]) for kind in ("item", "label"))
    return {
        "retrieved_item": after + before["label"] * w["label_item"] + itself["item"],
        "retrieved_label": after + itself["label"],
        "output_item": along("other", before["item"], retrieved["item"]),
        "output_label": along("other", before["label"], retrieved["label"]),
        "output_right_item": (
            gamma[0] + along("item", items + on_query, from_burst("item"))
        ),
        "output_right_label": along("label", labels, from_burst("label")),
    }


OF_QUERY = {
    "item": H,
    "label": B * g,
    "other": g,
}  # what the query retrieves of right tokens


@cache
def outputs(mask: str) -> dict[str, sp.Expr]:
    """Attention of the second layer to other tokens,
    and the output along each token.
    """
    return written(
        mask,
        {name: in_full(form, mask) for name, form in weights(mask).items()},
        {token: in_full(form, mask) for token, form in OF_QUERY.items()},
        {"item": w_item[l], "label": w_label[l]},
        {"item": w_item[N - B + k], "label": w_label[N - B + k]},
        {"item": r_item[l], "label": r_label[l]},
        lambda each: sp.Sum(each.subs(l, l + d), (d, 1, N - B - l)),
        lambda each: sp.Sum(each, (k, 1, B)),
    )


@cache
def burst_loss_equations() -> dict[str, Equation]:
    """Attention of the second layer, the output token by token, and the loss."""
    given = (ORTHONORMAL, ALL_WEIGHTS, BEFORE)
    by_name: dict[str, Equation] = {}
    for mask, end in ENDS.items():
        made = {
            f"burst_{n}{end}": (side, lambda n=n, mask=mask: outputs(mask)[n])
            for n, side in SIDES.items()
        }
        by_name |= table(ref(PLACE), *given, f"{mask} mask", status="exact", **made)
    others = sp.Sum(c_item[l] ** 2 + c_label[l] ** 2, (l, 1, N - B))
    loss = (squared_error, (1 - C_label) ** 2 + C_item**2 + others)
    return by_name | table(ref(PLACE), *given, status="exact", burst_loss=loss)


# Loss of all weights on a context that ends in a burst, and its gradient, in O(N)


@cache
def compiled(mask: str) -> Callable:
    """Equation ``burst_loss`` and those before it, with their gradient; pairs before
    the burst are numbered by l, those in it by k.
    """
    to_itself, scores = MASKS[mask], score_forms(mask)
    first = row_weights(l) | {
        real(f"right_{name}"): f for name, f in right_weights().items()
    }
    on_item, Z = real("on_item Z")
    on_right = {kind: real(f"on_right_{kind}") for kind in ("item", "label")}
    chain = {
        **first_layer(mask, B),
        E_1: sp.exp(THETA["alpha_1"]),
        **first,
        on_item: sp.exp(x_first * is_first),
        w_query: to_itself * sp.exp(x_self if to_itself else 0),
        **{x: sp.exp(scores[f"right_{kind}"]) for kind, x in on_right.items()},
    }

    names: Forms = {}

    def summed(over: Callable[[sp.Expr], sp.Expr], each: sp.Expr) -> sp.Symbol:
        form = over(each)
        chain.setdefault(names.setdefault(form, real(f"sum_{len(names)}")), form)
        return names[form]

    over = partial(summed, total)
    chain[Z] = over(on_item) + N - B + sum(map(over, on_right.values())) + w_query
    sides = {name: real(name) for name in SIDES}
    made = written(
        mask,
        {x.name: x for x in first},
        OF_QUERY,
        {"item": on_item, "label": sp.S.One},
        on_right,
        {kind: sides[f"retrieved_{kind}"] for kind in on_right},
        partial(summed, after),
        over,
        Z,
    )
    chain |= {sides[name]: form for name, form in made.items()}
    others = over(sides["output_item"] ** 2 + sides["output_label"] ** 2)
    right = (1 - sides["output_right_label"]) ** 2 + sides["output_right_item"] ** 2
    chain[real("loss")] = right + others
    arrays = (l, rows_before, is_first, k)
    return with_gradient(chain, [*THETA.values()], arrays, [*arrays, N, B])


def loss_and_gradient(
    theta: np.ndarray, size: int, right: int, mask: str = "strict"
) -> tuple[float, np.ndarray]:
    """Loss and its gradient in O(N) for the last of ``right`` right pairs.

    Parameters
    ----------
    theta : array
        The nineteen pseudo-parameters in the order of `NAMES`.
    size : int
        Item-label pairs N.
    right : int
        Right pairs B, at the end.
    mask : {'strict', 'inclusive'}
        Causal mask.

    Returns
    -------
    tuple
        Loss summed over the D coordinates, and its gradient, shape (19,).

    Raises
    ------
    ParameterError
        Unless some pair is not a right one.
    """
    if right not in range(1, size):
        raise ParameterError(
            f"B = {right}: must lie in 1..{size - 1}, below N = {size}"
        )
    places = np.arange(1.0, right + 1)
    return compiled(mask)(
        theta, *rows(size - right, mask), places, float(size), float(right)
    )
