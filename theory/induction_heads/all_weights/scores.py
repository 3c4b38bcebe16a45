"""Scores of both layers when all nineteen pseudo-parameters of Theorem 1 are present (orthonormal
data, any query).

Rows are addressed as ("item", k), ("label", k) and ("query", q), as in `attention`. Only the inner
products of tokens and of codes enter. A key of the second layer is one of seven kinds, whose scores
depend on at most one pair number. With the strict mask the first row is a separate kind, as it
retrieves nothing.
"""

from __future__ import annotations

from functools import cache, partial

import sympy as sp

from theory.algebra import vanishes, written_as
from theory.equation import Equation
from theory.induction_heads import structure
from theory.induction_heads.attention import MASKS, ORTHONORMAL, Row, over_visible
from theory.induction_heads.symbols import N, P, T, d, k, l, q, ref
from theory.notation import symbol

THETA = {
    p.name: symbol(p.name, r"\{}_{{{}}}".format(*p.name.split("_")), real=True)
    for p in structure.pseudo_parameters()
}
ALL_WEIGHTS = "all nineteen pseudo-parameters (Theorem 1)"
PLACE = "beyond Theorem 2: all weights"
SHARE = {kind: sp.Symbol(f"share_{kind}", positive=True) for kind in ("item", "label", "query")}
RETRIEVED = 2  # blocks 0, 1: token and code of a row; 2, 3: the same as retrieved by layer 1

# Quantities in a key's score: weights of the first layer (g, h, H of the query; e, E of context
# rows), then sums of W2.
g, h, H, E = (symbol(x, positive=True) for x in ("g", "h", "H", "E_s"))
e = symbol("e", means="exp(alpha_3), of a label on its item, first layer", positive=True)
x_item, x_first, x_label, x_self = (
    symbol(f"x_{x}", rf"x_{{\mathrm{{{x}}}}}", real=True)
    for x in ("item", "first", "label", "self")
)
b_item, b_label = (symbol(f"b_{x}", rf"b_{{\mathrm{{{x}}}}}", real=True) for x in ("item", "label"))


def overlap(kind: str, kernel: str, row: Row, column: Row) -> sp.Expr:
    """Inner product of the tokens, or of the codes with the kernel I or M between them, of two
    rows.

    The query has the token of item q and no code. A label carries its pair's code times M, so that
    with an odd number of M a code meets a swapped code, whose inner product vanishes.
    """
    if kind == structure.TOKEN:
        kinds = ["item" if r[0] == "query" else r[0] for r in (row, column)]
        return sp.KroneckerDelta(row[1], column[1]) if kinds[0] == kinds[1] else sp.S.Zero
    swaps = (kernel == "M") + (row[0] == "label") + (column[0] == "label")
    return (
        sp.S.Zero
        if "query" in (row[0], column[0]) or swaps % 2
        else sp.KroneckerDelta(row[1], column[1])
    )


def exponential(score: sp.Expr) -> sp.Expr:
    """Exponential of a multiple of one Kronecker delta, rewritten as linear in the delta."""
    hits = score.atoms(sp.KroneckerDelta)
    if not hits:
        return sp.exp(score)
    (hit,) = hits
    return 1 + (sp.exp(score.subs(hit, 1)) - 1) * hit


@cache
def normaliser(kind: str, own: int) -> sp.Expr:
    """Softmax normaliser of row k of a given kind in the first layer."""
    row = (
        kind,
        q if kind == "query" else k,
    )  # symbols that SymPy knows to lie in the range of the sum
    return sp.expand(over_visible(row, own, lambda c: exponential(first_score(row, c))))


def first_score(row: Row, column: Row) -> sp.Expr:
    """Entry of X W1 X^T."""
    return sum(
        (
            THETA[p.name] * overlap(structure.BLOCKS["W1"][0][p.row], p.kernel, row, column)
            for p in structure.pseudo_parameters()
            if p.matrix == "W1"
        ),
        sp.S.Zero,
    )


def first_weight(row: Row, column: Row) -> sp.Expr:
    """Attention of the first layer, softmax of X W1 X^T, in units of the symbol in `SHARE` for the
    inverse normaliser.
    """
    return exponential(first_score(row, column)) * SHARE[row[0]]


def normalised(expr: sp.Expr, row: Row, own: int) -> sp.Expr:
    """Substitute the normalisers of a row and of the query. A row that attends to nothing retrieves
    zero.
    """
    for kind, number in (row, ("query", q)):
        total = normaliser(kind, own).subs(k, number)
        expr = expr.subs(SHARE[kind], 0 if total == 0 else 1 / total)
    return expr


@cache
def from_query(block: int, kernel: str, own: int) -> dict[str, sp.Expr]:
    """Inner products of a block of the query's row with the token or code of item k, of label k and
    of the query.
    """
    kind, query = structure.BLOCKS["W2"][0][block], ("query", q)

    def product(c: Row) -> sp.Expr:
        if block < RETRIEVED:
            return overlap(kind, kernel, query, c)
        return over_visible(
            query, own, lambda b: first_weight(query, b) * overlap(kind, kernel, b, c)
        )

    return {
        c: sp.expand(product((c, q if c == "query" else k))) for c in ("item", "label", "query")
    }


def key_score(row: Row, own: int) -> sp.Expr:
    """Score of the query on a row in the second layer: an entry of the query's row of U W2 U^T."""
    total = sp.S.Zero
    for p in structure.pseudo_parameters():
        if p.matrix != "W2" or p.name not in structure.reachable():
            continue
        of = from_query(p.row, p.kernel, own)

        def product(c: Row, of: dict[str, sp.Expr] = of) -> sp.Expr:
            return of[c[0]].subs(k, c[1])

        if p.column < RETRIEVED:
            kind = structure.BLOCKS["W2"][1][p.column]
            value = sp.S.Zero if (kind, row[0]) == (structure.POSITION, "query") else product(row)
        else:
            value = over_visible(row, own, lambda c: first_weight(row, c) * product(c))
        total += THETA[p.name] * value
    return normalised(total, row, own)


def decided(expr: sp.Expr) -> sp.Expr:
    """Resolve conditions in an expression, using that all pair numbers and distances are at least
    1.
    """
    least = {x: 1 + sp.Symbol(f"{x.name}_0", integer=True, nonnegative=True) for x in (d, k, q)}
    for condition in expr.atoms(sp.core.relational.Relational):
        gap = sp.expand((condition.gts - condition.lts).subs(least))
        if not (gap.is_nonnegative or gap.is_negative):
            raise ArithmeticError(f"{condition}: undecided")
        expr = expr.subs(condition, bool(gap.is_nonnegative))
    return expr


@cache
def key_scores(mask: str = "strict") -> dict[str, sp.Expr]:
    """Scores by kind of row; ``later`` rows belong to pair q + d."""
    own = MASKS[mask]
    places = {
        "earlier_item": ("item", q - d),
        "earlier_label": ("label", q - d),
        "own_item": ("item", q),
        "own_label": ("label", q),
        "later_item": ("item", q + d),
        "later_label": ("label", q + d),
    }
    places["query" if own else "first"] = ("query", q) if own else ("item", sp.S.One)
    found = {name: key_score(row, own) for name, row in places.items()}
    for name, score in found.items():  # q = k + d ensures that pair q - d exists
        earlier = name.startswith("earlier")
        found[name] = decided(score.subs(q, k + d)).subs(k, q - d) if earlier else decided(score)
    if not own:  # the first row is not the queried item, which is a separate kind
        found["first"] = found["first"].subs(sp.KroneckerDelta(1, q), 0)
    return found


@cache
def abbreviations(mask: str = "strict") -> dict[sp.Symbol, sp.Expr]:
    """Definitions of the abbreviations for weights of the first layer and sums of W2."""
    own = MASKS[mask]
    of_item, of_other = (
        normalised(first_weight(("query", q), ("item", n)), ("query", q), own) for n in (q, q + d)
    )
    b = {int(n.split("_")[1]): v for n, v in THETA.items() if n.startswith("beta")}
    of_self = (
        b[1]
        + (b[2] + b[7]) * H
        + b[8] * (H**2 + (2 * N - 1) * g**2)
        + b[11] * (h**2 + (2 * N - 1) * g**2)
        + b[12] * (2 * h * g + (2 * N - 2) * g**2)
        - g * (b[7] + b[8] + b[9] + b[10] + b[11] + b[12])
    )
    return {
        x_item: b[1] + (H - g) * b[7] + (h - g) * b[9],
        x_label: (h - g) * b[10],
        x_first: sp.S.Zero if own else -g * (b[8] + b[11] + b[12]),
        **({x_self: of_self} if own else {}),
        b_item: b[2] + (H - g) * b[8] + (h - g) * b[11],
        b_label: (h - g) * b[12],
        H: (1 + own) * h,  # the query attends to its own token, too
        h: of_item,
        g: of_other,
        e: sp.exp(THETA["alpha_3"]),
        E: own * sp.exp(THETA["alpha_1"] + THETA["alpha_2"]),
    }


def spelled(expr: sp.Expr, mask: str) -> sp.Expr:
    """Expression with all abbreviations substituted, in the pseudo-parameters only."""
    for short, meaning in abbreviations(mask).items():
        expr = expr.subs(short, meaning)
    return expr


def context_weights() -> dict[str, sp.Expr]:
    """Attention of the first layer in pair k: of an item on itself and on other rows, of a label on
    its item, itself and other rows.
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
    """Scores relative to rows before the queried pair, in a printed form proved equal to the
    derived one.
    """
    w, own = context_weights(), MASKS[mask]
    at = {
        name: weight.subs(k, q + d if name.endswith("other") else q) for name, weight in w.items()
    }
    both = b_item + b_label
    forms = {
        "earlier_label": sp.S.Zero,
        "own_item": x_item + b_item * at["item_self"],
        "own_label": x_label + b_item * at["label_item"] + b_label * at["label_self"],
        "later_item": both * at["item_other"],
        "later_label": both * at["label_other"],
        **({"query": x_self} if own else {"first": x_first}),
    }
    derived = key_scores(mask)
    for name, form in forms.items():
        if not vanishes(spelled(form, mask) - derived[name] + derived["earlier_item"]):
            raise ArithmeticError(f"{form} is not the score of {name}")
    return forms


@cache
def redundant(mask: str = "strict") -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Reachable pseudo-parameters on which the loss does not depend, and pairs on which it depends
    only through their sum.

    All start at zero: the former remain zero, and the latter remain equal to each other.
    """
    short = abbreviations(mask)
    seen = [
        short[x].subs(H, short[H])
        for x in (x_item, x_label, x_first, x_self, b_item, b_label)
        if x in short
    ]
    seen += [short[x] for x in (e, E, g)]  # h = (1 - others) / (1 + own) is a multiple of g
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


def attention_of(form: sp.Expr, row: Row, column: Row, mask: str) -> sp.Expr:
    """Attention of the first layer in printed form, proved equal to the softmax."""
    return written_as(spelled(form, mask), normalised(first_weight(row, column), row, MASKS[mask]))


def relative_score(name: str, mask: str) -> sp.Expr:
    """Score of a kind of row relative to a row before the queried pair, in the pseudo-parameters
    only.
    """
    return spelled(grouped_scores(mask)[name], mask)


@cache
def equations() -> dict[str, Equation]:
    """Attention of the first layer, and scores of the second layer relative to a row before the
    queried pair.
    """
    found = []
    row_of = {
        "item_self": (2 * k - 1, 2 * k - 1),
        "item_other": (2 * k - 1, 2 * l),
        "label_item": (2 * k, 2 * k - 1),
        "label_self": (2 * k, 2 * k),
        "label_other": (2 * k, 2 * l),
    }
    key_of = {
        "first": 1,
        "own_item": 2 * q - 1,
        "own_label": 2 * q,
        "later_item": 2 * (q + d) - 1,
        "later_label": 2 * (q + d),
        "query": 2 * N + 1,
    }
    for mask, own in MASKS.items():
        given = (ORTHONORMAL, ALL_WEIGHTS, f"{mask} mask")
        end = "" if mask == "strict" else "_inclusive"
        rows = {
            "item_self": (("item", k), ("item", k)),
            "item_other": (("item", k), ("label", k - d)),
            "label_item": (("label", k), ("item", k)),
            "label_self": (("label", k), ("label", k)),
            "label_other": (("label", k), ("label", k - d)),
        }
        for name, form in context_weights().items():
            if not own and name.endswith("self"):
                continue
            found.append(
                Equation(
                    f"all_attention_{name}{end}",
                    T[row_of[name]],
                    partial(attention_of, form, *rows[name], mask),
                    ref(PLACE),
                    "exact",
                    given,
                )
            )
        query = {"item": (2 * q - 1, h), "other": (2 * l, g)}
        found += [
            Equation(
                f"all_attention_query_{name}{end}",
                T[2 * N + 1, column],
                spelled(weight, mask),
                ref(PLACE),
                "exact",
                given,
            )
            for name, (column, weight) in query.items()
        ]
        relative = P[2 * N + 1, 2 * (q - d)]
        found += [
            Equation(
                f"all_key_{name}{end}",
                P[2 * N + 1, key_of[name]] - relative,
                partial(relative_score, name, mask),
                ref(PLACE),
                "exact",
                given,
            )
            for name in (
                "own_item",
                "own_label",
                "later_item",
                "later_label",
                "query" if own else "first",
            )
        ]
    return {x.name: x for x in found}
