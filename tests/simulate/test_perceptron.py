"""The memory of Nguyen and Reddy: its clock converges, and grows more slowly than its items.

Could see: a residual of wrong labels, a tail that is not a power law, items that are not learnt.
"""

import numpy as np
import pytest

from simulate.induction_heads import perceptron


def test_the_clock_converges(monkeypatch):
    """A run that is stopped at three times the residual, its power law continued, has the same
    clock to 5%.
    """
    few, many = (perceptron.clocks(n) for n in (32, 128))
    monkeypatch.setattr(perceptron, "LEFT", 3 * perceptron.LEFT)
    early = perceptron.clocks(32)
    assert early["half"] == few["half"]
    assert early["whole"] == pytest.approx(few["whole"], rel=0.05)
    for found in (few, many):
        assert found["half"] < found["whole"] and found["power"] > 1.5
    assert 0.4 < np.log(many["whole"] / few["whole"]) / np.log(4) < 1


def test_what_is_not_learnt_is_an_error(monkeypatch):
    """One unit, and few steps."""
    monkeypatch.setattr(perceptron, "MOST", 100)
    with pytest.raises(ArithmeticError, match="32 items are not learnt"):
        perceptron.clocks(32, width=1)
