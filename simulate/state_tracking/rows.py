"""Rows of numbers as values in Numba kernels: a few SIMD vectors of 16 lanes each.

Numba's own loops over rows of a length that is known only at run time cost more
instructions than the sums in them, and keep every partial sum in memory. A `Row` stays
in registers. All operations have one order, stated here, so that results depend on no
compiler's choice of vectors. ``parts`` is a tuple whose length is the number of
vectors; places are counted in numbers from the start of an array and do not wrap
around.

The kernels made of rows stand here, too: Numba keeps machine code by file, and would go
on with the old after a change of another.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model
from numba.np.arrayobj import make_array
from numpy.polynomial.chebyshev import cheb2poly, poly2cheb

from theory.numbers.compiled import njit

LANES = 16
INT = ir.IntType(32)
NEVER = -1e30  # a logit whose softmax is 0
# exp of a logit of this size and its inverse are normal numbers in single precision
LARGEST = 40.0
FULL = 1e200  # product of sums in double precision, before its logarithm is taken


class Row(types.Type):
    """Numbers of one precision in ``parts`` vectors."""

    def __init__(self, dtype: types.Type, parts: int) -> None:
        self.dtype, self.parts = dtype, parts
        super().__init__(name=f"Row({dtype}, {parts})")


@register_model(Row)
class _Model(models.PrimitiveModel):
    def __init__(self, manager, row: Row) -> None:
        number = manager.lookup(row.dtype).get_value_type()
        super().__init__(
            manager, row, ir.ArrayType(ir.VectorType(number, LANES), row.parts)
        )


def _joined(builder, kind, vectors):
    joined = cgutils.get_null_value(kind)
    for k, vector in enumerate(vectors):
        joined = builder.insert_value(joined, vector, k)
    return joined


def _parts(builder, row):
    return [builder.extract_value(row, k) for k in range(row.type.count)]


def _elementwise(emit: Callable) -> Callable:
    def build(context, builder, sig, args):
        given = zip(*(_parts(builder, row) for row in args), strict=True)
        kind = context.get_value_type(sig.return_type)
        return _joined(builder, kind, (emit(builder, *vectors) for vectors in given))

    return build


def _binary(emit: Callable):
    return intrinsic(lambda context, x, y: (x(x, y), _elementwise(emit)))


def _called(name: str) -> Callable:
    def emit(builder, *x):
        kind = x[0].type
        bits = 32 if kind.element == ir.FloatType() else 64
        function = ir.FunctionType(kind, [kind] * len(x))
        name_of = f"llvm.{name}.v{kind.count}f{bits}"
        return builder.call(
            cgutils.get_or_insert_function(builder.module, function, name_of), x
        )

    return emit


def _larger(builder, x, y):
    """A NaN in x stays."""
    return builder.select(builder.fcmp_ordered("<", x, y), y, x)


def _sum(builder, x, y):
    return builder.fadd(x, y)


_fused = _called("fmuladd")  # x y + z, rounded once where the machine can


def _exponential(builder, x):
    """``2^k 2^f`` with ``|f| <= 1/2``, the second by a Chebyshev series whose error is
    below one unit in the last place. At the least k the power, and therefore the
    result, is 0.
    """
    single = x.type.element == ir.FloatType()
    order, bits, bias, shift = (5, 32, 127, 23) if single else (11, 64, 1023, 52)

    def constant(value: float):
        rounded = float(np.float32(value)) if single else float(value)
        return ir.Constant(x.type, [rounded] * LANES)

    taylor = [
        math.log(2) ** k / math.factorial(k) / 2**k for k in range(2 * order)
    ]  # in 2 f
    first, *others = reversed(
        cheb2poly(poly2cheb(taylor)[: order + 1]) * 2.0 ** np.arange(order + 1)
    )
    # Added to a number of this size, another one keeps its whole part alone, in the
    # last bits.
    whole = constant(1.5 * 2**shift + bias)
    per = constant(1 / math.log(2))
    x = _larger(builder, x, constant(-bias * math.log(2)))
    k = _fused(builder, x, per, whole)
    f = _fused(builder, x, per, builder.fsub(whole, k))
    power = constant(first)
    for coefficient in others:
        power = _fused(builder, f, power, constant(coefficient))
    integers = ir.VectorType(ir.IntType(bits), LANES)
    exponent = builder.shl(
        builder.bitcast(k, integers), ir.Constant(integers, [shift] * LANES)
    )
    return builder.fmul(power, builder.bitcast(exponent, x.type))


add = _binary(_sum)
subtract = _binary(lambda builder, x, y: builder.fsub(x, y))
multiply = _binary(lambda builder, x, y: builder.fmul(x, y))
exponential = intrinsic(
    lambda context, x: (x(x), _elementwise(_exponential))
)  # of x <= 2 LARGEST


@intrinsic
def multiply_add(context, x, y, z):
    """The row ``x y + z``, rounded once where the machine can."""
    return x(x, y, z), _elementwise(_fused)


def _doubled(builder, x):
    return builder.fpext(x, ir.VectorType(ir.DoubleType(), LANES))


@intrinsic
def doubled(context, x):
    """The row in double precision."""
    return Row(types.float64, x.parts)(x), _elementwise(_doubled)


def _spread(builder, number, kind):
    """A vector with the same number in all lanes."""
    undefined = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(undefined, number, INT(0))
    return _shuffled(builder, one, undefined, [0] * LANES)


def _shuffled(builder, x, y, lanes: list[int]):
    return builder.shuffle_vector(
        x, y, ir.Constant(ir.VectorType(INT, len(lanes)), lanes)
    )


@intrinsic
def spread(context, number, parts):
    """A row of the same number."""
    row = Row(number, len(parts))

    def build(context, builder, sig, args):
        kind = context.get_value_type(row)
        return _joined(
            builder, kind, [_spread(builder, args[0], kind.element)] * kind.count
        )

    return row(number, parts), build


def _addresses(context, builder, array, data, place, row):
    """Of the vectors of a row that begins at a place of a contiguous array."""
    start = builder.gep(make_array(array)(context, builder, data).data, [place])
    kind = context.get_value_type(row)
    pointers = [builder.gep(start, [INT(LANES * k)]) for k in range(kind.count)]
    return [builder.bitcast(pointer, kind.element.as_pointer()) for pointer in pointers]


@intrinsic
def load(context, array, places, parts):
    """The row that begins at a place of a contiguous array; a block of those at several
    places.
    """
    many = len(places) if isinstance(places, types.UniTuple) else 1
    row = Row(array.dtype, len(parts))
    block = Row(array.dtype, many * len(parts))

    def build(context, builder, sig, args):
        places = cgutils.unpack_tuple(builder, args[1]) if many > 1 else [args[1]]
        pointers = [
            pointer
            for place in places
            for pointer in _addresses(
                context, builder, sig.args[0], args[0], place, row
            )
        ]
        vectors = [builder.load(pointer, align=4) for pointer in pointers]
        return _joined(builder, context.get_value_type(block), vectors)

    return (
        block(
            array,
            types.UniTuple(types.uint64, many) if many > 1 else types.uint64,
            parts,
        ),
        build,
    )


@intrinsic
def store(context, array, place, row):
    """Write a row to a place of a contiguous array."""

    def build(context, builder, sig, args):
        pointers = _addresses(context, builder, sig.args[0], args[0], args[1], row)
        for vector, pointer in zip(_parts(builder, args[2]), pointers, strict=True):
            builder.store(vector, pointer, align=4)
        return context.get_dummy_value()

    return types.none(array, types.uint64, row), build


@intrinsic
def add_to(context, array, places, block, count):
    """Add the first so many rows of a block, one after the other, to those at some
    places.
    """
    many = len(places)
    row = Row(block.dtype, block.parts // many)

    def build(context, builder, sig, args):
        vectors = iter(_parts(builder, args[2]))
        for k, place in enumerate(cgutils.unpack_tuple(builder, args[1])):
            counts = builder.icmp_unsigned(">", args[3], ir.Constant(args[3].type, k))
            for pointer in _addresses(
                context, builder, sig.args[0], args[0], place, row
            ):
                vector = next(vectors)
                vector = builder.select(counts, vector, ir.Constant(vector.type, None))
                vector = builder.fadd(builder.load(pointer, align=4), vector)
                builder.store(vector, pointer, align=4)
        return context.get_dummy_value()

    return (
        types.none(array, types.UniTuple(types.uint64, many), block, types.uint64),
        build,
    )


def _across(fold: Callable):
    """What folding every row of a block gives, spread over the row: over vectors first,
    then over lanes at distance 8, 4, 2, 1.
    """

    def folded(builder, vectors):
        first, *others = vectors
        for vector in others:
            first = fold(builder, first, vector)
        for distance in (8, 4, 2, 1):
            lanes = [lane ^ distance for lane in range(LANES)]
            first = fold(builder, first, _shuffled(builder, first, first, lanes))
        return [first] * len(vectors)

    def build(context, builder, sig, args):
        vectors, many = _parts(builder, args[0]), sig.args[1].count
        rows = (
            folded(builder, vectors[k : k + many]) for k in range(0, len(vectors), many)
        )
        return _joined(
            builder, args[0].type, [vector for row in rows for vector in row]
        )

    return intrinsic(lambda context, block, parts: (block(block, parts), build))


def _inverse(builder, x):
    return builder.fdiv(ir.Constant(x.type, [1.0] * LANES), x)


totals, largest = _across(_sum), _across(_larger)
inverse = intrinsic(lambda context, x: (x(x), _elementwise(_inverse)))


@intrinsic
def number(context, row):
    """The first number of a row."""

    def build(context, builder, sig, args):
        return builder.extract_element(_parts(builder, args[0])[0], INT(0))

    return row.dtype(row), build


@njit(inline="always", error_model="numpy")
def _zeros(size, like):
    """Zeros from a multiple of 64 bytes on,
    so that no vector lies in two cache lines.
    """
    padded = np.zeros(size + LANES, like.dtype)
    return padded[LANES - padded.ctypes.data // padded.itemsize % LANES :]


@njit(inline="always", error_model="numpy")
def _of_four(values, rows, stride, place):
    """Values of a block of rows, one in every ``stride``."""
    one, two, three, four = rows
    return (
        np.uint64(values[one * stride + place]),
        np.uint64(values[two * stride + place]),
        np.uint64(values[three * stride + place]),
        np.uint64(values[four * stride + place]),
    )


@njit(cache=True, nogil=True, error_model="numpy")
def _gradients(
    first, last, pi, columns, places, target, bounds, parts, large, d_pi, d_columns
):
    """Sums over the rows of states ``first <= s < last``; ``d_pi`` has one slice per
    state.

    ``columns`` are filled up to whole vectors, and ``places`` are where those of a
    row's actions begin. Four rows at a time share the weights and their sums over
    logits; the last of a group is repeated, with an error of 0. Only where logits may
    be ``large`` is their largest subtracted.
    """
    one, two = np.uint64(1), np.uint64(2)
    lanes = np.uint64(LANES * len(parts))
    L = np.uint64(len(pi))
    d_g = np.uint64(columns.shape[1])
    places = places.reshape(-1)
    size = d_g * lanes
    start = _zeros(lanes, columns)
    start[len(d_pi) : lanes] = NEVER
    # A row of which lane r is -1 begins r numbers before the middle.
    minus_one = _zeros(two * lanes, columns)
    errors = _zeros(L * size, columns)
    minus_one[lanes] = -1
    none = np.uint64(0)
    begin = load(start, (none, none, none, none), parts)
    zero = load(errors, none, parts)
    whole = parts + parts + parts + parts
    for s in range(np.uint64(first), np.uint64(last)):
        column = columns[s].reshape(-1)
        d_column = d_columns[s].reshape(-1)
        for t in range(L):
            weight, end = pi[t], np.uint64(bounds[s * L + t + one])
            low = np.uint64(bounds[s * L + t])
            for i in range(low, end, np.uint64(4)):
                final = end - one
                rows = (
                    i,
                    min(i + one, final),
                    min(i + two, final),
                    min(i + two + one, final),
                )
                z = begin
                for j in range(L):
                    entries = load(column, _of_four(places, rows, L, j), parts)
                    z = multiply_add(spread(weight[j], whole), entries, z)
                if large:
                    z = subtract(z, largest(z, parts))
                z = exponential(z)
                t0, t1, t2, t3 = _of_four(target, rows, one, none)
                right = load(
                    minus_one, (lanes - t0, lanes - t1, lanes - t2, lanes - t3), parts
                )
                z = multiply_add(z, inverse(totals(z, parts)), right)
                for j in range(L):
                    a0, a1, a2, a3 = _of_four(places, rows, L, j)
                    moved = j * size
                    add_to(
                        errors,
                        (a0 + moved, a1 + moved, a2 + moved, a3 + moved),
                        z,
                        end - i,
                    )
            few = end - low < d_g
            for j in range(L):
                w, slope = spread(weight[j], parts), zero
                for k in range(end - low if few else d_g):
                    a = np.uint64(places[(low + k) * L + j]) if few else k * lanes
                    summed = load(errors, j * size + a, parts)
                    store(errors, j * size + a, zero)
                    store(
                        d_column, a, multiply_add(w, summed, load(d_column, a, parts))
                    )
                    slope = multiply_add(summed, load(column, a, parts), slope)
                d_pi[s, t, j] = number(totals(slope, parts))


@njit(cache=True, nogil=True, error_model="numpy")
def _moments(
    first, last, pi, columns, places, target, bounds, parts, large, loss, powers
):
    """Loss and sums of powers 1 to 4 of correct (0) and of all logits
    (1), per state.
    """
    lanes, L = np.uint64(LANES * len(parts)), np.uint64(len(pi))
    places, start = places.reshape(-1), _zeros(lanes, columns)
    zero = load(start, np.uint64(0), parts)
    start[len(loss) : lanes] = NEVER
    begin = load(start, np.uint64(0), parts)
    kept = _zeros(lanes, columns)
    for s in range(np.uint64(first), np.uint64(last)):
        column, loss[s], powers[s] = columns[s].reshape(-1), 0, 0
        z1 = z2 = z3 = z4 = doubled(zero)
        for t in range(L):
            weight, product = pi[t], 1.0
            for i in range(
                np.uint64(bounds[s * L + t]),
                np.uint64(bounds[s * L + t + np.uint64(1)]),
            ):
                z = zero
                for j in range(L):
                    place = np.uint64(places[i * L + j])
                    z = multiply_add(
                        spread(weight[j], parts), load(column, place, parts), z
                    )
                store(kept, np.uint64(0), z)
                x = np.float64(kept[target[i]])
                for k in range(4):
                    powers[s, 0, k] += x ** (k + 1)
                x = doubled(z)
                square = multiply(x, x)
                z1, z2 = add(z1, x), add(z2, square)
                z3 = multiply_add(square, x, z3)
                z4 = multiply_add(square, square, z4)
                z = add(z, begin)
                z = subtract(z, largest(z, parts))
                store(kept, np.uint64(0), z)
                loss[s] -= kept[target[i]]
                product *= number(totals(exponential(z), parts))
                if product > FULL:
                    loss[s], product = loss[s] + math.log(product), 1.0
            loss[s] += math.log(product)
        powers[s, 1, 0], powers[s, 1, 1] = (
            number(totals(z1, parts)),
            number(totals(z2, parts)),
        )
        powers[s, 1, 2], powers[s, 1, 3] = (
            number(totals(z3, parts)),
            number(totals(z4, parts)),
        )
