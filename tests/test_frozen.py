"""Frozen numbers: what a deviation of a row does."""

import math

import pytest

from tests.frozen import OF_RESOLUTION, OF_SCATTER, PART, holds, same

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
