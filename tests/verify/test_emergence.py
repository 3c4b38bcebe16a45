"""Emergence times: interpolation, censoring, intervals; and the onset fit."""

import numpy as np
import pytest
import xarray as xr

from theory.call.refusal import ParameterError
from theory.state_tracking import Parameters, flow
from theory.state_tracking.onset import equations
from verify.compare.emergence import Times, first_crossing
from verify.state_tracking.timescales import onset_fit


def curves(*rows):
    return xr.DataArray(
        np.array(rows, float),
        dims=("seed", "alpha"),
        coords={"alpha": [0.0, 1.0, 2.0, 4.0]},
    )


def test_linear_interpolation_and_censoring():
    found = first_crossing(
        curves(
            [0, 0.25, 0.75, 1], [0, 0.1, 0.2, 0.3], [0.6, 1, 1, 1], [0, 0.5, 0.4, 1]
        ),
        0.5,
    )
    assert found.values == pytest.approx([1.5, np.nan, 0.0, 1.0], nan_ok=True)
    assert "1 of 4 seeds censored: not before 4" in found.summary("t")


def test_all_censored_is_said():
    assert (
        first_crossing(curves([0, 0, 0, 0]), 0.5).summary("t")
        == "t: no seed emerged before 4"
    )


def test_interval_covers_the_mean_as_often_as_it_says():
    """95% of 400 intervals from normal times; binomial standard error 1.1%, so 90.6% is
    four of them below.
    """
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(400):
        low, high = Times(rng.normal(3, 1, 8), 9.0).interval()
        hits += low <= 3 <= high
    assert hits / 400 > 0.906


def test_interval_of_two_times():
    """Student's t of one degree of freedom is Cauchy's law: half of it lies within one
    standard error of the mean.
    """
    # Quantiles of SciPy 1.14 are known to eleven digits.
    assert Times(np.array([1.0, 3.0]), 9.0).interval(0.5) == pytest.approx(
        (1, 3), rel=1e-9
    )


def test_onset_fit_recovers_the_flow_coefficient():
    """Fit of degree 5 on a short window: what is left is of sixth order, below 1e-5."""
    p = Parameters.demo()
    alpha = np.linspace(0, 0.3, 31)
    curve = flow().solve(p, at=alpha, alpha=0.3)
    exact = equations()["onset_coefficient"].evaluate(p.values())
    assert onset_fit(alpha, curve.A.values, 0.3, degree=5)[1] == pytest.approx(
        exact, rel=1e-5
    )
    assert onset_fit(alpha, 1.05 * curve.A.values, 0.3, degree=5)[1] == pytest.approx(
        exact, rel=1e-5
    )  # scale drops out
    assert onset_fit(alpha, curve.A.values**1.05, 0.3, degree=5)[1] == pytest.approx(
        1.05 * exact, rel=1e-5
    )


@pytest.mark.parametrize("kind", [complex, bool, object])
def test_crossings_of_what_are_no_real_numbers_are_refused(kind):
    """As for `compare`; an infinite value beside the level gave a time, too."""
    x = xr.DataArray(np.arange(3.0), dims="t", coords={"t": [0.0, 1, 2]})
    with pytest.raises(ParameterError, match="must be real numbers"):
        first_crossing(x.astype(kind), 0.5)
    with pytest.raises(ParameterError, match="is infinite at t = 2"):
        first_crossing(x.where(x < 2, np.inf), 1.5)
