"""The memory of Nguyen and Reddy: its clock is a time of gradient flow, and grows more slowly than
its items.

Could see: a residual of wrong labels, time in steps, an integral that depends on where it ends,
items that are not learnt.
"""

import statistics

import numpy as np
import pytest

from simulate.induction_heads import contexts
from verify.induction_heads import in_weights


def test_the_clock(monkeypatch):
    """Half the step changes it by less than 10%, of order eta, and not by half; an end at three
    times the residual by less than 3%; four times as many items by a power between 0.4 and 1.
    """
    few, many, fine = (
        contexts.perceptron_clocks(32),
        contexts.perceptron_clocks(128),
        contexts.perceptron_clocks(32, eta=0.25),
    )
    for name, value in few.items():
        assert fine[name] == pytest.approx(value, rel=0.1)
    monkeypatch.setattr(contexts, "LEFT", 3 * contexts.LEFT)
    early = contexts.perceptron_clocks(32)
    assert early["half"] == few["half"] < early["whole"] < few["whole"] < 1.03 * early["whole"]
    assert 0.4 < np.log(many["whole"] / few["whole"]) / np.log(4) < 1


def test_what_is_not_learnt_is_an_error(monkeypatch):
    """One unit, and few steps."""
    monkeypatch.setattr(contexts, "MOST", 100)
    with pytest.raises(ArithmeticError, match="32 items are not learnt"):
        contexts.perceptron_clocks(32, width=1)


def test_the_note_on_perceptrons_is_that_of_their_clocks(monkeypatch):
    """Means over seeds of powers of the number of items, with their standard errors."""
    powers = {"whole": [1.0, 1.1, 1.3], "half": [0.5, 0.52, 0.51]}
    made = lambda K, seed: {x: 3.0 * K ** of[seed] for x, of in powers.items()}  # noqa: E731
    monkeypatch.setattr(contexts, "perceptron_clocks", made)
    note = in_weights.perceptrons(range(3))
    for name, of in powers.items():
        error = statistics.stdev(of) / len(of) ** 0.5
        assert f"{statistics.mean(of):.3f} +- {error:.3f} ({name})" in note
