"""From equations with indices to array code: every index a named axis, sums of products contracted
in pairs. Written once per shape, for NumPy or another array module.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from theory import numeric
from theory.parameters import ParameterError

MOST_ENTRIES = 10**9  # of an array that is made on the way: 8 GB in double precision
FEW = 256  # entries of a matrix below which many small products cost more than a copy
WHOLE = {"integer": True, "positive": True}
LEAVES = (sp.Indexed, sp.Sum, sp.KroneckerDelta)
RESULT = sp.Symbol("result")
OPAQUE = (sp.Integral, sp.Product, sp.Derivative, sp.Limit)  # to NumPy, with arrays inside


class NotLowered(Exception):
    """There is no array code for an expression, which has to be evaluated entry by entry."""


class Lowered:
    """Arrays that follow from arrays by definitions, as a function compiled for each shape it
    meets.

    Parameters
    ----------
    definitions : mapping of Indexed or Symbol to Expr
        What is computed, in terms of arrays, numbers and each other. Sums have ends that are whole
        numbers once sizes are given; indices count from 1.
    wanted : sequence of Indexed or Symbol
        Left sides whose arrays are returned.
    over : sequence of Symbol
        Indices that entries may leave out, outermost first: ``C[r, q]`` of an array over ``s, r,
        q`` is at the ``s`` of its surroundings. A given array with more axes than indices has the
        first of these in front, so what is asked of one seed is computed for a stack of them.
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
        self.definitions = {_name(left): (left, right) for left, right in definitions.items()}
        self.wanted, self.over, self.xp = tuple(map(_name, wanted)), tuple(over), xp
        rights = sp.Tuple(*definitions.values())
        self.arrays = sorted({_name(x) for x in rights.atoms(sp.Indexed)} - {*self.definitions})
        indices = {*over}.union(*(x.indices for x in definitions if isinstance(x, sp.Indexed)))
        others = indices | {b.label for b in rights.atoms(sp.IndexedBase)}
        symbols = {x for x in rights.free_symbols - others if isinstance(x, sp.Symbol)}
        self.numbers = sorted((x for x in symbols if x.name not in self.definitions), key=str)
        ends = sp.Tuple(*(e for s in rights.atoms(sp.Sum) for limit in s.limits for e in limit[1:]))
        self.sizes = [x for x in self.numbers if x in ends.free_symbols]
        self.compiled = functools.lru_cache(maxsize=64)(
            lambda shapes, sizes: _Writer(self, dict(shapes), dict(sizes)).function()
        )

    def __call__(self, values: Mapping[str, Any]) -> list[Any]:
        """Arrays by name and numbers by name in, the wanted arrays out.

        Raises
        ------
        KeyError
            If something has no value.
        NotLowered
            If there is no array code for a definition.
        ParameterError
            If an array lacks an entry, or one that is made would have too many.
        """
        arrays = [values[name] for name in self.arrays]
        shapes = tuple((name, tuple(values[name].shape)) for name in self.arrays)
        numbers = {
            x: numeric._whole(x, values[x.name]) if x.is_integer else float(values[x.name])
            for x in self.numbers
        }
        sizes = tuple((x, sp.sympify(numbers[x])) for x in self.sizes)
        return self.compiled(shapes, sizes)(*arrays, *map(float, numbers.values()))


def _name(x: Any) -> str:
    return (x.base.label if isinstance(x, sp.Indexed) else x).name


@dataclass(frozen=True)
class _Array:
    """A variable of the code, and the index of each of its axes."""

    name: str
    axes: tuple[sp.Symbol, ...]


class _Writer:
    """Code of one function for given shapes."""

    def __init__(
        self, asked: Lowered, shapes: dict[str, tuple[int, ...]], sizes: dict[sp.Symbol, sp.Expr]
    ) -> None:
        self.asked, self.shapes, self.sizes = asked, shapes, sizes
        self.lines: list[str] = []
        permute = getattr(asked.xp, "permute", None) or asked.xp.transpose
        self.scope: dict[str, Any] = {"xp": asked.xp, "permute": permute, "take": self._take}
        self.range: dict[sp.Symbol, tuple[int, int]] = {}  # of the indices that now mean something
        self.made: dict[Any, _Array] = {}
        self.spans: dict[sp.Symbol, tuple[int, int]] = {}  # of indices of what is given and defined
        self.axes: dict[str, tuple[sp.Symbol, ...]] = {}
        self.rights: dict[str, sp.Expr] = {}
        for name, (left, right) in asked.definitions.items():
            right = right.replace(lambda x: isinstance(x, sp.Indexed), self._completed)
            own = left.indices if isinstance(left, sp.Indexed) else ()
            left_out = (x for x in asked.over if x in right.free_symbols and x not in own)
            self.rights[name], self.axes[name] = right, (*left_out, *own)
            for x in sorted(right.atoms(sp.Indexed), key=str):
                for i, n in zip(x.indices, self._lengths(x), strict=False):
                    if i in self.axes[name]:
                        self.spans.setdefault(i, (1, n))

    def _completed(self, x: sp.Indexed) -> sp.Indexed:
        """Entry with the indices that it leaves out."""
        missing = len(self._lengths(x)) - len(x.indices)
        return x.base[(*self.axes.get(_name(x), self.asked.over)[: max(0, missing)], *x.indices)]

    def _lengths(self, x: sp.Indexed) -> tuple[int, ...]:
        """Of the axes of the array that an entry belongs to."""
        name = _name(x)
        if name not in self.shapes and name not in self.axes:
            raise NotLowered(f"{x}: is used before it is defined")
        return self.shapes.get(name) or self._shape(self.axes[name], self.spans)

    def function(self) -> Callable:
        """The function of arrays and numbers."""
        results = []
        for name in self.asked.wanted:
            axes, found = self.axes[name], self._defined(name)
            shape = self._shape(axes, self.spans)
            results.append(f"xp.broadcast_to({self._aligned(found, axes)}, {shape})")
        arguments = [f"array_{n}" for n in self.asked.arrays]
        arguments += [f"number_{x}" for x in self.asked.numbers]
        self.lines.append(f"return [{', '.join(results)}]")
        source = "".join(f"\n    {line}" for line in self.lines)
        exec(f"def code({', '.join(arguments)}):{source}", self.scope)
        return self.scope["code"]

    def _line(self, code: str, axes: Sequence[sp.Symbol]) -> _Array:
        entries = self._entries(axes)
        if entries > MOST_ENTRIES:
            raise ParameterError(
                f"an array over {axes} would have {entries:.1e} entries, at most {MOST_ENTRIES:.0e}"
            )
        self.lines.append(f"v{len(self.lines)} = {code}")
        return _Array(f"v{len(self.lines) - 1}", tuple(axes))

    def _constant(self, value: Any) -> str:
        name = f"c{len(self.scope)}"
        self.scope[name] = value
        return name

    def _shape(self, axes: Iterable[sp.Symbol], ranges: Mapping | None = None) -> tuple[int, ...]:
        return tuple(last - first + 1 for first, last in ((ranges or self.range)[a] for a in axes))

    def _entries(self, axes: Iterable[sp.Symbol]) -> int:
        return math.prod(self._shape(axes))

    def _aligned(self, x: _Array, axes: Sequence[sp.Symbol]) -> str:
        """The array with its axes in a given order, of length 1 where it has none."""
        order = tuple(x.axes.index(a) for a in axes if a in x.axes)
        code = x.name if order == tuple(range(len(order))) else f"permute({x.name}, {order})"
        gaps = [":" if a in x.axes else "None" for a in axes]
        while gaps and gaps[0] == "None":
            gaps.pop(0)
        return f"{code}[{', '.join(gaps)}]" if "None" in gaps else code

    def value(self, expr: sp.Expr) -> _Array:
        """Array of an expression over its free indices, written once whatever they are called."""
        free = {x for x in expr.free_symbols if x in self.range}
        order = list(dict.fromkeys(x for x in sp.preorder_traversal(expr) if x in free))
        stand_in = {x: sp.Symbol(f"_axis{k}", **WHOLE) for k, x in enumerate(order)}
        key = (expr.xreplace(stand_in), tuple(self.range[x] for x in order))
        if key not in self.made:
            found = self._written(expr)
            self.made[key] = _Array(found.name, tuple(stand_in[a] for a in found.axes))
        back = {b: a for a, b in stand_in.items()}
        return _Array(self.made[key].name, tuple(back[a] for a in self.made[key].axes))

    def _written(self, expr: sp.Expr) -> _Array:
        if isinstance(expr, sp.Indexed):
            return self._entry(expr)
        if isinstance(expr, sp.Sum):
            return self._sum(expr)
        if isinstance(expr, sp.KroneckerDelta):
            x, y = (self.value(a) for a in expr.args)
            axes = tuple(dict.fromkeys(x.axes + y.axes))
            same = f"{self._aligned(x, axes)} == {self._aligned(y, axes)}"
            return self._line(f"xp.asarray({same}, dtype=xp.float64)", axes)
        if expr in self.range:
            first, last = self.range[expr]
            xp = self.asked.xp
            return _Array(self._constant(xp.arange(first, last + 1, dtype=xp.float64)), (expr,))
        if expr.is_Symbol:
            defined = expr.name in self.asked.definitions
            return self._defined(expr.name) if defined else _Array(f"number_{expr}", ())
        return self._elementwise(expr)

    def _elementwise(self, expr: sp.Expr) -> _Array:
        """What NumPy does entry by entry, of arrays that are made before."""
        if expr.has(*OPAQUE):
            raise NotLowered(str(expr))
        leaves: dict[sp.Expr, sp.Symbol] = {}

        def replaced(e: sp.Basic) -> sp.Basic:
            apart = isinstance(e, sp.Function) and e != expr  # others may use it, too
            if isinstance(e, LEAVES) or e.is_Symbol or apart:
                return leaves.setdefault(e, sp.Symbol(f"_leaf{len(leaves)}", real=True))
            return e.func(*map(replaced, e.args)) if e.args else e

        form = replaced(expr)
        parts = [self.value(leaf) for leaf in leaves]
        axes = self._union(parts)
        plain = self.asked.xp is np or all(x.name.startswith("number") for x in parts)
        modules = numeric._MODULES["numpy"] if plain else [self.asked.xp]
        code = self._constant(sp.lambdify([*leaves.values()], form, modules, cse=True))
        return self._line(f"{code}({', '.join(self._aligned(x, axes) for x in parts)})", axes)

    def _union(self, parts: Sequence[_Array]) -> tuple[sp.Symbol, ...]:
        """Indices of all of them; those of the largest as they lie in it."""
        most = max(parts, key=lambda x: len(x.axes), default=_Array("", ())).axes
        every = dict.fromkeys(a for x in parts for a in x.axes)
        return (*(a for a in every if a not in most), *most)

    def _defined(self, name: str) -> _Array:
        """Array of a definition, over its own indices."""
        outside, self.range = self.range, {a: self.spans[a] for a in self.axes[name]}
        found = self.value(self._inlined(self.rights[name]))
        self.range = outside
        return found

    def _inlined(self, expr: sp.Expr) -> sp.Expr:
        """Put in products that have more entries than anything they are made of: what contracts
        them needs never build them.
        """

        def replaced(x: sp.Indexed) -> sp.Expr:
            right, axes = self.rights.get(_name(x)), self.axes.get(_name(x), ())
            if right is None or right.has(sp.Sum) or not self._outgrows(right, axes, self.spans):
                return x
            return self._inlined(right.xreplace(dict(zip(axes, x.indices, strict=True))))

        return expr.replace(lambda x: isinstance(x, sp.Indexed), replaced)

    def _outgrows(self, expr: sp.Expr, axes: Any, ranges: Mapping | None = None) -> bool:
        """Whether it has more entries than each of the arrays that it is made of."""
        parts = [math.prod(self._lengths(x)) for x in expr.atoms(sp.Indexed)]
        return math.prod(self._shape(axes, ranges)) > max(parts, default=math.inf)

    def _entry(self, x: sp.Indexed) -> _Array:
        """Entries of an array, given or defined, at indices or places."""
        name, lengths, code = _name(x), self._lengths(x), f"array_{_name(x)}"
        if len(lengths) != len(x.indices):
            raise _no_place(x, lengths)
        whole = [self.range.get(i) == (1, n) for i, n in zip(x.indices, lengths, strict=True)]
        axes = x.indices
        if name in self.rights:
            found = self._defined(name)
            at = dict(zip(self.axes[name], x.indices, strict=True))
            code, axes = found.name, tuple(at[a] for a in found.axes)
            if not all(whole):
                raise NotLowered(str(x))
        if not all(whole):
            places = [self.value(i) for i in x.indices]
            axes = self._union(places)
            at_all = ", ".join(self._aligned(q, axes) for q in places)
            return self._line(f"take({code}, {name!r}, {at_all})", axes)
        once = [*dict.fromkeys(axes)]
        return _Array(code, axes) if len(once) == len(axes) else self._einsum(once, (code, axes))

    def _einsum(self, kept: Sequence[sp.Symbol], *parts: tuple[str, Sequence[sp.Symbol]]) -> _Array:
        terms = self._letters([axes for _, axes in parts], kept)
        return self._line(f"xp.einsum({terms!r}, {', '.join(code for code, _ in parts)})", kept)

    @staticmethod
    def _letters(terms: Sequence[Sequence[sp.Symbol]], kept: Iterable[sp.Symbol]) -> str:
        every = [*dict.fromkeys(a for axes in terms for a in axes)]
        written = ["".join(chr(97 + every.index(a)) for a in axes) for axes in (*terms, kept)]
        return ",".join(written[:-1]) + "->" + written[-1]

    def _take(self, array: Any, name: str, *places: Any) -> Any:
        at = [self.asked.xp.asarray(p, dtype=self.asked.xp.int64) for p in places]
        wrong = [
            (q < 1) | (q > n) | (q != p) for p, q, n in zip(places, at, array.shape, strict=True)
        ]
        if any(w.any() for w in wrong):
            first = np.argwhere(np.any(np.broadcast_arrays(*wrong), axis=0))[0]
            shown = (
                np.broadcast_to(p, np.broadcast_shapes(*map(np.shape, at)))[*first] for p in places
            )
            raise _no_place(f"{name}[{', '.join(f'{p:g}' for p in shown)}]", tuple(array.shape))
        return array[tuple(q - 1 for q in at)]

    def _sum(self, expr: sp.Sum) -> _Array:
        outside = dict(self.range)
        self._bind(expr)
        terms = [*self._terms(expr.function, {*expr.variables})]
        parts = [self._contracted(factors, bound) for factors, bound in terms]
        self.range, axes = outside, self._union(parts)
        total = " + ".join(self._aligned(x, axes) for x in parts)
        return self._line(total, axes) if parts[1:] else parts[0]

    def _bind(self, expr: sp.Sum) -> None:
        for index, *ends in expr.limits:
            whole = [sp.sympify(e).xreplace(self.sizes) for e in ends]
            if len(whole) != 2 or not all(e.is_Integer for e in whole) or whole[1] < whole[0]:
                raise NotLowered(f"{expr}: {index} from {ends[0]} to {ends[-1]}")
            self.range[index] = (int(whole[0]), int(whole[1]))

    def _terms(self, term: sp.Expr, bound: set[sp.Symbol]) -> Iterator[tuple[list, set]]:
        """Factors and summed indices of the terms of a sum, multiplied out only where a factor
        would have more entries than anything it is made of.
        """
        factors = list(sp.Mul.make_args(term))
        for f in factors:
            if isinstance(f, sp.Add | sp.Sum) and self._outgrows(f, f.free_symbols & {*self.range}):
                rest = sp.Mul(*(x for x in factors if x is not f))
                if isinstance(f, sp.Sum):
                    taken = [v for v in f.variables if v in self.range]
                    f = f.xreplace({v: sp.Symbol(f"{v}_{len(self.range)}", **WHOLE) for v in taken})
                    self._bind(f)
                    yield from self._terms(rest * f.function, bound | {*f.variables})
                for part in f.args if isinstance(f, sp.Add) else ():
                    yield from self._terms(rest * part, bound)
                return
        yield factors, bound

    def _contracted(self, factors: list[sp.Expr], bound: set[sp.Symbol]) -> _Array:
        """Sum of a product over the bound indices."""
        product, bound = sp.Mul(*factors), set(bound)
        hidden = {v for s in product.atoms(sp.Sum) for v in s.variables}
        for delta in factors:
            if (
                isinstance(delta, sp.KroneckerDelta)
                and set(delta.args) <= self.range.keys() - hidden
            ):
                gone, other = sorted(delta.args, key=lambda a: a not in bound)
                if gone in bound and self.range[gone] == self.range[other]:
                    picked = (product / delta).xreplace({gone: other})
                    return self._contracted([*sp.Mul.make_args(picked)], bound - {gone})
        inside = [f for f in factors if f.free_symbols & bound]  # the rest comes last
        arrays = [self.value(f) for f in inside]
        missing = bound.difference(*(x.axes for x in arrays))
        for at in self._path(arrays, bound - missing) if len(arrays) > 1 else ():
            chosen = [arrays.pop(k) for k in sorted(at, reverse=True)]
            while len(chosen) > 1:
                x, y = chosen.pop(), chosen.pop()
                later = {a for z in (*arrays, *chosen) for a in z.axes}
                keep = {a for a in (*x.axes, *y.axes) if a in later or a not in bound}
                chosen.append(self._pair(x, y, keep))
            arrays += chosen
        scale = sp.Mul(*(f for f in factors if f not in inside), self._entries(missing))
        made = [self._reduced(x, bound) for x in arrays]
        made += [self.value(scale)] if scale != 1 or not arrays else []
        return made[0] if len(made) == 1 else self._product(*made)

    def _product(self, *parts: _Array) -> _Array:
        axes = self._union(parts)
        return self._line(" * ".join(self._aligned(x, axes) for x in parts), axes)

    def _path(self, arrays: Sequence[_Array], bound: set[sp.Symbol]) -> list[tuple[int, ...]]:
        """Order of pairs that costs least."""
        terms = [x.axes for x in arrays]
        kept = dict.fromkeys(a for axes in terms for a in axes if a not in bound)
        shapes = [np.broadcast_to(0.0, self._shape(axes)) for axes in terms]
        how = "optimal" if len(arrays) < 6 else "greedy"
        return np.einsum_path(self._letters(terms, kept), *shapes, optimize=how)[0][1:]

    def _reduced(self, x: _Array, gone: Any) -> _Array:
        at = tuple(k for k, a in enumerate(x.axes) if a in gone)
        return self._line(f"{x.name}.sum({at})", [a for a in x.axes if a not in gone]) if at else x

    def _pair(self, x: _Array, y: _Array, keep: set[sp.Symbol]) -> _Array:
        """Product of two arrays, summed over the indices that are not kept: a stack of products of
        matrices, the larger array as it lies in memory where that is possible.
        """
        x, y = (self._reduced(u, {*u.axes} - keep - {*v.axes}) for u, v in ((x, y), (y, x)))
        big, small = sorted((x, y), key=lambda u: -self._entries(u.axes))
        summed = [a for a in big.axes if a in small.axes and a not in keep]
        if not summed:
            return self._product(big, small)
        free = [a for a in big.axes if a not in small.axes]
        others = [a for a in small.axes if a not in big.axes]
        stack = [a for a in big.axes if a in small.axes and a in keep]
        if not free and not others:
            return self._einsum(stack, (big.name, big.axes), (small.name, small.axes))
        # From the last axis on: those of one kind, then those of the other; the rest is stacked.
        rest = [*big.axes]
        last: list[list[sp.Symbol]] = []
        for kind in (summed, free) if rest[-1] in summed else (free, summed):
            run: list[sp.Symbol] = []
            while rest and rest[-1] in kind:
                run.insert(0, rest.pop())
            last.insert(0, run)
        few = {*rest} - {*stack} and self._entries(last[0] + last[1]) < FEW
        if few or (rest and not last[1]):
            rest, last = stack, [free, summed]
        turned = not {*last[1]} <= {*summed}
        inner, outer = last if turned else last[::-1]
        stacked = [a for a in rest if a in small.axes]

        def matrices(x: _Array, axes: list[sp.Symbol], *last: list[sp.Symbol]) -> str:
            shape = tuple(self._entries([a]) if a in x.axes else 1 for a in rest)
            return f"{self._aligned(x, axes)}.reshape({shape + tuple(map(self._entries, last))})"

        left = matrices(big, [*rest, *last[0], *last[1]], *last) + ".swapaxes(-1, -2)" * turned
        right = matrices(small, [*stacked, *inner, *others], inner, others)
        axes = [*rest, *outer, *others]
        made = self._line(f"xp.matmul({left}, {right}).reshape({self._shape(axes)})", axes)
        return self._reduced(made, {*rest} & {*summed})


def _no_place(x: Any, shape: tuple[int, ...]) -> ParameterError:
    return ParameterError(f"{x}: not a place of an array of shape {shape}")


@functools.lru_cache(maxsize=256)
def _of(expr: sp.Expr) -> Lowered:
    return Lowered({RESULT: expr}, [RESULT])


def number(expr: sp.Expr, values: Mapping[str, Any]) -> float:
    """Number of an expression in entries of arrays, by array code where there is some: as
    `numeric.entry_by_entry`, which says what is taken and refused.
    """
    try:
        lowered = _of(expr)
        arrays = {name: np.asarray(values[name], float) for name in lowered.arrays}
        with np.errstate(over="ignore"):  # as `numeric.function`
            return float(lowered({**values, **arrays})[0])
    except NotLowered:
        return numeric.entry_by_entry(expr, values)
