"""Emergence times and exponents of students beside those of a theory."""

import json

import numpy as np
import pytest
import xarray as xr

from theory import state_tracking
from theory.call.refusal import ParameterError
from verify import ensembles
from verify.compare.emergence import first_crossing
from verify.compare.times import emergence_times, exponents
from verify.state_tracking import timescales
from verify.state_tracking.trajectories import own_start

T = np.linspace(0, 40, 4001)


def curve(rate):
    """Reaches one half at t = rate / 2, exactly: linear in time."""
    return xr.DataArray(T / rate, {"t": T}, name="A")


def students(power, seeds=(1.0, 1.1, 1.2)):
    """Times 2 L^power, scaled by seed."""
    sizes = [2.0, 4.0, 8.0]
    rows = [[curve(4 * L**power * s / 2) for L in sizes] for s in seeds]
    values = np.array([[c.values for c in row] for row in rows])
    coords = {"seed": range(len(seeds)), "L": sizes, "t": T}
    return xr.Dataset({"A": (("seed", "L", "t"), values)}, coords)


def test_times_and_exponents_of_powers():
    """Students with exponent 1.05, predicted 1, in every seed; a level that is not
    reached.
    """
    theory = students(1.0, (1.0,)).isel(seed=0, drop=True)
    found = emergence_times(students(1.05), theory, time="t", A=0.5)
    assert found.measured.dims == ("quantity", "seed", "L")
    assert found.sel(L=4.0, seed=2).measured.item() == pytest.approx(
        1.2 * 4**1.05, rel=1e-9
    )
    assert found.sel(L=4.0).predicted.item() == pytest.approx(4, rel=1e-9)
    assert found.deviation.sel(L=2.0, seed=0).item() == pytest.approx(
        2**0.05 - 1, rel=1e-6
    )
    made = exponents(found, "L").isel(quantity=0)
    assert made.measured.item() == pytest.approx(1.05, rel=1e-9)
    assert made.gap.item() == pytest.approx(
        0.05
    ) and made.predicted.item() == pytest.approx(1)
    assert made.measured_error.item() < 1e-9 and np.isnan(made.predicted_error)
    late = emergence_times(students(1.0), theory, time="t", A=1e3)
    assert bool(late.measured.isnull().all())
    assert (late.measured_note == "not reached to 40").all()
    columns = ["measured", "predicted", "measured_note", "predicted_note", "deviation"]
    assert list(found.to_dataframe().columns) == columns


def test_runs_of_several_settings_are_not_taken_for_one():
    """Where the time, or the setting, is not clear:
    in one line that says what to pick.
    """
    runs = students(1.0)
    with pytest.raises(ParameterError, match="have L, t: pick one of all but the time"):
        first_crossing(runs.A, 0.5)
    assert first_crossing(runs.A.sel(L=2.0), 0.5).values == pytest.approx(
        [2.0, 2.2, 2.4]
    )
    one = runs.isel(seed=0, L=0, drop=True).assign_attrs(
        parameters=json.dumps({"L": 2})
    )
    with pytest.raises(
        ParameterError, match=r"of L = 2, the runs are of several L: .*sel\(L="
    ):
        emergence_times(runs, one, time="t", A=0.5)
    p, trained = ensembles("demo")
    swept = xr.concat([trained, trained], "L").assign_coords(L=[2, 4])
    for several in (swept, swept.drop_vars("epoch")):  # whether or not steps are known
        with pytest.raises(
            ParameterError, match=r"runs: of several L: pick one: runs.sel\(L="
        ):
            state_tracking.predict(p, several)


def falls(blank=slice(0, 0), times=T[:1001]):
    """A loss that is 1/2 at t = 5."""
    values = 1 / (1 + np.exp(times - 5))
    values[blank] = np.nan
    return xr.Dataset({"loss": ("t", values)}, {"t": times})


def test_what_falls_crosses_downwards():
    """1 / (1 + exp(t - 5)) is one half at 5; so is its theory, and the quantity says
    so.
    """
    found = emergence_times(falls(), falls(), loss=0.5)
    assert found.quantity.values.tolist() == ["loss = 0.5, falling"]
    assert [x.item() for x in (found.measured, found.predicted, found.deviation)] == [
        5,
        5,
        0,
    ]
    up = emergence_times(1 - falls(), 1 - falls(), loss=0.5)
    assert up.quantity.values.tolist() == ["loss = 0.5"] and up.measured.item() == 5


def test_the_direction_is_that_of_the_crossing():
    """Of most curves, wherever they end: up first and down below the start later."""
    bump = xr.Dataset(
        {"x": ("t", np.sin(T[:1001]) * np.exp(0.1 * T[:1001]))}, {"t": T[:1001]}
    )
    found = emergence_times(bump, bump, x=0.5)
    assert bump.x[-1] < bump.x[0] and found.quantity.values.tolist() == ["x = 0.5"]
    assert found.measured.item() == pytest.approx(0.49589, abs=1e-4)


@pytest.mark.parametrize(
    ("blank", "time", "note"),
    [
        (slice(480, 505), np.nan, "blank before"),
        (slice(0, 505), np.nan, "blank before"),
        (slice(100, 300), 5, ""),
        (slice(300, None), np.nan, "not reached to 2.99, with blanks"),
        (slice(None), np.nan, "no values"),
        (slice(510, None), 5, ""),
    ],
)
def test_a_blank_is_not_never(blank, time, note):
    """Before a crossing, from a time on, everywhere; one that is not beside it changes
    nothing.
    """
    found = emergence_times(falls(blank), falls(), loss=0.5)
    np.testing.assert_equal(found.measured.item(), time)
    assert found.measured_note.item() == note and found.predicted_note.item() == ""
    early = emergence_times(falls().sel(t=slice(6, None)), falls(), loss=0.5)
    assert (early.measured.item(), early.measured_note.item()) == (
        6,
        "passed at the first time",
    )


def test_the_order_of_times_changes_nothing():
    """Of students or theory; what is no time, or none of the theory, is refused."""
    p, runs = ensembles("demo")
    curves = own_start(p, runs)
    found = emergence_times(runs, curves, A=0.5)
    for shuffled in (
        runs.isel(alpha=slice(None, None, -1)),
        runs.isel(alpha=np.random.default_rng(0).permutation(runs.sizes["alpha"])),
    ):
        xr.testing.assert_identical(emergence_times(shuffled, curves, A=0.5), found)
        xr.testing.assert_identical(
            emergence_times(runs, shuffled[["A"]].assign(A=curves.A), A=0.5).predicted,
            found.predicted,
        )
    for wrong, words in (
        (runs.drop_vars("alpha"), "dimension alpha has no times"),
        (runs.swap_dims(alpha="epoch"), "no dimension alpha; say which"),
        (
            runs.assign_coords(alpha=runs.alpha.values * np.timedelta64(1, "s")),
            "must be numbers",
        ),
        (
            runs.assign_coords(alpha=np.where(runs.alpha > 5, np.nan, runs.alpha)),
            "finite, each once",
        ),
    ):
        with pytest.raises(ParameterError, match=words):
            emergence_times(wrong, curves, A=0.5)


def test_standard_error_of_an_exponent_is_that_of_its_seeds():
    """Exponents 0.9, 1.0, 1.1 of single seeds."""
    parts = [
        students(p, (1.0,)).assign_coords(seed=[k])
        for k, p in enumerate((0.9, 1.0, 1.1))
    ]
    theory = students(1.0, (1.0,)).isel(seed=0, drop=True)
    found = exponents(
        emergence_times(xr.concat(parts, "seed"), theory, time="t", A=0.5), "L"
    )
    assert found.measured.item() == pytest.approx(1.0, rel=1e-9)
    assert found.measured_error.item() == pytest.approx(0.1 / np.sqrt(3), rel=1e-9)
    assert found.gap_error.item() == pytest.approx(0.1 / np.sqrt(3), rel=1e-9)


def test_shipped_students_against_the_flow():
    """As `verify.timescales` has it, row by row; what the theory does not describe is
    refused.
    """
    p, runs = ensembles("demo")
    runs = runs.isel(seed=slice(4))
    curves = own_start(p, runs)
    found = emergence_times(runs, curves, A=0.5, rollout_accuracy=0.5)
    assert found.sizes == {"quantity": 2, "seed": 4}
    rows = {c.name: c for c in timescales.emergence(p, runs)[0]}
    for k, name in enumerate(("time of A = 1/2", "time of rollout = 1/2")):
        ratio = 1 + found.deviation.isel(quantity=k).mean("seed").item()
        assert ratio == pytest.approx(
            rows[f"{name} by Eq. (15), measured / predicted"].measured
        )
    with pytest.raises(ParameterError, match="optimizer"):
        emergence_times(runs.assign_attrs(_adam(runs)), curves, A=0.5)


def _adam(runs):
    return {
        "parameters": json.dumps(
            json.loads(runs.attrs["parameters"]) | {"optimizer": "adam"}
        )
    }


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (dict(time="t"), "levels: none given"),
        (dict(A=0.5), "time = None: A must have one; it has L, t|levels"),
        (dict(A="0.5", time="t"), "A = '0.5': must be a number"),
        (dict(B=0.5, time="t"), "B: not measured or predicted over t; both have A"),
    ],
)
def test_what_cannot_be_answered_is_one_line(more, message):
    """With what is there."""
    runs = students(1.0)
    with pytest.raises(ParameterError, match=message):
        emergence_times(runs, runs, **more)
    for odd in (xr.Dataset({"A": 1.0}, runs.coords), runs.isel(t=0).drop_vars("t")):
        curve = odd.assign(R=runs.A)
        with pytest.raises(ParameterError, match="A: not measured over t; both have R"):
            emergence_times(curve, runs.assign(R=runs.A), time="t", A=0.5)
    with pytest.raises(ParameterError, match="along = 'N'"):
        exponents(emergence_times(runs, runs, time="t", A=0.5), "N")


def test_curves_that_cross_have_the_say():
    """Theory falls through the level; students that stay above rise by noise."""
    t = np.arange(5.0)
    theory = xr.Dataset({"x": ("t", [0.9, 0.7, 0.5, 0.3, 0.05])}, {"t": t})
    runs = xr.Dataset({"x": ("t", [0.9, 0.7, 0.5, 0.4, 0.95])}, {"t": t})
    found = emergence_times(runs, theory, x=0.1)
    assert found.quantity.item() == "x = 0.1, falling"
    assert found.predicted.item() == pytest.approx(3.8) and np.isnan(
        found.measured.item()
    )
    assert found.measured_note.item() == "not reached to 4"
