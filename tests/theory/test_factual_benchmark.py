"""The benchmark of factual recall at a reduced size: three methods for a hitting time."""

from __future__ import annotations

import pytest

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
