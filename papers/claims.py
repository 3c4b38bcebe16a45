"""Claims ledger: what a paper states, what covers it here, and the verdict."""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from theory import cli

VERDICTS = ("proved", "verified", "closure", "erratum", "not covered")


@dataclass(frozen=True)
class Claim:
    """One statement of a paper (see the header of a ``claims.toml``)."""

    id: str
    kind: str
    says: str
    covered_by: list[str]
    verdict: str
    note: str = ""


def load(path: Path) -> list[Claim]:
    """Read a ledger."""
    return [Claim(**entry) for entry in tomllib.loads(path.read_text())["claim"]]


def coverage(claims: list[Claim]) -> dict[str, int]:
    """Number of claims per verdict."""
    counts = Counter(c.verdict for c in claims)
    return {v: counts[v] for v in VERDICTS}


def report(claims: list[Claim]) -> str:
    """Ledger as a table, with its coverage as last line."""
    rows = [(c.id, c.verdict, c.says, ", ".join(c.covered_by), c.note) for c in claims]
    counts = ", ".join(f"{n} {v}" for v, n in coverage(claims).items())
    covered = sum(c.verdict != "not covered" for c in claims)
    return (f"{cli.table(('where', 'verdict', 'says', 'covered by', 'note'), rows)}\n"
            f"{len(claims)} claims, {covered} covered ({covered / len(claims):.0%}): {counts}")  # fmt: skip
