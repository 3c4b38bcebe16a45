"""The ledger of musat2025 is complete: equations, figures, theorems, hypotheses,
errata, and every equation derived here.
"""

from __future__ import annotations

import re
from collections import Counter

from test_ledgers import cited, ledger

from theory import induction_heads

CLAIMS = ledger("musat2025")
SCHEMATIC = "Fig. 1"


def test_complete():
    """Equations (1)-(15), figures 1-17, theorems, propositions, hypotheses and nineteen
    errata, each once.
    """
    ids = [c.id for c in CLAIMS]
    assert [i for i, n in Counter(ids).items() if n > 1] == []
    numbers: Counter[int] = Counter()
    for claim in CLAIMS:
        if claim.kind == "equation":
            for first, last in re.findall(r"\((\d+)\)(?:-\((\d+)\))?", claim.id):
                numbers.update(range(int(first), int(last or first) + 1))
    assert numbers == Counter(range(1, 16))
    assert {f"Fig. {k}" for k in range(1, 18)} == {
        c.id for c in CLAIMS if c.kind == "figure"
    }
    named = [
        "Theorem 1",
        "Theorem 2",
        "Corollary 1",
        *(f"Proposition {k}" for k in range(1, 5)),
        "Hypothesis 1",
        "Hypothesis 2",
    ]
    assert set(named) <= set(ids) and {f"Erratum {k}" for k in range(1, 20)} <= set(ids)
    for claim in CLAIMS:
        if claim.kind == "figure" and claim.id != SCHEMATIC:
            assert f"figure:{claim.id.removeprefix('Fig. ')}" in claim.covered_by


def test_equations():
    """Every equation is cited."""
    variants = re.compile(
        r"(_inclusive|^key_(earlier|later|own_item)|^query_normaliser)"
    )
    left = set(induction_heads.equations()) - set(cited("musat2025", "equation"))
    assert sorted(name for name in left if not variants.search(name)) == []
