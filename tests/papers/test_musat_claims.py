"""The ledger of Musat et al.: every field is legal, every reference exists, no equation, figure or erratum is missing."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from addresses import exists

from papers.musat2025 import FIGURES
from simulate.pool import one_thread
from theory import induction_heads
from verify.induction_heads import gradients, laws, timescales

ROOT = Path(__file__).parents[2]
CLAIMS = tomllib.loads((ROOT / "papers/musat2025/claims.toml").read_text())["claim"]
FIELDS = {"id": str, "kind": str, "says": str, "covered_by": list, "verdict": str, "note": str}
KINDS = {"equation", "figure", "theorem", "statement", "erratum"}
VERDICTS = {"proved", "verified", "closure", "erratum", "not covered"}
REFERENCES = {"equation", "check", "test", "code", "figure"}
SCHEMATIC = "Fig. 1"


def references(kind):
    """Names of one kind over the ledger."""
    return sorted({r.split(":", 1)[1] for c in CLAIMS for r in c["covered_by"] if r.startswith(f"{kind}:")})


@pytest.mark.parametrize("claim", CLAIMS, ids=[c["id"] for c in CLAIMS])
def test_fields(claim):
    """All fields, inside the vocabulary; the verdict has the evidence it needs."""
    assert {name: type(value) for name, value in claim.items()} == FIELDS
    assert claim["kind"] in KINDS and claim["verdict"] in VERDICTS
    assert 0 < len(claim["says"]) <= 120 and "\n" not in claim["id"] + claim["says"] + claim["note"]
    assert (claim["kind"] == "erratum") == (claim["verdict"] == "erratum")
    kinds = {r.split(":", 1)[0] for r in claim["covered_by"]}
    assert kinds <= REFERENCES and len(set(claim["covered_by"])) == len(claim["covered_by"])
    if claim["verdict"] == "not covered":
        assert claim["note"] and not kinds
    else:
        assert kinds
    if claim["verdict"] == "proved":
        assert kinds & {"equation", "test"}
    if claim["verdict"] == "verified":
        assert kinds & {"check", "test", "figure", "equation"}
    if claim["kind"] == "erratum":
        assert claim["note"]


def test_complete():
    """Equations (1)-(15), figures 1-17, theorems, propositions, hypotheses and nineteen errata, each once."""
    ids = [c["id"] for c in CLAIMS]
    assert [i for i, n in Counter(ids).items() if n > 1] == []
    numbers: Counter[int] = Counter()
    for claim in CLAIMS:
        if claim["kind"] == "equation":
            for first, last in re.findall(r"\((\d+)\)(?:-\((\d+)\))?", claim["id"]):
                numbers.update(range(int(first), int(last or first) + 1))
    assert numbers == Counter(range(1, 16))
    assert {f"Fig. {k}" for k in range(1, 18)} == {c["id"] for c in CLAIMS if c["kind"] == "figure"}
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
        if claim["kind"] == "figure" and claim["id"] != SCHEMATIC:
            assert f"figure:{claim['id'].removeprefix('Fig. ')}" in claim["covered_by"]


def test_equations():
    """Every name is an equation of the model, and every equation is cited."""
    assert sorted(set(references("equation")) - set(induction_heads.equations())) == []
    variants = re.compile(r"(_inclusive|^key_(earlier|later|own_item)|^query_normaliser)")
    left = set(induction_heads.equations()) - set(references("equation"))
    assert sorted(name for name in left if not variants.search(name)) == []


def test_checks():
    """Every name is, or begins, a row of a verify command."""
    table = induction_heads.equations()
    with one_thread():
        quick = [c for group in gradients.COVERS if group is not gradients.any_query for c in group(table)]
    printed = {c.name.strip() for c in quick}
    # A name put together at run time: any word where the source has an expression.
    source = "".join(Path(str(module.__file__)).read_text() for module in (gradients, laws, timescales))
    begins = "exponent of|fitted|T_drop (?:of|at)|T_gamma at|L t at|loss for|Hypothesis|Definition|constrained|\\{name\\} (?:of all|extra)"
    patterns = [
        "".join(".+" if part.startswith("{") else re.escape(part) for part in re.split(r"(\{[^}]*\})", text))
        for text in re.findall(rf'f?"((?:{begins})[^"]*)"', source)
    ]

    def exists(name):
        return name in printed or any(
            re.fullmatch(p, name) or re.match(p.removesuffix(r",\ .+") + "$", name) for p in patterns
        )

    assert [name for name in references("check") if not exists(name)] == []
    assert not exists("exponent of nothing") and not exists("T_drop of nobody") and not exists("Hypothesis 3: anything")


def test_tests_and_figures():
    """Files exist and hold tests; figures are drawn by the command."""
    for name in references("test"):
        assert exists(name), name
    assert sorted(set(references("figure")) - set(FIGURES)) == [] and "1" not in FIGURES


@pytest.mark.parametrize("path", references("code"))
def test_code(path):
    """Every attribute can be imported."""
    parts = path.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:]:
            found = getattr(found, part)
        return
    raise ModuleNotFoundError(path)
