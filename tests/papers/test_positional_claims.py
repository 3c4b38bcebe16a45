"""The ledger of cui2024 is complete: every equation, figure and table of the paper, and
every equation derived here.
"""

from __future__ import annotations

import re
from collections import Counter

from test_ledgers import cited, ledger

from papers.cui2024 import FIGURES
from theory import positional_semantic

CLAIMS = ledger("cui2024")


def numbers(text):
    """Equation numbers in a text, ranges spelled out."""
    found = []
    for match in re.finditer(r"\((\d+)\)(?:-\((\d+)\))?", text):
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found


def test_every_equation_once():
    """Numbers 1 to 144."""
    found = Counter(n for c in CLAIMS if c.kind == "equation" for n in numbers(c.id))
    assert found == Counter(range(1, 145))


def test_every_figure_and_table_once():
    """Figures 1 to 15 and Table 1, those covered by their own drawing."""
    assert {c.id for c in CLAIMS if c.kind in ("figure", "table")} == {
        *(f"Fig. {n}" for n in range(1, 16)),
        "Table 1",
    }
    assert set(cited("cui2024", "figure")) <= set(FIGURES)
    assert {str(n) for n in range(2, 16)} <= set(
        FIGURES
    )  # drawn, whether or not it shows what the paper says
    assert all(
        c.note
        for c in CLAIMS
        if c.kind == "figure" and f"figure:{c.id[5:]}" not in c.covered_by
    )


def test_equations_are_cited():
    """Every equation with a number of the paper is cited by a claim on it."""
    known = positional_semantic.equations()
    for name, equation in known.items():
        mentioned = set(numbers(equation.reference))
        if mentioned and "beyond" not in equation.reference:
            citing = [c.id for c in CLAIMS if f"equation:{name}" in c.covered_by]
            assert any(mentioned & set(numbers(c)) for c in citing), (
                f"{name}: {equation.reference}; cited by {citing}"
            )
