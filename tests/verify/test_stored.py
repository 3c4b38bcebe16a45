"""Reports of command lines are stored by all that they depend on, and come back as they
were.
"""

import functools
import itertools
import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest

from tests.damage import damaged
from theory.models.registry import MODELS
from verify.checks import digests, report_store
from verify.checks.check import Band, near, sampled
from verify.checks.report import Report, Request

REQUEST = Request(MODELS["state_tracking"], seeds="3", full=False)


BAND = Band(0.1, 0.3, "a neglected term")
CHECKS = [  # every kind of entry, with what JSON has no word for
    near("off", "e", 1.0, 1.2, 0.0, "reason", band=BAND),
    sampled("few", "e", 1.0, np.array([0.5, 1.0, 1.5])),
    near("none", "e", np.nan, np.inf, 0.1, "reason"),
]
REPORT = Report(
    CHECKS,
    ["a note"],
    {"one": (("a", "b"), [("1", "2")])},
    {"x": np.array([1, np.nan])},
)


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Number of times that the report was made."""
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_RUNS", str(tmp_path))
    monkeypatch.setattr(report_store, "SHORT", -1.0)
    monkeypatch.setattr(
        digests, "sources", lambda model, command: f"{model.name} {command}"
    )
    monkeypatch.setattr(
        report_store, "_data", functools.cache(report_store._data)
    )  # files stay as they are
    count = []

    def make():
        count.append(1)
        return REPORT

    return count, make


def test_the_same_question_is_answered_once(made, monkeypatch):
    """As text and as a dictionary, unless asked to run it anew; it says how long that
    takes.
    """
    count, make = made
    clock = itertools.count(0.0, 150.0)
    monkeypatch.setattr(report_store.time, "monotonic", lambda: next(clock))
    first, origin = report_store.answer(REQUEST, "gradients", make, False)
    again, later = report_store.answer(REQUEST, "gradients", make, False)
    assert len(count) == 1 and origin == "" and "as stored on" in later
    assert later.endswith("when it took 150 s")
    assert (
        again.text(wide=True) == first.text(wide=True)
        and again.exit_code == first.exit_code
    )
    assert str(again.as_dict()["checks"]) == str(first.as_dict()["checks"])
    report_store.answer(REQUEST, "gradients", make, True)
    assert len(count) == 2


def test_what_a_report_depends_on(made, monkeypatch, tmp_path):
    """Other arguments, code, data or libraries: run again;
    files of one's own: always.
    """
    count, make = made

    def runs(request=REQUEST, command="gradients"):
        before = len(count)
        report_store.answer(request, command, make, False)
        return len(count) - before

    assert runs() == 1 and runs() == 0
    assert runs(Request(MODELS["state_tracking"], seeds="4", full=False)) == 1
    assert runs(Request(MODELS["state_tracking"], seeds="3", full=True)) == 1
    assert runs(Request(MODELS["induction_heads"], seeds="3", full=False)) == 1
    assert runs(command="timescales") == 1
    for module, name in ((digests, "sources"), (report_store, "_data")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, lambda *given: "another")
            assert runs() == 1
    with monkeypatch.context() as patch:
        patch.setattr(report_store.importlib.metadata, "version", lambda name: "0")
        assert runs() == 1
    own = Request(MODELS["state_tracking"], runs=tmp_path)
    assert runs(own) == 1 and runs(own) == 1
    assert runs() == 0


def test_a_damaged_report_is_made_again(made):
    """Half a file, or one of another version."""
    count, make = made
    for text in ("{", json.dumps({"checks": [{}]})):
        report_store.answer(REQUEST, "gradients", make, False)
        report_store.place(REQUEST, "gradients").write_text(text)
        assert report_store.answer(REQUEST, "gradients", make, False)[1] == ""
        report_store.place(REQUEST, "gradients").unlink()
    assert len(count) == 4


@pytest.mark.slow
def test_a_command_says_that_its_answer_is_stored(tmp_path):
    """The same text twice, the second at once."""
    words = [sys.executable, "-m", "verify.gradients", "induction_heads", "--quiet"]
    environment = {**os.environ, "SOLVABLE_TRANSFORMERS_RUNS": str(tmp_path)}
    first, second = (
        subprocess.run(
            words, capture_output=True, text=True, env=environment, check=True
        )
        for _ in range(2)
    )
    assert first.stdout == second.stdout
    assert (
        "as stored on" not in first.stderr and "--anew runs it again" in second.stderr
    )


def test_what_is_kept_and_damaged_is_computed_again(made, tmp_path, monkeypatch):
    """Any bit of a report or an array, a file cut short, a pipe in its place."""
    count, make = made
    rng = random.Random(0)
    report_store.answer(REQUEST, "gradients", make, False)
    report = report_store.place(REQUEST, "gradients")
    monkeypatch.setattr(report_store, "place", lambda *_: report)
    monkeypatch.setattr(report_store, "_code", lambda function: "code")
    monkeypatch.setattr(report_store, "_functions", [])
    numbers = report_store.kept(lambda n: count.append(1) or np.linspace(0, 1, n))
    with report_store.arrays(tmp_path):
        truth, fewer = numbers(50), numbers(5)
        array, short = sorted(
            (tmp_path / report_store.ARRAYS).glob("*.npy"),
            key=lambda f: -f.stat().st_size,
        )
        short.write_bytes(array.read_bytes())
        assert (numbers(5) == fewer).all()
        for place in (report, array):
            for _ in range(40):
                before, raw = len(count), place.read_bytes()
                place.write_bytes(damaged(raw, rng))
                again, origin = report_store.answer(REQUEST, "gradients", make, False)
                assert again.text(wide=True) == REPORT.text(wide=True)
                assert (numbers(50) == truth).all() and len(count) == before + 1
            other = report if place is array else array
            place.write_bytes(other.read_bytes())
            assert (
                report_store.answer(REQUEST, "gradients", make, False)[0].exit_code == 1
            )
            assert (numbers(50) == truth).all()
            place.unlink()
            os.mkfifo(place)
            assert (
                report_store.answer(REQUEST, "gradients", make, False)[0].exit_code == 1
            )
            assert (numbers(50) == truth).all()
            place.unlink()
            report_store.answer(REQUEST, "gradients", make, False)
            numbers(50)
