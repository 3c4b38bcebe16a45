"""Flows at many points at once: against closed forms, and one integration after the
other.
"""

import numpy as np
import pytest
import sympy as sp
import xarray as xr

from theory import Flow, state_tracking
from theory.call.refusal import ParameterError
from theory.dynamics import bulk

t, x, y, k, a = sp.symbols("t x y k a")
MANY = np.geomspace(0.5, 1.5, 40)
AT = np.linspace(0, 10, 41)


def flow(rhs, initial, **more):
    return Flow("own", t, rhs, initial, "own", "exact", **more)


OSCILLATOR = flow({x: y, y: -k * x}, {x: 0, y: 1})
LOGISTIC = flow({x: k * x * (1 - x)}, {x: a}, observables={"doubt": -sp.log(x)})


def test_against_closed_forms():
    """Curves and events, first of two in a step, and none."""
    w = np.sqrt(MANY)
    high = x - sp.Rational(99999, 100000) / sp.sqrt(k)
    events = {
        "top": high,
        "never": x - 3,
        "start": x,
        "late": sp.sin(t) - x + 10 * (t - 3),
    }
    found = OSCILLATOR.solve({"k": 1.0}, t=10, at=AT, k=MANY, events=events)
    assert found.attrs["solver"].startswith("DOP853") and found.x.dims == ("k", "t")
    np.testing.assert_allclose(found.y, np.cos(w[:, None] * AT), atol=2e-12)
    np.testing.assert_allclose(found.top, np.arcsin(0.99999) / w, rtol=1e-10)
    assert np.isnan(found.never).all() and (found.start == 0).all()
    late = found.late.values
    assert (np.abs(np.sin(late) - np.sin(w * late) / w + 10 * (late - 3)) < 1e-11).all()


def test_grids_and_observables():
    """Two axes, one of them named; a point that comes twice; an observable's name as an
    event.
    """
    rates = xr.DataArray([1.0, 2.0, 1.0, 3.0], dims="rate")
    starts = xr.DataArray(np.linspace(0.1, 0.4, 10), dims="start")
    found = LOGISTIC.solve(
        {"k": 1, "a": 0.1},
        t=30,
        at=[0, 30],
        k=rates,
        a=starts,
        events={"e": sp.Symbol("doubt") - sp.log(2)},
    )
    exact = np.log(1 / starts - 1) / rates
    np.testing.assert_allclose(found.e.transpose(*exact.dims), exact, rtol=1e-11)
    assert found.doubt.isel(t=0, rate=2).values == pytest.approx(-np.log(starts.values))
    assert (found.x.isel(rate=0) == found.x.isel(rate=2)).all()


def test_driven_relaxation():
    """A step is not too long where its error estimate happens to vanish."""
    system = flow({x: -k * (x - sp.cos(y)), y: 1}, {x: 0, y: 0})
    rates, at = np.geomspace(0.1, 30, 2001), np.linspace(0, 3, 21)
    found, r = system.solve({"k": 1.0}, t=3, at=at, k=rates), rates[:, None]
    exact = (r**2 * np.cos(at) + r * np.sin(at) - r**2 * np.exp(-r * at)) / (1 + r**2)
    assert (np.abs(found.x - exact) < 1e-10).all()


@pytest.mark.parametrize("model", ["state_tracking", "own"])
def test_same_as_one_after_the_other(model, monkeypatch):
    """Everything in the dataset but who solved it."""
    p, system, end = state_tracking.Parameters(), state_tracking.flow(), 12.0
    swept = {"eta": np.geomspace(0.1, 1, 5), "L": np.arange(4, 12)[:, None]}
    events = {"half": system.state[0] - sp.Rational(1, 2), "low": sp.Symbol("loss") - 1}
    if model == "own":
        p, system, swept = {"k": 1.0, "a": 0.1}, LOGISTIC, {"k": MANY[::4]}
        events = {"kink": sp.Abs(x - 0.3) - 0.2, "fast": sp.exp(40 * x) - sp.exp(20)}
    both = []
    for fewest in (1, 10**9):
        monkeypatch.setattr(bulk, "FEWEST", fewest)
        both.append(
            system.solve(
                p, until=end, at=np.linspace(0, end, 7), events=events, **swept
            )
        )
    assert both[0].attrs.pop("solver") != both[1].attrs.pop("solver")
    both = [
        x.drop_vars("c_A", errors="ignore") for x in both
    ]  # 1 - A is rounding in the end
    # by LSODA, whose error this is: the bulk is nearer to closed forms
    xr.testing.assert_allclose(*both, rtol=2e-9, atol=2e-9)
    assert both[0].attrs == both[1].attrs and list(both[0].data_vars) == list(
        both[1].data_vars
    )


def test_symbols_of_events_alone_are_swept():
    """A level that no rate depends on, one after the other and together."""
    decay = flow({x: -x}, {x: 1})
    for levels in (np.linspace(0.2, 0.9, 3), np.linspace(0.2, 0.9, 40)):
        found = decay.solve({}, t=3, k=levels, events={"e": x - k})
        np.testing.assert_allclose(found.e, -np.log(levels), rtol=1e-10)


def test_stiff_points_are_integrated_alone():
    """Rates of 10^7 among those of one."""
    rates = np.geomspace(1, 1e7, 40)
    system = flow({x: k * (1 - x), y: -y}, {x: 0, y: 1})
    found = system.solve(
        {"k": 1.0}, t=5, at=[0, 1e-3, 5], k=rates, events={"half": x - 0.5}
    )
    np.testing.assert_allclose(found.x[:, 1], -np.expm1(-1e-3 * rates), rtol=1e-9)
    np.testing.assert_allclose(found.half, np.log(2) / rates, rtol=1e-9)
    np.testing.assert_allclose(found.y[:, -1], np.exp(-5), rtol=1e-9)


@pytest.mark.parametrize(
    ("system", "values", "words"),
    [
        (
            flow({x: k * x**2}, {x: 1}),
            np.linspace(0.01, 3, 40),
            ("at k = 1.0", "diverges near t = "),
        ),
        (
            flow({x: -k * sp.sqrt(x)}, {x: 1}),
            np.linspace(0.01, 3, 40),
            ("at k = ", "own"),
        ),
        (
            flow({x: k * x}, {x: k}),
            np.geomspace(1e-300, 1, 40),
            ("at k = 1e-300", "starts below"),
        ),
    ],
)
def test_points_that_fail_are_named(system, values, words, monkeypatch):
    monkeypatch.setattr(
        Flow._functions, "__defaults__", (30_000,)
    )  # given up ten times as soon
    with pytest.raises(ParameterError) as error:
        system.solve({"k": 0.01}, t=1.0, k=values)
    assert all(word in str(error.value) for word in words) and "\n" not in str(
        error.value
    )


def test_what_is_not_real_is_named():
    """Rates, and events before they cross zero."""
    system = flow({x: -x + sp.I * (k - 1)}, {x: 1})
    with pytest.raises(ParameterError, match=r"^at k = 1\.0\d+: own: is complex"):
        system.solve({"k": 1.0}, t=1.0, k=np.linspace(1, 2, 40))
    decay = flow({x: -a * x}, {x: 1})
    with pytest.raises(
        ParameterError, match=r"^at k = 1\.\d+: event e = .*: is no real number"
    ):
        decay.solve(
            {"a": 1.0, "k": 1.0},
            t=5,
            k=np.linspace(2.5, 1.5, 40),
            events={"e": sp.log(x - 2 + k)},
        )


def test_rates_that_jump_or_depend_on_time():
    """Are left to one integration after the other."""
    step = flow({x: sp.Piecewise((k, x < 1), (2 * k, True))}, {x: 0})
    driven = flow({x: k * sp.cos(t)}, {x: 0})
    assert (
        not bulk.follows(step) and not bulk.follows(driven) and bulk.follows(OSCILLATOR)
    )
    found = driven.solve({"k": 1.0}, t=3, at=[3.0], k=MANY)
    np.testing.assert_allclose(found.x[:, 0], MANY * np.sin(3), rtol=1e-9)
