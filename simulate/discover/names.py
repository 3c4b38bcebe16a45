"""Names of classes of entries, by what their indices have in common; and whether listed
inputs are all inputs, or a sample.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils._pytree import tree_leaves

LETTERS = "ijklmnpqrstuvwxyz"
SHOWN = 3  # entries of a class without a pattern
TERMS = 6  # of an order parameter
Rules = dict[str, Callable[[Any, Any, int, int], Any]]
# Properties of indices, and where they hold; `properties` adds their negations.
NEGATED = {" = ": " != ", " > ": " <= ", " < ": " >= ", " in the ": " not in the "}
ONE: Rules = {
    "{i} > {d}": lambda i, j, d, n: i > d,
    "{i} = {d}": lambda i, j, d, n: i == d,
}
ANY: Rules = {  # of two indices
    "{j} = {i}": lambda i, j, d, n: i == j,
    "{j} = {i}+{d}": lambda i, j, d, n: j - i == d,
    "{j} = {i}-{d}": lambda i, j, d, n: i - j == d,
}
TWO: Rules = {  # of two indices with one range 0, ..., n - 1
    "|{i} - {j}| = {d}": lambda i, j, d, n: abs(i - j) == d,
    "{j} = {i}+{d} mod {n}": lambda i, j, d, n: (j - i) % n == d,
    "{j} = {d}{i} mod {n}": lambda i, j, d, n: (d * i - j) % n == 0,
    "{j} < {i}": lambda i, j, d, n: j < i,
    "{j} > {i}": lambda i, j, d, n: j > i,
}
BLOCKS: Rules = {  # of these only where nothing else names a class
    "{i} and {j} in the same block of {d}": lambda i, j, d, n: (
        (i // d == j // d) & (n % d == 0)
    ),
    "{j} = {i} modulo {d}": lambda i, j, d, n: ((j - i) % d == 0) & (n % d == 0),
}


@dataclass(frozen=True)
class Part:
    """Entries of one weight: their pattern, conditions on its letters, and how many
    they are.
    """

    pattern: str
    conditions: tuple[str, ...]
    entries: int

    def __str__(self) -> str:
        return ", ".join([self.pattern, *self.conditions])


def properties(shape: Sequence[int], blocks: bool) -> dict[str, np.ndarray]:
    """Where properties of indices hold, by their words; of equally narrow ones the
    first is used: equalities before inequalities, and both before those around a
    circle.
    """
    index, axes = np.indices(shape), range(len(shape))
    found = {}
    for a, b in [*itertools.combinations(axes, 2), *zip(axes, axes, strict=True)]:
        two = TWO | (BLOCKS if blocks else {}) if shape[a] == shape[b] else {}
        for words, rule in (ONE if a == b else ANY | two).items():
            for d in range(a != b, max(shape[a], shape[b])):
                name = words.format(i=LETTERS[a], j=LETTERS[b], d=d, n=shape[a])
                found[name] = rule(index[a], index[b], d, shape[a])
                found[
                    re.sub("|".join(NEGATED), lambda m: NEGATED[m[0]], name)
                ] = ~found[name]
    return dict(
        sorted(found.items(), key=lambda rule: ("mod" in rule[0], " = " not in rule[0]))
    )


def narrowed(member: np.ndarray, known: Mapping[str, np.ndarray]) -> list[str] | None:
    """The fewest properties that single out some entries; None if there are none."""
    usable = {words: where for words, where in known.items() if where[member].all()}
    remaining, chosen = np.ones_like(member), list[str]()
    while (size := remaining.sum()) > member.sum():
        best = min(usable, key=lambda words: (remaining & usable[words]).sum())
        remaining = remaining & usable[best]
        if remaining.sum() == size:
            return None
        chosen.append(best)
    return chosen


def part(
    weight: str, member: np.ndarray, known: Sequence[Mapping[str, np.ndarray]]
) -> Part:
    """Some entries of a weight by the fewest properties, or a list of these."""
    many, letters = int(member.sum()), list(LETTERS[: member.ndim])
    chosen = next((x for of in known if (x := narrowed(member, of)) is not None), None)
    if chosen is None:
        places = [weight + str(place.tolist()) for place in np.argwhere(member)]
        more = f" and {many - SHOWN} more" if many > SHOWN else ""
        return Part(", ".join(places[:SHOWN]) + more, (), many)
    conditions = []
    for words in chosen:
        letter, _, value = words.partition(" = ")
        others = " ".join([*letters, *(w for w in chosen if w != words)])
        free = letter in letters and "modulo" not in value
        if free and (len(value) > 1 or value.isalpha() or others.count(letter) < 2):
            letters[letters.index(letter)] = value
        else:
            conditions.append(words)
    return Part(
        f"{weight}[{', '.join(letters)}]" if letters else weight,
        tuple(conditions),
        many,
    )


def parts(labels: Mapping[str, np.ndarray]) -> list[list[Part]]:
    """For every class, its entries of every weight, from the classes of all entries."""
    classes = 1 + max(x.max() for x in labels.values())
    named: list[list[Part]] = [[] for _ in range(classes)]
    for weight, x in labels.items():
        numbers = {weight: x}
        if weight.endswith("in_proj_weight"):  # of torch.nn.MultiheadAttention
            three = np.split(x, 3)
            numbers = {
                weight.replace("in_proj_weight", k): x
                for k, x in zip(("query", "key", "value"), three, strict=True)
            }
        known = [
            properties(next(iter(numbers.values())).shape, blocks)
            for blocks in (False, True)
        ]
        for name, x in numbers.items():
            for c in np.unique(x):
                named[c].append(part(name, x == c, known))
    return named


def order(row: Any, classes: Sequence[Sequence[Part]]) -> str:
    """A combination of means over classes in words."""
    terms = [(x, classes[c]) for c, x in enumerate(row) if x != 0]
    all_parts = [*itertools.chain.from_iterable(of for _, of in terms)]
    longest = max((p.conditions for p in all_parts), key=len, default=())
    # conditions stand behind all terms where they are those of one of them
    behind = all({*p.conditions} <= {*longest} for p in all_parts)
    behind = behind and len({p.pattern for p in all_parts}) == len(all_parts)
    words = ""
    for x, of in terms[:TERMS]:
        size = str(abs(x)) if isinstance(x, Fraction) else f"{abs(x):.4g}"
        sign = (" - " if x < 0 else " + ") if words else ("-" if x < 0 else "")
        body = " and ".join(p.pattern if behind else str(p) for p in of)
        mean = "mean of " if len(terms) == 1 and sum(p.entries for p in of) > 1 else ""
        bare = len(terms) == 1 or len(of) == 1 and not re.search(r"\], ", body)
        factor = "" if size == "1" else f"{size} "
        words += f"{sign}{factor}{mean}{body if bare else f'({body})'}"
    if len(terms) > TERMS:
        words += f" and {len(terms) - TERMS} more"
    return ", ".join([words, *(longest if behind else ())])


def columns(inputs: Any) -> list[np.ndarray]:
    """A row of values per input, of every tensor; one-hot vectors become the place of
    their one.
    """
    made = []
    for x in (
        x.numpy() for x in tree_leaves(inputs) if isinstance(x, Tensor) and x.ndim
    ):
        hot = x.ndim > 1 and x.shape[-1] > 1 and ((x == 0) | (x == 1)).all()
        x = x.argmax(-1) if hot and (x.sum(-1) == 1).all() else x
        made.append(x.reshape(len(x), -1))
    return made


def complete(inputs: Any) -> bool:
    """Whether all inputs are there, each once: the list stays the same when any two
    values change places, in the tensors that earlier ones do not determine.
    """
    table, rows = None, 1
    for x in columns(inputs):
        both = (
            x
            if table is None
            else np.hstack([table, x])
            if len(x) == len(table)
            else None
        )
        if both is None or not (x == x.round()).all():
            return False
        if (many := len(np.unique(both, axis=0))) > rows:
            table, rows = both, many
    if table is None or rows < len(table):
        return False
    kinds = [np.unique(c).tolist() for c in table.T]
    every = np.unique(table, axis=0)
    for of in kinds:
        for pair in itertools.pairwise(of):
            turn = np.isin(table, pair) & [kind == of for kind in kinds]
            turned = np.where(turn, sum(pair) - table, table)
            if not np.array_equal(np.unique(turned, axis=0), every):
                return False
    return len(kinds) > 1 or kinds == [[*range(rows)]]
