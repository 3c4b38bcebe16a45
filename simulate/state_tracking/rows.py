"""Rows of numbers as values in Numba kernels: a few SIMD vectors of 16 lanes each.

Numba's own loops over rows of a length that is known only at run time cost more instructions than
the sums in them, and keep every partial sum in memory. A `Row` stays in registers. All operations
have one order, stated here, so that results depend on no compiler's choice of vectors. ``parts`` is
a tuple whose length is the number of vectors; places are counted in numbers from the start of an
array and do not wrap around.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
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
