"""Rows about rewards hold for the shipped students; clocks or orbits that were off fail."""

import numpy as np
import pytest
import xarray as xr

from theory.parameters import ParameterError
from theory.registry import MODELS
from theory.state_tracking import Parameters, predict
from verify.emergence import first_crossing
from verify.report import Report, Request
from verify.state_tracking import rewards
from verify.state_tracking import rewards as laws
from verify.state_tracking import rewards as single


@pytest.fixture(scope="module")
def shipped():
    return {kind: rewards.shipped(kind) for kind in rewards.KINDS}


def test_shipped_students_hold():
    """Every kind in every window that it passes; five seeds decide some of them."""
    found = Report(laws.clock_checks(Request(MODELS["state_tracking"])))
    assert found.exit_code == 0
    assert {c.id for c in found.checks} == {
        "clock_of_rewards",
        "orbit_of_rewards",
        "no_learning_from_scratch",
    }
    for kind in laws.EQUATION:
        rows = [c for c in found.checks if f", {kind}" in c.name]
        assert len(rows) >= 3
        decided = [c for c in rows if c.verdict in ("agrees", "limit")]
        assert any(c.id == "clock_of_rewards" for c in decided)
        assert any(c.id == "orbit_of_rewards" for c in decided)


def off(shipped, change, kind="outcome"):
    """Names of the rows that fail for changed students."""
    made = {**shipped, kind: change(shipped[kind].copy())}
    return [c.name for c in laws.compare(made, rewards.SMALL) if not c.within]


@pytest.mark.parametrize("pace", [0.8, 1.25])
def test_another_clock_is_seen(shipped, pace):
    """Rewards a fifth faster or slower, in all windows but the first, where a seed stands out."""
    slower = lambda runs: runs.assign_coords(alpha=runs.alpha * pace)  # noqa: E731
    assert len([n for n in off(shipped, slower) if n.startswith("clock of rewards, outcome")]) >= 2


def test_another_law_is_seen(shipped):
    """L x^L s, one factor of x too many; rewards per step for the outcome."""
    wrong = Parameters.rewards().replace(reward="step")
    rows = laws.clocks("outcome", wrong, shipped["supervised"], shipped["outcome"])
    assert rows and not any(c.within for c in rows)


def test_another_orbit_is_seen(shipped):
    def moved(runs):
        runs["A"] = runs.A - 0.03 * (runs.rewarded > 0)
        runs["S"] = runs.S + 0.03 * runs.R
        return runs

    failed = off(shipped, moved)
    assert [n for n in failed if "A at equal R" in n] and [n for n in failed if "S at equal R" in n]


def test_learning_from_guesses_would_be_seen(shipped):
    def taught(runs):
        labels = shipped["supervised"].R.interp(alpha=runs.alpha)
        runs["R"] = runs.R + 0.1 * labels
        return runs

    assert off(shipped, taught, "scratch")


def test_too_short_runs_give_no_row(shipped):
    short = lambda runs: runs.isel(alpha=slice(0, 30))  # noqa: E731
    made = {**shipped, "outcome": short(shipped["outcome"])}
    assert not [c for c in laws.compare(made, rewards.SMALL) if "outcome" in c.name]


@pytest.fixture(scope="module")
def seeds():
    return single.shipped_singles()


@pytest.fixture(scope="module")
def ours(seeds):
    return single.errors(single.single_parameters(), seeds)


def test_single_students_hold(ours):
    """Three students that were trained after theory and bars were committed."""
    assert [c.within for c in single.rows(ours)] == [True] * 3


def test_a_student_with_normalised_groups():
    """One of five shipped students; the other four are rows of the command."""
    assert [c.within for c in single.rows(single.in_groups([0]))] == [True] * 3


def test_theory_of_another_seed_is_seen(seeds, ours):
    """Each student beside the curve of the next one: the theory knows which is which."""
    title = "time of expected reward 1/2"
    measured = first_crossing(seeds.expected_reward, 0.5).values
    shuffled = (1 + ours[title]) * measured / np.roll(measured, 1) - 1
    assert not any(c.within for c in single.rows({title: shuffled}))


@pytest.mark.parametrize(
    "kl",
    [
        x if x == single.PENALTIES[0] else pytest.param(x, marks=pytest.mark.slow)
        for x in single.PENALTIES
    ],
)
def test_students_under_a_penalty(kl, monkeypatch):
    """Where they are at the end, on both sides of the critical weight; the mean of another weight
    is seen.
    """
    runs, predict, ours = single.shipped_singles(kl), single.predict, []

    def once(*given, **more):
        """The theory of these starts, which both share."""
        return ours[0] if ours else (ours.append(predict(*given, **more)) or ours[0])

    monkeypatch.setattr(single, "predict", once)
    assert single.stopped(kl, runs).within
    other = runs.assign(success=single.shipped_singles(sum(single.PENALTIES) - kl).success)
    assert not single.stopped(kl, other).within


def test_other_rewards_are_refused(seeds):
    p = single.single_parameters()
    for name, value in (("reward", "step"), ("pretrain", 0.4), ("kl", 0.1), ("eval_every", 8)):
        with pytest.raises(ParameterError, match=f"{name} = {value}: the runs were trained with"):
            predict(p.replace(**{name: value}), seeds, level="fixed_disorder")


def test_errors_are_those_of_the_theory():
    """A theory that is half as late is off by -1/2."""
    rising = xr.DataArray(
        np.linspace(0, 1, 11)[None], {"alpha": np.arange(11.0)}, ("seed", "alpha")
    )
    late = xr.Dataset(dict.fromkeys(("expected_reward", "success", "A"), rising))
    early = late.assign_coords(alpha=late.alpha / 2)
    for error in single._errors(early, late).values():
        assert error == pytest.approx(-0.5)
