"""Scores of both layers when all nineteen pseudo-parameters of Theorem 1 are present
(orthonormal data, any query).

A key of the second layer is one of seven kinds, whose scores depend on at most one pair
number. With the strict mask the first row is a separate kind, as it retrieves nothing.
"""

from functools import cache, partial

import sympy as sp

from theory import Equation, array, proved, symbol, table, vanishes, written_as
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

# Quantities in a key's score: weights of the first layer (g, h, H of the query; e, E of
# context rows), then sums of W2.
g, h, H, E = (symbol(x, positive=True) for x in ("g", "h", "H", "E_s"))
e = symbol(
    "e", means="exp(alpha_3), of a label on its item, first layer", positive=True
)
x_item, x_first, x_label, x_self = (
    symbol(f"x_{x}", rf"x_{{\mathrm{{{x}}}}}", real=True)
    for x in ("item", "first", "label", "self")
)
b_item, b_label = (
    symbol(f"b_{x}", rf"b_{{\mathrm{{{x}}}}}", real=True) for x in ("item", "label")
)


@cache
def network(mask: str = "strict", burst: sp.Expr = sp.S.One) -> Network:
    """The network with all pseudo-parameters that can become nonzero; one right pair
    may be any.
    """
    names = {name: name for name in structure.reachable()}
    return Network(mask, names, burst=None if burst == 1 else burst)


@cache
def key_scores(mask: str = "strict") -> dict[str, sp.Expr]:
    """Scores by kind of row; ``later`` rows belong to pair q + d."""
    return network(mask).key_scores()


@cache
def abbreviations(mask: str = "strict", burst: sp.Expr = sp.S.One) -> Forms:
    """Definitions of the abbreviations for weights of the first layer and sums of W2.

    The query attends with h to every right item and with g to all else, so that it
    retrieves H of the right item and B g of the right label.
    """
    to_itself, net = MASKS[mask], network(mask, burst)
    rows = (
        (net.row("item", q), net.row("item", q + d))
        if net.right is None
        else (net.right_row("item", sp.S.One), net.row("item", l))
    )
    of_item, of_other = (value(net.first_attention(net.query, row)) for row in rows)
    b = {int(n.split("_")[1]): v for n, v in THETA.items() if n.startswith("beta")}
    of_self = (
        b[1]
        + (b[2] + b[7]) * H
        + b[8] * (H**2 + (burst**2 + 2 * N - 2 * burst) * g**2)
        + b[11] * (burst * h**2 + (2 * N - burst) * g**2)
        + b[12] * (2 * burst * h * g + (2 * N - 2 * burst) * g**2)
        - g * (b[7] + b[8] + b[9] + b[10] + b[11] + b[12])
    )
    return {
        x_item: b[1] + (H - g) * b[7] + (h - g) * b[9],
        x_label: (h - g) * b[10] + (burst - 1) * g * b[7],
        x_first: sp.S.Zero if to_itself else -g * (b[8] + b[11] + b[12]),
        **({x_self: of_self} if to_itself else {}),
        b_item: b[2] + (H - g) * b[8] + (h - g) * b[11],
        b_label: (h - g) * b[12] + (burst - 1) * g * b[8],
        H: (burst + to_itself) * h,  # the query attends to its own token, too
        h: of_item,
        g: of_other,
        e: sp.exp(THETA["alpha_3"]),
        E: to_itself * sp.exp(THETA["alpha_1"] + THETA["alpha_2"]),
    }


def spelled(expr: sp.Expr, mask: str, burst: sp.Expr = sp.S.One) -> sp.Expr:
    """Expression with all abbreviations substituted, in the pseudo-parameters only."""
    for short, meaning in abbreviations(mask, burst).items():
        expr = expr.subs(short, meaning)
    return expr


def context_weights() -> dict[str, sp.Expr]:
    """Attention of the first layer in pair k: of an item on itself and on other rows,
    of a label on its item, itself and other rows.
    """
    n = 2 * k - 2
    return {
        "item_self": E / (E + n),
        "item_other": 1 / (E + n),
        "label_item": e / (e + E + n),
        "label_self": E / (e + E + n),
        "label_other": 1 / (e + E + n),
    }


@cache
def grouped_scores(mask: str = "strict") -> dict[str, sp.Expr]:
    """Scores relative to rows before the queried pair, in a printed form proved equal
    to the derived one.
    """
    w, to_itself = context_weights(), MASKS[mask]
    weights = {
        name: weight.subs(k, q + d if name.endswith("other") else q)
        for name, weight in w.items()
    }
    both = b_item + b_label
    forms = {
        "earlier_label": sp.S.Zero,
        "own_item": x_item + b_item * weights["item_self"],
        "own_label": (
            x_label + b_item * weights["label_item"] + b_label * weights["label_self"]
        ),
        "later_item": both * weights["item_other"],
        "later_label": both * weights["label_other"],
        **({"query": x_self} if to_itself else {"first": x_first}),
    }
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
    seen = [
        short[x].subs(H, short[H])
        for x in (x_item, x_label, x_first, x_self, b_item, b_label)
        if x in short
    ]
    seen += [
        short[x] for x in (e, E, g)
    ]  # h = (1 - others) / (1 + own) is a multiple of g
    slope = {
        n: [sp.diff(s, THETA[n]) for s in seen]
        for n in structure.reachable()
        if not n.startswith("gamma")
    }
    still = tuple(n for n, by in slope.items() if all(map(vanishes, by)))
    moving = [n for n in slope if n not in still and n.startswith("beta")]
    same = [
        (a, b)
        for i, a in enumerate(moving)
        for b in moving[i + 1 :]
        if all(vanishes(x - y) for x, y in zip(slope[a], slope[b], strict=True))
    ]
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
    by_name: dict[str, Equation] = {}
    rows = {
        "item_self": (("item", k), ("item", k)),
        "item_other": (("item", k), ("label", k - d)),
        "label_item": (("label", k), ("item", k)),
        "label_self": (("label", k), ("label", k)),
        "label_other": (("label", k), ("label", k - d)),
    }
    last = number("query", q)
    relative = P[last, number(*KEYS["earlier_label"])]
    for mask, to_itself in MASKS.items():
        end = ENDS[mask]
        first = {
            f"attention_{name}": (
                T[number(row, k), number(column, k if pair == k else l)],
                partial(attention_of, form, (row, k), (column, pair), mask),
            )
            for name, form in context_weights().items()
            for (row, _), (column, pair) in (rows[name],)
            if to_itself or not name.endswith("self")
        }
        first |= {
            f"attention_query_{name}": (T[last, column], spelled(weight, mask))
            for name, (column, weight) in {
                "item": (2 * q - 1, h),
                "other": (2 * l, g),
            }.items()
        }
        keys = (
            "own_item",
            "own_label",
            "later_item",
            "later_label",
            "query" if to_itself else "first",
        )
        second = {
            f"key_{name}": (
                P[last, number(*KEYS[name])] - relative,
                lambda name=name, mask=mask: spelled(grouped_scores(mask)[name], mask),
            )
            for name in keys
        }
        made = {f"all_{name}{end}": row for name, row in (first | second).items()}
        by_name |= table(
            ref(PLACE), ORTHONORMAL, ALL_WEIGHTS, f"{mask} mask", status="exact", **made
        )
    return by_name


# Loss of all nineteen pseudo-parameters
#
# The output is a linear combination of the context's tokens, so that the loss is a sum
# of squares of coefficients. Running sums over earlier and later pairs give it in O(N)
# (`running`).

w_item, w_label, r_item, r_label, c_item, c_label = (
    array(f"{letter}_{y}", rf"{letter}^{{\mathrm{{{y}}}}}", means.format(f"{y}s"))
    for letter, means in (
        ("w", "attention of the query on {}, second layer"),
        ("r", "what both layers retrieve of {}"),
        ("c", "output along {}"),
    )
    for y in ("item", "label")
)
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
    given = (ORTHONORMAL, ALL_WEIGHTS)
    squares = 1 - 2 * c_label[q] + sp.Sum(c_item[k] ** 2 + c_label[k] ** 2, (k, 1, N))
    by_name: dict[str, Equation] = {}
    rows = {"item": w_item, "label": w_label}
    for mask, to_itself in MASKS.items():
        net, end, made = network(mask), ENDS[mask], {}
        of_query = partial(net.first_attention, net.query)
        on_itself = to_itself * value(of_query(net.query))
        for name, r, c in (("item", r_item, c_item), ("label", r_label, c_label)):

            def retrieved(
                kind: str, pair: sp.Expr, net: Network = net, name: str = name
            ) -> sp.Expr:
                attention = net.first_attention(net.row(kind, pair), net.row(name, k))
                return rows[kind][pair] * value(attention)

            same = (
                ["item"] * to_itself + ["label"]
                if name == "item"
                else ["label"] * to_itself
            )
            query = net.depending(of_query, name, k, q)
            total = sp.Sum(sum(retrieved(kind, k + d) for kind in rows), (d, 1, N - k))
            total += (
                sum(retrieved(kind, k) for kind in same) + to_itself * w_query * query
            )
            again = sp.KroneckerDelta(q, k) * int(
                name == "item"
            )  # the query is a copy of item q
            out = gamma[0] * again + gamma[1] * (query + again * on_itself)
            out += gamma[2] * (rows[name][k] + to_itself * again * w_query)
            out += gamma[3] * (r[k] + again * w_query * on_itself)
            made[f"all_retrieved_{name}{end}"] = (r[k], total)
            made[f"all_output_{name}{end}"] = (c[k], out)
        by_name |= table(ref(PLACE), *given, f"{mask} mask", status="exact", **made)
    return by_name | table(
        ref(PLACE), *given, status="exact", all_loss=(squared_error, squares)
    )
