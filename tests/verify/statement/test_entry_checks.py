"""Checks of rates of all entries: what they read off an equation."""

from types import SimpleNamespace

import numpy as np
import pytest
import sympy as sp

from theory import Equation, array, symbol
from verify.checks.check import Sides, failed
from verify.statement.printed import every, invariant, letters, rates

g, i, j, D = (symbol(x, integer=True, positive=True) for x in "gijD")
t, kappa = symbol("t"), symbol("kappa")
K, Q = array("K"), array("Q")
RATE = Equation(
    "m_dK_dt", sp.Derivative(K[j, g], t), 2 * K[j, g] + Q[g], "here", "exact"
)
KEPT = Equation("kept", kappa, K[i, g] * K[j, g] + D, "here", "exact")
KNOWN = {"K": np.arange(6.0).reshape(2, 3), "Q": np.arange(3.0), "D": 2}


@pytest.mark.parametrize(
    ("equation", "expected"),
    [(RATE, "jg"), (Equation("q", Q[j], K[j, 1], "here", "exact"), "j"), (KEPT, "gij")],
)
def test_indices_of_an_equation(equation, expected):
    """In the order of the left-hand side; without one there, sorted, those that have no
    value.
    """
    assert letters(equation, KNOWN) == expected


def test_rates_find_their_equation():
    """By system and weight; one wrong entry fails."""
    table, right = {"m_dK_dt": RATE}, 2 * KNOWN["K"] + KNOWN["Q"]
    for wrong in (0, 1e-3):
        moved = right + wrong * (np.arange(6) == 4).reshape(2, 3)
        sides = Sides(table, 1e-12, "rounding")
        rates(sides, [SimpleNamespace(rates={"K": moved}, known=KNOWN)], "m")
        (row,) = sides.checks()
        assert (row.name, row.equation) == ("m rate of K", "m_dK_dt")
        assert failed([row]) == bool(wrong)


@pytest.mark.parametrize(("pace", "wrong"), [(1.0, False), (1.001, True)])
def test_an_invariant_that_moves_fails(pace, wrong):
    """x^2 - y^2 of two weights is kept if each moves like the other, not if one is 0.1%
    faster; its value is compared with its equation as well.
    """
    x, y = np.array([0.4, 0.7]), np.array([0.3, -0.2])
    law = Equation("kept", kappa, Q[g] ** 2 - K[g] ** 2, "here", "exact")
    at = SimpleNamespace(weights={"Q": x, "K": y}, known={"Q": x, "K": y})
    at.rates = {"Q": y * pace, "K": x}
    sides = Sides({"kept": law}, 1e-12, "rounding")
    measured = lambda w: w["Q"] ** 2 - w["K"] ** 2
    row = invariant(sides, [at], "kept", measured, (1e-12, "rounding"))
    assert failed([row]) == wrong
    assert not failed(sides.checks())


def test_an_array_must_have_the_indices_of_its_equation():
    """Not more and not less."""
    with pytest.raises(ValueError, match="zip"):
        every(Sides({"m_dK_dt": RATE}, 0, ""), "a", "m_dK_dt", KNOWN, np.zeros(3))
