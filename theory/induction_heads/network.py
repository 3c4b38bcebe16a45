"""The network on orthonormal data, stated once: all nineteen pseudo-parameters, or some
of them.

Rows are addressed as ("item", k), ("label", k) and ("query", q). Only three properties
of the data are used, all from Assumption 7: tokens are orthonormal, positional codes
are orthonormal, and codes are orthogonal to swapped codes. The context may end in a
burst: its last B pairs have the same two tokens and are the queried one.
`theory.statement` derives scores, attention and loss from it, for any queried pair and
both masks.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import sympy as sp

from theory.equations.equation import Equation, table
from theory.induction_heads import structure
from theory.induction_heads.structure import HEAD
from theory.induction_heads.symbols import (
    N,
    P,
    Q,
    S,
    T,
    Z_q,
    beta,
    d,
    k,
    l,
    q,
    ref,
    squared_error,
)
from theory.statement import eq, exp, fixed, sort, statement, total, weight
from theory.statement.derivation.derived import Derived, derive
from theory.statement.words.tree import Node, Term, node

ORTHONORMAL = (
    "orthonormal items, labels and positions (Assumption 7, and every item orthogonal"
    " to every label)"
)
MASKS = {"strict": 0, "inclusive": 1}  # whether a row attends to itself
ENDS = {"strict": "", "inclusive": "_inclusive"}  # of names of equations
RETRIEVED = (
    2  # blocks 0, 1: token and code of a row; 2, 3: the same as retrieved by layer 1
)
# rows by what they are to the query; those of pair 1 retrieve nothing under a strict
# mask
KEYS = {
    "earlier_item": ("item", q - d),
    "earlier_label": ("label", q - d),
    "own_item": ("item", q),
    "own_label": ("label", q),
    "later_item": ("item", q + d),
    "later_label": ("label", q + d),
    "first": ("item", sp.S.One),
    "query": ("query", q),
}
RIGHT = "right"  # sort of the pairs of a burst
Row = tuple[str, Term]


def number(kind: str, pair: sp.Expr) -> sp.Expr:
    """Number of a row in the sequence."""
    return {"item": 2 * pair - 1, "label": 2 * pair, "query": 2 * N + 1}[kind]


def overlap(kind: str, kernel: str, row: Row, column: Row) -> Node:
    """Inner product of the tokens, or of the codes with the kernel I or M between them,
    of two rows.

    The query has the token of item q and no code. A label carries its pair's code times
    M, an involution: with an odd number of M a code meets a swapped code, whose inner
    product vanishes. All pairs of a burst have the same tokens, each has its own code.
    """
    if row[1].sort != column[1].sort:
        return node(0)
    if kind == structure.TOKEN:
        one, other = ("item" if r[0] == "query" else r[0] for r in (row, column))
        same = one == other
        if row[1].sort.name == RIGHT:
            return node(int(same))
    else:
        swaps = (kernel == "M") + (row[0] == "label") + (column[0] == "label")
        same = "query" not in (row[0], column[0]) and swaps % 2 == 0
    return eq(row[1], column[1]) if same else node(0)


class Network:
    """The network as expressions of a statement.

    Parameters
    ----------
    mask : {'strict', 'inclusive'}
    names : mapping of str to str
        Pseudo-parameters that are present, and what they are called; the others are
        zero.
    place : Expr
        Pair that is queried.
    burst : Expr, optional
        Right pairs that end the context, in place of one pair anywhere; those before
        them are then addressed by `row`, and they by `right_row`.
    """

    def __init__(
        self, mask: str, names: Mapping[str, str], place: Any = q, burst: Any = None
    ) -> None:
        self.to_itself, others = MASKS[mask], N if burst is None else N - burst
        self.pair = sort("pair", others, ordered=True)
        self.right = None if burst is None else sort(RIGHT, burst, ordered=True)
        self.sorts = [self.pair] if self.right is None else [self.pair, self.right]
        self.query = (
            self.row("query", place)
            if burst is None
            else self.right_row("query", burst)
        )
        present = (p for p in structure.pseudo_parameters() if p.name in names)
        self.weights = {p: weight(names[p.name])[()] for p in present}

    def row(self, kind: str, place: Any) -> Row:
        """A row of a known pair."""
        return kind, fixed(self.pair, place)

    def right_row(self, kind: str, place: Any) -> Row:
        """A row of the burst, whose pairs are counted from 1."""
        return kind, fixed(self.sorts[-1], place)

    def visible(self, row: Row, entry: Callable[[Row], Node]) -> Node:
        """Sum an entry over all rows that a row attends to."""
        kind, number = row
        same = ["item"] * (kind == "label") + [kind] * self.to_itself
        before = self.sorts[: 1 + self.sorts.index(number.sort)]
        ends = [
            {"below": number} if s is before[-1] and kind != "query" else {}
            for s in before
        ]
        pairs, *burst = (
            total(lambda l: entry(("item", l)) + entry(("label", l)), s, **end)
            for s, end in zip(before, ends, strict=True)
        )
        return sum((entry((c, number)) for c in same), sum(burst, pairs))

    def score(self, matrix: str, row: Row, column: Row) -> Node:
        """Entry of X W1 X^T, or of U W2 U^T."""

        def product(p: structure.Pseudo) -> Node:
            inner = partial(overlap, structure.BLOCKS[matrix][0][p.row], p.kernel)
            return self.block(
                p.column,
                column,
                lambda c: self.block(p.row, row, lambda b: inner(b, c)),
            )

        return sum(
            (w * product(p) for p, w in self.weights.items() if p.matrix == matrix),
            node(0),
        )

    def first_attention(self, row: Row, column: Row) -> Node:
        """Softmax weight of the first layer."""
        every = self.visible(row, lambda c: exp(self.score("W1", row, c)))
        return exp(self.score("W1", row, column)) / every

    def block(self, number: int, row: Row, entry: Callable[[Row], Node]) -> Node:
        """An entry linear in a block of U: of a row itself, or of what it retrieved."""
        if number < RETRIEVED:
            return entry(row)
        return self.visible(row, lambda c: self.first_attention(row, c) * entry(c))

    def depending(
        self, entry: Callable[[Row], Node], kind: str, i: sp.Expr, j: sp.Expr
    ) -> sp.Expr:
        """A number that depends on the row of pair i only by whether it is pair j."""
        same, other = (value(entry(self.row(kind, place))) for place in (j, j + d))
        return sp.together(other + (same - other) * sp.KroneckerDelta(i, j))

    def key_score(self, row: Row) -> Node:
        """Score of the query on a row in the second layer."""
        return self.score("W2", self.query, row)

    def key_scores(self) -> dict[str, sp.Expr]:
        """Scores by kind of row; the first row is one of its own if it retrieves
        nothing.
        """
        missing = "first" if self.to_itself else "query"
        rows = {name: self.row(*row) for name, row in KEYS.items() if name != missing}
        return {name: value(self.key_score(row)) for name, row in rows.items()}

    def normaliser_and_loss(self) -> tuple[Node, Node]:
        """Normaliser of the query's attention, and the loss, if only gamma_3 writes
        out.

        The output is gamma_3 times the attention-weighted mean of the tokens. The query
        has the token of item q, so that their two weights add before squaring.
        """
        (gamma,) = (w for p, w in self.weights.items() if p.matrix == "W3")

        def weight(kind: str, number: Term) -> Node:
            return exp(self.key_score((kind, number)))

        def squares(l: Term) -> Node:
            again = overlap(structure.TOKEN, "I", ("item", l), self.query) * weight(
                *self.query
            )
            return (weight("item", l) + self.to_itself * again) ** 2 + weight(
                "label", l
            ) ** 2

        every = self.visible(self.query, lambda row: weight(*row))
        right = weight("label", self.query[1])
        squared = total(squares, self.pair)
        if self.right is not None:  # one item and one label, again and again
            items, right = (
                total(partial(weight, x), self.right) for x in ("item", "label")
            )
            squared += (items + self.to_itself * weight(*self.query)) ** 2 + right**2
        return every, 1 - 2 * gamma * right / every + gamma**2 * squared / every**2


def value(number: Node) -> sp.Expr:
    """A number of the network in pseudo-parameters and places."""
    return derive(statement(number), confirmed=False).loss


# Scores, attention and loss when only alpha, beta and gamma are nonzero (B.3), for any
# queried pair and both masks

THREE = "only alpha_3, beta_2, gamma_3 differ from zero"
SHORT = {full: short for short, full in HEAD.items()}


@cache
def key_scores(mask: str = "strict") -> dict[str, sp.Expr]:
    """Scores divided by beta: of rows before the queried pair, of its item and label,
    of the rows d pairs later, and of the query.
    """
    scores = Network(mask, SHORT).key_scores()
    return {
        name: score / beta for name, score in scores.items() if name != "first"
    }  # as earlier


@cache
def derived(mask: str = "strict", place: Any = q) -> Derived:
    """Loss of a queried pair, and its normalisation Z_q."""
    normaliser, loss = Network(mask, SHORT, place).normaliser_and_loss()
    return derive(
        statement(loss, name="induction_heads", observables={Z_q.name: normaliser})
    )


def of_later(expr: sp.Expr) -> sp.Expr:
    """Write sums over later pairs as sums over their distance."""
    return expr.replace(
        sp.Sum, lambda term, limits: sp.Sum(term.subs(limits[0], q + d), (d, 1, N - q))
    )


def loss_of_query(mask: str = "strict") -> sp.Expr:
    """Loss as a function of alpha, beta, gamma, N and q."""
    return of_later(derived(mask).loss)


@cache
def attention_equations() -> dict[str, Equation]:
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
            "loss_query": (
                squared_error,
                of_later(made.loss.xreplace({normaliser: Z_q})),
            ),
        }
        keys |= {f"{name}{end}": row for name, row in query.items()}
        by_name |= table(ref("B.3"), *given, status="exact", **first)
        by_name |= table(ref("beyond B.3: any q"), *given, status="exact", **keys)
    return by_name
