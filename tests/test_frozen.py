"""Frozen numbers: what a deviation of a row does."""

import math

import numpy as np
import pytest

from tests import frozen
from tests.frozen import OF_RESOLUTION, OF_SCATTER, PART, holds, same
from verify.checks.check import identity, vanishing

ROW = [1.0, 1.1, 4.0, 0.05, 0.02]


@pytest.mark.parametrize("k", range(5))
def test_any_number_off_by_more_than_rounding_is_another_row(k):
    """And is the same within it; one that is missing is another."""
    part = (PART, PART, OF_SCATTER, OF_SCATTER, OF_RESOLUTION)[k]
    off = [v * (1 + 5 * part) if i == k else v for i, v in enumerate(ROW)]
    near = [v * (1 + part / 5) if i == k else v for i, v in enumerate(ROW)]
    none = [None if i == k > 1 else v for i, v in enumerate(ROW)]
    assert not same(off, ROW) and same(near, ROW) and same(none, ROW) == (k < 2)


def test_what_was_not_frozen_does_not_hold():
    """Of all rows of a name one has to agree; a name without rows is free."""
    frozen = {"a": [[1.0, 2.0], [3.0, 3.0]], "free": []}
    assert holds("a", [3.0, 3.0], frozen) and holds("free", [1.0, 5.0], frozen)
    assert not holds("a", [3.0, 2.0], frozen) and not holds("b", [3.0, 3.0], frozen)
    assert same([0.0, math.nan], [0.0, math.nan]) and not same([0.0, 1e-9], [0.0, 1.0])


@pytest.fixture
def ours(monkeypatch):
    """Code of this test counts as the project's."""
    frozen._watch()
    monkeypatch.setattr(frozen, "_ours", lambda frame: True)
    return frozen


def test_all_entries_of_an_identity_are_held(ours):
    """Also those that agree: one left out, or another sign of both sides, is another
    row.
    """

    def held(*values):
        ours.built.clear()
        identity("a", "e", values, values, 1e-9, "why")
        return ours.built[-1][1]

    key, row = "e | a | sides", held(1.0, 2.0, 4.0)
    assert ours.built[-1][0] == key and row == [
        pytest.approx(7 / 3),
        pytest.approx(7**0.5),
        3.0,
    ]
    assert holds(key, held(1.0, 2.0, 4.0 + 1e-4), {key: [row]})
    for other in (
        (1.0, 2.0),
        (1.0, 2.0, -4.0),
        (1.0, 2.1, 4.0),
        (1.0, 2.0, 4.0, 7 / 3),
    ):
        assert not holds(key, held(*other), {key: [row]})
    ours.built.clear()
    vanishing("a", "e", [0.0, 1e-17], 1e-9, "why")
    assert ours.built == [("e | a | entries", [2.0])]
    ours.built.clear()
    ours.rows.clear()


def test_numbers_in_whatever_is_found_are_held(ours):
    """Mappings, arrays, texts; loosely, the last printed digit may be another."""
    ours.built.clear()
    ours.hold_all(
        "k", {"x": np.array([[3.0, 4.0]]), "y": ["N = 4, off by -0.12", None]}
    )
    assert ours.built == [
        ("k | x", [3.5, pytest.approx(12.5**0.5), 2.0]),
        ("k | y | 0", [1.94, pytest.approx((8.0072) ** 0.5), 2.0]),
    ]
    ours.built.clear()
    ours.hold_all("k", "off by 0.98, or 1e-9", loosely=True)
    ((_, row),) = ours.built
    assert same([1.0, 1.0, None, None, 0.97], row) and not same(
        [1.0, 1.0, None, None, 0.8], row
    )
    ours.built.clear()
