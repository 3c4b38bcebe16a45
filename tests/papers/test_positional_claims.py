"""The ledger of cui2024: legal fields, references that exist, every equation and figure once."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from addresses import exists

from papers.claims import VERDICTS
from papers.cui2024 import FIGURES
from theory import positional_semantic

ROOT = Path(__file__).parents[2]
CLAIMS = tomllib.loads((ROOT / "papers/cui2024/claims.toml").read_text())["claim"]
CHECKS = [(ROOT / f"verify/positional_semantic/{name}.py").read_text() for name in ("gradients", "thresholds")]
# Rows whose names are put together at run time, by their parts.
PARTS = ("risk, ", "{x} of untied queries, semantic at alpha = {UNTIED:g}", "{x} of message passing, {branch} at alpha = {alpha:g}", "{name}, {selection} prox",
         "{x}, {branch} at alpha = {alpha:g}, {k} prox", "training loss by envelope and by data term, {where}")  # fmt: skip


def references(kind):
    """Names of one kind of reference in all claims."""
    return sorted({r.split(":", 1)[1] for c in CLAIMS for r in c["covered_by"] if r.startswith(kind + ":")})


def numbers(text):
    """Equation numbers in a text, ranges spelled out."""
    found = []
    for match in re.finditer(r"\((\d+)\)(?:-\((\d+)\))?", text):
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found


@pytest.mark.parametrize("claim", CLAIMS, ids=[c["id"] for c in CLAIMS])
def test_fields(claim):
    """Vocabulary, and evidence that fits the verdict."""
    assert claim["verdict"] in VERDICTS and 0 < len(claim["says"]) <= 120
    assert (claim["kind"] == "erratum") == (claim["verdict"] == "erratum")
    kinds = {r.split(":")[0] for r in claim["covered_by"]}
    assert kinds <= {"equation", "check", "test", "code", "figure"}
    if claim["verdict"] == "not covered":
        assert claim["note"] and not kinds
    else:
        assert kinds & {"equation", "test", "check", "figure"}


def test_every_equation_once():
    """Numbers 1 to 144."""
    found = Counter(n for c in CLAIMS if c["kind"] == "equation" for n in numbers(c["id"]))
    assert found == Counter(range(1, 145))


def test_every_figure_and_table_once():
    """Figures 1 to 15 and Table 1, those covered by their own drawing."""
    assert {c["id"] for c in CLAIMS if c["kind"] in ("figure", "table")} == {
        *(f"Fig. {n}" for n in range(1, 16)),
        "Table 1",
    }
    assert set(references("figure")) <= set(FIGURES)
    assert {str(n) for n in range(2, 16)} <= set(FIGURES)  # drawn, whether or not it shows what the paper says
    assert all(c["note"] for c in CLAIMS if c["kind"] == "figure" and f"figure:{c['id'][5:]}" not in c["covered_by"])


def test_equations_exist_and_are_cited():
    """Every name is an equation; every equation with a number of the paper is cited by a claim on it."""
    known = positional_semantic.equations()
    assert set(references("equation")) <= set(known)
    for name, equation in known.items():
        mentioned = set(numbers(equation.reference))
        if mentioned and "beyond" not in equation.reference:
            citing = [c["id"] for c in CLAIMS if f"equation:{name}" in c["covered_by"]]
            assert any(mentioned & set(numbers(c)) for c in citing), f"{name}: {equation.reference}; cited by {citing}"


def pattern(part):
    """A name with computed parts as a regular expression."""
    return re.compile(re.sub(r"\\\{.*?\\\}", ".+", re.escape(part)))


def test_checks_exist():
    """Every name is written by a verify command, whole or put together from its parts."""
    assert all(any(part in text for text in CHECKS) for part in PARTS)
    for name in references("check"):
        assert any(f'"{name}"' in text for text in CHECKS) or any(pattern(p).match(name) for p in PARTS), name
    assert not any(pattern(p).match("made up") for p in PARTS)


def test_tests_and_code_exist():
    """Files with tests, attributes that import."""
    for name in references("test"):
        assert exists(name), name
    for path in references("code"):
        parts = path.split(".")
        for n in range(len(parts), 0, -1):
            try:
                found = importlib.import_module(".".join(parts[:n]))
            except ModuleNotFoundError:
                continue
            for part in parts[n:]:
                found = getattr(found, part) if hasattr(found, part) else found.__dataclass_fields__[part]
            break
        else:
            raise ModuleNotFoundError(path)
