"""Loss of all weights and its gradient in O(N): array code for a chain of definitions
with running sums over pairs.

Every definition is differentiated by SymPy, from the last one to the first; the
transpose of a running sum is a running sum from the other end. One call costs O(N), the
gradient included.
"""

import graphlib
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import sympy as sp
from sympy.core.function import AppliedUndef

from theory.call.refusal import ParameterError
from theory.induction_heads.all_weights import scores
from theory.induction_heads.all_weights.scores import (
    THETA,
    H,
    b_item,
    b_label,
    e,
    g,
    gamma,
    x_first,
    x_item,
    x_label,
    x_self,
)
from theory.induction_heads.network import MASKS
from theory.induction_heads.symbols import N, k
from theory.symbols.notation import Forms

# Operations on arrays over pairs; each is the whole right side of its definition.
after, before, total, mean = map(sp.Function, ("after", "before", "total", "mean"))
real = partial(sp.symbols, real=True)  # names of what is defined
picked = sp.Function("picked")  # entries of an array: of the queried pairs


def after_each(x: np.ndarray) -> np.ndarray:
    """Sum over the entries after each entry."""
    sums = np.zeros(len(x))
    np.cumsum(x[:0:-1], out=sums[-2::-1])
    return sums


def before_each(x: np.ndarray) -> np.ndarray:
    """Sum over the entries before each entry."""
    sums = np.zeros(len(x))
    np.cumsum(x[:-1], out=sums[1:])
    return sums


def placed(by: np.ndarray, like: np.ndarray, where: Any) -> np.ndarray:
    """Transpose of ``picked``: the other entries are zero."""
    entries = np.zeros(like.shape)
    entries[where] = by
    return entries


def spread(x: Any, like: np.ndarray) -> np.ndarray:
    """An array of the shape of another."""
    if np.shape(x) == like.shape:
        return x
    return np.broadcast_to(x, like.shape)


OPERATIONS = {
    "after": after_each,
    "before": before_each,
    "total": np.sum,
    "mean": lambda x: np.sum(x) / x.size,  # np.mean costs more than the sum
    "picked": lambda x, where: x[where],
}
# Transposes, of the slope by the result and the array before the operation.
TRANSPOSES = {
    "by_after": lambda by, like: before_each(spread(by, like)),
    "by_before": lambda by, like: after_each(spread(by, like)),
    "by_total": lambda by, like: by,
    "by_mean": lambda by, like: by / like.size,
    "by_picked": placed,
    "every": lambda x, like: np.sum(spread(x, like)),
}
CODE = OPERATIONS | TRANSPOSES


def with_gradient(
    definitions: Mapping[sp.Symbol, sp.Expr],
    variables: Sequence[sp.Symbol],
    arrays: Collection[sp.Symbol],
    given: Sequence[sp.Symbol],
) -> Callable:
    """Compile the last of a chain of definitions and its gradient.

    Parameters
    ----------
    definitions : mapping of Symbol to Expr
        In the order in which they are computed: formulas, or one of the operations
        above.
    variables : sequence of Symbol
        Numbers that the gradient is taken by.
    arrays : collection of Symbol
        Those of ``given`` that are arrays over pairs.
    given : sequence of Symbol
        Other numbers and arrays, arguments of the function after the variables.

    Returns
    -------
    callable
        Of an array of the variables, then ``given``; returns the value and its
        gradient.
    """
    lines = {}
    for name, form in definitions.items():
        if isinstance(form, AppliedUndef):  # the array inside gets a name of its own
            inside, *where = form.args
            each = sp.Symbol(f"{name}_each")
            lines[each] = inside
            form = form.func(each, *where)
        lines[name] = form
    depend = {*variables}
    over_pairs = {*arrays}
    for name, form in lines.items():
        if form.free_symbols & depend:
            depend.add(name)
        if form.free_symbols & over_pairs and form.func not in (total, mean):
            over_pairs.add(name)
    last = [*lines][-1]
    slopes = defaultdict(lambda: sp.S.Zero, {last: sp.S.One})
    backward = {}
    for name, form in reversed(lines.items()):
        by = sp.Symbol(f"by_{name}")
        backward[by] = slopes[name]
        if isinstance(form, AppliedUndef):
            inside, *where = form.args
            slopes[inside] += sp.Function(f"by_{form.func}")(by, inside, *where)
            continue
        for x in sorted(form.free_symbols & depend, key=str):
            slope = by * sp.diff(form, x)
            summed = name in over_pairs and x not in over_pairs
            slopes[x] += sp.Function("every")(slope, name) if summed else slope
    results = [last, *(slopes[x] for x in variables)]
    modules = [CODE, "scipy", "numpy"]
    in_order = partial(_in_order, lines | backward)
    compiled = sp.lambdify([*variables, *given], results, modules, cse=in_order)

    def value_and_gradient(at: np.ndarray, *more: Any) -> tuple[float, np.ndarray]:
        value, *by = compiled(*map(float, at), *more)
        return float(value), np.array(by, float)

    return value_and_gradient


def _in_order(
    lines: Mapping[sp.Symbol, sp.Expr], results: Sequence[sp.Expr]
) -> tuple[list[tuple[sp.Symbol, sp.Expr]], list[sp.Expr]]:
    """Lines with common parts taken out, each after those that it uses."""
    parts, forms = sp.cse([*lines.values(), *results])
    code = dict(parts) | dict(zip(lines, forms, strict=False))
    uses = {name: form.free_symbols & code.keys() for name, form in code.items()}
    order = graphlib.TopologicalSorter(uses).static_order()
    return [(name, code[name]) for name in order], forms[len(lines) :]


# Loss of all weights and its gradient in O(N), by running sums over rows

NAMES = tuple(THETA)
rows_before = sp.Symbol("rows_before")  # that the item of a pair attends to
is_first = sp.Symbol("is_first")  # whether a row retrieves nothing
asked = sp.Symbol("asked")  # queried pairs


def first_layer(mask: str, burst: sp.Expr = sp.S.One) -> Forms:
    """Abbreviations of `scores`, each after those that it uses."""
    return dict(reversed(scores.abbreviations(mask, burst).items()))


def row_weights(pair: sp.Symbol) -> Forms:
    """Attention of the first layer in a pair (equations ``all_attention_*``).

    An item without rows before it, the first row under a strict mask, retrieves
    nothing: it is given infinitely many.
    """
    weights = {}
    for name, form in scores.context_weights().items():
        number = rows_before / 2 + 1 if name.startswith("item") else pair
        weights[real(name)] = form.subs(k, number)
    return weights


@cache
def compiled(mask: str) -> Callable:
    """Mean loss over the queried pairs and its gradient.

    Sums over later pairs are of what depends on the later pair only. Sums over earlier
    pairs are of the first and second powers of the excess of their tokens over a common
    share, neither of which depends on the query.
    """
    to_itself = MASKS[mask]
    first, second, third, fourth = gamma
    item_self, item_other, label_item, label_self, label_other = row_weights(k)
    chain = {**first_layer(mask), **row_weights(k)}

    def defined(name: str, form: sp.Expr) -> sp.Symbol:
        """The next line of the chain."""
        symbol = real(name)
        chain[symbol] = form
        return symbol

    on_self = defined("on_self", to_itself * sp.exp(x_self if to_itself else 0))
    # Rows of later pairs: attention to them, and what they retrieve
    slope = b_item + b_label
    to_item = defined("to_item", sp.exp(slope * item_other))
    to_label = defined("to_label", sp.exp(slope * label_other))
    later = defined("later", after(to_item * item_other + to_label * label_other))
    deep_item = later + to_item * item_self + to_label * label_item
    deep_label = later + to_label * label_self
    of_item = defined("of_item", third * to_item + fourth * deep_item)
    of_label = defined("of_label", third * to_label + fourth * deep_label)
    later_weight = defined("later_weight", after(to_item + to_label))
    later_first = defined("later_first", after(of_item + of_label))
    later_second = defined("later_second", after(of_item**2 + of_label**2))
    # Rows of earlier pairs: their excess over a common share
    step = item_other + label_other
    share = defined("share", before(step))
    excess_item = defined("excess_item", item_self + label_item - share - step)
    excess_label = defined("excess_label", label_self - share - step)
    earlier_first = defined("earlier_first", before(excess_item + excess_label))
    squares = excess_item**2 + excess_label**2
    earlier_second = defined("earlier_second", before(squares))
    # The queried pair
    item_score = x_item + b_item * item_self + x_first * is_first
    label_score = x_label + b_item * label_item + b_label * label_self
    on_item = defined("on_item", sp.exp(item_score))
    on_label = defined("on_label", sp.exp(label_score))
    # The first row scores otherwise, under a strict mask; the queried item itself is in
    # on_item.
    extra = (sp.exp(x_first) - 1) * (1 - is_first)
    of_first = 1 - 1 / e  # excess of the first item
    others = 2 * (k - 1)
    Z = later_weight + on_item + on_label + on_self + others + extra
    by_self = fourth * on_self * g  # of every token but the queried item
    item_out = first + second * H
    other_out = second * g
    label = third * on_label + fourth * (later + on_label * label_self) + by_self
    item = third * (on_item + on_self)
    item += fourth * (later + on_item * item_self + on_label * label_item + on_self * H)
    base = other_out + by_self / Z
    of_later = 2 * (N - k) * base**2 + 2 * base * later_first / Z + later_second / Z**2
    seen = later + on_item * item_other + on_label * label_other + share
    common = third + fourth * seen + by_self
    power = others * common + fourth * earlier_first + third * extra
    square = others * common**2
    square += 2 * common * fourth * earlier_first + fourth**2 * earlier_second
    square += 2 * (common + fourth * of_first) * third * extra + third**2 * extra**2
    of_earlier = others * other_out**2 + 2 * other_out * power / Z + square / Z**2
    loss = (1 - other_out - label / Z) ** 2 + (item_out + item / Z) ** 2
    loss += of_later + of_earlier
    arrays = (k, rows_before, is_first)
    numbers = {*THETA.values(), *scores.abbreviations(mask), N, on_self}
    queried = {}
    for x in sorted(loss.free_symbols - numbers, key=str):
        entry = sp.Symbol(f"{x}_q")
        queried[x] = entry
        chain[entry] = picked(x, asked)
    chain[sp.Symbol("loss")] = mean(loss.subs(queried))
    return with_gradient(chain, [*THETA.values()], arrays, [*arrays, N, asked])


def loss_and_gradient(
    theta: np.ndarray, size: int, query: int | str, mask: str = "strict"
) -> tuple[float, np.ndarray]:
    """Loss and its gradient in O(N).

    Parameters
    ----------
    theta : array
        The nineteen pseudo-parameters in the order of `NAMES`.
    size : int
        Item-label pairs N.
    query : int or 'uniform'
        Queried pair, counted from 1, or the mean over all of them.
    mask : {'strict', 'inclusive'}
        Causal mask.

    Returns
    -------
    tuple
        Loss summed over the D coordinates, and its gradient, shape (19,).

    Raises
    ------
    ParameterError
        If the query is neither a pair number nor ``uniform``.
    """
    if query != "uniform" and query not in range(1, size + 1):
        raise ParameterError(
            f"query = {query}: must be uniform or a pair from 1 to {size}"
        )
    pairs = slice(None)
    if query != "uniform":
        pairs = slice(int(query) - 1, int(query))
    return compiled(mask)(theta, *rows(size, mask), float(size), pairs)


def rows(pairs: int, mask: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of the pairs, rows that their items attend to, and which item retrieves
    nothing.
    """
    number = np.arange(1.0, pairs + 1)
    alone = (number == 1) & (mask == "strict")
    attended = np.where(alone, np.inf, 2 * number - 2)
    return number, attended, alone.astype(float)
