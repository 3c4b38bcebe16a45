"""Scores of both layers when all nineteen pseudo-parameters of Theorem 1 are present
(orthonormal data, any query).

A key of the second layer is one of seven kinds, whose scores depend on at most one pair
number. With the strict mask the first row is a separate kind, as it retrieves nothing.
"""

import operator
from functools import cache, partial
from itertools import combinations

import sympy as sp

from theory import Chapter, Equation, array, proved, symbol, vanishes, written_as
from theory.induction_heads import structure
from theory.induction_heads.network import (
    ENDS,
    KEYS,
    MASKS,
    ORTHONORMAL,
    Network,
    number,
    value,
)
from theory.induction_heads.symbols import N, P, T, d, k, l, q, ref, squared_error
from theory.symbols.notation import Forms

THETA = {
    p.name: symbol(p.name, r"\{}_{{{}}}".format(*p.name.split("_")), real=True)
    for p in structure.pseudo_parameters()
}
ALL_WEIGHTS = "all nineteen pseudo-parameters (Theorem 1)"
PLACE = "beyond Theorem 2: all weights"
Place = tuple[str, sp.Expr]  # kind and pair of a row
Named = dict[str, sp.Expr]

# Quantities in a key's score: weights of the first layer (g, h, H of the query; e, E of
# context rows), then sums of W2.
g, h, H, E = (symbol(x, positive=True) for x in ("g", "h", "H", "E_s"))
e = symbol(
    "e", means="exp(alpha_3), of a label on its item, first layer", positive=True
)


def _named(letter: str, name: str) -> sp.Symbol:
    """A real symbol with an index that is a word."""
    return symbol(f"{letter}_{name}", rf"{letter}_{{\mathrm{{{name}}}}}", real=True)


x_item = _named("x", "item")
x_first = _named("x", "first")
x_label = _named("x", "label")
x_self = _named("x", "self")
b_item = _named("b", "item")
b_label = _named("b", "label")


@cache
def network(mask: str = "strict", burst: sp.Expr = sp.S.One) -> Network:
    """The network with all pseudo-parameters that can become nonzero; one right pair
    may be any.
    """
    names = {name: name for name in structure.reachable()}
    return Network(mask, names, burst=None if burst == 1 else burst)


@cache
def key_scores(mask: str = "strict") -> Named:
    """Scores by kind of row; ``later`` rows belong to pair q + d."""
    return network(mask).key_scores()


@cache
def abbreviations(mask: str = "strict", burst: sp.Expr = sp.S.One) -> Forms:
    """Definitions of the abbreviations for weights of the first layer and sums of W2.

    The query attends with h to every right item and with g to all else, so that it
    retrieves H of the right item and B g of the right label.
    """
    to_itself = MASKS[mask]
    net = network(mask, burst)
    if net.right is None:
        item = net.row("item", q)
        other = net.row("item", q + d)
    else:
        item = net.right_row("item", sp.S.One)
        other = net.row("item", l)
    b1, b2, b7, b8, b9, b10, b11, b12 = (
        THETA[f"beta_{number}"] for number in (1, 2, 7, 8, 9, 10, 11, 12)
    )
    more_on_item = h - g
    more_retrieved = H - g
    again = (burst - 1) * g
    forms = {
        x_item: b1 + more_retrieved * b7 + more_on_item * b9,
        x_label: more_on_item * b10 + again * b7,
    }
    if to_itself:
        others = 2 * N - 2 * burst
        forms[x_first] = sp.S.Zero
        forms[x_self] = (
            b1
            + (b2 + b7) * H
            + b8 * (H**2 + (burst**2 + others) * g**2)
            + b11 * (burst * h**2 + (2 * N - burst) * g**2)
            + b12 * (2 * burst * h * g + others * g**2)
            - g * (b7 + b8 + b9 + b10 + b11 + b12)
        )
    else:
        forms[x_first] = -g * (b8 + b11 + b12)
    forms[b_item] = b2 + more_retrieved * b8 + more_on_item * b11
    forms[b_label] = more_on_item * b12 + again * b8
    forms[H] = (burst + to_itself) * h  # the query attends to its own token, too
    forms[h] = value(net.first_attention(net.query, item))
    forms[g] = value(net.first_attention(net.query, other))
    forms[e] = sp.exp(THETA["alpha_3"])
    forms[E] = to_itself * sp.exp(THETA["alpha_1"] + THETA["alpha_2"])
    return forms


def spelled(expr: sp.Expr, mask: str, burst: sp.Expr = sp.S.One) -> sp.Expr:
    """Expression with all abbreviations substituted, in the pseudo-parameters only."""
    for short, meaning in abbreviations(mask, burst).items():
        expr = expr.subs(short, meaning)
    return expr


def context_weights() -> Named:
    """Attention of the first layer in pair k: of an item on itself and on other rows,
    of a label on its item, itself and other rows.
    """
    of_item = E + (2 * k - 2)
    of_label = e + of_item
    return {
        "item_self": E / of_item,
        "item_other": 1 / of_item,
        "label_item": e / of_label,
        "label_self": E / of_label,
        "label_other": 1 / of_label,
    }


@cache
def grouped_scores(mask: str = "strict") -> Named:
    """Scores relative to rows before the queried pair, in a printed form proved equal
    to the derived one.
    """
    own = {name: weight.subs(k, q) for name, weight in context_weights().items()}
    later = {name: w.subs(k, q + d) for name, w in context_weights().items()}
    on_label = b_item * own["label_item"] + b_label * own["label_self"]
    both = b_item + b_label
    forms = {
        "earlier_label": sp.S.Zero,
        "own_item": x_item + b_item * own["item_self"],
        "own_label": x_label + on_label,
        "later_item": both * later["item_other"],
        "later_label": both * later["label_other"],
    }
    if MASKS[mask]:
        forms["query"] = x_self
    else:
        forms["first"] = x_first
    derived = key_scores(mask)
    for name, form in forms.items():
        score = derived[name] - derived["earlier_item"]
        proved(vanishes(spelled(form, mask) - score), f"not the score of {name}")
    return forms


@cache
def redundant(
    mask: str = "strict",
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Reachable pseudo-parameters on which the loss does not depend, and pairs on which
    it depends only through their sum.

    All start at zero: the former remain zero, and the latter remain equal to each
    other.
    """
    short = abbreviations(mask)
    # h = (1 - others) / (1 + own) is a multiple of g
    scores = [x for x in short if x not in (H, h, g, e, E)]
    seen = [short[x].subs(H, short[H]) for x in scores]
    seen += [short[e], short[E], short[g]]
    slopes = {}
    for name in structure.reachable():
        if not name.startswith("gamma"):
            slopes[name] = [sp.diff(form, THETA[name]) for form in seen]
    still = tuple(name for name, by in slopes.items() if all(map(vanishes, by)))
    moving = [name for name in slopes if name.startswith("beta") and name not in still]
    same = []
    for a, b in combinations(moving, 2):
        gaps = map(operator.sub, slopes[a], slopes[b])
        if all(map(vanishes, gaps)):
            same.append((a, b))
    return still, tuple(same)


def attention_of(form: sp.Expr, row: Place, column: Place, mask: str) -> sp.Expr:
    """Attention of the first layer in printed form, proved equal to the softmax."""
    net = network(mask)
    derived = value(net.first_attention(net.row(*row), net.row(*column)))
    return written_as(spelled(form, mask), derived)


@cache
def equations() -> dict[str, Equation]:
    """Attention of the first layer, and scores of the second layer relative to a row
    before the queried pair.
    """
    chapter = Chapter(ref(PLACE), ORTHONORMAL, ALL_WEIGHTS, status="exact")
    columns = {
        "item_self": ("item", k),
        "item_other": ("label", k - d),
        "label_item": ("item", k),
        "label_self": ("label", k),
        "label_other": ("label", k - d),
    }
    last = number("query", q)
    relative = P[last, number(*KEYS["earlier_label"])]
    for mask, to_itself in MASKS.items():
        end = ENDS[mask]
        masked = f"{mask} mask"
        for name, form in context_weights().items():
            if name.endswith("self") and not to_itself:
                continue
            row = name.split("_")[0]
            column, pair = columns[name]
            entry = T[number(row, k), number(column, k if pair == k else l)]
            weight = partial(attention_of, form, (row, k), (column, pair), mask)
            chapter.state(f"all_attention_{name}{end}", entry, weight, masked)
        for name, row, weight in (("item", 2 * q - 1, h), ("other", 2 * l, g)):
            form = spelled(weight, mask)
            entry = T[last, row]
            chapter.state(f"all_attention_query_{name}{end}", entry, form, masked)
        keys = ["own_item", "own_label", "later_item", "later_label"]
        keys.append("query" if to_itself else "first")
        for name in keys:
            score = P[last, number(*KEYS[name])] - relative
            form = partial(spelled_score, name, mask)
            chapter.state(f"all_key_{name}{end}", score, form, masked)
    return chapter.equations


def spelled_score(name: str, mask: str) -> sp.Expr:
    """A score of `grouped_scores` in the pseudo-parameters only."""
    return spelled(grouped_scores(mask)[name], mask)


# Loss of all nineteen pseudo-parameters
#
# The output is a linear combination of the context's tokens, so that the loss is a sum
# of squares of coefficients. Running sums over earlier and later pairs give it in O(N)
# (`running`).


def _by_kind(letter: str, means: str) -> list[sp.IndexedBase]:
    """An array over items, and one over labels."""
    return [
        array(f"{letter}_{y}", rf"{letter}^{{\mathrm{{{y}}}}}", means.format(f"{y}s"))
        for y in ("item", "label")
    ]


w_item, w_label = _by_kind("w", "attention of the query on {}, second layer")
r_item, r_label = _by_kind("r", "what both layers retrieve of {}")
c_item, c_label = _by_kind("c", "output along {}")
w_query = symbol(
    "w_query",
    r"w^{\mathrm{query}}",
    "attention of the query on itself, inclusive mask",
    real=True,
)
gamma = [THETA[f"gamma_{i}"] for i in range(1, 5)]


@cache
def loss_equations() -> dict[str, Equation]:
    """Attention of the second layer to the first layer's output, the network output
    token by token, and the loss.
    """
    chapter = Chapter(ref(PLACE), ORTHONORMAL, ALL_WEIGHTS, status="exact")
    rows = {"item": w_item, "label": w_label}
    for mask, to_itself in MASKS.items():
        net = network(mask)
        end = ENDS[mask]
        masked = f"{mask} mask"
        of_query = partial(net.first_attention, net.query)
        on_itself = to_itself * value(of_query(net.query))
        for name, r, c in (("item", r_item, c_item), ("label", r_label, c_label)):

            def retrieved(
                kind: str, pair: sp.Expr, net: Network = net, name: str = name
            ) -> sp.Expr:
                attention = net.first_attention(net.row(kind, pair), net.row(name, k))
                return rows[kind][pair] * value(attention)

            query = net.depending(of_query, name, k, q)
            by_later = retrieved("item", k + d) + retrieved("label", k + d)
            total = sp.Sum(by_later, (d, 1, N - k)) + to_itself * w_query * query
            if to_itself:
                total += retrieved(name, k)
            # the query is a copy of item q
            again = sp.S.Zero
            if name == "item":
                total += retrieved("label", k)
                again = sp.KroneckerDelta(q, k)
            out = gamma[0] * again + gamma[1] * (query + again * on_itself)
            out += gamma[2] * (rows[name][k] + to_itself * again * w_query)
            out += gamma[3] * (r[k] + again * w_query * on_itself)
            chapter.state(f"all_retrieved_{name}{end}", r[k], total, masked)
            chapter.state(f"all_output_{name}{end}", c[k], out, masked)
    squares = sp.Sum(c_item[k] ** 2 + c_label[k] ** 2, (k, 1, N))
    chapter.state("all_loss", squared_error, 1 - 2 * c_label[q] + squares)
    return chapter.equations
