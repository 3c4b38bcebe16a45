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
# from here on the action is faithful and transitive
LEAST = {"Z": 2, "D": 3, "S": 2, "A": 3}


def is_group(name: str) -> bool:
    """Whether a word names a group whose action is transitive, so that all states are
    alike.
    """
    if not NAME.fullmatch(name):
        return False
    factors = _factors(name)
    if len(factors) > 1 and not name.endswith(REGULAR):
        return False
    return all(n >= LEAST[kind] for kind, n in factors)


def _factors(name: str) -> list[tuple[str, int]]:
    return [(word[0], int(word[2:])) for word in name.removesuffix(REGULAR).split("x")]


def sizes(name: str) -> tuple[int, int]:
    """Order of a group and number of points that it acts on."""
    order = 1
    for kind, n in _factors(name):
        permutations = math.factorial(n)
        orders = {"Z": n, "D": 2 * n, "S": permutations, "A": permutations // 2}
        order *= orders[kind]
    return order, order if name.endswith(REGULAR) else _factors(name)[0][1]


def _even(g: tuple[int, ...]) -> bool:
    return sum(x > y for x, y in itertools.combinations(g, 2)) % 2 == 0


def _elements(kind: str, n: int) -> list[tuple[int, ...]]:
    """Permutations of n points that make up a group, the identity first."""
    points = range(n)
    if kind in "SA":
        return [g for g in itertools.permutations(points) if kind == "S" or _even(g)]
    elements = []
    for k in points:
        elements.append(tuple((x + k) % n for x in points))
    if kind == "D":
        for k in points:
            elements.append(tuple((k - x) % n for x in points))
    return elements


def acting_on_itself(elements: np.ndarray) -> np.ndarray:
    """Action from the left of a group of permutations on its own elements, by their
    numbers.
    """
    number = {tuple(g): k for k, g in enumerate(elements.tolist())}
    rows = []
    for g in elements:
        products = g[elements].tolist()
        rows.append([number[tuple(product)] for product in products])
    return np.array(rows)


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
    states = range(perms.shape[1])
    agree = [perms[:, None, s] == perms[None, :, s] for s in states]
    return np.mean(agree, 0)
