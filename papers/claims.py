"""Claims ledger: what a paper states, what covers it here, and the verdict, typed and computed."""

from __future__ import annotations

import fnmatch
import textwrap
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from theory import output

# From best to worst. The first two are agreement; "tested" rests on tests, which say no more than
# that they passed; "drawn" is a picture without a number.
VERDICTS = (
    "exact",
    "agrees",
    "tested",
    "coarse",
    "bound",
    "limit",
    "undecided",
    "drawn",
    "erratum",
    "not covered",
)
WIDTH = 42  # of what a row says: the table fits 100 columns


@dataclass(frozen=True)
class Claim:
    """One statement of a paper.

    Attributes
    ----------
    id, kind, says : str
        Where it stands; what kind of statement (``formula``: an equation without a number); what it
        says.
    covered_by : list of str
        Addresses: ``check:COMMAND.ID`` (a row of a ``verify`` command), ``test:PATH::NAME``; and
        pointers, which prove nothing by themselves: ``equation:NAME``, ``code:ATTRIBUTE``,
        ``figure:NAME``.
    verdict : str
        One of `VERDICTS`, as typed.
    note : str
        What a reader should know.
    partly : bool
        Holds in part, or rests on a closure that nothing here checks: its verdict is never better
        than *limit*.
    """

    id: str
    kind: str
    says: str
    covered_by: list[str]
    verdict: str
    note: str = ""
    partly: bool = False

    def evidence(self, kind: str) -> list[str]:
        """Addresses of one kind."""
        return [e.removeprefix(f"{kind}:") for e in self.covered_by if e.startswith(f"{kind}:")]


def load(path: Path) -> list[Claim]:
    """Read a ledger."""
    return [Claim(**entry) for entry in tomllib.loads(path.read_text())["claim"]]


@dataclass(frozen=True)
class Found:
    """What stored evidence says (`evidence.found`).

    Attributes
    ----------
    verdicts : mapping of str to str
        Verdict per check, and of cited tests that were run (``tests.PATH::NAME``).
    equations : mapping of str to set of str
        Names of the equations that the rows of a check are about (patterns as ``key_*``).
    """

    verdicts: Mapping[str, str] = field(default_factory=dict)
    equations: Mapping[str, set[str]] = field(default_factory=dict)

    def about(self, address: str, names: list[str]) -> bool:
        """Whether a check is about one of some equations."""
        cited = self.equations.get(address, ())
        return any(fnmatch.fnmatchcase(name, one) for name in names for one in cited)


def computed(claim: Claim, found: Found) -> str:
    """Verdict that the evidence of a claim gives.

    The worst of what shows it: its checks, and its tests, whose word is *tested*. Tests of an
    equation or formula count only where no check is about an equation that the claim names: what
    is exact about a neighbour lifts nothing. A check without a stored result is *undecided*. A
    figure alone is *drawn*; equations and code alone show nothing. What is an erratum says so by
    its kind, and needs evidence like the rest.
    """
    checks, tests = claim.evidence("check"), claim.evidence("test")
    words = [found.verdicts.get(address, "undecided") for address in checks]
    ran = [found.verdicts.get(f"tests.{address}", "tested") for address in tests]
    if "FAIL" in words + ran:
        return "FAIL"
    if not words and not ran:
        return "drawn" if claim.evidence("figure") else "not covered"
    if claim.kind == "erratum":
        return "erratum"
    itself = claim.kind in ("equation", "formula") and any(
        found.about(address, claim.evidence("equation")) for address in checks
    )
    words += [] if itself else ran
    return max([*words, "limit"] if claim.partly else words, key=VERDICTS.index)


def coverage(claims: list[Claim], found: Found) -> dict[str, int]:
    """Number of claims per computed verdict."""
    counts = Counter(computed(c, found) for c in claims)
    return {v: counts[v] for v in (*VERDICTS, "FAIL")}


def without_result(claims: list[Claim], found: Found) -> list[str]:
    """Addresses of checks that claims rest on and no stored evidence knows."""
    return sorted({a for c in claims for a in c.evidence("check") if a not in found.verdicts})


def different(claims: list[Claim], found: Found) -> list[str]:
    """Claims whose typed verdict is not the computed one."""
    return [c.id for c in claims if c.verdict != computed(c, found)]


def report(claims: list[Claim], found: Found) -> str:
    """Ledger as a table, typed and computed verdicts side by side, with its coverage and
    checks that have no result as last lines.
    """
    rows = [
        (
            textwrap.shorten(c.id, 30, placeholder=" ..."),
            c.verdict,
            computed(c, found),
            textwrap.shorten(c.says, WIDTH, placeholder=" ..."),
        )
        for c in claims
    ]
    covered = coverage(claims, found)
    counts = ", ".join(f"{n} {v}" for v, n in covered.items() if n or v != "FAIL")
    agreed = sum(covered[v] for v in VERDICTS[:2])
    lines = [
        output.table(("where", "typed", "computed", "says"), rows, wide=False),
        f"{len(claims)} claims, {agreed} exact or in agreement ({agreed / len(claims):.0%}), "
        f"{covered['tested']} by tests alone: {counts}",
    ]
    lines += [f"no result is stored for check:{a}" for a in without_result(claims, found)]
    return "\n".join(lines)


def as_dicts(claims: list[Claim], found: Found) -> list[dict[str, Any]]:
    """Everything, for machines."""
    return [{**asdict(c), "computed": computed(c, found)} for c in claims]
