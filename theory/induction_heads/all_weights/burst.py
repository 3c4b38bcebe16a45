"""All weights on a context that ends in a burst: its last B pairs are the queried one.

The scores are those of one right pair (`scores`): a right row scores by what it
retrieved of the right item and of the right label, which earlier pairs of the burst add
to. Pairs before the burst are as those before a single last pair.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np
import sympy as sp

from theory import Chapter, Equation, array, proved, symbol, vanishes
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
    Named,
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

Entries = Mapping[str, sp.Expr]  # by kind of row, or by token
Summation = Callable[[sp.Expr], sp.Expr]  # of an entry over pairs
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


def right_weights() -> Named:
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
    inner_product = partial(overlap, structure.TOKEN, "I", token)
    weight = network(mask, B).block(2, row, inner_product)
    return counted(value(weight))


@cache
def weights(mask: str) -> Named:
    """`right_weights` and `context_weights` (of pair l), proved equal to the network's.

    Raises
    ------
    ArithmeticError
        If one is not.
    """
    net = network(mask, B)
    forms = {}
    right = {"item": net.right_row("item", B), "label": net.right_row("label", B)}
    right["other"] = net.row("label", l)
    for name, form in right_weights().items():
        kind, token = name.split("_")
        forms[f"right_{name}"] = form
        _same(name, form, retrieved(net.right_row(kind, k), right[token], mask), mask)
    earlier = {"item": net.row("item", l), "label": net.row("label", l)}
    earlier["other"] = net.row("label", l - d)
    for name, weight in context_weights().items():
        kind, token = name.split("_")
        form = weight.subs(k, l)
        forms[name] = form
        column = earlier[kind if token == "self" else token]
        _same(name, form, retrieved(earlier[kind], column, mask), mask)
    return forms


def _same(name: str, form: sp.Expr, derived: sp.Expr, mask: str) -> sp.Expr:
    """A form in the pseudo-parameters, proved to be the network's."""
    in_parameters = in_full(form, mask)
    proved(vanishes(in_parameters - derived), f"not the network's {name}")
    return in_parameters


def score_forms(mask: str) -> Named:
    """Scores of the query on the rows of the burst's pair k, on the first row (strict
    mask) and on itself, relative to other rows, which all have one score.
    """
    w = right_weights()
    forms = {}
    for kind, x in (("item", x_item), ("label", x_label)):
        by_retrieved = b_item * w[f"{kind}_item"] + b_label * w[f"{kind}_label"]
        forms[f"right_{kind}"] = x + by_retrieved
    if MASKS[mask]:
        forms["query"] = x_self
    else:
        forms["first"] = x_first
    return forms


@cache
def key_scores(mask: str) -> Named:
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
    chapter = Chapter(ref(PLACE), ORTHONORMAL, ALL_WEIGHTS, BEFORE, status="exact")
    last = number("query", N)
    kinds = ("item", "label")
    rows = {kind: number(kind, N - B + k) for kind in kinds}
    tokens = {kind: number(kind, N) for kind in kinds} | {"other": 2 * l}
    keys = {f"right_{kind}": row for kind, row in rows.items()}
    keys |= {"first": sp.S.One, "query": last}
    for mask, end in ENDS.items():
        masked = f"{mask} mask"
        for name in right_weights():
            kind, token = name.split("_")
            entry = R[rows[kind], tokens[token]]
            weight = partial(right_weight_in_full, name, mask)
            chapter.state(f"burst_first_{name}{end}", entry, weight, masked)
        for name in score_forms(mask):
            score = P[last, keys[name]] - P[last, 2 * l]
            form = partial(_entry, key_scores, mask, name)
            chapter.state(f"burst_key_{name}{end}", score, form, masked)
    return chapter.equations


def right_weight_in_full(name: str, mask: str) -> sp.Expr:
    """One of `right_weights` in the pseudo-parameters, proved by `weights`."""
    return in_full(weights(mask)[f"right_{name}"], mask)


def _entry(of: Callable[[str], Entries], mask: str, name: str) -> sp.Expr:
    """One of the expressions of a mask."""
    return of(mask)[name]


# Loss of all nineteen pseudo-parameters on a context that ends in a burst

C_item = symbol(
    "C_item", r"C^{\mathrm{item}}", "output along the right item", real=True
)
C_label = symbol(
    "C_label", r"C^{\mathrm{label}}", "output along the right label", real=True
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
    w: Entries,
    query: Entries,
    before: Entries,
    right: Entries,
    retrieved: Entries,
    later: Summation,
    over_burst: Summation,
    Z: sp.Expr = sp.S.One,
) -> Named:
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

    by_later = sum(before[kind] * w[f"{kind}_other"] for kind in before)
    after = later(by_later) + from_burst("other")
    itself = {kind: to_itself * before[kind] * w[f"{kind}_self"] for kind in before}
    items = over_burst(right["item"]) + on_query
    labels = over_burst(right["label"])
    right_item = along("item", items, from_burst("item"))
    return {
        "retrieved_item": after + before["label"] * w["label_item"] + itself["item"],
        "retrieved_label": after + itself["label"],
        "output_item": along("other", before["item"], retrieved["item"]),
        "output_label": along("other", before["label"], retrieved["label"]),
        "output_right_item": gamma[0] + right_item,
        "output_right_label": along("label", labels, from_burst("label")),
    }


# what the query retrieves of right tokens
OF_QUERY = {"item": H, "label": B * g, "other": g}


@cache
def outputs(mask: str) -> Named:
    """Attention of the second layer to other tokens,
    and the output along each token.
    """

    def later(each: sp.Expr) -> sp.Expr:
        return sp.Sum(each.subs(l, l + d), (d, 1, N - B - l))

    def over_burst(each: sp.Expr) -> sp.Expr:
        return sp.Sum(each, (k, 1, B))

    pair = N - B + k
    return written(
        mask,
        w={name: in_full(form, mask) for name, form in weights(mask).items()},
        query={token: in_full(form, mask) for token, form in OF_QUERY.items()},
        before={"item": w_item[l], "label": w_label[l]},
        right={"item": w_item[pair], "label": w_label[pair]},
        retrieved={"item": r_item[l], "label": r_label[l]},
        later=later,
        over_burst=over_burst,
    )


@cache
def burst_loss_equations() -> dict[str, Equation]:
    """Attention of the second layer, the output token by token, and the loss."""
    chapter = Chapter(ref(PLACE), ORTHONORMAL, ALL_WEIGHTS, BEFORE, status="exact")
    for mask, end in ENDS.items():
        for name, side in SIDES.items():
            form = partial(_entry, outputs, mask, name)
            chapter.state(f"burst_{name}{end}", side, form, f"{mask} mask")
    others = sp.Sum(c_item[l] ** 2 + c_label[l] ** 2, (l, 1, N - B))
    loss = (1 - C_label) ** 2 + C_item**2 + others
    chapter.state("burst_loss", squared_error, loss)
    return chapter.equations


# Loss of all weights on a context that ends in a burst, and its gradient, in O(N)


@cache
def compiled(mask: str) -> Callable:
    """Equation ``burst_loss`` and those before it, with their gradient; pairs before
    the burst are numbered by l, those in it by k.
    """
    to_itself = MASKS[mask]
    scores = score_forms(mask)
    first = row_weights(l)
    first |= {real(f"right_{name}"): f for name, f in right_weights().items()}
    on_item, Z = real("on_item Z")
    on_right = {kind: real(f"on_right_{kind}") for kind in ("item", "label")}
    chain = {**first_layer(mask, B), E_1: sp.exp(THETA["alpha_1"]), **first}
    chain[on_item] = sp.exp(x_first * is_first)
    chain[w_query] = to_itself * sp.exp(x_self if to_itself else 0)
    for kind, x in on_right.items():
        chain[x] = sp.exp(scores[f"right_{kind}"])

    names: Forms = {}

    def summed(over: Summation, each: sp.Expr) -> sp.Symbol:
        """Name of a sum, a line of the chain that is shared by those who need it."""
        form = over(each)
        name = names.setdefault(form, real(f"sum_{len(names)}"))
        chain.setdefault(name, form)
        return name

    over = partial(summed, total)
    chain[Z] = over(on_item) + N - B + sum(map(over, on_right.values())) + w_query
    sides = {name: real(name) for name in SIDES}
    forms = written(
        mask,
        w={x.name: x for x in first},
        query=OF_QUERY,
        before={"item": on_item, "label": sp.S.One},
        right=on_right,
        retrieved={kind: sides[f"retrieved_{kind}"] for kind in on_right},
        later=partial(summed, after),
        over_burst=over,
        Z=Z,
    )
    for name, form in forms.items():
        chain[sides[name]] = form
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
    before = rows(size - right, mask)
    places = np.arange(1.0, right + 1)
    return compiled(mask)(theta, *before, places, float(size), float(right))
