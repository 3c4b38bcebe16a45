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

from theory.equations.equation import Chapter, Equation
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
RETRIEVED = 2  # blocks 0, 1: token and code of a row; 2, 3: as retrieved by layer 1
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
Entry = Callable[[Row], Node]


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
    row_kind, pair = row
    column_kind, other_pair = column
    if pair.sort != other_pair.sort:
        return node(0)
    kinds = [row_kind, column_kind]
    if kind == structure.TOKEN:
        tokens = {"item" if x == "query" else x for x in kinds}
        same = len(tokens) == 1
        if pair.sort.name == RIGHT:
            return node(int(same))
    else:
        swaps = (kernel == "M") + kinds.count("label")
        same = "query" not in kinds and swaps % 2 == 0
    return eq(pair, other_pair) if same else node(0)


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
        self.to_itself = MASKS[mask]
        self.right = None
        if burst is None:
            self.pair = sort("pair", N, ordered=True)
            self.sorts = [self.pair]
            self.query = self.row("query", place)
        else:
            self.pair = sort("pair", N - burst, ordered=True)
            self.right = sort(RIGHT, burst, ordered=True)
            self.sorts = [self.pair, self.right]
            self.query = self.right_row("query", burst)
        present = (p for p in structure.pseudo_parameters() if p.name in names)
        self.weights = {p: weight(names[p.name])[()] for p in present}

    def row(self, kind: str, place: Any) -> Row:
        """A row of a known pair."""
        return kind, fixed(self.pair, place)

    def right_row(self, kind: str, place: Any) -> Row:
        """A row of the burst, whose pairs are counted from 1."""
        return kind, fixed(self.sorts[-1], place)

    def visible(self, row: Row, entry: Entry) -> Node:
        """Sum an entry over all rows that a row attends to."""
        kind, number = row

        def both(l: Term) -> Node:
            return entry(("item", l)) + entry(("label", l))

        sums = []
        for rows in self.sorts[: 1 + self.sorts.index(number.sort)]:
            if rows == number.sort and kind != "query":
                sums.append(total(both, rows, below=number))
            else:
                sums.append(total(both, rows))
        if kind == "label":
            sums.append(entry(("item", number)))
        if self.to_itself:
            sums.append(entry(row))
        return sum(sums[1:], sums[0])

    def score(self, matrix: str, row: Row, column: Row) -> Node:
        """Entry of X W1 X^T, or of U W2 U^T."""

        def product(p: structure.Pseudo) -> Node:
            inner = partial(overlap, structure.BLOCKS[matrix][0][p.row], p.kernel)

            def with_row(c: Row) -> Node:
                return self.block(p.row, row, lambda b: inner(b, c))

            return self.block(p.column, column, with_row)

        score = node(0)
        for p, parameter in self.weights.items():
            if p.matrix == matrix:
                score = score + parameter * product(p)
        return score

    def first_attention(self, row: Row, column: Row) -> Node:
        """Softmax weight of the first layer."""
        normaliser = self.visible(row, lambda c: exp(self.score("W1", row, c)))
        return exp(self.score("W1", row, column)) / normaliser

    def block(self, number: int, row: Row, entry: Entry) -> Node:
        """An entry linear in a block of U: of a row itself, or of what it retrieved."""
        if number < RETRIEVED:
            return entry(row)
        return self.visible(row, lambda c: self.first_attention(row, c) * entry(c))

    def depending(self, entry: Entry, kind: str, i: sp.Expr, j: sp.Expr) -> sp.Expr:
        """A number that depends on the row of pair i only by whether it is pair j."""
        same = value(entry(self.row(kind, j)))
        other = value(entry(self.row(kind, j + d)))
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
            same_token = overlap(structure.TOKEN, "I", ("item", l), self.query)
            again = same_token * weight(*self.query)
            on_item = weight("item", l) + self.to_itself * again
            return on_item**2 + weight("label", l) ** 2

        normaliser = self.visible(self.query, lambda row: weight(*row))
        right = weight("label", self.query[1])
        squared = total(squares, self.pair)
        if self.right is not None:  # one item and one label, again and again
            items = total(partial(weight, "item"), self.right)
            right = total(partial(weight, "label"), self.right)
            squared += (items + self.to_itself * weight(*self.query)) ** 2 + right**2
        linear = 2 * gamma * right / normaliser
        return normaliser, 1 - linear + gamma**2 * squared / normaliser**2


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
    scores.pop("first", None)  # as earlier
    return {name: score / beta for name, score in scores.items()}


@cache
def derived(mask: str = "strict", place: Any = q) -> Derived:
    """Loss of a queried pair, and its normalisation Z_q."""
    normaliser, loss = Network(mask, SHORT, place).normaliser_and_loss()
    return derive(
        statement(loss, name="induction_heads", observables={Z_q.name: normaliser})
    )


def of_later(expr: sp.Expr) -> sp.Expr:
    """Write sums over later pairs as sums over their distance."""

    def over_distance(term: sp.Expr, limits: sp.Tuple) -> sp.Expr:
        return sp.Sum(term.subs(limits[0], q + d), (d, 1, N - q))

    return expr.replace(sp.Sum, over_distance)


def loss_of_query(mask: str = "strict") -> sp.Expr:
    """Loss as a function of alpha, beta, gamma, N and q."""
    return of_later(derived(mask).loss)


@cache
def attention_equations() -> dict[str, Equation]:
    """Scores and attention of both layers, and the loss for a general query."""
    chapter = Chapter(ref, ORTHONORMAL, THREE, status="exact")
    net = Network("strict", SHORT)
    last = number("query", q)
    corrected = "B.3, corrected: printed as 0; masked, as the label comes later"
    for row, column, place in (("label", "item", "B.3"), ("item", "label", corrected)):
        entry = S[number(row, k), number(column, l)]
        score = net.depending(partial(net.score, "W1", net.row(row, k)), column, l, k)
        chapter.state(f"score_{row}_{column}", entry, score, place)
    pairs = {
        "own_item": ("label", "item", k),
        "other_label": ("label", "label", k - d),
        "of_item": ("item", "label", k - d),
    }
    for mask, end in ENDS.items():
        masked = f"{mask} mask"
        net = Network(mask, SHORT)
        for name, (row, column, pair) in pairs.items():
            entry = T[number(row, k), number(column, k if pair == k else l)]
            form = value(net.first_attention(net.row(row, k), net.row(column, pair)))
            chapter.state(f"attention_{name}{end}", entry, form, "B.3", masked)
        words = ("beyond B.3: any q", masked)
        scores = key_scores(mask)
        for name, score in scores.items():
            entry = P[last, number(*KEYS[name])]
            chapter.state(f"key_{name}{end}", entry, beta * score, *words)
        result = derived(mask)
        sum_of_weights = result.observables[Z_q.name]
        form = of_later(sum_of_weights)
        chapter.state(f"query_normaliser{end}", Z_q, form, *words)
        entry = Q[last, number("label", q)]
        form = sp.exp(beta * scores["own_label"]) / Z_q
        chapter.state(f"query_attention{end}", entry, form, *words)
        form = of_later(result.loss.xreplace({sum_of_weights: Z_q}))
        chapter.state(f"loss_query{end}", squared_error, form, *words)
    return chapter.equations
