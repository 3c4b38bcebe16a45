"""Intermediate representation of array code:
a list of steps on arrays with named axes.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from theory.call.refusal import ParameterError

MOST_ENTRIES = 10**9  # entries of an intermediate array: 8 GB in double precision
# variable, axis order, new axes
View = tuple[int, tuple[int, ...] | None, tuple | None]


@dataclass(frozen=True)
class Array:
    """An array: the number of its variable, and the index that each axis runs over."""

    number: int
    axes: tuple[sp.Symbol, ...]


class Code:
    """A sequence of steps. Each computes one variable from earlier ones; the first
    variables are the inputs.

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
        """Add a step that applies a function to earlier variables; returns the new
        variable with its indices.
        """
        if (entries := self.entries(axes)) > MOST_ENTRIES:
            raise ParameterError(
                f"an array over {axes} would have {entries:.1e} entries, at most"
                f" {MOST_ENTRIES:.0e}"
            )
        self.steps.append((work, views))
        return Array(self.inputs + len(self.steps) - 1, tuple(axes))

    def function(self, results: Sequence[Array]) -> Callable:
        """Compile the steps into a function of the inputs that returns the given
        variables.
        """
        steps = self.steps
        permute = getattr(self.xp, "permute", None) or self.xp.transpose

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

    def shape(
        self, axes: Iterable[sp.Symbol], ranges: Mapping | None = None
    ) -> tuple[int, ...]:
        """Lengths of the indices."""
        known = ranges or self.range
        ends = [known[a] for a in axes]
        return tuple(last - first + 1 for first, last in ends)

    def entries(self, axes: Iterable[sp.Symbol]) -> int:
        """Number of entries of an array over these indices."""
        return math.prod(self.shape(axes))

    def aligned(self, x: Array, axes: Sequence[sp.Symbol]) -> View:
        """The array with its axes in a given order, with an axis of length 1 for every
        index it lacks.
        """
        order = tuple(x.axes.index(a) for a in axes if a in x.axes)
        slices = tuple(slice(None) if a in x.axes else None for a in axes)
        while slices[:1] == (None,):
            slices = slices[1:]
        same = order == tuple(range(len(order)))
        return x.number, None if same else order, slices if None in slices else None

    def union(self, parts: Sequence[Array]) -> tuple[sp.Symbol, ...]:
        """Union of the indices of several arrays, starting with those of the largest
        array in memory order.
        """
        most = max(parts, key=lambda x: len(x.axes), default=Array(0, ())).axes
        indices = _distinct(x.axes for x in parts)
        return (*(a for a in indices if a not in most), *most)

    def einsum(self, kept: Sequence[sp.Symbol], *parts: Array) -> Array:
        """Product by one ``einsum``, summed over the indices that are not kept."""
        terms = _letters([x.axes for x in parts], kept)
        by_matrices = {"optimize": True} if self.xp is np else {}
        work = functools.partial(self.xp.einsum, terms, **by_matrices)
        return self.step(work, kept, *((x.number, None, None) for x in parts))

    def together(self, work: Callable[[Any, Any], Any], *parts: Array) -> Array:
        """Elementwise sum or product of arrays."""
        axes = self.union(parts)
        views = [self.aligned(x, self.union(parts)) for x in parts]
        return self.step(lambda *xs: functools.reduce(work, xs), axes, *views)

    def contracted(self, arrays: Sequence[Array], bound: set[sp.Symbol]) -> Array:
        """Product of arrays summed over the bound indices, contracted pairwise in the
        cheapest order.
        """
        arrays, terms = [*arrays], [x.axes for x in arrays]
        free = [a for a in _distinct(terms) if a not in bound]
        shapes = [np.broadcast_to(0.0, self.shape(axes)) for axes in terms]
        how = "optimal" if len(arrays) < 6 else "greedy"
        path, _ = np.einsum_path(_letters(terms, free), *shapes, optimize=how)
        for chosen in path[1:]:
            parts = [arrays.pop(k) for k in sorted(chosen, reverse=True)]
            later = {*free}.union(*(x.axes for x in arrays))
            remaining = [a for a in self.union(parts) if a in later]
            arrays.append(self.einsum(remaining, *parts))
        return arrays[0]


def _distinct(terms: Iterable[Iterable[sp.Symbol]]) -> list[sp.Symbol]:
    """Indices of several arrays in order of appearance."""
    return [*dict.fromkeys(itertools.chain.from_iterable(terms))]


def _letters(terms: Sequence[Sequence[sp.Symbol]], kept: Iterable[sp.Symbol]) -> str:
    """Subscripts of einsum."""
    letters = {a: chr(97 + k) for k, a in enumerate(_distinct(terms))}

    def spelled(axes: Iterable[sp.Symbol]) -> str:
        return "".join(letters[a] for a in axes)

    return ",".join(map(spelled, terms)) + "->" + spelled(kept)
