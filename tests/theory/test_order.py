"""Words whose last state alone is asked for: against the enumeration of words, of subgroups, and
students whose gradients are taken on all words.
"""

import itertools
from collections import Counter, defaultdict

import numpy as np
import pytest
from sympy.combinatorics import Permutation, PermutationGroup

from theory.parameters import ParameterError
from theory.state_tracking import groups
from theory.state_tracking.order import commutator_orbits, without_order
from theory.state_tracking.task import visited

RANDOM = np.random.default_rng(3).permuted([range(6)] * 3, axis=1)  # three different ones
TWO_PARTS = np.array([[1, 2, 0, 3, 4], [1, 0, 2, 4, 3]])  # no state of one part leads to the other
PLATEAUS = {
    **{"S_3_regular": 1 / 3, "A_4_regular": 1 / 4, "A_4": 1 / 4, "D_4": 1 / 2, "D_5": 1 / 5},
    **{"Z_5": 1, "S_4": 1 / 4, "A_5_regular": 1 / 60, "Z_2xS_3_regular": 1 / 3},
}


def special_linear():
    """SL(2, 3) on itself."""
    matrices = [
        m for m in itertools.product(range(3), repeat=4) if (m[0] * m[3] - m[1] * m[2]) % 3 == 1
    ]
    of = np.array(matrices).reshape(-1, 2, 2)
    products = np.einsum("aij,bjk->abik", of, of) % 3
    numbers = {m: k for k, m in enumerate(matrices)}
    return np.array(
        [[numbers[tuple(m)] for m in row] for row in products.reshape(24, 24, 4).tolist()]
    )


@pytest.mark.parametrize("teachers", [*PLATEAUS, "random", "two parts"])
def test_orbits_are_those_of_the_commutator_subgroup(teachers):
    """As SymPy's, from the order of the subgroup that the commutators generate."""
    perms = {"random": RANDOM, "two parts": TWO_PARTS}.get(teachers)
    perms = groups.table(teachers) if perms is None else perms
    generators = perms[:: max(1, len(perms) // 12)] if teachers == "A_5_regular" else perms
    derived = PermutationGroup([Permutation(g.tolist()) for g in generators]).derived_subgroup()
    found = commutator_orbits(perms)
    theirs = {s: frozenset(o) for o in derived.orbits() for s in o}
    for s in range(perms.shape[1]):
        assert set(np.flatnonzero(found == found[s])) == theirs.get(s, {s})


@pytest.mark.parametrize(("group", "plateau"), PLATEAUS.items())
def test_plateaus(group, plateau):
    """One over the size of an orbit, 1 / |[G, G]| of a group on itself; one action is known."""
    found = without_order(group, 1)
    assert found.accuracy_plateau == pytest.approx(plateau)
    assert found.loss_plateau == pytest.approx(-np.log(plateau), abs=1e-12)
    assert found.accuracy.values == pytest.approx(1) and found.loss.values == pytest.approx(0)


def test_a_group_without_a_name():
    """SL(2, 3), whose commutators are the quaternions."""
    assert without_order(special_linear(), 0).accuracy_plateau == pytest.approx(1 / 8)


@pytest.mark.parametrize(
    ("teachers", "L"), [("D_4", 4), ("S_3_regular", 4), (RANDOM, 6), (TWO_PARTS, 7)]
)
def test_short_words_by_enumeration(teachers, L):
    """Every word from every first state."""
    perms = groups.table(teachers) if isinstance(teachers, str) else teachers
    d_g, N = perms.shape
    every = itertools.product(itertools.product(range(d_g), repeat=L), range(N))
    actions, first = map(np.array, zip(*every, strict=True))
    seen = defaultdict(Counter)
    for word, s, last in zip(
        np.sort(actions, 1), first, visited(perms, actions, first)[:, -1], strict=True
    ):
        seen[tuple(word), s][last] += 1
    best = sum(max(of.values()) for of in seen.values()) / len(first)
    shares = np.concatenate([[n / of.total()] * n for of in seen.values() for n in of.values()])
    found = without_order(teachers, L).isel(length=-1)
    assert found.accuracy == pytest.approx(best, rel=1e-12)
    assert found.loss == pytest.approx(-np.log(shares).mean(), rel=1e-12)


@pytest.mark.parametrize(
    ("teachers", "L"), [("S_3_regular", 14), ("D_4", 10), (TWO_PARTS, 60), (RANDOM, 30)]
)
def test_long_words_come_to_the_plateau(teachers, L):
    """From above, the distance falling with every action; of a group, by the same factor."""
    found = without_order(teachers, L)
    above = (found.accuracy - found.accuracy_plateau).values[6:]
    factors = above[1:] / above[:-1]
    assert (factors < 0.9).all()
    assert not isinstance(teachers, str) or abs(np.diff(factors)).max() < 0.05
    assert ((found.loss_plateau - found.loss).values[1:] > 0).all()


@pytest.mark.parametrize(
    ("teachers", "L", "said"),
    [
        ("Q_8", 2, "must be a group"),
        ("S_7_regular", 2, "5040 permutations of 5040 states are too many"),
        ([[0, 0]], 2, "every row must be a permutation"),
        ([0, 1], 2, "every row must be a permutation"),
        ("S_5_regular", 9, "L = 9: must be smaller for 120 actions"),
        ("S_3", -1, "L = -1"),
    ],
)
def test_refused(teachers, L, said):
    """In one line."""
    with pytest.raises(ParameterError, match=said):
        without_order(teachers, L)
