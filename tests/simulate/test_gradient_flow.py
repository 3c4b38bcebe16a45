"""Gradient flow of named weights, against a solution in closed form."""

import numpy as np
import pytest
import torch

from simulate.training.gradient_flow import integrate, rates


def loss(weights):
    """A quadratic in x, and in y nothing."""
    return (torch.tensor([1.0, 4.0]).double() * weights["x"].square()).sum() / 2


START = {"x": torch.tensor([1.0, -2.0]).double(), "y": torch.ones(2, 3).double()}


def test_rates_are_minus_the_gradient():
    """And zero for what the loss does not know."""
    value, found = rates(loss, START)
    assert float(value) == 8.5 and found["x"].tolist() == [-1.0, 8.0]
    assert (
        found["y"].shape == (2, 3)
        and not found["y"].any()
        and not START["x"].requires_grad
    )


def test_weights_and_events_along_the_way():
    """Exponentials; the first zero of an event, and none."""
    events = {"half": lambda w: w["x"][0] - 0.5, "never": lambda w: w["x"][1] - 3}
    path, times = integrate(loss, START, 2.0, at=[0.5, 2.0], events=events)
    for t, weights in zip((0.5, 2.0), path, strict=True):
        expected = [np.exp(-t), -2 * np.exp(-4 * t)]
        np.testing.assert_allclose(
            weights["x"], expected, rtol=1e-8
        )  # integrated at 1e-10
        assert (weights["y"] == 1).all()
    assert times["half"] == pytest.approx(np.log(2), rel=1e-8) and np.isnan(
        times["never"]
    )
    (last,), none = integrate(loss, START, 2.0)
    np.testing.assert_allclose(last["x"], path[-1]["x"], rtol=1e-12)  # the same steps
    assert none == {}
