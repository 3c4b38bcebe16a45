"""Students of the extensions beside their theory, and published fixed points beside the rule."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import xarray as xr

from theory.positional_semantic.extensions import solve
from verify.positional_semantic import extensions


def test_measurements_of_a_student():
    """At its minimum, with those of its value matrix; the training loss is the risk, from below
    that of doing nothing but the teacher's norm.
    """
    p = extensions.EXTENDED.replace(d=20, alpha=2.0, value=True, n_test=200)
    found = extensions.end(p, 0)
    assert found["gradient"] < 1e-5
    assert 0 < found["theta_W"] < 1 and found["theta_W"] ** 2 < found["q_W"]
    other = extensions.end(p.replace(value=False), 0)
    assert set(found) - set(other) == {"theta_W", "q_W"}
    # A ridge on d^2 further weights costs lambda/2 q_W per dimension.
    assert found["train_loss"] > p.lam / 2 * found["q_W"]


def test_a_wrong_prediction_fails(monkeypatch):
    """Students made up around the theory agree; around a theory without the extension they fail."""
    solved = functools.cache(lambda p: solve(p, points=64))
    monkeypatch.setattr(extensions, "solve_extended", lambda p, points: solved(p))
    plain = False

    def limits(p, sizes, seeds):
        q = extensions.EXTENDED.replace(start=p.start, alpha=p.alpha) if plain else p
        noise = 1 + 0.02 * np.random.default_rng(1).normal(size=len(seeds))
        truth = extensions.predicted(q, solved(q))
        return xr.Dataset({k: ("seed", v * noise) for k, v in truth.items()})

    monkeypatch.setattr(extensions, "limits", limits)
    assert all(c.within for c in extensions.checks(range(24), ["correlation 0.2"]))
    plain = True  # the nearest number is 2.5% off, six standard errors
    assert not any(c.within for c in extensions.checks(range(24), ["correlation 0.2"]))


@pytest.mark.slow
@pytest.mark.parametrize("what", extensions.CASES)
def test_students_agree(what):
    """Four seeds: no row fails."""
    assert all(c.within for c in extensions.checks(range(7000, 7004), [what]))






