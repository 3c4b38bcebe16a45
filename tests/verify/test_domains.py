"""Curves say how far they are from single students, measured or as known from others."""

import functools
import warnings

import numpy as np
import pytest

from simulate.state_tracking import train
from theory import onset
from theory import state_tracking as st
from theory.scope import FarOff
from theory.state_tracking.levels import LEVELS
from verify import trajectories
from verify.state_tracking import domains

FEW = st.Parameters(N=5, L=6, d_g=4, d_h=16, n_train=46, n_test=8, epochs=600, eval_every=20)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return train(FEW, [1, 2], workers=1, progress=False, store=tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("level", LEVELS)
def test_a_curve_says_how_far_it_is_off(level, runs):
    """The largest deviation of A from the students followed; in warnings and comparisons, too."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        curve = st.predict(FEW, runs, level=level, accuracies=False)
    gaps = abs((curve.A.mean("draw") if "draw" in curve.dims else curve.A) - runs.A)
    off = float(gaps.max())
    assert curve.attrs["off_by"] == pytest.approx(off)
    said = [str(w.message) for w in caught if w.category is FarOff]
    assert (off < 0.05) == (not said) and (off < 0.002) == (level == "fixed_disorder")
    if said:
        worst = int(runs.seed[gaps.max("alpha").values.argmax()])
        assert said == [curve.attrs["note"]]
        assert f"A is off by up to {off:.2g}" in said[0] and f"(seed {worst})" in said[0]
        assert caught[0].filename == __file__
        assert said[0] in str(trajectories.compare(curve, runs))


def test_of_one_run_and_of_a_start(runs):
    """A run without seeds; a start whose students nobody followed says nothing."""
    with pytest.warns(FarOff, match=r"off by up to .* \(the run\)"):
        st.predict(FEW, runs.isel(seed=0), level="own_start", accuracies=False)
    start = runs.drop_vars("A")
    curve = st.predict(FEW, start, level="cavity", accuracies=False)
    assert "off_by" not in curve.attrs and np.isfinite(curve.A).all()


def test_without_students_a_curve_says_what_is_known_of_others(capsys):
    """Levels that know no training set, for drawn starts, and the flow in its notes: many more
    sequences or actions make single students like the theory, more steps to predict less so.
    """
    p = FEW.replace(N=14, L=7, d_g=18, d_h=40)
    off = {}
    for name, q in {"few": p.replace(n_train=20), "many": p.replace(n_train=20000)}.items():
        off[name] = st.predict(q, seeds=1, level="dressed", until=0.1, accuracies=False).attrs
        assert f"off by about {off[name]['off_by']:.1g}" in off[name]["note"]
    assert off["few"]["off_by"] > 0.2 > 0.1 > off["many"]["off_by"]
    short = st.predict(p.replace(L=2), seeds=1, level="cavity", until=0.1, accuracies=False)
    assert short.attrs["off_by"] < 0.05
    adam = FEW.replace(epochs=20, optimizer="adam", eta=0.003)
    tellings = [(FEW.replace(epochs=20), 0.01), (adam, 0.21), (adam.replace(n_train=500), 0.05)]
    tellings += [(adam.replace(**x), None) for x in ({"N": 44}, {"eta": 0.004}, {"clip": 1.0})]
    for q, told in tellings:
        drawn = st.predict(q, seeds=1, accuracies=False).attrs  # knows the training set
        assert drawn.get("off_by") == told and ("note" in drawn) == (told in (0.05, 0.21))
    strained = st.onset(p.replace(d_g=2, n_train=3000))
    assert "A = 1/2 at about 0.6 of this time" in strained.notes[-1]
    scarce = st.onset(p.replace(n_train=20)).notes[-1]
    assert "with n_train = 20 about 12% of them do not" in scarce
    assert st.onset(st.Parameters.demo()).notes == []
    words = st.emergence_times(st.Parameters.demo()).alpha_half.attrs["note"]
    assert "single students are off by about 0.5" in words
    assert onset.main(["state_tracking", "--set", "n_train=20"]) == 0
    assert scarce.split(":")[0] in capsys.readouterr().err


def test_the_stated_domains_are_those_of_the_map():
    """Constants of `theory.state_tracking.levels` by a fit to the evidence that comes with the
    code, and one of its settings made anew.
    """
    for row in domains.fit_checks():
        assert row.within, row
    sizes, known = domains.table()[10]
    np.testing.assert_allclose(domains.levels.__wrapped__(sizes), known, atol=2e-3)


def test_what_is_said_of_drawn_students_held_on_the_map(monkeypatch):
    """Of every student; what is said of descent alone does not hold under Adam, or of few data."""
    monkeypatch.setattr(domains, "fit_checks", list)
    monkeypatch.setattr(domains, "arrival_checks", list)
    setting = functools.cache(lambda sizes, *way, of=domains.setting: of(list(sizes), *way))
    monkeypatch.setattr(domains, "setting", lambda sizes, *way: setting(tuple(sizes), *way))
    for said, held in (({500: 0.05, 0: 0.21}, 3), ({0: 0.05}, 1), ({500: 0.01, 0: 0.21}, 1)):
        monkeypatch.setattr(domains.state_tracking_levels, "NOISY", said)
        rows = [row for row in domains.checks() if "every one" in row.name]
        assert sum(row.within for row in rows) == held
    settings = [domains.setting(*given) for given in domains.arguments(domains.students)]
    assert all(map(domains.state_tracking_levels.mapped, settings))


def test_the_domain_of_entries_by_arrivals():
    """Times under Adam inside of their scope, and one setting made anew."""
    for row in domains.arrival_checks():
        assert row.within, row
    few = min(domains.arguments(domains.arrivals), key=lambda given: np.prod(given[0][:3]))
    np.testing.assert_allclose(domains.arrivals.__wrapped__(*few), domains.arrivals(*few), 1e-3)
