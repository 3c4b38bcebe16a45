"""Checks of rates of all entries: what they read off an equation."""

from types import SimpleNamespace

import numpy as np
import pytest
import sympy as sp

from theory import Equation, array, symbol
from verify.check import Sides, failed
from verify.statement.entries import every, letters, rates

g, i, j, D = (symbol(x, integer=True, positive=True) for x in "gijD")
t, kappa = symbol("t"), symbol("kappa")
K, Q = array("K"), array("Q")
RATE = Equation("m_dK_dt", sp.Derivative(K[j, g], t), 2 * K[j, g] + Q[g], "here", "exact")
KEPT = Equation("kept", kappa, K[i, g] * K[j, g] + D, "here", "exact")
KNOWN = {"K": np.arange(6.0).reshape(2, 3), "Q": np.arange(3.0), "D": 2}


@pytest.mark.parametrize(
    ("equation", "expected"),
    [(RATE, "jg"), (Equation("q", Q[j], K[j, 1], "here", "exact"), "j"), (KEPT, "gij")],
)
def test_indices_of_an_equation(equation, expected):
    """In the order of the left-hand side; without one there, sorted, those that have no value."""
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


def test_an_array_must_have_the_indices_of_its_equation():
    """Not more and not less."""
    with pytest.raises(ValueError, match="zip"):
        every(Sides({"m_dK_dt": RATE}, 0, ""), "a", "m_dK_dt", KNOWN, np.zeros(3))
