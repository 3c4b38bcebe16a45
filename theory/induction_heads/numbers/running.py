"""Array code for a chain of definitions with running sums over pairs, and its gradient.

Every definition is differentiated by SymPy, from the last one to the first; the transpose of a
running sum is a running sum from the other end. One call costs O(N), the gradient included.
"""

import graphlib
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import sympy as sp
from sympy.core.function import AppliedUndef

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
    whole = np.zeros(like.shape)
    whole[where] = by
    return whole


def spread(x: Any, like: np.ndarray) -> np.ndarray:
    """An array of the shape of another."""
    return x if np.shape(x) == like.shape else np.broadcast_to(x, like.shape)


CODE = {
    "after": after_each,
    "before": before_each,
    "total": np.sum,
    "mean": lambda x: np.sum(x) / x.size,  # np.mean costs more than the sum
    "picked": lambda x, where: x[where],
    # Transposes, of the slope by the result and the array before the operation.
    "by_after": lambda by, like: before_each(spread(by, like)),
    "by_before": lambda by, like: after_each(spread(by, like)),
    "by_total": lambda by, like: by,
    "by_mean": lambda by, like: by / like.size,
    "by_picked": placed,
    "every": lambda x, like: np.sum(spread(x, like)),
}


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
        In the order in which they are computed: formulas, or one of the operations above.
    variables : sequence of Symbol
        Numbers that the gradient is taken by.
    arrays : collection of Symbol
        Those of ``given`` that are arrays over pairs.
    given : sequence of Symbol
        Other numbers and arrays, arguments of the function after the variables.

    Returns
    -------
    callable
        Of an array of the variables, then ``given``; returns the value and its gradient.
    """
    lines: dict[sp.Symbol, sp.Expr] = {}
    for name, form in definitions.items():
        if isinstance(form, AppliedUndef):  # the array inside gets a name of its own
            inside, *where = form.args
            lines[sp.Symbol(f"{name}_each")] = inside
            form = form.func(sp.Symbol(f"{name}_each"), *where)
        lines[name] = form
    depend, over_pairs = {*variables}, {*arrays}
    for name, form in lines.items():
        if form.free_symbols & depend:
            depend.add(name)
        if form.free_symbols & over_pairs and form.func not in (total, mean):
            over_pairs.add(name)
    last = [*lines][-1]
    slopes: dict[sp.Symbol, sp.Expr] = defaultdict(lambda: sp.S.Zero, {last: sp.S.One})
    backward: dict[sp.Symbol, sp.Expr] = {}
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
    compiled = sp.lambdify(
        [*variables, *given],
        [last, *(slopes[x] for x in variables)],
        [CODE, "scipy", "numpy"],
        cse=partial(_in_order, lines | backward),
    )

    def value_and_gradient(at: np.ndarray, *more: Any) -> tuple[float, np.ndarray]:
        value, *by = compiled(*map(float, at), *more)
        return float(value), np.array(by, float)

    return value_and_gradient


def _in_order(
    lines: Mapping[sp.Symbol, sp.Expr], results: Sequence[sp.Expr]
) -> tuple[list[tuple[sp.Symbol, sp.Expr]], list[sp.Expr]]:
    """Lines with common parts taken out, each after those that it uses."""
    parts, forms = sp.cse([*lines.values(), *results])
    every = dict(parts) | dict(zip(lines, forms, strict=False))
    uses = {name: form.free_symbols & every.keys() for name, form in every.items()}
    order = graphlib.TopologicalSorter(uses).static_order()
    return [(name, every[name]) for name in order], forms[len(lines) :]
