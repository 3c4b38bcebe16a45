"""Rows whose students take minutes, of students that are made up: what is right lies
within, and five percent in what is measured fails.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from theory.positional_semantic import Parameters as Sentences
from verify.associative_memory import trigger_task
from verify.induction_heads import flow_laws
from verify.induction_heads import timescales as heads
from verify.positional_semantic import minima, thresholds

SCATTER = 1 + 1e-3 * np.linspace(-1, 1, len(heads.SEEDS))


@pytest.mark.parametrize("off", [0.95, 1.0, 1.05])
def test_batches_are_extrapolated_to_infinite_ones(off, monkeypatch):
    """Times with a term of order 1/batch."""
    limit = {name: 100.0 * (k + 1) for k, name in enumerate(heads.NAMES)}
    asked = []

    def trained(size, which, trained, seeds, batch, **more):
        asked.append((size, which, trained, list(seeds)))
        return batch

    def crossings(batch):
        return {name: off * t * SCATTER * (1 + 20 / batch) for name, t in limit.items()}

    monkeypatch.setattr(heads, "train_all", trained)
    monkeypatch.setattr(heads, "crossings", crossings)
    monkeypatch.setattr(heads, "population", lambda size, which: limit)
    assert [c.within for c in heads.batches("last")] == [off == 1.0] * len(heads.NAMES)
    assert set(map(str, asked)) == {
        str((heads.NOISE_SIZE, "last", "all", list(heads.SEEDS)))
    }


@pytest.mark.parametrize("power", [1.9, 2.0, 2.1])
def test_exponents_of_all_weights_are_those_of_the_descent(power, monkeypatch):
    """Seed by seed over N, both queries; students scatter by a tenth of a percent."""
    monkeypatch.setattr(heads, "EXPONENTS", {})
    monkeypatch.setattr(heads, "batches", lambda which: [])
    monkeypatch.setattr(heads, "train_all", lambda N, *given: N)
    monkeypatch.setattr(
        heads,
        "crossings",
        lambda N: {n: N**power * SCATTER ** np.log(N) for n in heads.NAMES},
    )
    squares = {N: dict.fromkeys(heads.NAMES, float(N) ** 2) for N in heads.SIZES}
    monkeypatch.setattr(heads, "population", lambda N, which: squares[N])
    monkeypatch.setattr(flow_laws, "times", lambda N, which: squares[N])
    checks, _, sweeps = heads.all_weights()
    assert len(checks) == 2 * len(heads.NAMES) and set(sweeps) == set(
        heads.QUERIES.values()
    )
    assert [c.within for c in checks] == [power == 2.0] * len(checks)
    assert all(c.measured == pytest.approx(power, abs=1e-3) for c in checks)


@pytest.mark.parametrize("power", [-0.5, 0.5])
def test_scatter_that_does_not_fall_with_d_fails(power, monkeypatch):
    """What is measured is the exponent of the standard deviation."""
    rng, asked = np.random.default_rng(0), []

    def train(p, seeds, alpha, **options):
        asked.append((p.start, p.teacher, alpha))
        scatter = p.d**power * rng.permutation(np.linspace(-1, 1, len(seeds)))
        return xr.Dataset({"theta": (("seed", "alpha"), 0.5 + scatter[:, None])})

    monkeypatch.setattr(minima, "train", train)
    (row,), _ = minima.concentration(Sentences(), (200, 400, 800), list(range(64)), {})
    assert row.measured == pytest.approx(power) and row.within == (power < 0)
    assert set(asked) == {("semantic", "gaussian", 2.0)}


def test_gaps_of_losses_rise_through_zero():
    """Positional minus semantic training loss; linear minus semantic test error, seed
    by seed.
    """
    p, seeds, centre = Sentences(), [3, 5], 2.0
    losses = {"positional": 0.3, "semantic": 0.1}

    def train(q, these, alpha, **options):
        value = (
            losses[q.start] + 0.01 * np.arange(len(alpha)) + np.array(these)[:, None]
        )
        found = (("seed", "alpha"), value)
        return xr.Dataset(
            {"train_loss": found, "test_mse_half": found},
            {"seed": these, "alpha": alpha},
        )

    def each(work, arguments):
        return [{"half_test": 2 * s + q.alpha} for q, s in arguments]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "train", train)
        patch.setattr(minima, "each", each)
        of_loss = thresholds._gap("alpha_c", p, centre, seeds, {})
        of_error = thresholds._gap("alpha_l", p, centre, seeds, {})
    np.testing.assert_allclose(of_loss, 0.2)
    alphas = of_error.alpha.values
    np.testing.assert_allclose(alphas, centre * np.array(thresholds.FACTORS["alpha_l"]))
    steps = 0.1 + 0.01 * np.arange(3) + np.array(seeds)[:, None]
    np.testing.assert_allclose(of_error, 2 * np.array(seeds)[:, None] + alphas - steps)


@pytest.mark.parametrize("wrong", [None, "lead", "early", "lag", "staged"])
def test_order_of_probes_has_a_direction(wrong, monkeypatch):
    """Each of the four rows fails alone."""
    step = np.arange(9.0)

    def curve(at):
        return (("seed", "step"), np.tile(np.clip(step - at + 0.5, 0, 1), (3, 1)))

    first = xr.Dataset(
        {
            "probe_W_O2": curve(2 if wrong != "lead" else 6),
            "probe_W_K2": curve(4),
            "probe_W_K1_early": (
                ("seed", "step"),
                np.full((3, 9), 0.3 * (wrong == "early")),
            ),
        },
        {"seed": range(3), "step": step},
    )
    slow = 150.0 if wrong != "staged" else 40.0
    at = np.linspace(0, 200, 401)
    staged = xr.DataArray(
        [(at > slow).astype(float)] * 2,
        {"seed": range(2), "step": at},
        dims=("seed", "step"),
    )
    found = {
        "probe_W_K1_early": np.full(3, 90.0 if wrong != "lag" else 20.0),
        "probe_W_O2": np.full(3, 30.0),
        "probe_W_K2": np.array([40.0, np.nan, 40.0]),
        "in_context_accuracy": np.full(3, 100.0),
    }

    def train(p, seeds, **options):
        return (
            first
            if p == trigger_task.EARLY
            else SimpleNamespace(in_context_accuracy=staged)
        )

    monkeypatch.setattr(trigger_task, "train", train)
    monkeypatch.setattr(trigger_task, "emergence", lambda: found)
    rows = dict(
        zip(("lead", "early", "lag", "staged"), trigger_task.order(), strict=True)
    )
    assert {name for name, row in rows.items() if not row.within} == {wrong} - {None}
