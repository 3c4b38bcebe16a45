"""Theory curve against an ensemble: accepts an ensemble drawn about it, refuses one that is 5% off."""

import numpy as np
import pytest
import xarray as xr

from theory import state_tracking as st
from theory.state_tracking import Parameters
from verify import trajectories

P = Parameters.demo()


def ensemble(curve: xr.Dataset, factor: float, seeds: int = 64, spread: float = 0.02) -> xr.Dataset:
    """Runs that scatter about ``factor`` times the curve by a few per cent, one offset per seed."""
    rng = np.random.default_rng(5)
    scatter = xr.DataArray(rng.normal(0, spread, seeds), dims="seed", coords={"seed": np.arange(seeds)})
    runs = curve[["A", "R", "S"]] * (factor + scatter)
    runs.attrs["model"] = "state_tracking"
    return runs


def test_accepts_truth_and_refuses_five_per_cent():
    """Standard error 0.25%, so 5% off is 20 of them."""
    curve = st.flow().solve(P, alpha=12)
    runs = ensemble(curve.isel(alpha=slice(0, None, 20)), 1.0)
    good = trajectories.compare(curve, runs, known_limits={})
    assert all(c.passed for c in good.checks)
    assert good.inside() == {"A": 1.0, "R": 1.0, "S": 1.0}
    bad = trajectories.compare(curve, ensemble(curve.isel(alpha=slice(0, None, 20)), 1.05), known_limits={})
    assert not any(c.passed for c in bad.checks)


def test_known_limits_come_from_the_model():
    curve = st.flow().solve(P, alpha=12)
    runs = ensemble(curve.isel(alpha=slice(0, None, 20)), 1.3)
    found = trajectories.compare(curve, runs)
    assert {c.verdict for c in found.checks} == {"known limit"}
    text = str(found)
    assert "0 pass, 3 known limits, 0 fail" in text
    assert "one curve for all seeds" in text


def test_different_time_grids_are_interpolated():
    """Cubic interpolation of 601 points: error far below the spread of 2%."""
    curve = st.flow().solve(P, alpha=12)
    off_grid = st.flow().solve(P, at=np.linspace(0, 11.7, 17), alpha=12)
    found = trajectories.compare(curve, ensemble(off_grid, 1.0), known_limits={})
    assert all(c.passed for c in found.checks)
    assert found.deviations.sizes["alpha"] == 17


def test_one_seed_has_no_standard_error_and_does_not_pass_as_agreement():
    curve = st.flow().solve(P, alpha=12)
    found = trajectories.compare(curve, ensemble(curve, 1.1, seeds=1), known_limits={})
    assert not any(c.within for c in found.checks)
    assert not np.isnan([c.predicted for c in found.checks]).any()


@pytest.mark.parametrize(
    "name", ["A", "R", "S", "loss", "logit_correct", "logit_other", "accuracy", "rollout_accuracy"]
)
def test_theory_and_students_use_the_same_names(name):
    from simulate.state_tracking.measure import MEANING

    assert name in MEANING
    assert name in st.trajectory(P, 1.0)
