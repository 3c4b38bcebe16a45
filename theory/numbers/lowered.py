"""Array code generated from equations with indices. Every index becomes a named axis,
and sums of products are contracted pairwise. Code is generated once per combination of
shapes, for NumPy or another array module.
"""

import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import sympy as sp

from theory.call.refusal import ParameterError
from theory.numbers import numeric
from theory.symbols.contraction import Array, Code
from theory.symbols.notation import Forms
from theory.symbols.reading import sympified

WHOLE = {"integer": True, "positive": True}
LEAVES = (sp.Indexed, sp.Sum, sp.KroneckerDelta)
RESULT = sp.Symbol("result")
OPAQUE = (
    sp.Integral,
    sp.Product,
    sp.Derivative,
    sp.Limit,
)  # not lowered if they contain arrays


class NotLowered(Exception):
    """No array code can be generated for an expression; it must be evaluated entry by
    entry.
    """


class Lowered:
    """A set of definitions of arrays, compiled to a function for each combination of
    shapes.

    Parameters
    ----------
    definitions : mapping of Indexed or Symbol to Expr
        Definitions in terms of arrays, numbers and each other. Limits of sums must be
        integers once the sizes are given; indices start at 1.
    wanted : sequence of Indexed or Symbol
        Left sides of the definitions whose arrays are returned.
    over : sequence of Symbol
        Indices that may be omitted, outermost first: ``C[r, q]`` of an array over ``s,
        r, q`` is taken at the current ``s``. An input array with more axes than written
        indices has these indices in front, so an equation for one seed is evaluated for
        a stack of seeds.
    xp : module
        Array module, ``torch`` for instance.
    """

    def __init__(
        self,
        definitions: Mapping[sp.Basic, sp.Expr],
        wanted: Sequence[sp.Basic],
        over: Sequence[sp.Symbol] = (),
        xp: Any = np,
    ) -> None:
        self.definitions = {
            _name(left): (left, right) for left, right in definitions.items()
        }
        self.wanted, self.over, self.xp = tuple(map(_name, wanted)), tuple(over), xp
        rights = sp.Tuple(*definitions.values())
        self.arrays = sorted(
            {_name(x) for x in rights.atoms(sp.Indexed)} - {*self.definitions}
        )
        indices = {*over}.union(
            *(x.indices for x in definitions if isinstance(x, sp.Indexed))
        )
        others = indices | {b.label for b in rights.atoms(sp.IndexedBase)}
        symbols = {x for x in rights.free_symbols - others if isinstance(x, sp.Symbol)}
        self.numbers = sorted(
            (x for x in symbols if x.name not in self.definitions), key=str
        )
        ends = sp.Tuple(*numeric.sum_ends(rights.atoms(sp.Sum)))
        self.sizes = [x for x in self.numbers if x in ends.free_symbols]
        self.compiled = functools.lru_cache(maxsize=64)(
            lambda shapes, sizes: _Writer(self, dict(shapes), dict(sizes)).wanted()
        )

    def __call__(self, values: Mapping[str, Any]) -> list[Any]:
        """Compute the wanted arrays from input arrays and numbers, both by name.

        Raises
        ------
        KeyError
            If something has no value.
        NotLowered
            If no array code can be generated for a definition.
        ParameterError
            If an entry lies outside its array, or an intermediate array would have too
            many entries.
        """
        arrays = [values[name] for name in self.arrays]
        shapes = tuple((name, tuple(values[name].shape)) for name in self.arrays)
        numbers = {
            x: (
                numeric.whole_number(x, values[x.name])
                if x.is_integer
                else float(values[x.name])
            )
            for x in self.numbers
        }
        sizes = tuple((x, sympified(numbers[x])) for x in self.sizes)
        return self.compiled(shapes, sizes)(*arrays, *map(float, numbers.values()))


def _name(x: Any) -> str:
    return (x.base.label if isinstance(x, sp.Indexed) else x).name


class _Writer(Code):
    """Generates the code of one function for given shapes."""

    def __init__(
        self, asked: Lowered, shapes: dict[str, tuple[int, ...]], sizes: Forms
    ) -> None:
        self.asked, self.shapes, self.sizes = asked, shapes, sizes
        super().__init__(asked.xp, len(asked.arrays) + len(asked.numbers))
        self.made: dict[Any, Array] = {}
        self.spans: dict[
            sp.Symbol, tuple[int, int]
        ] = {}  # indices of given and defined arrays
        self.axes: dict[str, tuple[sp.Symbol, ...]] = {}
        self.rights: dict[str, sp.Expr] = {}
        for name, (left, right) in asked.definitions.items():
            right = right.replace(lambda x: isinstance(x, sp.Indexed), self._completed)
            written = left.indices if isinstance(left, sp.Indexed) else ()
            left_out = (
                x for x in asked.over if x in right.free_symbols and x not in written
            )
            self.rights[name], self.axes[name] = right, (*left_out, *written)
            for x in sorted(right.atoms(sp.Indexed), key=str):
                for i, n in zip(x.indices, self._lengths(x), strict=False):
                    if i in self.axes[name] and self.spans.setdefault(i, (1, n)) != (
                        1,
                        n,
                    ):
                        raise ParameterError(
                            f"{x}: {i} goes to {n}, elsewhere to another end"
                        )

    def _completed(self, x: sp.Indexed) -> sp.Indexed:
        """Array entry with its omitted indices added."""
        missing = len(self._lengths(x)) - len(x.indices)
        return x.base[
            (*self.axes.get(_name(x), self.asked.over)[: max(0, missing)], *x.indices)
        ]

    def _lengths(self, x: sp.Indexed) -> tuple[int, ...]:
        """Lengths of the axes of the array that an entry belongs to."""
        name = _name(x)
        if name not in self.shapes and name not in self.axes:
            raise NotLowered(f"{x}: is used before it is defined")
        return self.shapes.get(name) or self.shape(self.axes[name], self.spans)

    def wanted(self) -> Callable:
        """The generated function of arrays and numbers."""
        results = []
        for name in self.asked.wanted:
            axes, result = self.axes[name], self._defined(name)
            self.range = {a: self.spans[a] for a in axes}
            to = functools.partial(
                lambda shape, x: self.xp.broadcast_to(x, shape), self.shape(axes)
            )
            results.append(self.step(to, axes, self.aligned(result, axes)))
        return self.function(results)

    def value(self, expr: sp.Expr) -> Array:
        """Array of an expression over its free indices. An expression that differs only
        in the names of indices is computed once.
        """
        free = {x for x in expr.free_symbols if x in self.range}
        order = list(dict.fromkeys(x for x in sp.preorder_traversal(expr) if x in free))
        stand_in = {x: sp.Symbol(f"_axis{k}", **WHOLE) for k, x in enumerate(order)}
        key = (expr.xreplace(stand_in), tuple(self.range[x] for x in order))
        if key not in self.made:
            array = self._written(expr)
            self.made[key] = Array(array.number, tuple(stand_in[a] for a in array.axes))
        back = {b: a for a, b in stand_in.items()}
        return Array(self.made[key].number, tuple(back[a] for a in self.made[key].axes))

    def _written(self, expr: sp.Expr) -> Array:
        if isinstance(expr, sp.Indexed):
            return self._entry(expr)
        if isinstance(expr, sp.Sum):
            return self._sum(expr)
        if isinstance(expr, sp.KroneckerDelta):
            x, y = (self.value(a) for a in expr.args)
            axes, xp = tuple(dict.fromkeys(x.axes + y.axes)), self.xp
            views = self.aligned(x, axes), self.aligned(y, axes)
            return self.step(
                lambda u, v: xp.asarray(u == v, dtype=xp.float64), axes, *views
            )
        if expr in self.range:
            first, last = self.range[expr]
            counted = self.xp.arange(first, last + 1, dtype=self.xp.float64)
            return self.step(lambda: counted, (expr,))
        if expr.is_Symbol:
            if expr.name in self.asked.definitions:
                return self._defined(expr.name)
            return Array(len(self.asked.arrays) + self.asked.numbers.index(expr), ())
        return self._elementwise(expr)

    def _elementwise(self, expr: sp.Expr) -> Array:
        """Elementwise function of arrays computed before."""
        if expr.has(*OPAQUE):
            raise NotLowered(str(expr))
        leaves: dict[sp.Expr, sp.Symbol] = {}

        def replaced(e: sp.Basic) -> sp.Basic:
            apart = isinstance(e, sp.Function) and e != expr  # may be used again
            if isinstance(e, LEAVES) or e.is_Symbol or apart:
                return leaves.setdefault(e, sp.Symbol(f"_leaf{len(leaves)}", real=True))
            return e.func(*map(replaced, e.args)) if e.args else e

        form = replaced(expr)
        parts = [self.value(leaf) for leaf in leaves]
        axes = self.union(parts)
        numbers = range(len(self.asked.arrays), self.inputs)
        plain = self.xp is np or all(x.number in numbers for x in parts)
        modules = numeric.MODULES["numpy"] if plain else [self.xp]
        work = sp.lambdify([*leaves.values()], form, modules, cse=True)
        return self.step(work, axes, *(self.aligned(x, axes) for x in parts))

    def _defined(self, name: str) -> Array:
        """Array of a definition over the indices on its left side."""
        outside, self.range = self.range, {a: self.spans[a] for a in self.axes[name]}
        array = self.value(self._inlined(self.rights[name]))
        self.range = outside
        return array

    def _inlined(self, expr: sp.Expr) -> sp.Expr:
        """Substitute definitions that are larger than each of their factors, so that a
        contraction need not build them.
        """

        def replaced(x: sp.Indexed) -> sp.Expr:
            right = self.rights.get(_name(x))
            axes = self.axes.get(_name(x), ())
            if (
                right is None
                or right.has(sp.Sum)
                or not self._outgrows(right, axes, self.spans)
            ):
                return x
            return self._inlined(
                right.xreplace(dict(zip(axes, x.indices, strict=True)))
            )

        return expr.replace(lambda x: isinstance(x, sp.Indexed), replaced)

    def _outgrows(
        self, expr: sp.Expr, axes: Any, ranges: Mapping | None = None
    ) -> bool:
        """Whether the result would have more entries than each array that occurs in the
        expression.
        """
        parts = [math.prod(self._lengths(x)) for x in expr.atoms(sp.Indexed)]
        return math.prod(self.shape(axes, ranges)) > max(parts, default=math.inf)

    def _entry(self, x: sp.Indexed) -> Array:
        """Entries of a given or defined array at symbolic
        indices or fixed positions.
        """
        name, lengths, axes = _name(x), self._lengths(x), x.indices
        if len(lengths) != len(axes):
            raise _no_place(x, lengths)
        whole = all(
            self.range.get(i) == (1, n) for i, n in zip(axes, lengths, strict=True)
        )
        if name in self.rights:
            if not whole:
                raise NotLowered(str(x))
            entry = self._defined(name)
            of_axis = dict(zip(self.axes[name], axes, strict=True))
            number = entry.number
            axes = tuple(of_axis[a] for a in entry.axes)
        else:
            number = self.asked.arrays.index(name)
        if not whole:
            places = [self.value(i) for i in axes]
            axes = self.union(places)
            views = [self.aligned(q, axes) for q in places]
            return self.step(
                functools.partial(self._take, name), axes, (number, None, None), *views
            )
        once, entry = [*dict.fromkeys(axes)], Array(number, axes)
        return entry if len(once) == len(axes) else self.einsum(once, entry)

    def _take(self, name: str, array: Any, *places: Any) -> Any:
        places_as_integers = [self.xp.asarray(p, dtype=self.xp.int64) for p in places]
        wrong = [
            (q < 1) | (q > n) | (q != p)
            for p, q, n in zip(places, places_as_integers, array.shape, strict=True)
        ]
        if any(w.any() for w in wrong):
            first = np.argwhere(np.any(np.broadcast_arrays(*wrong), axis=0))[0]
            shown = (
                np.broadcast_to(
                    p, np.broadcast_shapes(*map(np.shape, places_as_integers))
                )[*first]
                for p in places
            )
            raise _no_place(
                f"{name}[{', '.join(f'{p:g}' for p in shown)}]", tuple(array.shape)
            )
        return array[tuple(q - 1 for q in places_as_integers)]

    def _sum(self, expr: sp.Sum) -> Array:
        outside = dict(self.range)
        self._bind(expr)
        terms = [*self._terms(expr.function, {*expr.variables})]
        parts = [self._term(factors, bound) for factors, bound in terms]
        self.range = outside
        return self.together(operator.add, *parts) if parts[1:] else parts[0]

    def _bind(self, expr: sp.Sum) -> None:
        for index, *ends in expr.limits:
            whole = [e.xreplace(self.sizes) for e in ends]
            if (
                len(whole) != 2
                or not all(e.is_Integer for e in whole)
                or whole[1] < whole[0]
            ):
                raise NotLowered(f"{expr}: {index} from {ends[0]} to {ends[-1]}")
            self.range[index] = (int(whole[0]), int(whole[1]))

    def _terms(
        self, term: sp.Expr, bound: set[sp.Symbol]
    ) -> Iterator[tuple[list, set]]:
        """Factors and summed indices of every term. A factor that is a sum is
        multiplied out only if its array would be larger than each array in it.
        """
        factors = list(sp.Mul.make_args(term))
        for f in factors:
            if isinstance(f, sp.Add | sp.Sum) and self._outgrows(
                f, f.free_symbols & {*self.range}
            ):
                cofactor = sp.Mul(*(x for x in factors if x is not f))
                if isinstance(f, sp.Sum):
                    taken = [v for v in f.variables if v in self.range]
                    f = f.xreplace(
                        {v: sp.Symbol(f"{v}_{len(self.range)}", **WHOLE) for v in taken}
                    )
                    self._bind(f)
                    yield from self._terms(
                        cofactor * f.function, bound | {*f.variables}
                    )
                for part in f.args if isinstance(f, sp.Add) else ():
                    yield from self._terms(cofactor * part, bound)
                return
        yield factors, bound

    def _term(self, factors: list[sp.Expr], bound: set[sp.Symbol]) -> Array:
        """Sum of a product over the bound indices."""
        product, bound = sp.Mul(*factors), set(bound)
        hidden: set[sp.Symbol] = set().union(
            *(s.variables for s in product.atoms(sp.Sum))
        )
        for delta in factors:
            if (
                isinstance(delta, sp.KroneckerDelta)
                and set(delta.args) <= self.range.keys() - hidden
            ):
                gone, other = sorted(delta.args, key=lambda a: a not in bound)
                if gone in bound and self.range[gone] == self.range[other]:
                    picked = (product / delta).xreplace({gone: other})
                    return self._term([*sp.Mul.make_args(picked)], bound - {gone})
        # Factors without summed indices are multiplied last.
        inside = [f for f in factors if f.free_symbols & bound]
        arrays = [self.value(f) for f in inside]
        missing = bound.difference(*(x.axes for x in arrays))
        scale = sp.Mul(*(f for f in factors if f not in inside), self.entries(missing))
        parts = [self.contracted(arrays, bound)] if arrays else []
        parts += [self.value(scale)] if scale != 1 or not arrays else []
        return parts[0] if len(parts) == 1 else self.together(operator.mul, *parts)


def _no_place(x: Any, shape: tuple[int, ...]) -> ParameterError:
    return ParameterError(f"{x}: not a place of an array of shape {shape}")


def entry_by_entry(expr: sp.Expr, values: Mapping[str, Any]) -> float:
    """Value of an expression in array entries, summed term by term.

    Parameters
    ----------
    expr : Expr
        May contain sums over any number of indices, and entries ``G[k, l]`` at fixed
        positions.
    values : mapping
        By name: arrays with one axis per index, and numbers for everything else,
        including positions (counted from 1) and limits of sums.

    Raises
    ------
    KeyError
        If a symbol has no value.
    ParameterError
        If a position lies outside its array, or the limits of a sum are not numbers.
    """
    arrays = {base.label for base in expr.atoms(sp.IndexedBase)}
    free = {x for x in expr.free_symbols if isinstance(x, sp.Symbol)} - arrays
    indices = [x.indices for x in expr.atoms(sp.Indexed)]
    places = sp.Tuple(*indices, *numeric.sum_ends(expr.atoms(sp.Sum))).free_symbols
    counts = {
        x: numeric.whole_number(x, values[x.name])
        for x in free
        if x.is_integer or x in places
    }
    expr = expr.subs(counts).doit()
    if sums := sorted(expr.atoms(sp.Sum), key=str):
        raise ParameterError(f"{sums[0]}: its ends must be whole numbers")
    numbers: dict[sp.Basic, float] = {x: values[x.name] for x in free - counts.keys()}
    for x in sorted(expr.atoms(sp.Indexed), key=str):
        array = np.asarray(values[x.base.label.name])
        place = [int(i) for i in x.indices]
        if array.ndim != len(place) or any(
            not 1 <= i <= n for i, n in zip(place, array.shape, strict=True)
        ):
            raise _no_place(x, array.shape)
        numbers[x] = float(array[tuple(i - 1 for i in place)])
    return float(expr.xreplace(numbers))


@functools.lru_cache(maxsize=256)
def _of(expr: sp.Expr) -> Lowered:
    return Lowered({RESULT: expr}, [RESULT])


def number(expr: sp.Expr, values: Mapping[str, Any]) -> float:
    """Value of an expression in array entries, by array code if possible, otherwise by
    `entry_by_entry`, which documents arguments and errors.
    """
    try:
        lowered = _of(expr)
        arrays = {name: np.asarray(values[name], float) for name in lowered.arrays}
        with np.errstate(over="ignore"):  # as `numeric.function`
            return float(lowered(dict(values.items()) | arrays)[0])
    except NotLowered:
        return entry_by_entry(expr, values)
