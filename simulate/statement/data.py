"""Inputs of a statement, drawn at random: what
`theory.statement.evaluation.arrays.every_input` lists.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from theory.statement.evaluation.arrays import Data, scales, taken
from theory.statement.words.stated import Statement
from theory.statement.words.tree import Function, Index, require


def inputs(
    stated: Statement,
    numbers: Mapping[str, float],
    tables: Mapping[Function, np.ndarray],
    count: int,
    rng: np.random.Generator,
) -> Data:
    """Draw inputs of equal weight.

    Parameters
    ----------
    stated : Statement
    numbers : mapping of str to float
        Sizes and numbers by name.
    tables : mapping of Function to array
        Of the teachers.
    count : int
        How many inputs.
    rng : Generator

    Raises
    ------
    ParameterError
        If no element is left for a draw, or a sample is one-to-one in several
        arguments.
    """
    data = Data(numbers, dict(tables), chances=np.full(count, 1 / count))
    for f in (f for f in stated.functions if not f.kept):
        data.tables[f] = _sample(f, data.shape(f.sorts), data.size(f.to), count, rng)
    for i in stated.draws:
        data.draws[i] = _draw(i, data, count, rng)
    for g in stated.gausses:
        x = rng.standard_normal((count, *data.shape(g.sorts)))
        data.gausses[g] = x * np.sqrt(scales(g, data))
    return data


def _sample(
    f: Function, shape: tuple[int, ...], size: int, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Independent values of a sample; all distinct if it is stated to be exactly
    one-to-one.
    """
    if not f.injective or f.leading:
        return rng.integers(size, size=(count, *shape))
    said = (
        "one-to-one in several arguments cannot be drawn; batch_size = 0 lists all"
        " inputs"
    )
    require(len(f.injective) == 1, f"sample {f.name}: {said}")
    (j,) = f.injective
    others = shape[:j] + shape[j + 1 :]
    chosen = rng.random((count, *others, size)).argsort(-1)[..., : shape[j]]
    return np.moveaxis(chosen, -1, j + 1)


def _draw(i: Index, data: Data, count: int, rng: np.random.Generator) -> np.ndarray:
    """Elements that are none of those that they must be distinct from, all others as
    likely.
    """
    size = data.size(i.sort)
    if i.place is not None:
        return np.full(count, int(data.scalar(i.place)) - 1)
    if not i.distinct:
        return rng.integers(size, size=count)
    barred = taken(i, data, count)
    require(not barred.all(0).any(), f"draw of {i.sort}: no other element is left")
    return np.where(barred, -1, rng.random((size, count))).argmax(0)


def most(stated: Statement, numbers: Mapping[str, float]) -> float:
    """Upper bound on the number of inputs, if they can be listed."""
    data = Data(numbers)
    logarithm = sum(
        math.log(data.size(i.sort)) for i in stated.draws if i.place is None
    )
    for f in (f for f in stated.functions if not f.kept):
        logarithm += math.prod(data.shape(f.sorts)) * math.log(data.size(f.to))
    return math.inf if stated.gausses else math.exp(min(logarithm, 700.0))


def coinciding(stated: Statement, data: Data) -> float:
    """Share of inputs in which values coincide that are distinct to leading order."""
    distinct = 1.0
    for f in (f for f in stated.functions if f.leading):
        size, shape = data.size(f.to), data.shape(f.sorts)
        for j in f.injective:
            one = math.perm(size, shape[j]) / size ** shape[j]
            distinct *= one ** (math.prod(shape) // shape[j])
    return 1 - distinct
