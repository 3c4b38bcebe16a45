"""Shares of rare starts, against many plain draws and a law that is known."""

import numpy as np
import pytest
from random_starts import KINDS

from theory.statement import model, onset, uniform
from theory.statement.derivation import remedies
from theory.statement.randomness import random_starts, rare_starts


@pytest.fixture(scope="module")
def circuits():
    """Two circuits of which the slower one hardly ever wins."""
    stated = KINDS["two circuits"]()
    p = model.parameters(stated)(N1=5, sigma=1e-4)
    made = remedies.derived(stated).written(onset.sized(stated, p))
    return made, p, random_starts.times(made, p, 4000)


def slower(found):
    """Whether it wins."""
    return np.asarray(found["first"]) <= 0


def test_many_plain_draws_find_the_same(circuits):
    """A share of two thirds of a per cent, known as well as from ten times as many
    plain draws.
    """
    made, p, _ = circuits
    row = onset.onset(made, p)  # of the others
    share = 1 - row.numbers["P_first"]
    error = float(row.labels["P_first"].rpartition("+- ")[2])
    plain = slower(random_starts.times(made, p, 20_000, seed=7)).mean()
    spread = np.sqrt(plain / 20_000)
    assert 0.004 < plain < 0.01
    assert abs(share - plain) < 3 * np.hypot(error, spread)
    assert error**2 < spread**2 / 8  # 50,000 draws are made


@pytest.mark.slow
def test_a_share_of_a_thousandth():
    """The two numbers of docs/how_to/random_starts.md: a million plain draws, and
    50,000 moved.
    """
    stated = KINDS["two circuits"]()
    p = model.parameters(stated)(N1=6, sigma=1e-4)
    made = remedies.derived(stated).written(onset.sized(stated, p))
    share, error = rare_starts.share(
        made, p, random_starts.times(made, p, 4000, seed=1), slower
    )
    plain = [
        slower(random_starts.times(made, p, 10**5, seed=100 + k)).mean()
        for k in range(10)
    ]
    assert error < 0.04e-3 and np.mean(plain) == pytest.approx(1.13e-3, abs=0.1e-3)
    assert abs(share - np.mean(plain)) < 3 * np.hypot(error, np.sqrt(share * 1e-6))


def test_a_normal_tail(circuits):
    """A start beyond three standard deviations along a direction: 0.27%, whatever the
    dynamics.
    """
    made, p, drawn = circuits

    class Tail(random_starts.Bulk):
        def crossings(self, x, levels, most):
            far = abs(x[0]) > 3 * spread
            return np.zeros((3, x.shape[1])), {"first": np.where(far, -1.0, 1.0)}

    spread = np.sqrt(rare_starts.passage.covariance(made, p)[0, 0])
    few = drawn.assign(first=("draw", np.where(np.arange(4000) < 10, -1.0, 1.0)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rare_starts.random_starts, "Bulk", Tail)
        share, error = rare_starts.share(made, p, few, slower)
    assert abs(share - 0.0026998) < 3 * error < 0.0004


def test_common_ones_and_other_laws_are_counted(circuits):
    """Where enough of the drawn starts tell, or nothing is known of the law: their own
    share.
    """
    made, p, drawn = circuits
    common = drawn.assign(first=("draw", np.where(np.arange(4000) < 400, -1.0, 1.0)))
    assert rare_starts.share(made, p, common, slower) == pytest.approx(
        (0.1, np.sqrt(0.09 / 4000))
    )
    stated = KINDS["no saddle"](start=uniform(0.1))
    few = drawn.assign(first=("draw", np.where(np.arange(4000) < 40, -1.0, 1.0)))
    assert rare_starts.share(remedies.derived(stated), p, few, slower)[0] == 0.01
