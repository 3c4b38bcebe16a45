"""Onset: numbers, curves, the separatrix below which the mechanism never emerges."""

from __future__ import annotations

import io
import math
import warnings

import numpy as np
import pytest
import xarray as xr

from theory import induction_heads
from theory import onset as command
from theory.associative_memory import factual_recall
from theory.call.refusal import ParameterError
from theory.call.scope import BeyondScope
from theory.dynamics.onset import tabulated
from theory.state_tracking import Parameters, emergence_times, flow, predict
from theory.state_tracking.onset import onset

TABLE_1 = Parameters()


def test_separatrix():
    """Below D_0 = -sqrt(2 ln(1/(1-A_0))/kappa) attention dies and A = 1/2 is never
    reached; above, it is.
    """
    p = TABLE_1
    kappa = p.values()["c_omega"] * p.L * (1 - 1 / p.d_g) / (1 - 1 / p.N)
    edge = -np.sqrt(2 * np.log(1 / (1 - 1 / p.L)) / kappa)
    assert edge == pytest.approx(-0.09606, abs=5e-6)  # five digits are on record
    lost = onset(p.replace(R_0=edge * 1.05))
    assert np.isnan(lost.numbers["alpha_half"]) and lost.notes
    assert 3 < onset(p.replace(R_0=edge * 0.95)).numbers["alpha_half"] < 60


def test_half_time_scales_with_the_learning_rate():
    """Eta alpha_{1/2} does not depend on eta."""
    times = [
        onset(TABLE_1.replace(eta=rate)).numbers["alpha_half"] * rate
        for rate in (0.01, 0.5, 4.0)
    ]
    np.testing.assert_allclose(times, times[1], rtol=1e-9)  # integrator tolerance


def test_onset_numbers_and_curves():
    """Numbers under the theory's names, three families of curves on one time axis."""
    p = Parameters.demo()
    result = onset(p)
    v = p.values()
    assert result.numbers["c_omega"] == v["c_omega"]
    scale, half = result.numbers["T_alpha"], result.numbers["alpha_half"]
    assert scale == pytest.approx(
        np.sqrt(2 / v["c_omega"]) / p.eta, rel=1e-14
    )  # rounding
    curve, early, grown, sharp = result.curves().values()
    assert curve.alpha[-1] == pytest.approx(2.5 * half, rel=1e-12)  # rounding
    # The nearest of 601 times is within 2.1e-3 of alpha_half, where A rises by 0.7 per
    # unit.
    assert curve.A.sel(alpha=half, method="nearest").item() == pytest.approx(
        0.5, abs=5e-3
    )
    mass = p.eta * (1 - 1 / p.N) * curve.alpha
    growth = np.exp(v["c_omega"] * (p.eta * curve.alpha) ** 2 / 2)
    # (78) and (81), up to rounding.
    np.testing.assert_allclose(
        early.R, mass * (1 / p.L + (1 - 1 / p.L) / p.d_g), rtol=1e-13
    )
    np.testing.assert_allclose(early.S, mass * (1 - 1 / p.L) / p.d_g, rtol=1e-13)
    np.testing.assert_allclose(grown.A, growth / p.L, rtol=1e-13)
    star = result.numbers["alpha_star"]
    assert star == pytest.approx(np.pi / 2 * scale, rel=1e-14)
    secant = 1 / np.cos(np.pi / 2 * curve.alpha / star) ** 2
    # It ends where it diverges; rounding of the phase, near there.
    np.testing.assert_allclose(
        sharp.A, secant.where(curve.alpha < star) / p.L, rtol=1e-10
    )
    # App. G: R outgrows S at every time, by (79) at the start, up to g's change in a
    # step.
    assert (np.diff(curve.R) > np.diff(curve.S)).all()
    gap = float(curve.R[1] - curve.S[1]) / float(curve.alpha[1])
    assert gap == pytest.approx(p.eta * (1 - 1 / p.N) / p.L, rel=1e-4)
    assert onset(p, alpha=1.5).curves()["flow (15)"].alpha[-1] == 1.5


def test_time_scale_stays_of_order_one():
    """App. H: with all sizes growing in proportion T_alpha falls towards a number above
    zero.
    """
    found = [
        onset(
            TABLE_1.replace(
                **{q: k * getattr(TABLE_1, q) for q in ("N", "L", "d_g", "d_h")}
            )
        ).numbers["T_alpha"]
        for k in (1, 2, 4, 8)
    ]
    # c_omega is at most 2 d_g N sigma^2/L^2, of frequencies that all tell positions
    # apart, up to the factor L/(L-1).
    v = TABLE_1.values()
    least = v["L"] / np.sqrt(v["d_g"] * v["N"] * v["sigma2"]) / v["eta"]
    assert (np.diff(found) < 0).all()
    assert 0.9 * least < found[-1] < found[0] < 2 * least
    assert (
        onset(TABLE_1.replace(L=20)).numbers["T_alpha"] > 1.7 * found[0]
    )  # L alone: as L, nearly


def test_onset_when_attention_starts_high():
    """A_0 at or above 1/2 has emerged at time 0; the curves still exist."""
    result = onset(TABLE_1.replace(A_0=0.5))
    assert result.numbers["alpha_half"] == 0 and result.notes
    assert result.curves()["flow (15)"].A[-1] > 0.9
    with np.errstate(all="raise"):
        assert onset(TABLE_1.replace(A_0=1.0)).numbers["D_separatrix"] == -np.inf


def test_figure_where_approximations_overflow():
    """Long after the onset Eq. (81) is beyond the largest number, which Matplotlib
    cannot place.
    """
    result = onset(Parameters.demo(), until=600.0)
    assert np.isinf(result.curves()["onset"].A[-1])
    with warnings.catch_warnings(action="error", category=RuntimeWarning):
        result.draw().savefig(io.BytesIO())


LATE = [
    (Parameters(N=4, d_g=4, L=20, d_h=8), 9605.91553324265),
    (Parameters(N=2, d_g=2, L=10), 1486135674.32132),
]


@pytest.mark.parametrize(
    ("p", "expected"), LATE, ids=["287 time scales", "5e7 time scales"]
)
def test_late_is_not_never(p, expected):
    """From D_0 = R_0 - S_0 = 0, above the separatrix, attention always locks in the
    end, however late.
    """
    # By quadrature over D = R - S; integrating the flow that far agrees to 1.2e-10.
    assert onset(p).numbers["alpha_half"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("steps", [50, 400])
def test_descent_is_late_by_about_a_step(steps):
    """The Euler map, which descent follows, reaches A = 1/2 by 0.5 to 1.5 steps after
    the flow, whatever the rate; so the flow is refused below 50 steps, where that is
    3%.
    """
    p = Parameters.demo()
    half = onset(p).numbers["alpha_half"] * p.eta  # no rate in it
    p = p.replace(eta=half * p.N * p.d_g / steps)
    A = flow().descend(p, 1 / (p.d_g * p.N), steps + 5).A.values
    late = np.interp(0.5, A[steps - 5 :], np.arange(steps - 5, A.size)) - steps
    assert 0.5 < late < 1.5


def test_few_steps_are_refused(capsys):
    """A = 1/2 after fewer than 50 steps: refused by every number of the flow. Of models
    whose time has no rate in it: times of emergence are refused, the command says it.
    """
    p = Parameters.demo()
    steps = onset(p).numbers["alpha_star"] * p.N * p.d_g
    low, high = (p.eta * steps / 50 * f for f in (0.999, 1.001))
    assert onset(p.replace(eta=low)).numbers["alpha_half"] > 0
    with pytest.raises(
        ParameterError, match=r"steps\): must be so small that A = 1/2 takes"
    ):
        emergence_times(p, eta=[low, high])
    assert predict(
        p.replace(eta=high, epochs=20), seeds=1, level="cavity"
    ).A.size  # takes steps
    for rate, few in (("1", False), ("30", True)):
        assert command.main(["induction_heads", "--set", f"eta={rate}"]) == 0
        assert (
            "steps of descent, the flow is for small steps" in capsys.readouterr().err
        ) is few
    own = induction_heads.Parameters(eta=30)
    with pytest.warns(BeyondScope):
        times = induction_heads.emergence_times(own, beyond=True)
    steps = math.ceil(times.T_drop.item() / own.time_per_step)
    with pytest.raises(
        ParameterError, match=f"eta = 30: T_drop is after {steps} steps of descent"
    ):
        induction_heads.emergence_times(own)
    assert times.attrs["status"] == "beyond its scope" and times.T_drop > 0


def test_steps_are_counted_in_the_unit_of_the_time():
    """Factual recall gives its times in steps already; more than a run may have are not
    few.
    """
    last = factual_recall.emergence_times(
        factual_recall.Parameters(eta=5)
    ).steps_subject_10
    assert 50 < last < 50 * 5 and last.units == "steps"
    with pytest.raises(
        ParameterError, match="eta = 10: steps_subject_10 is after 47 steps"
    ):
        factual_recall.emergence_times(factual_recall.Parameters(eta=10))
    slow = induction_heads.emergence_times(induction_heads.Parameters(eta=1e-20))
    assert (
        slow.T_drop
        == induction_heads.emergence_times(induction_heads.Parameters()).T_drop
    )


def curve(**variables):
    """A dataset over time t, 0 to 1."""
    return xr.Dataset(
        {k: ("t", v) for k, v in variables.items()}, {"t": np.linspace(0, 1, 3)}
    )


def figure_of(curves):
    """Panels of an onset with two times, one that never comes, and a height."""
    rows = {
        "t_a": (0.3, "first", "t"),
        "t_b": (np.nan, "never", "t"),
        "height": (2.0, "of both"),
    }
    result = tabulated(rows, lambda: curves, list, absent={"t_b": "never"})
    assert result.times == {"t_a": "t", "t_b": "t"} and result.numbers["height"] == 2
    assert result.labels == {"t_a": "first", "t_b": "never", "height": "of both"}
    return result.draw().axes


def lines(axis):
    """What a panel shows, by label."""
    return {x.get_label(): x.get_xydata()[:, 0].tolist() for x in axis.get_lines()}


def test_figure_that_follows_from_the_curves():
    """One curve: loss with its times, all else beside it; or the only variable on two
    scales.
    """
    left, right = figure_of({"flow": curve(a=[1, 2, 3], loss=[3, 2, 1], b=[0, 1, 0])})
    assert lines(left).keys() == {"loss", "t_a = 0.3"} and lines(right).keys() == {
        "a",
        "b",
    }
    assert lines(left)["t_a = 0.3"] == [0.3, 0.3]
    left, right = figure_of({"flow": curve(a=[1, 2, 3])})
    assert (
        lines(right).keys() == {"a"}
        and right.get_yscale() == "log" != left.get_yscale()
    )


def test_figure_of_two_curves():
    """Each with the numbers that its attribute names: times upright, heights level."""
    marked = curve(loss=[3, 2, 1]).assign_attrs(marks=["t_a", "height"])
    left, right = figure_of(
        {"one": marked, "two": curve(a=[1, 2, 3]).assign_attrs(marks=[])}
    )
    assert lines(left).keys() == {"loss", "t_a = 0.3", "height"} and lines(
        right
    ).keys() == {"a"}
    (level,) = (x for x in left.get_lines() if x.get_label() == "height")
    assert level.get_ydata() == [2, 2]
    assert (left.get_title(), right.get_title()) == ("one", "two")
