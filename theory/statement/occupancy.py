"""Values of exchangeable places at once: how many places hold each value."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import sympy as sp

from theory.statement.frames import Element
from theory.statement.tree import Function


def occupy(world: Any, f: Function) -> None:
    """Values of all exchangeable places at once: how many places hold each value."""
    world.table[(f,)] = True
    role = world.roles._root(("argument", f, 0))
    for index in world.stated.draws:
        if world.roles.of(index) == role:
            world._decide((f, (world.element(index),)))
    group = world._group(role, None)
    free = f.sorts[0].size - sp.Add(*(e.many for e in group))
    if free.is_positive:
        world._new(role, None).many = free
    vague, to = [], world.roles._root(("value", f))
    for block in list(group):
        if (f, (block,)) in world.table:
            continue
        values = list(world._group(to, None))
        many, size, options = int(block.many), f.to.size, []
        for counts in _shares(many, len(values)):
            left = many - sum(counts)
            for parts in _partitions(left) if f in world.whole else [(left,) * (left > 0)]:
                ways = _ways(many, counts, parts)
                new = sp.ff(size - len(values), len(parts))
                if f not in world.whole:
                    ways, new = ways * (size - len(values)) ** left, sp.S.One
                options.append((ways * new / size**many, (counts, parts)))
        counts, parts = world._choose(repr(f), options, None, None)
        hit = [(e, n) for e, n in zip(values, counts, strict=True) if n]
        if f in world.whole:
            hit += [(world._new(to, None), n) for n in parts]
        else:  # none of the known ones is all that is known of them
            vague += [Element(to, None, 0, name=f) for _ in parts]
            hit += list(zip(vague[len(vague) - len(parts) :], parts, strict=True))
        group.remove(block)
        for e, n in hit:
            piece = world._new(role, None)
            piece.many = sp.Integer(n)
            for key, value in list(world.table.items()):
                if isinstance(key, tuple) and len(key) == 2 and key[1] == (block,):
                    world.table[key[0], (piece,)] = value
            world.table[f, (piece,)] = e
    world.known["vague", to] = vague


def _shares(total: int, kinds: int) -> Iterator[tuple[int, ...]]:
    """Numbers of places that hold each known value, the rest holding new ones."""
    if not kinds:
        yield ()
        return
    for n in range(total + 1):
        yield from ((n, *rest) for rest in _shares(total - n, kinds - 1))


def _partitions(total: int, most: int | None = None) -> Iterator[tuple[int, ...]]:
    """Integer partitions, largest part first."""
    if not total:
        yield ()
    for part in range(min(total, most or total), 0, -1):
        yield from ((part, *rest) for rest in _partitions(total - part, part))


def _ways(many: int, counts: tuple[int, ...], parts: tuple[int, ...]) -> sp.Integer:
    """Ways in which places can hold known values so often, and unknown ones as often as parts."""
    ways = math.factorial(many)
    for n in (*counts, *parts):
        ways //= math.factorial(n)
    for n in set(parts):
        ways //= math.factorial(parts.count(n))
    return sp.Integer(ways)
