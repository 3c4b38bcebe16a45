"""Emergence times and exponents of students beside those of a theory."""

import json

import numpy as np
import pytest
import xarray as xr

from theory.parameters import ParameterError
from verify import ensembles
from verify.state_tracking import timescales
from verify.state_tracking.trajectories import own_start
from verify.times import emergence_times, exponents

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
    """Students with exponent 1.05, predicted 1, in every seed; a level that is not reached."""
    theory = students(1.0, (1.0,)).isel(seed=0, drop=True)
    found = emergence_times(students(1.05), theory, time="t", A=0.5)
    assert found.measured.dims == ("quantity", "seed", "L")
    assert found.sel(L=4.0, seed=2).measured.item() == pytest.approx(1.2 * 4**1.05, rel=1e-9)
    assert found.sel(L=4.0).predicted.item() == pytest.approx(4, rel=1e-9)
    assert found.deviation.sel(L=2.0, seed=0).item() == pytest.approx(2**0.05 - 1, rel=1e-6)
    made = exponents(found, "L").isel(quantity=0)
    assert made.measured.item() == pytest.approx(1.05, rel=1e-9)
    assert made.gap.item() == pytest.approx(0.05) and made.predicted.item() == pytest.approx(1)
    assert made.measured_error.item() < 1e-9 and np.isnan(made.predicted_error)
    late = emergence_times(students(1.0), theory, time="t", A=1e3)
    assert bool(late.measured.isnull().all())
    assert list(found.to_dataframe().columns) == ["measured", "predicted", "deviation"]


def test_standard_error_of_an_exponent_is_that_of_its_seeds():
    """Exponents 0.9, 1.0, 1.1 of single seeds."""
    parts = [students(p, (1.0,)).assign_coords(seed=[k]) for k, p in enumerate((0.9, 1.0, 1.1))]
    theory = students(1.0, (1.0,)).isel(seed=0, drop=True)
    found = exponents(emergence_times(xr.concat(parts, "seed"), theory, time="t", A=0.5), "L")
    assert found.measured.item() == pytest.approx(1.0, rel=1e-9)
    assert found.measured_error.item() == pytest.approx(0.1 / np.sqrt(3), rel=1e-9)
    assert found.gap_error.item() == pytest.approx(0.1 / np.sqrt(3), rel=1e-9)


def test_shipped_students_against_the_flow():
    """As `verify.timescales` has it, row by row; what the theory does not describe is refused."""
    p, runs = ensembles("demo")
    curves = own_start(p, runs)
    found = emergence_times(runs, curves, A=0.5, rollout_accuracy=0.5)
    assert found.sizes == {"quantity": 2, "seed": 20}
    rows = {c.name: c for c in timescales.emergence(p, runs)[0]}
    for k, name in enumerate(("time of A = 1/2", "time of rollout = 1/2")):
        ratio = 1 + found.deviation.isel(quantity=k).mean("seed").item()
        assert ratio == pytest.approx(rows[f"{name} by Eq. (15), measured / predicted"].measured)
    with pytest.raises(ParameterError, match="optimizer"):
        emergence_times(runs.assign_attrs(_adam(runs)), curves, A=0.5)


def _adam(runs):
    return {"parameters": json.dumps(json.loads(runs.attrs["parameters"]) | {"optimizer": "adam"})}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (dict(time="t"), "levels: none given"),
        (dict(A=0.5), "time = None: A must have one; it has L, t"),
        (dict(B=0.5, time="t"), "B: not measured or predicted; both have A"),
    ],
)
def test_what_cannot_be_answered_is_one_line(more, message):
    """With what is there."""
    runs = students(1.0)
    with pytest.raises(ParameterError, match=message):
        emergence_times(runs, runs, **more)
    with pytest.raises(ParameterError, match="along = 'N'"):
        exponents(emergence_times(runs, runs, time="t", A=0.5), "N")
