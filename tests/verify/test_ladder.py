"""The ladder of levels: every step is worth it, every term can be left out, what is off
fails.
"""

import json
import types
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from known_errors import best

from theory.state_tracking import Parameters
from theory.state_tracking.single_students.realisation import Realisation, Start
from verify import fidelity as command
from verify.checks.check import estimated, failed
from verify.state_tracking import ensemble, fidelity, ladder_checks
from verify.state_tracking import ladder as measured
from verify.state_tracking.ladder import Fidelity

mpl.use("Agg")


@pytest.mark.parametrize(
    "name", ["L_2", pytest.param("eta_1.5", marks=pytest.mark.slow)]
)
def test_the_grid_is_followed(name):
    """Two seeds of two settings, two actions and large steps, within the aims of the
    whole grid.
    """
    p, runs = ensemble.shipped(name)
    runs = runs.isel(seed=slice(0, 2), alpha=slice(None, None, 4))
    found = measured.judge(p, measured.LEVELS[measured.FULL].curves(p, runs), runs)
    for measure in (
        "half_time",
        "rollout_half_time",
        "A",
        "variance_other",
        "variance_correct",
    ):
        assert np.abs(found.errors[measure]).max() < ladder_checks.AIMS[measure], (
            measure
        )


def test_every_step_of_the_ladder_is_worth_it():
    """On a few seeds of one setting, at coarse times:
    the full command runs them all.
    """
    p, runs = ensemble.shipped("unequal")
    runs = runs.isel(seed=slice(0, 2), alpha=slice(None, None, 4))
    found = {
        level: measured.judge(p, theory.curves(p, runs), runs)
        for level, theory in measured.LEVELS.items()
        if level in measured.ON_LADDER
    }
    half = [
        found[level].summary("half_time")[0]
        for level in ("flow", "own_start", "dressed")
    ]
    assert half[0] > half[1] > 2 * half[2]
    rollout = [
        found[level].summary("rollout_half_time")[0]
        for level in ("own_start", "dressed", "cavity_ample_data")
    ]
    assert rollout[0] > 1.5 * rollout[1] > 3 * rollout[2]
    right = [
        found[level].summary("variance_correct")[0]
        for level in ("dressed", "cavity_ample_data", measured.CAVITY, measured.FULL)
    ]
    assert right[0] > 3 * right[1] > 3 * right[2] * 1.2 > 20 * right[3]
    assert half[2] > 4 * found[measured.FULL].summary("half_time")[0]


@pytest.fixture(scope="module")
def ladder():
    """At Table 1 and one setting of the grid: the paper's levels run at the first; the
    others as cavity equations are known to come out.
    """
    known = dict.fromkeys(
        (measured.CAVITY, measured.COUNTS, measured.FULL), best("table_1")
    )
    scatter = {"half_time": 0.005, "rollout_half_time": 0.007}
    known[measured.FULL] = replace(best("table_1"), inside=0.818)
    known[measured.DRAWN] = replace(best("table_1"), scatter=scatter)
    levels = {k: measured.LEVELS[k] for k in (measured.PAPER, measured.OWN)} | {
        measured.FULL: types.SimpleNamespace(curves=lambda p, runs: runs)
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured, "LADDER", ("table_1",))
        patch.setattr(measured, "GRID", {"eta_1.5": measured.GRID["eta_1.5"]})
        patch.setattr(measured, "LEVELS", levels)
        patch.setattr(measured, "ON_LADDER", tuple(levels))
        patch.setattr(measured, "ON_GRID", (measured.FULL,))
        patch.setattr("simulate.training.pool.cores", lambda: 1)
        found, grid = measured.ladder()
    for levels in (found["table_1"], grid["eta_1.5"]):  # students against themselves
        assert levels[measured.FULL].summary("half_time")[0] == 0
    paper = found["table_1"][measured.PAPER]
    found = {**found["table_1"], **known}
    ordered = {
        level: {measured.PAPER: paper, **known}[level] for level in measured.ON_GRID
    }
    return {"table_1": found}, {"eta_1.5": ordered}


def test_the_command_prints_the_ladder_and_exits_0(monkeypatch, capsys, ladder):
    monkeypatch.setattr("simulate.training.pool.cores", lambda: 1)
    monkeypatch.setattr(fidelity, "ladder", lambda whole: ladder)
    monkeypatch.setattr(fidelity, "terms", lambda: {"whole": best("table_1")})
    monkeypatch.setattr(ladder_checks, "each_training_set", small_scatter)
    monkeypatch.setattr(ladder_checks, "scatter", small_scatter)
    assert command.main(["--json", "--full"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] is False and found["model"] == "state_tracking"
    assert (
        found["ladder"]["table_1"][measured.FULL]["half_time"]["value"]
        == best("table_1").summary("half_time")[0]
    )
    assert found["grid"]["eta_1.5"][measured.DRAWN]["scatter"]["half_time"] == 0.005
    # 39% in the paper's theory at n_train = 4096, found on other seeds; here 38% +-
    # 13%.
    assert 0.2 < found["ladder"]["table_1"]["flow"]["half_time"]["value"] < 0.6
    by_id = {c["id"]: c["verdict"] for c in found["checks"]}
    assert (
        by_id["time_of_A_half_by_our_theory"] == "agrees"
        and by_id["share_of_evaluations_with_the_mean_rollout_beyond_one_s_e"]
        == "limit"
    )
    assert {v for i, v in by_id.items() if i.startswith("time_of_A_half_by_paper")} == {
        "limit"
    }
    assert command.main(["--full"]) == 0
    out = capsys.readouterr().out
    assert "time of A = 1/2" in out and "eta_1.5" in out and "0.50%" in out
    monkeypatch.setattr(fidelity, "terms", None)  # minutes: not without --full
    assert command.main([]) == 0
    out = capsys.readouterr().out
    assert (
        "time of A = 1/2" in out
        and "eta_1.5" not in out
        and "not run without --full" in out
    )


def test_every_term_can_be_left_out():
    """Each system has other rates than the whole, and lacks what it says."""
    p = Parameters(N=5, L=4, d_g=4, d_h=8, n_train=200)
    start = Start.drawn(p, 2, np.random.default_rng(0))
    known = Realisation.drawn(p, start, np.random.default_rng(1))
    rates = {
        term: make(p, start, known).rates() for term, make in measured.TERMS.items()
    }
    whole = rates.pop("whole")
    for term, other in rates.items():
        assert (
            max(np.abs(x - y).max() for x, y in zip(whole, other, strict=True)) > 1e-4
        ), term
    without = {term: make(p, start, known) for term, make in measured.TERMS.items()}
    assert (without["no scatter within groups"].left == 0).all()
    # The factor 1 - 1/n of a group of n rows is left out.
    assert (without["variance about the true mean"].left == known.share).all()
    for term in ("no counts", "no M"):
        assert np.ptp(without[term].share) == 0


def small_scatter(name):
    """A check of redrawn training sets that holds."""
    return estimated(
        f"scatter over training sets, {name}", "force_noise", 1.0, 1.0, 0.01
    )


def test_what_leaves_an_aim_or_a_band_fails(ladder):
    """A last level twice as far off; one that is perfect, where it is known not to be;
    a paper's level that is.
    """
    found, grid = ladder
    levels = found["table_1"]
    full = levels[measured.FULL]
    assert not failed(ladder_checks.aims("table_1", levels)) and not failed(
        ladder_checks.off("table_1", levels)
    )
    late = replace(
        full, errors={**full.errors, "half_time": full.errors["half_time"] + 0.04}
    )
    assert failed(ladder_checks.aims("table_1", {**levels, measured.FULL: late}))
    assert failed(
        ladder_checks.aims("eta_1.5", {**grid["eta_1.5"], measured.FULL: late})
    )
    wrong = [
        c.id
        for c in ladder_checks.aims(
            "table_1", {**levels, measured.FULL: replace(full, inside=1.0)}
        )
        if c.verdict == "FAIL"
    ]
    assert wrong == ["share_of_evaluations_with_the_mean_rollout_beyond_one_s_e"]
    for level in (measured.PAPER, measured.OWN):
        assert failed(ladder_checks.off("table_1", {**levels, level: full}))


def test_scatter_that_is_not_predicted_fails(ladder):
    """Of a grid of fourteen: seeds as far off as their draws say, and twice as far."""
    random, levels = np.random.default_rng(3), ladder[1]["eta_1.5"]

    def grid(factor):
        made = {}
        for k in range(14):
            spread = 0.01 * (1 + k / 10)
            errors = (
                factor
                * spread
                * np.sqrt(1 + 1 / ladder_checks.DRAWS)
                * random.standard_normal(5)
            )
            drawn = spread * random.standard_normal((5, ladder_checks.DRAWS))
            known = float(np.sqrt((drawn.std(1, ddof=1) ** 2).mean()))
            level = Fidelity({"half_time": errors}, 1.0, 1.0, {"half_time": known})
            made[str(k)] = {**levels, measured.DRAWN: level}
        return made

    z = [ladder_checks.calibration(grid(1.0), "half_time") for _ in range(50)]
    assert not failed(z)
    assert failed([ladder_checks.calibration(grid(2.0), "half_time")])
    scores = [(c.measured - c.predicted) / c.standard_error for c in z]
    assert abs(np.mean(scores)) < 0.7 and 0.6 < np.std(scores) < 1.4
    level = replace(
        levels[measured.DRAWN], scatter={"half_time": 0.001, "rollout_half_time": 0.001}
    )
    late = replace(
        level, errors={**level.errors, "half_time": level.errors["half_time"] + 0.02}
    )
    assert failed(ladder_checks.drawn_aims("eta_1.5", {**levels, measured.DRAWN: late}))


def test_terms_are_left_out_one_by_one(monkeypatch):
    """Each omission is another system, of the same realisation, solved at the runs'
    epochs.
    """
    asked = []
    _, runs = ensemble.shipped(measured.TAKEN_APART)
    runs = runs.isel(alpha=slice(None, None, measured.EVERY_ON_GRID))

    def solve(system, epochs):
        assert list(epochs) == list(runs.epoch.values)
        asked.append(system)
        return runs

    monkeypatch.setattr(measured, "solve", solve)
    whole, no_pairs = (measured._without(term) for term in ("whole", "no pairs"))
    assert asked[0] is not asked[1] and type(asked[0]) is type(asked[1])
    assert all(float(np.abs(e).max()) == 0 for e in (*whole.errors.values(),))
    assert whole.errors.keys() == no_pairs.errors.keys()


@pytest.mark.parametrize(
    ("factor", "within"), [(5.0, True), (3.0, False), (np.nan, True)]
)
def test_errors_are_held_to_a_quarter_of_the_papers(factor, within):
    """Ours over the paper's, which may never reach a level."""
    ours = best("table_1")
    theirs = Fidelity({k: factor * v for k, v in ours.errors.items()}, 0.1, 0.1)
    levels = {measured.FULL: ours, measured.PAPER: theirs}
    rows = [
        c for c in ladder_checks.aims("table_1", levels) if "over the paper's" in c.name
    ]
    assert len(rows) == len(measured.SCATTERED)
    expected = 0.0 if np.isnan(factor) else 1 / factor
    assert all(
        c.within == within and c.measured == pytest.approx(expected) for c in rows
    )
