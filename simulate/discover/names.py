"""Names of classes of entries, by what their indices have in common."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

LETTERS = "ijklmnpqrstuvwxyz"
SHOWN = 3  # entries of a class without a pattern
TERMS = 6  # of an order parameter


class Atom(NamedTuple):
    """A property of indices: in words, where it holds, and the letter or number that an index
    becomes.
    """

    words: str
    where: np.ndarray
    axis: int = -1
    becomes: str = ""
    block: bool = False


@dataclass(frozen=True)
class Part:
    """Entries of one weight: their pattern, conditions on its letters, and how many they are."""

    pattern: str
    conditions: tuple[str, ...]
    entries: int

    def __str__(self) -> str:
        return ", ".join([self.pattern, *self.conditions])


def _atoms(shape: Sequence[int]) -> Iterator[Atom]:
    """Properties of entries; of equally narrow ones the first is used."""
    index = np.indices(shape)
    names = LETTERS[: len(shape)]
    pairs = [(a, b) for b in range(len(shape)) for a in range(b) if shape[a] == shape[b]]
    unequal = [(a, b) for b in range(len(shape)) for a in range(b) if shape[a] != shape[b]]
    for a, b in unequal:
        i, j = names[a], names[b]
        for d in range(1 - shape[b], shape[a]):
            letter, shift, axis = (j, d, a) if shape[a] > shape[b] else (i, -d, b)
            becomes = f"{letter}{shift:+d}" if shift else letter
            yield Atom(f"{names[axis]} = {becomes}", index[a] - index[b] == d, axis, becomes)
    for a, b in pairs:
        i, j, gap = names[a], names[b], index[b] - index[a]
        for d in range(1, shape[a]):
            yield Atom(f"|{i} - {j}| = {d}", abs(gap) == d)
        for d in sorted(range(1 - shape[a], shape[a]), key=abs):
            yield Atom(f"{j} = {i}{d:+d}", gap == d, b, i if d == 0 else f"{i}{d:+d}")
        for d in range(1, shape[a]):
            around = f"{i}+{d} mod {shape[a]}"
            yield Atom(f"{j} = {around}", gap % shape[a] == d, b, around)
        for block in (n for n in range(2, shape[a]) if shape[a] % n == 0):
            same, alike = index[a] // block == index[b] // block, gap % block == 0
            for words, where in (
                (f"{i} and {j} in the same block of {block}", same),
                (f"{i} and {j} in different blocks of {block}", ~same),
                (f"{j} = {i} modulo {block}", alike),
                (f"{j} != {i} modulo {block}", ~alike),
            ):
                yield Atom(words, where, block=True)
    for a, size in enumerate(shape):
        for k in range(size):
            yield Atom(f"{names[a]} = {k}", index[a] == k, a, str(k))
    for a, b in pairs:
        i, j, gap = names[a], names[b], index[b] - index[a]
        yield from (Atom(f"{j} < {i}", gap < 0), Atom(f"{j} > {i}", gap > 0))
        yield from (Atom(f"{j} <= {i}", gap <= 0), Atom(f"{j} >= {i}", gap >= 0))
        yield from (Atom(f"{j} != {i}{d:+d}" if d else f"{j} != {i}", gap != d) for d in (0, -1, 1))
        yield from (
            Atom(f"{j} != {i}+{d} mod {shape[a]}", gap % shape[a] != d) for d in range(1, shape[a])
        )
    for a, size in enumerate(shape):
        for k in range(size - 1):
            yield Atom(f"{names[a]} <= {k}", index[a] <= k)
            yield Atom(f"{names[a]} > {k}", index[a] > k)
        yield from (Atom(f"{names[a]} != {k}", index[a] != k) for k in range(size))


def _fewest(member: np.ndarray, atoms: Sequence[Atom]) -> list[Atom]:
    """Properties that single out some entries, the narrowest first; none if they do not."""
    left, chosen, many = np.ones_like(member), list[Atom](), member.sum()
    while left.sum() > many:
        best = min(atoms, key=lambda a: (left & a.where).sum(), default=None)
        if best is None or (left & best.where).sum() == left.sum():
            return []
        chosen.append(best)
        left = left & best.where
    return chosen


def part(weight: str, member: np.ndarray, atoms: Sequence[Atom]) -> Part:
    """The fewest properties that single out some entries of a weight, or a list of these."""
    usable, many = [a for a in atoms if not (member & ~a.where).any()], int(member.sum())
    chosen = _fewest(member, [a for a in usable if not a.block]) or _fewest(member, usable)
    if many < member.size and not chosen:
        places = [weight + str(list(map(int, p))) for p in np.argwhere(member)]
        more = f" and {many - SHOWN} more" if many > SHOWN else ""
        return Part(", ".join(places[:SHOWN]) + more, (), many)
    letters, conditions = list(LETTERS[: member.ndim]), []
    for a in chosen:
        used = re.findall(
            r"\b[a-z]\b", " ".join([*letters, *(b.words for b in chosen if b is not a)])
        )
        number, letter = a.becomes.isdigit(), LETTERS[a.axis]
        if a.axis >= 0 and letters[a.axis] == letter and not (number and used.count(letter) > 1):
            letters[a.axis] = a.becomes
        else:
            conditions.append(a.words)
    return Part(f"{weight}[{', '.join(letters)}]" if letters else weight, tuple(conditions), many)


def parts(
    labels: np.ndarray, shapes: Mapping[str, tuple[int, ...]], places: Mapping[str, slice]
) -> list[list[Part]]:
    """For every class, its entries of every weight."""
    named: list[list[Part]] = [[] for _ in range(labels.max() + 1)]
    for weight, shape in shapes.items():
        numbers, atoms = labels[places[weight]].reshape(shape), list(_atoms(shape))
        for c in np.unique(numbers):
            named[c].append(part(weight, numbers == c, atoms))
    return named


def order(row: Sequence[Any], classes: Sequence[Sequence[Part]]) -> str:
    """A combination of means over classes in words."""
    terms = [(x, classes[c]) for c, x in enumerate(row) if x != 0]
    patterns = [p.pattern for _, of in terms for p in of]
    # conditions stand behind all terms, or with their term where a pattern does not tell them apart
    apart = len(set(patterns)) < len(patterns) or any("], " in p for p in patterns)
    words, conditions = "", []
    for x, of in terms[:TERMS]:
        size = abs(x) if isinstance(x, Fraction) else f"{abs(x):.4g}"
        sign = (" - " if x < 0 else " + ") if words else ("-" if x < 0 else "")
        body = " and ".join(str(p) if apart else p.pattern for p in of)
        alone = "mean of " if len(terms) == 1 and sum(p.entries for p in of) > 1 else ""
        bare = len(terms) == 1 or (len(of) == 1 and "], " not in body)
        words += f"{sign}{'' if x in (1, -1) else f'{size} '}{alone}{body if bare else f'({body})'}"
        if not apart:
            conditions += [w for p in of for w in p.conditions]
    if len(terms) > TERMS:
        words += f" and {len(terms) - TERMS} more terms"
    return ", ".join([words, *dict.fromkeys(conditions)])
