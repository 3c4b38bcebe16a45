"""The ledger of the paper's claims: every field is legal, every reference exists, no equation is missing."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from addresses import exists

from papers.forner2026 import FIGURES
from theory import state_tracking
from verify.state_tracking import gradients, timescales, trajectories

ROOT = Path(__file__).parents[2]
CLAIMS = tomllib.loads((ROOT / "papers/forner2026/claims.toml").read_text())["claim"]
BY_ID = {c["id"]: c for c in CLAIMS}
FIELDS = {"id": str, "kind": str, "says": str, "covered_by": list, "verdict": str, "note": str}
KINDS = {"equation", "table", "figure", "statement", "erratum"}
VERDICTS = {"proved", "verified", "closure", "erratum", "not covered"}
REFERENCES = {"equation", "check", "test", "code", "figure"}
SOURCES = ("verify/trajectories.py", "verify/state_tracking/trajectories.py", "verify/state_tracking/timescales.py")
COMPUTED = {  # how a name is put together, and the names this gives (their beginnings)
    "{name}, largest deviation": [f"{v}, largest deviation" for v in trajectories.KNOWN_LIMITS],
    "exponent of the time of A = 1/2 in {label}": [
        f"exponent of the time of A = 1/2 in {'N = d_g' if v == 'N' else v}" for v in timescales.SWEEPS
    ],
    "initial logit variance at {name}, 20 seeds": [f"initial logit variance at Table {n}, 20 seeds" for n in (1, 2)],
}
NUMBERS = r"\(\d+\)(-\(\d+\))?"  # "(11)" or "(25)-(36)"
EQUATION_ID = re.compile(rf"Eq\. \(\d+\)|Eqs\. {NUMBERS}(, {NUMBERS})*")
claims = pytest.mark.parametrize("claim", CLAIMS, ids=[c["id"] for c in CLAIMS])


def references(claim, kind=None):
    """References of a claim as (kind, name), or the names of one kind."""
    pairs = [tuple(r.split(":", 1)) for r in claim["covered_by"]]
    return pairs if kind is None else [name for k, name in pairs if k == kind]


def numbers(text):
    """Equation numbers in a text, ranges spelled out."""
    found = []
    for match in re.finditer(r"\((\d+)[a-c]?\)(?:-\((\d+)\))?", text):
        first, last = int(match[1]), int(match[2] or match[1])
        assert first <= last
        found += range(first, last + 1)
    return found


@claims
def test_fields(claim):
    """All fields, of the right type, inside the vocabulary; what a claim says fits on a line."""
    assert {name: type(value) for name, value in claim.items()} == FIELDS
    assert claim["kind"] in KINDS and claim["verdict"] in VERDICTS
    assert claim["id"] and 0 < len(claim["says"]) <= 120
    assert "\n" not in claim["id"] + claim["says"] + claim["note"]
    assert (claim["kind"] == "erratum") == (claim["verdict"] == "erratum")
    assert all(":" in r and r.split(":", 1)[0] in REFERENCES for r in claim["covered_by"])
    assert len(set(claim["covered_by"])) == len(claim["covered_by"])


@claims
def test_cover(claim):
    """Covered by something, or not covered and a reason given; the verdict has the evidence it needs."""
    if claim["verdict"] == "not covered":
        assert claim["note"] and not claim["covered_by"]
        return
    kinds = {kind for kind, _ in references(claim)}
    assert kinds
    if claim["verdict"] == "proved":
        assert kinds & {"equation", "test"}
    if claim["verdict"] == "verified":
        assert kinds & {"check", "test", "figure"}


def test_ids_are_unique():
    """One claim per id."""
    assert [name for name, n in Counter(c["id"] for c in CLAIMS).items() if n > 1] == []


def test_every_equation_of_the_paper_once():
    """Numbers 1 to 91, each in exactly one claim of kind equation."""
    wrong = [c["id"] for c in CLAIMS if (c["kind"] == "equation") != bool(EQUATION_ID.fullmatch(c["id"]))]
    assert wrong == []
    found = Counter(n for c in CLAIMS if c["kind"] == "equation" for n in numbers(c["id"]))
    assert found == Counter(range(1, 92))


@pytest.mark.parametrize(("kind", "label", "last"), [("figure", "Fig.", 10), ("table", "Table", 2)])
def test_every_figure_and_table_once(kind, label, last):
    """Figures 1 to 10 and Tables 1 and 2; a figure that is covered is covered by its own drawing."""
    assert [c["id"] for c in CLAIMS if c["kind"] == kind] == [
        name for name in BY_ID if name in {f"{label} {n}" for n in range(1, last + 1)}
    ]
    for n in range(1, last + 1):
        claim = BY_ID[f"{label} {n}"]
        assert claim["kind"] == kind
        if kind == "figure" and claim["verdict"] != "not covered":
            assert f"figure:{n}" in claim["covered_by"]


def test_equation_references():
    """Every name is an equation of the model."""
    named = {name for c in CLAIMS for name in references(c, "equation")}
    assert sorted(named - set(state_tracking.equations())) == []


def test_no_derived_equation_is_left_out():
    """An equation that names numbers of the paper is cited by a claim on at least one of them."""
    for name, equation in state_tracking.equations().items():
        if not (mentioned := set(numbers(equation.reference))) or "beyond" in equation.reference:
            continue
        citing = [c["id"] for c in CLAIMS if name in references(c, "equation")]
        assert any(mentioned & set(numbers(c)) for c in citing), f"{name}: {equation.reference}; cited by {citing}"


@pytest.fixture(scope="module")
def printed():
    """Names of the rows that ``verify.gradients`` prints."""
    return {c.name.strip() for c in gradients.checks()}


def written(name):
    """Whether one of the other verify commands writes a row of this name, or one that begins so."""
    made = {name for names in COMPUTED.values() for name in names}
    # Single words are variables, not rows.
    return name in made or " " in name and any(f'"{name}"' in (ROOT / path).read_text() for path in SOURCES)


@pytest.mark.parametrize("template", COMPUTED)
def test_computed_names(template):
    """Names that are put together at run time are still put together so."""
    assert any(f'f"{template}' in (ROOT / path).read_text() for path in SOURCES)


def test_check_references(printed):
    """Every name is a row of a verify command."""
    named = {name for c in CLAIMS for name in references(c, "check")}
    assert sorted(name for name in named - printed if not written(name)) == []


@pytest.mark.parametrize("wrong", [
    "X, largest deviation", "A, largest", "A", "exponent of the time of A = 1/2 in Q", "time of B = 1/2", "at time 0",
])  # fmt: skip
def test_check_names_are_not_made_up(printed, wrong):
    """What no command prints does not pass."""
    assert wrong not in printed and not written(wrong)


def test_test_references():
    """Every address is that of a file with tests, or of one test in it."""
    assert [name for name in sorted({name for c in CLAIMS for name in references(c, "test")}) if not exists(name)] == []


@pytest.mark.parametrize("wrong", [
    "tests/papers/test_claims.py::test_of_nothing", "tests/papers/test_nothing.py", "tests/papers/test_claims.py::exists",
    "tests/papers/addresses.py", "papers/claims.py",
])  # fmt: skip
def test_test_addresses_are_not_made_up(wrong):
    """What pytest would not collect does not pass."""
    assert exists("tests/papers/test_claims.py::test_fields") and not exists(wrong)


def attribute(path):
    """Object of a dotted path: the longest part that is a module, then attributes."""
    parts = path.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(path)


@pytest.mark.parametrize("path", sorted({name for c in CLAIMS for name in references(c, "code")}))
def test_code_references(path):
    """Every attribute can be imported."""
    assert attribute(path) is not None


def test_figure_references():
    """Every name is a figure of the paper's command; the first, a schematic, is not drawn."""
    named = {name for c in CLAIMS for name in references(c, "figure")}
    assert sorted(named - set(FIGURES)) == [] and "1" not in named
