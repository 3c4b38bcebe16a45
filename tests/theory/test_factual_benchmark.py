"""The benchmark of factual recall at a reduced size: three methods for a hitting time."""

from __future__ import annotations

import itertools

import pytest

from theory import benchmark
from theory.associative_memory import factual_recall
from theory.associative_memory.factual_recall import timescales
from theory.associative_memory.factual_recall.dynamics import SUBJECT, Parameters

SMALL = Parameters(S=8, R=2, D=4, epsilon=1e-3)


def test_three_roads_agree(monkeypatch):
    """Quadrature to rounding, integration to its tolerance, closed form to its order."""
    monkeypatch.setattr(factual_recall, "POINTS", ((SMALL, SUBJECT),))
    found = factual_recall.benchmark()
    assert found["agree"] and [r["points"] for r in found["rows"]] == [1, 1, 1]
    assert found["rows"][0]["error"] < 1e-12  # what the quadrature is asked for


def test_a_wrong_quadrature_is_flagged(monkeypatch):
    """Off by 2e-9, twice what is allowed."""
    right = timescales.time_of_share
    monkeypatch.setattr(factual_recall, "POINTS", ((SMALL, SUBJECT),))
    monkeypatch.setattr(timescales, "time_of_share", lambda *a: right(*a) * (1 + 2e-9))
    assert not factual_recall.benchmark()["rows"][0]["within"]


def test_reference_is_the_integral():
    """By its definition from the flow: the closed form for a small start, to its order."""
    closed = timescales.closed_form(SMALL, SUBJECT, 0.5)
    assert float(factual_recall.reference(SMALL, SUBJECT, 0.5)) == pytest.approx(closed, rel=1e-4)


def test_points_in_bulk_over_points_alone(monkeypatch):
    """On a clock that ticks 60 ms a look: three points together, then one of them alone."""
    ticks = itertools.count(0.0, 0.06)
    monkeypatch.setattr(benchmark.time, "process_time", lambda: next(ticks))
    for name, value in (("POINTS", 3), ("ALONE", 1), ("OUTPUTS", 5)):
        monkeypatch.setattr(benchmark, name, value)
    (row,) = benchmark.in_bulk(factual_recall)
    found = [row[x] for x in ("together_ms", "alone_ms", "ratio")]
    assert found == pytest.approx([60 / 3, 60.0, 3.0]) and row["error"] < 1e-6
    shown = {title: form.format(**row) for title, form in benchmark.FLOWS.items()}
    assert [shown[x] for x in ("ms together", "ms alone", "ratio")] == ["20", "60", "3"]
