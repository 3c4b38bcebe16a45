"""Students from random initial weights against the flow of their class means."""

import dataclasses
import functools
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

sys.path.append(str(Path(__file__).parents[1] / "theory" / "statement"))
from random_starts import gated

from simulate.statement import of as students
from theory.models.stated import model as model_of
from theory.statement import model
from theory.statement.derivation import remedies
from theory.statement.randomness import passage, random_starts
from verify.checks.report import Request
from verify.statement import starts as checks

SEEDS = "16"


@pytest.fixture(scope="module")
def asked():
    """A statement at a saddle, and what a command asks for."""
    stated = gated(gates=1, N=4, steps=100)
    return stated, Request(model_of(stated), seeds=SEEDS, assignments=("sigma=0.02",))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A folder of its own for the students, which are trained once, for as long as is
    right.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "length", functools.cache(checks.length))
        yield tmp_path_factory.mktemp("random_weights")


@pytest.fixture
def rows(asked, store, monkeypatch):
    """Rows by their names."""
    monkeypatch.chdir(store)

    def made():
        return {c.name: c for c in checks.report(*asked).checks}

    return made


VARIANCE = "variance of class means at the start over the predicted one"
TIME = "time at which the loss is half-way, from the same start"
POWER = "power of initial weights in the error of a student's time"
ALONE = "students of which one of theory and training alone is half-way"


def test_students_follow_their_class_means(rows):
    """Nothing fails, and the time of half the fall is seen to half a percent."""
    found = rows()
    assert all(c.within for c in found.values())
    assert found[TIME].verdict == "agrees" and found[TIME].detectable < 0.01
    assert found[POWER].measured > 0.7


def test_a_start_that_is_too_large_is_seen(rows, monkeypatch):
    """Its error does not fall with the weights, and the times are off."""
    bulk = random_starts.Bulk.at
    monkeypatch.setattr(
        random_starts.Bulk, "at", lambda self, x, steps: bulk(self, 1.5 * x, steps)
    )
    found = rows()
    assert found[POWER].verdict == found[TIME].verdict == "FAIL"


def test_entries_that_are_not_counted_are_seen(rows, monkeypatch):
    """Class means with the variance of single entries."""
    plain = passage.covariance
    monkeypatch.setattr(passage, "covariance", lambda made, p: plain(made, p) * 9)
    assert rows()[VARIANCE].verdict == "FAIL"


def test_a_wrong_clock_is_seen(rows, monkeypatch):
    """Steps that are three percent too long."""
    step = random_starts.Bulk.step

    def longer(self, x):
        return x + 1.03 * (step(self, x) - x)

    monkeypatch.setattr(random_starts.Bulk, "step", longer)
    assert rows()[TIME].verdict == "FAIL"


def test_curves_of_single_students_begin_where_they_begin(asked, store, monkeypatch):
    """Every seed from its own class means; single seeds are off in first order of the
    weights.
    """
    monkeypatch.chdir(store)
    stated, _ = asked
    theory, off = model.theory_of(stated), []
    for sigma in (0.04, 0.02):
        p = theory.Parameters(sigma=sigma, steps=60)
        runs = students(stated).train(p, seeds=range(4), progress=False)
        curve = theory.predict(p, runs)
        for x in ("delta_W", "a0"):
            np.testing.assert_array_equal(curve[x].isel(t=0), runs[x].isel(t=0))
            off.append(float(abs(curve[x] - runs[x]).max() / abs(runs[x]).max()))
    assert max(off[2:]) < max(off[:2]) and max(off) < 0.1


def once(function):
    """What a function gives at its first call."""
    found = []
    return lambda *given: (found or found.append(function(*given)) or found)[0]


@pytest.mark.parametrize("gates, sigma, wrong", [(0, 0.3, 0.5), (1, 0.1, 0.0)])
def test_what_scatters_about_class_means_is_counted(
    gates, sigma, wrong, store, monkeypatch
):
    """Without a saddle, where half of it left out is seen, and at one, where all of it
    is.
    """
    monkeypatch.chdir(store)
    stated = gated(gates=gates, N=4)
    p = model.theory_of(stated).Parameters(sigma=sigma)
    p = p.run_to(checks.length(stated, p))
    drawn = model.theory_of(stated).emergence_times(p, seeds=400)
    runs = students(stated).train(p, seeds=range(64), progress=False)
    for module, name in ((passage, "passage"), (passage, "beside"), (checks, "times")):
        monkeypatch.setattr(module, name, once(getattr(module, name)))
    counted = passage.beside
    for share, verdict in ((1, "agrees"), (wrong, "FAIL")):
        monkeypatch.setattr(
            passage, "beside", lambda *p, share=share: share * counted(*p)
        )
        (row,) = (c for c in checks.checks(stated, p, runs, drawn)[0] if c.name == TIME)
        assert row.verdict == verdict


def test_a_mean_shift_is_that_over_amplitudes():
    """At a saddle, of both signs: of one amplitude, whose logarithm is the mean one."""
    made = remedies.derived(stated := gated(gates=1, N=4))
    p = model.theory_of(stated).Parameters(sigma=1e-3)
    found = passage.passage(made, p, level := 0.7, 10_000)
    sizes = scipy.stats.halfnorm.ppf((np.arange(8) + 0.5) / 8) / passage.MEAN_LOG
    each = [
        passage.beside(
            made, p, dataclasses.replace(found, along=s * found.along), level
        )
        for s in sizes
    ]
    assert passage.beside(made, p, found, level) == pytest.approx(
        np.mean(each), rel=0.01
    )
    assert max(each) > 1.1 * min(each)
    assert np.isnan(
        passage.beside(made, p, found, -1.0)
    )  # a level that is never reached


def test_an_onset_says_what_scatter_adds():
    """With fluctuations alone: of second order in the weights."""
    theory = model.theory_of(gated(gates=0, N=4))
    assert "beside_means" not in theory.onset(theory.Parameters(sigma=0.1)).numbers
    few, many = (
        theory.onset(theory.Parameters(sigma=s), fluctuations=True).numbers[
            "beside_means"
        ]
        for s in (0.05, 0.1)
    )
    assert many / few == pytest.approx(4, rel=1e-3)
