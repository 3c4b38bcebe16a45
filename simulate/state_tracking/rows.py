"""Rows of numbers as values in Numba kernels: a few SIMD vectors of 16 lanes each.

Numba's own loops over rows of a length that is known only at run time cost more instructions than
the sums in them, and keep every partial sum in memory. A `Row` stays in registers. All operations
have one order, stated here, so that results depend on no compiler's choice of vectors. ``parts`` is
a tuple whose length is the number of vectors; places are counted in numbers from the start of an
array and do not wrap around.

The kernel made of rows stands here, too: Numba keeps machine code by file, and would go on with the
old after a change of another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model
from numba.np.arrayobj import make_array

LANES = 16
INT = ir.IntType(32)


class Row(types.Type):
    """Numbers of one precision in ``parts`` vectors."""

    def __init__(self, dtype: types.Type, parts: int) -> None:
        self.dtype, self.parts = dtype, parts
        super().__init__(name=f"Row({dtype}, {parts})")


@register_model(Row)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, row: Row) -> None:
        number = manager.lookup(row.dtype).get_value_type()
        super().__init__(manager, row, ir.ArrayType(ir.VectorType(number, LANES), row.parts))


def _joined(builder: Any, kind: Any, vectors: Any) -> Any:
    found = cgutils.get_null_value(kind)
    for k, vector in enumerate(vectors):
        found = builder.insert_value(found, vector, k)
    return found


def _parts(builder: Any, row: Any) -> list[Any]:
    return [builder.extract_value(row, k) for k in range(row.type.count)]


def _elementwise(emit: Callable) -> Callable:
    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        given = zip(*(_parts(builder, row) for row in args), strict=True)
        kind = context.get_value_type(sig.return_type)
        return _joined(builder, kind, (emit(builder, *vectors) for vectors in given))

    return build


def _binary(emit: Callable) -> Any:
    return intrinsic(lambda context, x, y: (x(x, y), _elementwise(emit)))


def _called(name: str) -> Callable:
    def emit(builder: Any, *x: Any) -> Any:
        kind = x[0].type
        bits = 32 if kind.element == ir.FloatType() else 64
        function = ir.FunctionType(kind, [kind] * len(x))
        name_of = f"llvm.{name}.v{kind.count}f{bits}"
        return builder.call(cgutils.get_or_insert_function(builder.module, function, name_of), x)

    return emit


def _larger(builder: Any, x: Any, y: Any) -> Any:
    """A NaN in x stays."""
    return builder.select(builder.fcmp_ordered("<", x, y), y, x)


def _sum(builder: Any, x: Any, y: Any) -> Any:
    return builder.fadd(x, y)


_fused = _called("fmuladd")  # x y + z, rounded once where the machine can


def _exponential(builder: Any, x: Any) -> Any:
    """``2^k e^(f ln 2)`` with ``|f| <= 1/2``, the series to an order that is exact to one unit in
    the last place. At the least k the power, and therefore the result, is 0.
    """
    single = x.type.element == ir.FloatType()
    order, bits, bias, shift = (6, 32, 127, 23) if single else (13, 64, 1023, 52)

    def constant(value: float) -> Any:
        rounded = float(np.float32(value)) if single else value
        return ir.Constant(x.type, [rounded] * LANES)

    y = _larger(builder, builder.fmul(x, constant(1 / math.log(2))), constant(-bias))
    k = _called("floor")(builder, builder.fadd(y, constant(0.5)))
    f, found = builder.fsub(y, k), constant(math.log(2) ** order / math.factorial(order))
    for power in reversed(range(order)):
        found = _fused(builder, f, found, constant(math.log(2) ** power / math.factorial(power)))
    whole = ir.VectorType(ir.IntType(bits), LANES)
    exponent = builder.add(builder.fptosi(k, whole), ir.Constant(whole, [bias] * LANES))
    exponent = builder.shl(exponent, ir.Constant(whole, [shift] * LANES))
    return builder.fmul(found, builder.bitcast(exponent, x.type))


add = _binary(_sum)
subtract = _binary(lambda builder, x, y: builder.fsub(x, y))
multiply = _binary(lambda builder, x, y: builder.fmul(x, y))
exponential = intrinsic(lambda context, x: (x(x), _elementwise(_exponential)))  # of x <= 0


@intrinsic
def multiply_add(context, x, y, z):
    """The row ``x y + z``, rounded once where the machine can."""
    return x(x, y, z), _elementwise(_fused)


def _spread(builder: Any, number: Any, kind: Any) -> Any:
    """A vector with the same number in all lanes."""
    undefined = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(undefined, number, INT(0))
    return _shuffled(builder, one, undefined, [0] * LANES)


def _shuffled(builder: Any, x: Any, y: Any, lanes: list[int]) -> Any:
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(INT, len(lanes)), lanes))


@intrinsic
def spread(context, number, parts):
    """A row of the same number."""
    row = Row(number, len(parts))

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = context.get_value_type(row)
        return _joined(builder, kind, [_spread(builder, args[0], kind.element)] * kind.count)

    return row(number, parts), build


def _addresses(context: Any, builder: Any, sig: Any, args: Any, kind: Any) -> list[Any]:
    data = make_array(sig.args[0])(context, builder, args[0]).data
    start = builder.gep(data, [args[1]])
    at = [builder.gep(start, [INT(LANES * k)]) for k in range(kind.count)]
    return [builder.bitcast(pointer, kind.element.as_pointer()) for pointer in at]


@intrinsic
def load(context, array, place, parts):
    """The row that begins at a place of a contiguous array."""
    row = Row(array.dtype, len(parts))

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = context.get_value_type(row)
        at = _addresses(context, builder, sig, args, kind)
        return _joined(builder, kind, [builder.load(pointer, align=4) for pointer in at])

    return row(array, types.uint64, parts), build


@intrinsic
def store(context, array, place, row):
    """Write a row to a place of a contiguous array."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at = _addresses(context, builder, sig, args, args[2].type)
        for vector, pointer in zip(_parts(builder, args[2]), at, strict=True):
            builder.store(vector, pointer, align=4)
        return context.get_dummy_value()

    return types.none(array, types.uint64, row), build


@intrinsic
def less_one_at(context, row, place):
    """The row with one subtracted at a place."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind, lanes = args[0].type, ir.VectorType(INT, LANES)
        place, one = _spread(builder, builder.trunc(args[1], INT), lanes), [1.0] * LANES
        found = []
        for k, vector in enumerate(_parts(builder, args[0])):
            own = ir.Constant(lanes, list(range(LANES * k, LANES * (k + 1))))
            less = builder.fsub(vector, ir.Constant(kind.element, one))
            found.append(builder.select(builder.icmp_signed("==", place, own), less, vector))
        return _joined(builder, kind, found)

    return row(row, types.uint64), build


def _folded(builder: Any, fold: Callable, row: Any) -> Any:
    first, *others = _parts(builder, row)
    for vector in others:
        first = fold(builder, first, vector)
    return first


def _swapped(builder: Any, fold: Callable, x: Any, distance: int) -> Any:
    other = _shuffled(builder, x, x, [lane ^ distance for lane in range(LANES)])
    return fold(builder, x, other)


@intrinsic
def total(context, row):
    """Sum of a row: over vectors first, then over lanes at distance 8, 4, 2, 1."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        found = _folded(builder, _sum, args[0])
        for distance in (8, 4, 2, 1):
            found = _swapped(builder, _sum, found, distance)
        return builder.extract_element(found, INT(0))

    return row.dtype(row), build


def _across(fold: Callable, finish: Callable) -> Any:
    """One number per row of four rows, each spread over a row; the four share their vectors."""

    def halved(builder: Any, x: Any, y: Any, lanes: int) -> Any:
        low = [lane for lane in range(2 * LANES) if lane % lanes < lanes // 2]
        high = [lane + lanes // 2 for lane in low]
        return fold(builder, _shuffled(builder, x, y, low), _shuffled(builder, x, y, high))

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        first, second, third, fourth = (_folded(builder, fold, row) for row in args)
        pairs = [halved(builder, first, second, 16), halved(builder, third, fourth, 16)]
        found = halved(builder, pairs[0], pairs[1], 8)
        for distance in (2, 1):
            found = _swapped(builder, fold, found, distance)
        found, kind = finish(builder, found), args[0].type
        spread = (_shuffled(builder, found, found, [4 * k] * LANES) for k in range(4))
        rows = (_joined(builder, kind, [vector] * kind.count) for vector in spread)
        return _joined(builder, context.get_value_type(sig.return_type), rows)

    return intrinsic(lambda context, w, x, y, z: (types.UniTuple(w, 4)(w, x, y, z), build))


def _inverse(builder: Any, x: Any) -> Any:
    return builder.fdiv(ir.Constant(x.type, [1.0] * LANES), x)


largest_of_four = _across(_larger, lambda builder, x: x)
inverse_totals_of_four = _across(_sum, _inverse)


@njit(inline="always", error_model="numpy")
def _add(errors, actions, i, L, d_g, error, parts):
    """Add a row's error to the sums of its places."""
    lanes = np.uint64(LANES * len(parts))
    for j in range(L):
        at = (j * d_g + np.uint64(actions[i * L + j])) * lanes
        store(errors, at, add(load(errors, at, parts), error))


@njit(cache=True, nogil=True, error_model="numpy")
def _gradients(
    first, last, pi, columns, actions, target, bounds, d_pi, d_columns, parts, start, errors
):
    """Sums over the rows of states ``first <= s < last``; ``d_pi`` has one slice per state.

    Four rows at a time share the weights and their sums over logits; the last of a group is
    repeated, and added once. ``columns`` and ``d_columns`` are filled up to whole vectors, where
    ``start``, from which all logits begin, is so low that softmax is exactly 0. ``errors`` is
    working memory.
    """
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    lanes, L, d_g = np.uint64(LANES * len(parts)), np.uint64(len(pi)), np.uint64(columns.shape[1])
    actions, begin = actions.reshape(-1), load(start, np.uint64(0), parts)
    zero = subtract(begin, begin)
    for s in range(np.uint64(first), np.uint64(last)):
        column, d_column = columns[s].reshape(-1), d_columns[s].reshape(-1)
        for a in range(d_g):
            store(d_column, a * lanes, zero)
        for t in range(L):
            weight = pi[t]
            for k in range(L * d_g):
                store(errors, k * lanes, zero)
            end = np.uint64(bounds[s * L + t + one])
            for i in range(np.uint64(bounds[s * L + t]), end, four):
                i1, i2, i3 = (
                    min(i + one, end - one),
                    min(i + two, end - one),
                    min(i + three, end - one),
                )
                z0 = z1 = z2 = z3 = begin
                for j in range(L):
                    w = spread(weight[j], parts)
                    a0, a1 = np.uint64(actions[i * L + j]), np.uint64(actions[i1 * L + j])
                    a2, a3 = np.uint64(actions[i2 * L + j]), np.uint64(actions[i3 * L + j])
                    z0 = multiply_add(w, load(column, a0 * lanes, parts), z0)
                    z1 = multiply_add(w, load(column, a1 * lanes, parts), z1)
                    z2 = multiply_add(w, load(column, a2 * lanes, parts), z2)
                    z3 = multiply_add(w, load(column, a3 * lanes, parts), z3)
                m0, m1, m2, m3 = largest_of_four(z0, z1, z2, z3)
                z0, z1 = exponential(subtract(z0, m0)), exponential(subtract(z1, m1))
                z2, z3 = exponential(subtract(z2, m2)), exponential(subtract(z3, m3))
                m0, m1, m2, m3 = inverse_totals_of_four(z0, z1, z2, z3)
                z0 = less_one_at(multiply(z0, m0), np.uint64(target[i]))
                z1 = less_one_at(multiply(z1, m1), np.uint64(target[i1]))
                z2 = less_one_at(multiply(z2, m2), np.uint64(target[i2]))
                z3 = less_one_at(multiply(z3, m3), np.uint64(target[i3]))
                _add(errors, actions, i, L, d_g, z0, parts)
                if i + one < end:
                    _add(errors, actions, i1, L, d_g, z1, parts)
                if i + two < end:
                    _add(errors, actions, i2, L, d_g, z2, parts)
                if i + three < end:
                    _add(errors, actions, i3, L, d_g, z3, parts)
            for j in range(L):
                w, slope = spread(weight[j], parts), zero
                for a in range(d_g):
                    at, summed = a * lanes, load(errors, (j * d_g + a) * lanes, parts)
                    store(d_column, at, multiply_add(w, summed, load(d_column, at, parts)))
                    slope = multiply_add(summed, load(column, at, parts), slope)
                d_pi[s, t, j] = total(slope)
