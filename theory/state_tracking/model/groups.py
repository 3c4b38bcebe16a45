"""Groups as teachers, by name: Z_n, D_n, S_n and A_n acting on n points or on
themselves, products acting on themselves.
"""

import itertools
import math
import re
from functools import cache

import numpy as np

REGULAR = "_regular"
NAME = re.compile(r"[ZDSA]_[1-9]\d{0,3}(x[ZDSA]_[1-9]\d{0,3})*(_regular)?")
WORDS = (
    "a group: S_5, A_5, Z_7, D_4 on its points, A_5_regular, A_4xZ_5_regular on itself"
)
LEAST = {
    "Z": 2,
    "D": 3,
    "S": 2,
    "A": 3,
}  # from here on the action is faithful and transitive


def is_group(name: str) -> bool:
    """Whether a word names a group whose action is transitive, so that all states are
    alike.
    """
    if not NAME.fullmatch(name):
        return False
    factors = _factors(name)
    return all(n >= LEAST[kind] for kind, n in factors) and (
        len(factors) == 1 or name.endswith(REGULAR)
    )


def _factors(name: str) -> list[tuple[str, int]]:
    return [(word[0], int(word[2:])) for word in name.removesuffix(REGULAR).split("x")]


def sizes(name: str) -> tuple[int, int]:
    """Order of a group and number of points that it acts on."""
    order = 1
    for kind, n in _factors(name):
        order *= {
            "Z": n,
            "D": 2 * n,
            "S": math.factorial(n),
            "A": math.factorial(n) // 2,
        }[kind]
    return order, order if name.endswith(REGULAR) else _factors(name)[0][1]


def _even(g: tuple[int, ...]) -> bool:
    return sum(x > y for x, y in itertools.combinations(g, 2)) % 2 == 0


def _elements(kind: str, n: int) -> list[tuple[int, ...]]:
    """Permutations of n points that make up a group, the identity first."""
    if kind in "SA":
        return [g for g in itertools.permutations(range(n)) if kind == "S" or _even(g)]
    turns = [tuple((x + k) % n for x in range(n)) for k in range(n)]
    return (
        turns
        if kind == "Z"
        else turns + [tuple((k - x) % n for x in range(n)) for k in range(n)]
    )


def acting_on_itself(elements: np.ndarray) -> np.ndarray:
    """Action from the left of a group of permutations on its own elements, by their
    numbers.
    """
    number = {tuple(g): k for k, g in enumerate(elements.tolist())}
    return np.array(
        [[number[tuple(gh)] for gh in g[elements].tolist()] for g in elements]
    )


@cache
def table(name: str) -> np.ndarray:
    """Permutations of a group, shape ``(order, points)``; the first is the identity."""
    elements = np.zeros((1, 1), dtype=np.int64)
    for kind, n in _factors(name):
        points = np.array(_elements(kind, n), dtype=np.int64)
        action = acting_on_itself(points) if name.endswith(REGULAR) else points
        pairs = elements[:, None, :, None] * action.shape[1] + action[None, :, None, :]
        elements = pairs.reshape(len(elements) * len(action), -1)
    elements.flags.writeable = False
    return elements


def overlaps(perms: np.ndarray) -> np.ndarray:
    """Overlap of every pair of teachers, shape ``(d_g, d_g)``: the share of the states
    that both send to the same state, the fixed points of a^-1 b over N.
    """
    return np.mean(
        [perms[:, None, s] == perms[None, :, s] for s in range(perms.shape[1])], 0
    )
