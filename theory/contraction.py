"""Intermediate representation of array code: a list of steps on arrays with named axes."""

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from theory.parameters import ParameterError

MOST_ENTRIES = 10**9  # entries of an intermediate array: 8 GB in double precision
FEW = 256  # matrix size below which many small products cost more than copying the array
View = tuple[int, tuple[int, ...] | None, tuple | None]  # variable, axis order, new axes


@dataclass(frozen=True)
class Array:
    """An array: the number of its variable, and the index that each axis runs over."""

    number: int
    axes: tuple[sp.Symbol, ...]


class Code:
    """A sequence of steps. Each computes one variable from earlier ones; the first variables are
    the inputs.

    Attributes
    ----------
    xp : module
        Array module.
    inputs : int
        Number of inputs.
    range : dict
        First and last value of every index in scope.
    """

    def __init__(self, xp: Any, inputs: int) -> None:
        self.xp, self.inputs = xp, inputs
        self.steps: list[tuple[Callable, tuple[View, ...]]] = []
        self.range: dict[sp.Symbol, tuple[int, int]] = {}

    def step(self, work: Callable, axes: Sequence[sp.Symbol], *views: View) -> Array:
        """Add a step that applies a function to earlier variables; returns the new variable with
        its indices.
        """
        if (entries := self.entries(axes)) > MOST_ENTRIES:
            raise ParameterError(
                f"an array over {axes} would have {entries:.1e} entries, at most {MOST_ENTRIES:.0e}"
            )
        self.steps.append((work, views))
        return Array(self.inputs + len(self.steps) - 1, tuple(axes))

    def function(self, results: Sequence[Array]) -> Callable:
        """Compile the steps into a function of the inputs that returns the given variables."""
        steps, permute = self.steps, getattr(self.xp, "permute", None) or self.xp.transpose

        def seen(values: list, view: View) -> Any:
            number, order, new_axes = view
            x = values[number] if order is None else permute(values[number], order)
            return x if new_axes is None else x[new_axes]

        def call(*inputs: Any) -> list:
            values = [*inputs]
            for work, views in steps:
                values.append(work(*[seen(values, view) for view in views]))
            return [values[x.number] for x in results]

        return call

    def shape(self, axes: Iterable[sp.Symbol], ranges: Mapping | None = None) -> tuple[int, ...]:
        """Lengths of the indices."""
        return tuple(last - first + 1 for first, last in ((ranges or self.range)[a] for a in axes))

    def entries(self, axes: Iterable[sp.Symbol]) -> int:
        """Number of entries of an array over these indices."""
        return math.prod(self.shape(axes))

    def aligned(self, x: Array, axes: Sequence[sp.Symbol]) -> View:
        """The array with its axes in a given order, with an axis of length 1 for every index it
        lacks.
        """
        order = tuple(x.axes.index(a) for a in axes if a in x.axes)
        slices = tuple(slice(None) if a in x.axes else None for a in axes)
        while slices[:1] == (None,):
            slices = slices[1:]
        same = order == tuple(range(len(order)))
        return x.number, None if same else order, slices if None in slices else None

    def union(self, parts: Sequence[Array]) -> tuple[sp.Symbol, ...]:
        """Union of the indices of several arrays, starting with those of the largest array in
        memory order.
        """
        most = max(parts, key=lambda x: len(x.axes), default=Array(0, ())).axes
        every = dict.fromkeys(a for x in parts for a in x.axes)
        return (*(a for a in every if a not in most), *most)

    def einsum(self, kept: Sequence[sp.Symbol], *parts: Array) -> Array:
        """Product by one ``einsum``, summed over the indices that are not kept."""
        terms = _letters([x.axes for x in parts], kept)
        work = functools.partial(self.xp.einsum, terms)
        return self.step(work, kept, *((x.number, None, None) for x in parts))

    def together(self, work: Callable[[Any, Any], Any], *parts: Array) -> Array:
        """Elementwise sum or product of arrays."""
        axes, views = self.union(parts), [self.aligned(x, self.union(parts)) for x in parts]
        return self.step(lambda *xs: functools.reduce(work, xs), axes, *views)

    def contracted(self, arrays: Sequence[Array], bound: set[sp.Symbol]) -> Array:
        """Product of arrays summed over the bound indices, contracted pairwise in the cheapest
        order.
        """
        arrays, terms = [*arrays], [x.axes for x in arrays]
        free = dict.fromkeys(a for axes in terms for a in axes if a not in bound)
        shapes = [np.broadcast_to(0.0, self.shape(axes)) for axes in terms]
        how = "optimal" if len(arrays) < 6 else "greedy"
        path = np.einsum_path(_letters(terms, free), *shapes, optimize=how)[0][1:]
        for pair in path if len(arrays) > 1 else ():
            chosen = [arrays.pop(k) for k in sorted(pair, reverse=True)]
            while len(chosen) > 1:
                x, y = chosen.pop(), chosen.pop()
                later = {a for z in (*arrays, *chosen) for a in z.axes}
                chosen.append(self._pair(x, y, later | {*free}))
            arrays += chosen
        return self._reduced(arrays[0], bound)

    def _reduced(self, x: Array, gone: Any) -> Array:
        summed = tuple(k for k, a in enumerate(x.axes) if a in gone)
        left = [a for a in x.axes if a not in gone]
        return self.step(lambda v: v.sum(summed), left, self.aligned(x, x.axes)) if summed else x

    def _pair(self, x: Array, y: Array, keep: set[sp.Symbol]) -> Array:
        """Product of two arrays, summed over the indices that are not kept, as a batched matrix
        product. The larger array is used as it lies in memory if possible. A summed index that is
        not among the last axes of the larger array is kept as a batch index and summed in a later
        step.
        """
        x, y = (self._reduced(u, {*u.axes} - keep - {*v.axes}) for u, v in ((x, y), (y, x)))
        big, small = sorted((x, y), key=lambda u: -self.entries(u.axes))
        summed = [a for a in big.axes if a in small.axes and a not in keep]
        if not summed:
            return self.together(operator.mul, big, small)
        free = [a for a in big.axes if a not in small.axes]
        others = [a for a in small.axes if a not in big.axes]
        stack = [a for a in big.axes if a in small.axes and a in keep]
        if not free and not others:
            return self.einsum(stack, big, small)
        # From the last axis: first the axes of one kind, then those of the other; the remaining
        # axes are batch axes.
        batch = [*big.axes]
        last: list[list[sp.Symbol]] = []
        for kind in (summed, free) if batch[-1] in summed else (free, summed):
            run: list[sp.Symbol] = []
            while batch and batch[-1] in kind:
                run.insert(0, batch.pop())
            last.insert(0, run)
        few = {*batch} - {*stack} and self.entries(last[0] + last[1]) < FEW
        if few or (batch and not last[1]):
            batch, last = stack, [free, summed]
        turned = not {*last[1]} <= {*summed}
        inner, outer = last if turned else last[::-1]
        stacked = [a for a in batch if a in small.axes]

        def matrices(x: Array, *last: list[sp.Symbol]) -> tuple[int, ...]:
            ones = tuple(self.entries([a]) if a in x.axes else 1 for a in batch)
            return ones + tuple(map(self.entries, last))

        axes = [*batch, *outer, *others]
        shapes = matrices(big, *last), matrices(small, inner, others), self.shape(axes)

        def work(x: Any, y: Any) -> Any:
            x, y = x.reshape(shapes[0]), y.reshape(shapes[1])
            return self.xp.matmul(x.swapaxes(-1, -2) if turned else x, y).reshape(shapes[2])

        left = self.aligned(big, [*batch, *last[0], *last[1]])
        right = self.aligned(small, [*stacked, *inner, *others])
        return self.step(work, axes, left, right)


def _letters(terms: Sequence[Sequence[sp.Symbol]], kept: Iterable[sp.Symbol]) -> str:
    """Subscripts of einsum."""
    every = [*dict.fromkeys(a for axes in terms for a in axes)]
    written = ["".join(chr(97 + every.index(a)) for a in axes) for axes in (*terms, kept)]
    return ",".join(written[:-1]) + "->" + written[-1]
