"""Groups as teachers, by name: Z_n, D_n, S_n and A_n acting on n points or on themselves, products
acting on themselves.
"""

import itertools
import math
import re
from collections.abc import Iterator
from functools import cache

import numpy as np
import sympy as sp
from sympy.utilities.iterables import partitions

from theory import Allowed, Flow, number
from theory.state_tracking import attention
from theory.state_tracking import loss as logits
from theory.state_tracking.scope import flow_of
from theory.state_tracking.symbols import A_0, R_0, S_0, A, L, N, R, S, alpha, d_g, eta, ref

REGULAR = "_regular"
NAME = re.compile(r"[ZDSA]_[1-9]\d{0,3}(x[ZDSA]_[1-9]\d{0,3})*(_regular)?")
WORDS = "a group: S_5, A_5, Z_7, D_4 on its points, A_5_regular, A_4xZ_5_regular on itself"
LEAST = {"Z": 2, "D": 3, "S": 2, "A": 3}  # from here on the action is faithful and transitive


def is_group(name: str) -> bool:
    """Whether a word names a group whose action is transitive, so that all states are alike."""
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
        order *= {"Z": n, "D": 2 * n, "S": math.factorial(n), "A": math.factorial(n) // 2}[kind]
    return order, order if name.endswith(REGULAR) else _factors(name)[0][1]


def _even(g: tuple[int, ...]) -> bool:
    return sum(x > y for x, y in itertools.combinations(g, 2)) % 2 == 0


def _elements(kind: str, n: int) -> list[tuple[int, ...]]:
    """Permutations of n points that make up a group, the identity first."""
    if kind in "SA":
        return [g for g in itertools.permutations(range(n)) if kind == "S" or _even(g)]
    turns = [tuple((x + k) % n for x in range(n)) for k in range(n)]
    return (
        turns if kind == "Z" else turns + [tuple((k - x) % n for x in range(n)) for k in range(n)]
    )


def acting_on_itself(elements: np.ndarray) -> np.ndarray:
    """Action from the left of a group of permutations on its own elements, by their numbers."""
    number = {tuple(g): k for k, g in enumerate(elements.tolist())}
    return np.array([[number[tuple(gh)] for gh in g[elements].tolist()] for g in elements])


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
    """Overlap of every pair of teachers, shape ``(d_g, d_g)``: the share of the states that both
    send to the same state, the fixed points of a^-1 b over N.
    """
    return np.mean([perms[:, None, s] == perms[None, :, s] for s in range(perms.shape[1])], 0)


# Group acting on itself

LENGTHS = Allowed(low=1, high=20)  # the sum has 97 terms at L = 10, 2,087 at L = 20
OTHERS = "the other actions get (1 - A)/(L - 1) of the attention each"


def occupancies(others: int) -> Iterator[tuple[sp.Expr, int, dict[int, int]]]:
    """Ways in which other actions, each leading to one of N states at random, share these states:
    weight, how many lead to the right state, and how many wrong states get so many of them.
    """
    for right in range(others + 1):
        to_wrong = others - right
        chance = sp.binomial(others, right) * (1 / N) ** right * (1 - 1 / N) ** to_wrong
        for shares in partitions(to_wrong):
            ways = sp.ff(N - 1, sum(shares.values())) * sp.factorial(to_wrong)
            for size, states in shares.items():
                ways /= sp.factorial(size) ** states * sp.factorial(states)
            yield chance * ways / (N - 1) ** to_wrong, right, dict(shares)


@cache
def loss(length: int) -> sp.Expr:
    """Mean loss at given attention. The logit of a state is S, plus R - S times the attention on
    the actions that lead there: on the right one, and on those of the others that happen to.
    """
    share = (1 - A) / (length - 1) if length > 1 else sp.S.Zero
    total = sp.S.Zero
    for weight, right, wrong in occupancies(length - 1):
        correct = (R - S) * (A + share * right)
        empty = N - 1 - sum(wrong.values())
        mass = sum(states * sp.exp((R - S) * share * n) for n, states in wrong.items()) + empty
        total += weight * (sp.log(sp.exp(correct) + mass) - correct)
    return total


@cache
def flow(length: int, states: int) -> Flow:
    """Flow of A, R and S for a group that acts on itself: descent on all entries of M, which are R
    where an action leads and S elsewhere, and the closure of attention.

    Parameters
    ----------
    length : int
        Actions per sequence L.
    states : int
        Number of states N, the order of the group.

    Raises
    ------
    ParameterError
        Unless 1 <= L <= 20 and N >= 2.
    """
    number("L", length, LENGTHS, int)
    number("N", states, Allowed(low=2), int)
    value = loss(length).subs(N, states)
    # An epoch moves an entry by -eta times the derivative; N^2 entries of M are R, N - 1 times as
    # many S.
    rates = {R: -value.diff(R), S: -value.diff(S) / (states - 1)}
    force = attention.equations()["c_closure"].rhs.subs({L: length, d_g: states})
    rates = {A: -force * value.diff(A), **rates}
    return Flow(
        name=f"state_tracking, group acting on itself, N = {states}, L = {length}",
        time=alpha,
        rhs={q: eta * rate for q, rate in rates.items()},
        initial={A: A_0, R: R_0, S: S_0},
        reference=ref("beyond Eq. (15): mean over the other actions"),
        status="closure",
        assumptions=(logits.UNIFORM, OTHERS, attention.CLOSURE, "gradient flow"),
        observables={"loss": value},
        scope=flow_of("regular", length, states),
    )
