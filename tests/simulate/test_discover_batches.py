"""Bias and spread by batches of somebody's own module, against those that the engine
derives.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from modules import retrieval
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "theory" / "statement"))
import systems

from simulate.discover import discover
from theory.call.refusal import ParameterError
from theory.dynamics.optimisers import Optimiser
from theory.models.registry import find
from theory.statement import model

NOISY = "tests/verify/statement/noisy.py"


class Noisy(nn.Module):
    """The regression of noisy.py: an output of one input, on labels with noise."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(3))

    def loss(self, z, sign):
        return ((0.8 * self.w[z] - 1 - 0.5 * sign) ** 2 / 2).mean()


def noisy():
    """With all inputs."""
    z, sign = torch.cartesian_prod(torch.arange(3), torch.tensor([-1, 1])).T
    return Noisy(), (z, sign)


CASES = {  # module, statement, parameters, whether inputs differ
    "retrieval": (
        lambda: retrieval(3, 3, 2),
        systems.retrieval,
        dict(N=3, M=3, P=2, eta=1.0, batch_size=8, steps=16, eval_every=4),
        False,
    ),
    "noisy": (noisy, lambda: find(NOISY).statement, dict(steps=40, eval_every=4), True),
}


@pytest.mark.parametrize("case", CASES)
def test_the_engine_has_the_same(case):
    """By pair orbits there, over all weights here; equivalent inputs give no spread."""
    module, stated, values, differ = CASES[case]
    theory = model.theory_of(stated())
    p = theory.Parameters(**values)
    told, found = theory.predict(p, fluctuations=True), discover(*module())
    mine = found.predict(told[["t"]], p.eta, batch_size=p.batch_size)
    assert mine.attrs["trust"] == told.attrs["trust"]
    names = {str(x): str(x) for x in theory.flow().state} | {"loss": "loss"}
    for x, name in zip([*map(str, found.flow.state), "loss"], names, strict=True):
        for kind in ("", "_bias", "_sd"):
            scale = float(abs(told[name + kind]).max())
            np.testing.assert_allclose(
                mine[x + kind], told[name + kind], atol=1e-6 * scale + 1e-11
            )
    assert (told.loss_sd.max() > 0.01) == differ
    assert told.loss_bias.max() > 1e-3


def test_students_on_batches():
    """Of twenty thousand, mean and variance of the loss within four of their errors."""
    module, (z, sign) = noisy()
    labels, many, B, eta = 1 + 0.5 * sign.numpy(), 20_000, 16, 0.2
    w, rng, losses = np.zeros((many, 3)), np.random.default_rng(0), []
    for step in range(31):
        if step % 10 == 0:
            losses.append(((0.8 * w[:, z] - labels) ** 2 / 2).mean(1))
        rows = rng.integers(len(z), size=(many, B))
        force = 0.8 * (0.8 * np.take_along_axis(w, z.numpy()[rows], 1) - labels[rows])
        for k in range(3):
            w[:, k] -= eta * (force * (z.numpy()[rows] == k)).mean(1)
    seen = np.array(losses)[1:]
    times = xr.Dataset(coords={"t": eta * np.arange(0, 31, 10)})
    told = (
        discover(module, (z, sign))
        .predict(times, eta, batch_size=B)
        .isel(t=slice(1, None))
    )
    error, off = seen.std(1) / many**0.5, seen.mean(1) - told.loss.values
    assert (abs(off - told.loss_bias.values) < 4 * error).all()
    assert (off > 8 * error).all()  # without the bias it would fail
    np.testing.assert_allclose(seen.std(1)[:2], told.loss_sd[:2], rtol=0.05)


class OneHot(Noisy):
    """Looks at the values of its inputs, which torch cannot do for many at once."""

    def loss(self, z, sign):
        shown = nn.functional.one_hot(z, 3).to(self.w.dtype)
        return ((0.8 * shown @ self.w - 1 - 0.5 * sign) ** 2 / 2).mean()


def test_inputs_one_after_the_other():
    """Where torch cannot take them at once: the same."""
    (module, data), runs = noisy(), xr.Dataset(coords={"t": [0.0, 1.0, 2.0]})
    one, two = (
        discover(m, data).predict(runs, 0.5, batch_size=4) for m in (module, OneHot())
    )
    xr.testing.assert_allclose(one, two)


def test_weights_by_name():
    """A loss of named weights has what a module of these has."""
    module, data = noisy()
    times = {"t": [0.0, 1.0, 2.0]}
    loss = lambda w, inputs: (
        (0.8 * w["w"][inputs[0]] - 1 - 0.5 * inputs[1]) ** 2 / 2
    ).mean()
    named = discover(loss, data, {"w": torch.zeros(3)})
    runs = xr.Dataset(coords=times)
    one, two = (
        found.predict(runs, 0.5, batch_size=4)
        for found in (discover(module, data), named)
    )
    xr.testing.assert_allclose(one, two)


def test_one_weight_that_fluctuates_about_its_optimum():
    """Linear regression: eta s^2 / (B (2 lambda - eta lambda^2)) in the end, and no
    bias.
    """
    labels, eta, B = torch.tensor([0.5, 1.5]), 0.5, 64
    found = discover(
        lambda w, y: ((w["w"] - y) ** 2 / 2).mean(), labels, {"w": torch.zeros(1)}
    )
    told = found.predict(
        xr.Dataset(coords={"t": np.arange(0.0, 41.0, 20.0)}), eta, batch_size=B
    )
    assert float(told.x1_sd[-1]) == pytest.approx(
        np.sqrt(eta * 0.25 / (B * (2 - eta))), rel=1e-6
    )
    assert float(told.loss_bias[-1]) == pytest.approx(
        float(told.x1_sd[-1]) ** 2 / 2, rel=1e-6
    )
    assert (abs(told.x1_bias) < 1e-9).all()


class OfAll(Noisy):
    """A loss that is no mean over inputs."""

    def loss(self, z, sign):
        return super().loss(z, sign).sqrt()


class Branching(Noisy):
    """Of one input torch cannot say whether it is below zero."""

    def loss(self, z, sign):
        return super().loss(z, sign) if self.w.sum() < 9 else self.w.sum()


@pytest.mark.parametrize(
    ("made", "options", "line"),
    [
        (OfAll, {}, "^loss: is not the mean of the losses of single inputs"),
        (Branching, {}, "^module: cannot be computed for many weights at once"),
        (
            Noisy,
            dict(optimizer=Optimiser(momentum=0.9)),
            "^batch_size: give eta, and no optimizer",
        ),
        (Noisy, dict(eta=None), "^batch_size: give eta"),
        (Noisy, dict(eta=50.0), "^eta = 50: the descent diverges"),
    ],
)
def test_what_has_no_error_bars_is_refused(made, options, line):
    """In one line."""
    found = discover(made(), noisy()[1])
    runs = xr.Dataset(coords={"t": np.arange(0.0, 2e5, 1e4)})
    with pytest.raises(ParameterError, match=line) as caught:
        found.predict(runs, **({"eta": 0.5, "batch_size": 4} | options))
    assert "\n" not in str(caught.value)
