"""The ledger of forner2026 is complete: every equation, figure and table of the paper,
and every equation derived here.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest
from test_ledgers import ledger

from theory import state_tracking

CLAIMS = ledger("forner2026")
BY_ID = {c.id: c for c in CLAIMS}
NUMBERS = r"\(\d+\)(-\(\d+\))?"  # "(11)" or "(25)-(36)"
EQUATION_ID = re.compile(rf"Eq\. \(\d+\)|Eqs\. {NUMBERS}(, {NUMBERS})*")


def numbers(text):
    """Equation numbers in a text, ranges spelled out."""
    found = []
    for match in re.finditer(r"\((\d+)[a-c]?\)(?:-\((\d+)\))?", text):
        first, last = int(match[1]), int(match[2] or match[1])
        assert first <= last
        found += range(first, last + 1)
    return found


def test_every_equation_of_the_paper_once():
    """Numbers 1 to 91, each in exactly one claim of kind equation."""
    wrong = [
        c.id
        for c in CLAIMS
        if (c.kind == "equation") != bool(EQUATION_ID.fullmatch(c.id))
    ]
    assert wrong == []
    found = Counter(n for c in CLAIMS if c.kind == "equation" for n in numbers(c.id))
    assert found == Counter(range(1, 92))


@pytest.mark.parametrize(
    ("kind", "label", "last"), [("figure", "Fig.", 10), ("table", "Table", 2)]
)
def test_every_figure_and_table_once(kind, label, last):
    """Figures 1 to 10 and Tables 1 and 2; a figure that is covered is covered by its
    own drawing.
    """
    assert [c.id for c in CLAIMS if c.kind == kind] == [
        name for name in BY_ID if name in {f"{label} {n}" for n in range(1, last + 1)}
    ]
    for n in range(1, last + 1):
        claim = BY_ID[f"{label} {n}"]
        assert claim.kind == kind
        if kind == "figure" and claim.covered_by:
            assert f"figure:{n}" in claim.covered_by


def test_no_derived_equation_is_left_out():
    """An equation that names numbers of the paper is cited by a claim on at least one
    of them.
    """
    for name, equation in state_tracking.equations().items():
        if (
            not (mentioned := set(numbers(equation.reference)))
            or "beyond" in equation.reference
        ):
            continue
        citing = [c.id for c in CLAIMS if name in c.evidence("equation")]
        assert any(mentioned & set(numbers(c)) for c in citing), (
            f"{name}: {equation.reference}; cited by {citing}"
        )
