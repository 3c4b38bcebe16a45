"""Ends of full-batch students from random weights: the shipped ensemble, names, table, checks."""

import numpy as np
import pytest

from theory.parameters import ParameterError
from theory.registry import find
from verify.positional_semantic import random_starts as starts
from verify.report import Request

ONLY = {  # what the flow says at most sentences
    omega: dict.fromkeys(starts.ENDS, 0.0) | {end: 1.0}
    for omega, end in ((0.1, "semantic"), (0.3, "semantic"), (0.5, "positional"))
}
FLOW = {(0.1, 0.5): "positional", (0.3, 8.0): "semantic"}


@pytest.fixture(scope="module")
def shipped():
    """The ensemble that comes with the code."""
    return starts.shipped()


def pretended(omega, alpha, d):
    """Shares that tell cells and ends apart."""
    return {"positional": omega, "semantic": alpha / 10, "neither": 1 / d}


def test_the_shipped_ensemble_is_what_its_settings_say(shipped):
    """Sizes, minima, and one cell of few sentences trained again."""
    assert [*shipped.seed.values] == [*starts.SEEDS]
    assert float(starts.settled(shipped).min()) == 1
    seeds = [*starts.SEEDS][:4]
    again = starts.ensemble(seeds, (0.5,), (0.5,), (100,))
    kept = shipped.sel(seed=seeds, omega=[0.5], alpha=[0.5], d=[100])
    # A few students in a hundred may pass a saddle on another side by rounding.
    same = np.isclose(again.train_loss, kept.train_loss, rtol=1e-4)
    assert same.mean() > 0.8


def test_every_student_has_one_end(shipped):
    """Shares of a cell add up to one; losses between the minima make it neither."""
    found = starts.ends(shipped)
    assert (found.sum("end") == 1).all()
    moved = shipped.copy(deep=True)
    moved.train_loss.loc[{"student": "descent"}] *= 1.01
    less = starts.ends(moved).sel(end="neither", student="descent").mean()
    assert less > 0.95 > found.sel(end="neither", student="descent").mean()


def test_informed_students_would_end_in_their_own_minimum(shipped):
    """Put in the place of random ones, each counts as its own kind, where the two differ."""
    loss = shipped.train_loss
    differ = abs(loss.sel(student="semantic") / loss.sel(student="positional") - 1) > starts.SAME
    for name in starts.BRANCHES:
        own = shipped.sel(student=name)
        as_random = shipped.copy(deep=True)
        for x in starts.KEPT:
            as_random[x].loc[{"student": "descent"}] = own[x]
        share = starts.ends(as_random).sel(end=name, student="descent")
        assert bool((share.where(differ) != 0).all())


def test_the_flow_knows_which_end_is_which(shipped):
    """Shares by the flow stand under their own names, cell by cell."""
    of = starts.predictions(shipped, pretended)
    at = of.sel(omega=0.3, alpha=2.0, d=200)
    assert at.sel(end="positional") == 0.3 and at.sel(end="semantic") == 0.2
    assert at.sel(end="neither") == 1 / 200
    for (omega, alpha), name in FLOW.items():
        assert starts.predicted(omega, alpha, 100)[name] == 1


def test_checks_see_a_share_that_is_off(shipped):
    """Both comparisons pass, and fail with a third of the ends of one side changed."""
    found = starts.ends(shipped)
    assert all(c.within for c in (*starts.sizes(found), *starts.optimisers(found)))
    for check, at in ((starts.sizes, {"d": 200}), (starts.optimisers, {"student": "Adam"})):
        moved = found.copy(deep=True)
        some = {**at, "omega": 0.5, "alpha": 2.0, "seed": [*starts.SEEDS][::3]}
        moved.loc[{**some, "end": "positional"}] = 0.0
        moved.loc[{**some, "end": "neither"}] = 1.0
        assert not all(c.within for c in check(moved))


def test_ends_by_the_flow(shipped):
    """At most sentences as it says, or as often as is known; a third elsewhere is seen, and so is a
    flow that sends starts to the other end.
    """
    found = starts.ends(shipped)
    told = starts.predictions(shipped, lambda omega, alpha, d: ONLY[round(omega, 1)])
    checks = starts.by_flow(found, told)
    assert [c.verdict for c in checks] == ["coarse", "undecided", "coarse"]
    moved = found.copy(deep=True)
    some = {"alpha": 8.0, "student": "descent", "d": 200, "seed": [*starts.SEEDS][::3]}
    moved.loc[some] = (found.loc[some].end == "neither").astype(float)
    assert [c.verdict for c in starts.by_flow(moved, told)][::2] == ["FAIL", "FAIL"]
    other = starts.predictions(shipped, lambda omega, alpha, d: ONLY[round(0.6 - omega, 1)])
    assert [c.verdict for c in starts.by_flow(found, other)][::2] == ["FAIL", "FAIL"]


def test_report(shipped, monkeypatch):
    """A row for every cell and optimiser, with the flow beside; parameters are refused."""
    monkeypatch.setattr(starts, "predicted", lambda omega, alpha, d: ONLY[round(omega, 1)])
    model = find("positional_semantic.online")
    report = starts.report(Request(model))
    ((_, rows),) = report.tables.values()
    assert len(rows) == 36 and report.exit_code == 0
    assert rows[0][:4] == ["0.1", "0.5", "100", "descent"] and rows[0][7:] == ["semantic", "1.00"]
    with pytest.raises(ParameterError, match="--set: not for this command"):
        starts.report(Request(model, assignments=("omega=0.2",)))
