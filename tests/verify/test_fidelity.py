"""Levels of theory: correctness of the errors, and improvement by every level on the
shipped ensembles.
"""

import re

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr

from simulate.state_tracking import train
from theory.state_tracking import Parameters
from theory.state_tracking.single_students.levels import LEVELS
from theory.state_tracking.single_students.realisation import Realisation, Start
from verify.state_tracking import ensemble, fidelity, ladder_checks
from verify.state_tracking import ladder as measured
from verify.state_tracking.ladder import Fidelity

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


def test_standard_error_of_the_scatter_over_training_sets(monkeypatch):
    """Where theory and students scatter alike, z does as it should: 200 repetitions."""
    random = np.random.default_rng(0)
    alpha, seeds, draws, spread = np.array([0.0, 2.0]), 10, 4, 0.01

    def runs(name):
        times = 1 + spread * random.standard_normal((draws, seeds, 1))
        curves = xr.DataArray(
            alpha / (2 * times),
            {"data_draw": range(draws), "seed": range(seeds), "alpha": alpha},
            ("data_draw", "seed", "alpha"),
        )
        return Parameters.demo(), curves.to_dataset(name="A")

    def drawn(*_):
        times = 1 + spread * random.standard_normal((ladder_checks.FORCES, seeds))
        return times.std(0, ddof=1) / times.mean(0)

    monkeypatch.setattr(ensemble, "shipped", runs)
    monkeypatch.setattr(ladder_checks, "data_scatter", drawn)
    monkeypatch.setattr(ladder_checks.Start, "measured", lambda runs: None)
    found = [ladder_checks.scatter("any") for _ in range(200)]
    z = [(c.measured - c.predicted) / c.standard_error for c in found]
    # The mean scatters by 0.07, the deviation by 0.05: four of them, and the curved
    # logarithm.
    assert abs(np.mean(z)) < 0.3 and abs(np.std(z) - 1) < 0.2


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


def test_variances_are_compared_at_equal_attention():
    """A theory of three times whose variance is linear in A: students on that line are
    met wherever they lie, on a line 10% higher nowhere.
    """
    theory = xr.Dataset(
        {"A": ("alpha", [0.0, 0.5, 1.0]), "v": ("alpha", [1.0, 2.0, 3.0])}
    )
    A = np.array([0.1, 0.3, 0.6, 0.8, 0.99])
    for factor in (1.0, 1.1):
        run = xr.Dataset({"A": ("alpha", A), "v": ("alpha", factor * (1 + 2 * A))})
        assert measured._at_equal_A(theory, run, "v") == pytest.approx(
            1 - 1 / factor, abs=1e-14
        )


def test_a_perfect_theory_has_no_error(table_1):
    found = measured.judge(*table_1, table_1[1])
    assert all(np.abs(x).max() == 0 for x in found.errors.values())
    assert found.inside == found.paired == 1


def test_a_late_theory_is_found_late(table_1):
    p, runs = table_1
    found = measured.judge(p, shifted(runs, 0.1), runs)
    half = measured.first_crossing(runs.A, 0.5).values
    # Curves move rigidly: the crossing does so too, up to linear interpolation between
    # evaluations 0.05 apart.
    assert found.errors["half_time"] == pytest.approx(0.1 / half, rel=0.02)
    assert (
        found.errors["at_equal_A"] < 0.01
    ).all()  # what is compared at equal attention does not see a shift
    value, error = found.summary("half_time")
    assert (
        value == pytest.approx(np.sqrt(np.mean((0.1 / half) ** 2)), rel=0.02)
        and error > 0
    )


def test_a_wrong_variance_is_found(table_1):
    p, runs = table_1
    found = measured.judge(
        p, runs.assign(variance_other=runs.variance_other * 1.05), runs
    )
    assert found.errors["variance_other"] == pytest.approx(
        0.05, rel=1e-4
    )  # stored in single precision
    assert found.errors["at_equal_A"] == pytest.approx(0.05, rel=1e-4)
    assert (found.errors["variance_correct"] == 0).all()


def test_a_theory_that_never_emerges_says_never(table_1):
    p, runs = table_1
    found = measured.judge(p, runs.assign(A=xr.full_like(runs.A, 0.1)), runs)
    assert np.isnan(found.errors["half_time"]).all()
    assert fidelity.rows({"flat": found})[0] == ["time of A = 1/2", "never"]


def test_standard_errors_are_those_of_leaving_out_a_seed():
    """Of every cell of a table, read back from its text: value and standard error in
    its unit.
    """
    random = np.random.default_rng(0)
    errors = {
        name: 0.2 + 0.1 * random.standard_normal(300) for name in measured.MEASURES
    }
    table = fidelity.rows({"level": Fidelity(errors, 1.0, 1.0)})
    for (name, values), (_, cell) in zip(errors.items(), table, strict=True):
        mean = (
            np.mean if name in measured.ABSOLUTE else lambda x: np.sqrt(np.mean(x**2))
        )
        without = [mean(np.delete(values, k)) for k in range(values.size)]
        error = np.std(without) * np.sqrt(values.size - 1)
        number, digits, unit = re.fullmatch(r"([\d.]+)\((\d+)\)(%?)", cell).groups()
        assert (unit == "%") == (name not in measured.ABSOLUTE)
        of = 100 if unit else 1
        last = 10.0 ** -len(number.partition(".")[2])
        assert float(number) == pytest.approx(of * mean(values), abs=0.51 * last), name
        assert int(digits) * last == pytest.approx(of * error, abs=0.7 * last), name


def test_scatter_and_shares_are_those_of_the_curves(table_1):
    """Three draws of a late theory: scatter relative to their own mean time; shares of
    evaluations by a loop, of the unpaired standard error under its name.
    """
    p, runs = table_1
    late = (0.1, 0.3, 0.5)
    found = measured.judge(p, xr.concat([shifted(runs, x) for x in late], "draw"), runs)
    half = measured.first_crossing(runs.A, 0.5).values
    scatter = np.std(late, ddof=1) / (half + np.mean(late))
    assert found.scatter["half_time"] == pytest.approx(
        np.sqrt(np.mean(scatter**2)), rel=0.03
    )
    theory = np.mean([shifted(runs, x).rollout_accuracy.values for x in late], 0)
    students, inside, paired = runs.rollout_accuracy.values, 0, 0
    for ours, theirs in zip(theory.T, students.T, strict=True):
        gap, floor = ours - theirs, 0.5 / ensemble.TESTED
        errors = [
            max(np.std(x, ddof=1) / np.sqrt(len(gap)), floor) for x in (theirs, gap)
        ]
        inside += abs(np.mean(gap)) <= errors[0]
        paired += abs(np.mean(gap)) <= errors[1]
    told = found.as_dict()
    assert told["mean_rollout_within_one_se"] == pytest.approx(inside / len(theory.T))
    assert told["paired"] == pytest.approx(paired / len(theory.T)) and inside != paired
    assert told["half_time"]["standard_error"] == found.summary("half_time")[1]


def test_seeds_that_do_not_get_there_are_not_timed(table_1):
    """The others are, as before; where none does, there is no error to tell."""
    p, runs = table_1
    flat = runs.assign(A=runs.A.where(runs.seed != runs.seed[1], 0.1))
    found = measured.judge(p, shifted(runs, 0.1), flat)
    assert len(found.errors["half_time"]) == runs.sizes["seed"] - 1
    whole = measured.judge(p, shifted(runs, 0.1), runs).errors["half_time"]
    np.testing.assert_array_equal(found.errors["half_time"], np.delete(whole, 1))
    none = measured.judge(p, runs, runs.assign(A=xr.full_like(runs.A, 0.1)))
    assert np.isnan(none.summary("half_time")).all()


def test_counts_are_those_of_a_seed_without_pairs_and_matrices():
    p, runs = ensemble.shipped("demo")
    runs = runs.isel(seed=slice(0, 1))
    whole = Realisation.of(p, runs)
    (counts,) = LEVELS["disorder_counts"].known(p, runs, Start.measured(runs))
    assert (counts.share == whole.share).all() and (
        counts.teachers == whole.teachers
    ).all()
    assert whole.pairs is not None and counts.pairs is None
    assert (counts.M != whole.M).all()


def test_single_training_sets_are_followed(monkeypatch):
    """Reduced to one draw of three seeds; with the counts of another draw the check
    fails.
    """
    p, runs = ensemble.shipped("draws_2048")
    few = runs.isel(seed=slice(0, 3), data_draw=slice(1, 2)).assign_coords(
        data_draw=[1]
    )
    monkeypatch.setattr(ensemble, "shipped", lambda name: (p, few))
    check = ladder_checks.each_training_set("draws_2048")
    assert check.verdict == "agrees" and check.measured < 4e-3
    crossed = few.assign_coords(data_draw=[0])
    monkeypatch.setattr(ensemble, "shipped", lambda name: (p, crossed))
    assert ladder_checks.each_training_set("draws_2048").verdict == "FAIL"


def test_renewed_ensembles_are_read_back(monkeypatch, tmp_path):
    """Both kinds of setting, at tiny size, from training to the ladder's input."""
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
    for level in (measured.DRAWN, measured.COUNTS):  # what the ladder above leaves out
        assert np.isfinite(measured.LEVELS[level].curves(p, one).A).all()
