"""Levels of theory beside the shipped ensembles: errors are those of the curves, and
what misses its aim fails.
"""

import json
import re

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr

from simulate.state_tracking import train
from theory.state_tracking import Parameters
from theory.state_tracking.single_students.levels import LEVELS
from verify import fidelity as command
from verify.checks.check import failed
from verify.compare.emergence import first_crossing
from verify.state_tracking import ensemble, fidelity

mpl.use("Agg")


def shifted(runs: xr.Dataset, by: float) -> xr.Dataset:
    """The same curves, later."""
    moved = runs.assign_coords(alpha=runs.alpha + by).interp(
        alpha=runs.alpha, kwargs={"fill_value": "extrapolate"}
    )
    return moved.fillna(runs.isel(alpha=0, drop=True))


@pytest.fixture(scope="module")
def table_1() -> tuple[Parameters, xr.Dataset]:
    return ensemble.shipped("table_1")


@pytest.mark.parametrize("name", ensemble.SETTINGS)
def test_shipped_ensembles_are_what_their_setting_says(name):
    setting = ensemble.SETTINGS[name]
    p, runs = ensemble.shipped(name)
    assert p == setting.p.run_to(setting.alpha)
    assert runs.seed.values.tolist() == list(setting.seeds)
    assert runs.alpha[-1] == setting.alpha
    assert runs.attrs["command"] == setting.command
    assert runs.sizes.get("data_draw", 1) == len(setting.draws)
    assert {
        "W_Q_start",
        "W_K_start",
        "R",
        "S",
        "zeta",
        "M_variance_correct",
        "M_variance_other",
    } <= set(runs)
    assert (ensemble.SHIPPED / f"{name}.nc").stat().st_size < 1.5e6


def test_a_shipped_seed_can_be_trained_again(tmp_path):
    """The first epochs of a seed of the demo setting, here and in the file."""
    p, runs = ensemble.shipped("demo")
    again = train(
        p, alpha=0.4, seeds=[3], store=tmp_path, progress=False, workers=1
    ).sel(seed=3)
    stored = runs.sel(seed=3).isel(alpha=slice(0, 3))
    for name in ("A", "R", "S", "zeta", "loss", "variance_other"):
        # Single precision on both sides, in the training and in the file.
        assert again[name].values[:3] == pytest.approx(
            stored[name].values, rel=1e-5, abs=1e-6
        ), name


def test_a_perfect_theory_has_no_error(table_1):
    found = fidelity.deviations(*table_1, table_1[1])
    assert found.keys() == fidelity.MEASURES.keys()
    assert all(np.abs(x).max() == 0 for x in found.values())
    assert all(len(x) == table_1[1].sizes["seed"] for x in found.values())


def test_a_late_theory_is_found_late(table_1):
    p, runs = table_1
    found = fidelity.deviations(p, shifted(runs, 0.1), runs)
    half = first_crossing(runs.A, 0.5).values
    # Curves move rigidly: the crossing does so too, up to linear interpolation between
    # evaluations 0.05 apart.
    assert found["half_time"] == pytest.approx(0.1 / half, rel=0.02)
    value, error = fidelity.summary("half_time", found["half_time"])
    assert value == pytest.approx(np.sqrt(np.mean((0.1 / half) ** 2)), rel=0.02)
    assert error > 0


@pytest.mark.parametrize("name", fidelity.CURVES)
def test_each_curve_is_judged(table_1, name):
    """One of them off by 0.2 at one time of one seed: its deviation, and no other's; of
    R over its largest value.
    """
    p, runs = table_1
    wrong = runs.copy(deep=True)
    wrong[name][{"seed": 2, "alpha": 5}] += 0.2
    found = fidelity.deviations(p, wrong, runs)
    scale = float(runs.R.isel(seed=2).max()) if name == "R" else 1.0
    assert found.pop(name)[2] == pytest.approx(0.2 / scale, rel=1e-5)
    assert all((found[other] == 0).all() for other in {*fidelity.CURVES} - {name})


def test_a_theory_that_never_emerges_says_never(table_1):
    p, runs = table_1
    found = fidelity.deviations(p, runs.assign(A=xr.full_like(runs.A, 0.1)), runs)
    assert np.isnan(found["half_time"]).all()
    assert fidelity.rows({"flat": found})[0] == ["time of A = 1/2", "never"]


def test_standard_errors_are_those_of_leaving_out_a_seed():
    """Of every cell of a table, read back from its text: value and standard error in
    its unit.
    """
    random = np.random.default_rng(0)
    errors = {
        name: 0.2 + 0.1 * random.standard_normal(300) for name in fidelity.MEASURES
    }
    table = fidelity.rows({"level": errors})
    for (name, values), (_, cell) in zip(errors.items(), table, strict=True):
        timed = name in fidelity.TIMES
        mean = (lambda x: np.sqrt(np.mean(x**2))) if timed else np.mean
        without = [mean(np.delete(values, k)) for k in range(values.size)]
        error = np.std(without) * np.sqrt(values.size - 1)
        number, digits, unit = re.fullmatch(r"([\d.]+)\((\d+)\)(%?)", cell).groups()
        assert (unit == "%") == timed
        of = 100 if unit else 1
        last = 10.0 ** -len(number.partition(".")[2])
        assert float(number) == pytest.approx(of * mean(values), abs=0.51 * last), name
        assert int(digits) * last == pytest.approx(of * error, abs=0.7 * last), name


def test_seeds_that_do_not_get_there_are_not_timed(table_1):
    """The others are, as before; where none does, there is no error to tell."""
    p, runs = table_1
    flat = runs.assign(A=runs.A.where(runs.seed != runs.seed[1], 0.1))
    found = fidelity.deviations(p, shifted(runs, 0.1), flat)
    assert len(found["half_time"]) == runs.sizes["seed"] - 1
    every = fidelity.deviations(p, shifted(runs, 0.1), runs)["half_time"]
    np.testing.assert_array_equal(found["half_time"], np.delete(every, 1))
    none = fidelity.deviations(p, runs, runs.assign(A=xr.full_like(runs.A, 0.1)))
    assert np.isnan(fidelity.summary("half_time", none["half_time"])).all()


@pytest.fixture(scope="module")
def ladder():
    """Table 1, with students in place of the best level."""
    p, runs = ensemble.shipped("table_1")
    runs = runs.isel(alpha=slice(None, None, fidelity.EVERY))
    levels = {
        level: fidelity._at_setting("table_1", level)
        for level in (fidelity.PAPER, fidelity.JUDGED)
    }
    return {"table_1": {**levels, fidelity.BEST: fidelity.deviations(p, runs, runs)}}


@pytest.mark.parametrize("name", fidelity.MEASURES)
def test_what_misses_an_aim_fails(ladder, name):
    """The best level in any quantity, in one seed."""
    assert not failed(fidelity.checks(ladder))
    levels = ladder["table_1"]
    errors = levels[fidelity.BEST][name].copy()
    errors[0] += 3 * fidelity.AIMS[name]
    off = {**levels, fidelity.BEST: {**levels[fidelity.BEST], name: errors}}
    wrong = [c for c in fidelity.checks({"table_1": off}) if c.verdict == "FAIL"]
    words = fidelity.MEASURES[name]
    assert [c.name.startswith(f"{words} by our theory") for c in wrong] == [True]


@pytest.mark.parametrize("name", fidelity.PAPER_OFF_BY)
def test_a_paper_that_is_right_leaves_its_band(ladder, name):
    levels = ladder["table_1"]
    right = {**levels, fidelity.PAPER: levels[fidelity.BEST]}
    wrong = [c.name for c in fidelity.checks({"table_1": right}) if not c.within]
    assert any(x.startswith(f"{fidelity.MEASURES[name]} by paper") for x in wrong)


def test_the_command_prints_the_levels_and_exits_0(monkeypatch, capsys, ladder):
    asked = []

    def every_level(settings, levels):
        asked.append(settings)
        return ladder if settings == fidelity.SETTINGS else {}

    monkeypatch.setattr(fidelity, "every_level", every_level)
    assert command.main(["--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] is False and found["model"] == "state_tracking"
    per_seed = ladder["table_1"][fidelity.PAPER]["A"]
    told = found["levels"]["table_1"][fidelity.PAPER]["A"]
    assert told["per_seed"] == pytest.approx(per_seed)
    assert told["value"] == pytest.approx(per_seed.mean())
    assert asked == [fidelity.SETTINGS]
    assert command.main([]) == 0
    out = capsys.readouterr().out
    assert "rollout half-time" in out and "not run without --full" in out


def test_two_seeds_of_a_setting_of_the_grid_are_followed():
    """Large chains of few actions, L = 2, within what all settings are to reach, in
    every quantity.
    """
    p, runs = ensemble.shipped("L_2")
    runs = runs.isel(seed=slice(0, 2), alpha=slice(None, None, 4))
    found = fidelity.deviations(p, LEVELS[fidelity.BEST].curves(p, runs), runs)
    for name, errors in found.items():
        assert np.abs(errors).max() < fidelity.AIMS[name], name


def test_renewed_ensembles_are_read_back(monkeypatch, tmp_path):
    """Both kinds of setting, at tiny size, from training to what is compared."""
    tiny = Parameters(N=5, L=3, d_g=5, d_h=8, n_train=64, n_test=32, eval_every=5)
    settings = {
        "one": ensemble.Setting("one", tiny, 1.0, range(2)),
        "drawn": ensemble.Setting("drawn", tiny, 1.0, range(2), range(2)),
    }
    monkeypatch.setattr(ensemble, "SETTINGS", settings)
    monkeypatch.setattr(ensemble, "SHIPPED", tmp_path / "shipped")
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr("simulate.training.pool.cores", lambda: 1)
    ensemble.renew("cpu", progress=False)
    (p, one), (_, drawn) = (ensemble.shipped(name) for name in settings)
    assert p == tiny.run_to(1.0) and one.sizes["seed"] == 2
    assert (
        drawn.A.dims == ("data_draw", "seed", "alpha") and drawn.sizes["data_draw"] == 2
    )
    # A draw moves the training set only: the start is the seed's, the rest of the curve
    # is not.
    first, last = (drawn.A.isel(alpha=k).values for k in (0, -1))
    assert (first == first[0]).all() and len({tuple(row) for row in last}) == 2
    assert drawn.A.isel(data_draw=0).values.tobytes() == one.A.values.tobytes()
