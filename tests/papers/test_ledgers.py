"""Every ledger: valid fields, existing addresses, computed verdicts as expected, and
detection of faults.
"""

from __future__ import annotations

import functools
import importlib
import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from addresses import exists

from papers import __main__ as command
from papers import claims, evidence, source
from simulate import systems
from theory.equations.equation import numbers
from theory.models.registry import MODELS
from verify.checks.check import Band, near, sampled
from verify.checks.verdict import VERDICTS

KINDS = {
    "equation",
    "formula",
    "table",
    "figure",
    "theorem",
    "statement",
    "setting",
    "extension",
    "erratum",
}
POINTERS = {"equation", "check", "test", "code", "figure"}
# names of models lead tests to the worker that derives theirs
models = pytest.mark.parametrize(
    "model", [pytest.param(m, id=f"{m.paper}-{m.name}") for m in MODELS.values()]
)


BY_PAPER = {m.paper: m for m in MODELS.values()}


@functools.cache
def ledger(paper):
    return claims.load(claims.place(BY_PAPER[paper]))


@functools.cache
def typed(paper):
    """How many claims have each verdict, and a digest of which has which, as the ledger
    types them.
    """
    return claims.counted(claims.place(BY_PAPER[paper]))


@functools.cache
def stored(paper):
    return evidence.load(BY_PAPER[paper])


def cited(paper, kind):
    """Addresses of one kind in a whole ledger."""
    return sorted({e for c in ledger(paper) for e in c.evidence(kind)})


@models
def test_fields(model):
    """Words of the vocabulary, one line each, ids once;
    what nothing covers says why.
    """
    assert [
        i for i, n in Counter(c.id for c in ledger(model.paper)).items() if n > 1
    ] == []
    for c in ledger(model.paper):
        assert c.kind in KINDS, c.id
        assert 0 < len(c.says) <= 130 and "\n" not in c.id + c.says + c.note, c.id
        assert {e.split(":", 1)[0] for e in c.covered_by} <= POINTERS and len(
            set(c.covered_by)
        ) == len(c.covered_by), c.id
        assert c.note or c.covered_by, c.id


@models
def test_addresses(model):
    """Equations, figures, attributes, tests and checks that are cited are there."""
    paper = model.ledger()
    assert set(cited(model.paper, "equation")) <= set(model.wing("theory").equations())
    assert set(cited(model.paper, "figure")) <= set(paper.FIGURES)
    assert [t for t in cited(model.paper, "test") if not exists(t)] == []
    known = evidence.found(stored(model.paper)).verdicts
    for address in cited(model.paper, "check"):
        what = address.partition(".")[0]
        assert what in model.checks and (
            address in known or what not in stored(model.paper)
        ), address


def spelled_out(place):
    """Equation numbers of a place in a paper,
    each alone and with its letter left out.
    """
    place = re.sub(  # "B.4.2-B.4.4"
        r"([A-Z]\.\d+\.)(\d+)-\1(\d+)",
        lambda m: " ".join(f"{m[1]}{k}" for k in range(int(m[2]), int(m[3]) + 1)),
        place,
    )
    return {n for number in numbers(place) for n in (number, number.rstrip("abcd"))}


@models
def test_an_equation_has_the_number_of_its_claims(model):
    """Numbers typed twice, in derivations and in ledgers, are the same."""
    claimed = {}
    for c in ledger(model.paper):
        for name in c.evidence("equation"):
            claimed.setdefault(name, set()).update(spelled_out(c.id))
    own = {
        name: spelled_out(model.wing("theory").equations()[name].reference)
        for name in claimed
    }
    assert [
        n for n, ids in claimed.items() if ids and own[n] and not ids & own[n]
    ] == []


def test_an_equation_in_a_meaning_is_that_of_the_quantity():
    """As the `Equation` of this name or left-hand side says, or if there is none, a
    claim.
    """
    seen = 0
    for full, system in systems.every().items():
        model = MODELS[full.partition(".")[0]]
        equations = model.wing("theory").equations().values()
        for quantity, meaning in system.meaning.items():
            names = {quantity, "training_loss" if quantity == "loss" else quantity}
            places = [e.reference for e in equations if {e.name, str(e.lhs)} & names]
            known = {n for place in places for n in numbers(place)}
            known = known or {n for c in ledger(model.paper) for n in numbers(c.id)}
            for number in re.findall(r"(?<!/)\((\d+[a-z]?)\)", meaning):  # not x/(2d)
                assert number in known, (full, quantity, meaning)
                seen += 1
    assert seen >= 8


@pytest.mark.parametrize(
    "path", sorted({p for m in MODELS.values() for p in cited(m.paper, "code")})
)
def test_code(path):
    """Every attribute can be imported."""
    parts = path.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:]:
            found = (
                getattr(found, part)
                if hasattr(found, part)
                else found.__dataclass_fields__[part]
            )
        return
    raise ModuleNotFoundError(path)


@models
def test_verdicts_are_the_expected_ones(model):
    """On the stored evidence; each is counted, and typed where it is less than
    agreement for another reason than that the claim holds in part, nowhere else.
    """
    found = evidence.found(stored(model.paper))
    assert claims.different(ledger(model.paper), found, typed(model.paper)) == []
    assert typed(model.paper).keys() <= {
        *claims.VERDICTS,
        "digest",
    } and "digest" in typed(model.paper)
    untyped = [replace(c, verdict="") for c in ledger(model.paper)]
    assert set(claims.different(untyped, found)) == {
        c.id for c in ledger(model.paper) if c.verdict
    }


@models
@pytest.mark.parametrize("word", [*VERDICTS, "tested"])
def test_a_check_with_another_verdict_shows(model, word):
    """Each cited check, better or worse than stored, shows wherever it changes the
    verdict of a claim: the claim is named unless it still agrees, and then the counts
    differ.
    """
    found = evidence.found(stored(model.paper))
    now = {c.id: claims.computed(c, found) for c in ledger(model.paper)}
    for address in cited(model.paper, "check"):
        other = replace(found, verdicts={**found.verdicts, address: word})
        changed = {
            c.id for c in ledger(model.paper) if claims.computed(c, other) != now[c.id]
        }
        shown = claims.different(ledger(model.paper), other, typed(model.paper))
        worse = word in claims.LESS
        assert bool(shown) == bool(changed) and (not worse or changed <= set(shown)), (
            address
        )


def test_opposite_changes_show():
    """Two claims that exchange verdicts are counted as before, but not by the same
    digest; the order of a ledger does not matter. Without a digest, counts are
    compared, and without both nothing.
    """
    pair = [
        claims.Claim(w, "statement", "", [f"check:laws.{w}"]) for w in ("one", "two")
    ]
    before = claims.Found({"laws.one": "exact", "laws.two": "agrees"})
    after = claims.Found({"laws.one": "agrees", "laws.two": "exact"})
    told = {"exact": 1, "agrees": 1, "digest": claims.digest(pair, before)}
    assert (
        claims.different(pair, before, told)
        == claims.different(pair[::-1], before, told)
        == []
    )
    now = claims.digest(pair, after)
    assert claims.different(pair, after, told) == [
        f"digest {now} instead of {told['digest']}"
    ]
    assert claims.different(pair, after, {"exact": 1, "agrees": 1}) == []
    assert claims.different(pair, after, {"exact": 2}) == [
        "1 exact instead of 2",
        "1 agrees instead of 0",
    ]
    assert claims.different(pair, after, {}) == []


@models
def test_a_check_that_fails_shows(model):
    """Each cited check, failing,
    changes the verdict of every claim that rests on it.
    """
    found = evidence.found(stored(model.paper))
    for address in cited(model.paper, "check"):
        resting = {c.id for c in ledger(model.paper) if address in c.evidence("check")}
        failing = replace(found, verdicts={**found.verdicts, address: "FAIL"})
        assert resting <= set(claims.different(ledger(model.paper), failing))


@models
def test_what_holds_in_part_is_no_agreement(model):
    """Never better than limit, whatever its tests say; and it says how far."""
    found = evidence.found(stored(model.paper))
    for c in ledger(model.paper):
        capped = claims.computed(replace(c, partly=True), found)
        assert claims.VERDICTS.index(capped) >= claims.VERDICTS.index("limit"), c.id
        assert not c.partly or c.note, c.id


@models
def test_equations_and_code_alone_show_nothing(model):
    """Pointers are no evidence; a figure alone is drawn; of tests alone the word is
    tested.
    """
    found = evidence.found(stored(model.paper))
    for c in ledger(model.paper):
        bare = replace(
            c,
            covered_by=[
                e for e in c.covered_by if e.split(":")[0] in ("equation", "code")
            ],
        )
        assert claims.computed(bare, found) == "not covered"
        assert claims.computed(replace(c, covered_by=["figure:1"]), found) == "drawn"
        tested = replace(c, covered_by=["equation:loss", "test:one"], partly=False)
        assert claims.computed(tested, found) == (
            "erratum" if c.kind == "erratum" else "tested"
        )


def test_no_check_fails_in_stored_evidence():
    """What is stored was green."""
    for model in MODELS.values():
        found = evidence.found(stored(model.paper)).verdicts
        assert [a for a, v in found.items() if v == "FAIL"] == []


def test_evidence_says_why():
    """Of a known deviation and of too few samples; agreement needs no reason."""
    band = Band(0.1, 0.3, "a neglected term")
    off = evidence.kept(near("off", "e", 1.0, 1.2, 0.0, "reason", band=band))
    few = evidence.kept(sampled("few", "e", 1.0, np.array([0.5, 1.0, 1.5])))
    good = evidence.kept(near("good", "e", 1.0, 1.0, 0.01, "reason"))
    assert (off["verdict"], off["why"]) == (
        "limit",
        "off by +10.0% to +30.0%: a neglected term",
    )
    assert few["verdict"] == "undecided" and "samples would" in few["why"]
    assert good["verdict"] == "agrees" and "why" not in good


def test_stored_evidence_says_why():
    """Every row with less than agreement."""
    for model in MODELS.values():
        for record in evidence.load(model).values():
            for stored in record["checks"]:
                if stored["verdict"] in VERDICTS[2:]:
                    assert stored["why"], stored["id"]


@models
def test_the_command_prints_verdicts(model, capsys, monkeypatch):
    """Fits 100 columns; exit code 0 where all are as expected;
    JSON carries everything.
    """
    monkeypatch.setenv("COLUMNS", "100")
    as_stored = {
        what: record.get("sources", "") for what, record in stored(model.paper).items()
    }
    monkeypatch.setattr(
        evidence, "sources", lambda model, what: as_stored[what]
    )  # seconds
    assert command.main([model.paper, "--claims"]) == 0
    printed = capsys.readouterr().out
    end = f"\n{len(ledger(model.paper))} claims, "
    rows = printed[: printed.index(end)].splitlines()
    assert max(map(len, rows)) <= 100 and "not those" not in printed
    shown = Counter(re.split("  +", row)[1] for row in rows[2:] if row[0] != " ")
    assert {**shown, "digest": typed(model.paper)["digest"]} == typed(model.paper)
    assert command.main([model.paper, "--claims", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert " ..." not in printed
    assert all(
        {*claim.says.split()} <= {*printed.split()} for claim in ledger(model.paper)
    )
    assert len(found["claims"]) == len(ledger(model.paper)) and {
        "verdict",
        "computed",
        "note",
        "says",
    } <= set(found["claims"][0])


@models
def test_write_ups_print_the_computed_verdicts(model):
    """Of every claim, in the second column."""
    printed = source.claims_table(claims.place(model).parent)
    rows = [
        line.split(" & ") for line in printed.splitlines() if line.count(" & ") >= 3
    ]
    found = evidence.found(stored(model.paper))
    computed = [claims.computed(c, found) for c in ledger(model.paper)]
    assert [row[1] for row in rows[1:]] == computed  # the first is the header


EQUATION = claims.Claim("Eq. (1)", "equation", "", ["equation:loss", "check:laws.loss"])


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        (EQUATION, "exact"),
        (replace(EQUATION, covered_by=[*EQUATION.covered_by, "test:one"]), "exact"),
        (replace(EQUATION, covered_by=["equation:loss", "test:one"]), "tested"),
        (
            replace(
                EQUATION, covered_by=["equation:rate", "check:laws.loss", "test:one"]
            ),
            "tested",
        ),
        (
            replace(
                EQUATION, kind="statement", covered_by=["check:laws.loss", "test:one"]
            ),
            "tested",
        ),
        (replace(EQUATION, covered_by=["check:laws.loss", "check:laws.lead"]), "bound"),
        (replace(EQUATION, covered_by=["check:laws.loss", "test:bad"]), "FAIL"),
    ],
)
def test_a_neighbour_or_a_bare_test_lifts_nothing(claim, verdict):
    """An exact row counts for the equation it is about;
    a test has a word of its own.
    """
    found = claims.Found(
        {"laws.loss": "exact", "laws.lead": "bound", "tests.bad": "FAIL"},
        {"laws.loss": {"loss"}},
    )
    assert claims.computed(claim, found) == verdict


def test_what_has_no_result_is_counted_and_named():
    """Without stored evidence nothing counts as agreement that rests on a check,
    whatever is typed; the addresses are printed.
    """
    claim = claims.Claim(
        "Eq. (1)",
        "equation",
        "holds",
        ["check:laws.first", "check:laws.second"],
        verdict="exact",
    )
    found = claims.Found({"laws.first": "exact"})
    assert claims.coverage([claim], found)["undecided"] == 1
    assert claims.without_result([claim], found) == ["laws.second"]
    text = claims.report([claim], found)
    assert (
        "0 exact or in agreement" in text
        and "no result is stored for check:laws.second" in text
    )
    whole = claims.report(
        [claim], claims.Found(dict.fromkeys(("laws.first", "laws.second"), "exact"))
    )
    assert "1 exact or in agreement (100%)" in whole and "no result" not in whole
