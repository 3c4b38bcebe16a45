"""Claims ledger: statements of a paper, the evidence for each, and its verdict,
computed from the evidence. A ledger types how many claims have each verdict, a digest
of which claim has which, and those verdicts of single claims that are less than
agreement.
"""

import fnmatch
import itertools
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from theory import Model
from theory.runtime import output

# From best to worst. The first two are agreement; "tested" relies on tests, which only
# pass or fail; "drawn" is a figure without a number.
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
LESS = (
    "coarse",
    "bound",
    "limit",
    "undecided",
    "FAIL",
)  # less than agreement: to be typed


@dataclass(frozen=True)
class Claim:
    """One statement of a paper.

    Attributes
    ----------
    id, kind, says : str
        Place in the paper; kind of statement (``formula``: an equation without a
        number); text of the statement.
    covered_by : list of str
        Evidence: ``check:COMMAND.ID`` (a row of a ``verify`` command),
        ``test:PATH::NAME``; and pointers that are not evidence: ``equation:NAME``,
        ``code:ATTRIBUTE``, ``figure:NAME``.
    note : str
        Note for the reader.
    verdict : str
        The verdict that is expected, typed where it is less than agreement (`LESS`).
    partly : bool
        The statement holds in part, or relies on a closure that is not checked here;
        its verdict is at best *limit*.
    """

    id: str
    kind: str
    says: str
    covered_by: list[str]
    note: str = ""
    verdict: str = ""
    partly: bool = False

    def evidence(self, kind: str) -> list[str]:
        """Addresses of one kind."""
        return [
            e.removeprefix(f"{kind}:")
            for e in self.covered_by
            if e.startswith(f"{kind}:")
        ]


def place(model: Model) -> Path:
    """File of a model's ledger."""
    return Path(str(model.ledger().__file__)).with_name("claims.toml")


def load(path: Path) -> list[Claim]:
    """Read a ledger.

    Raises
    ------
    ParameterError
        If the file is damaged.
    """
    with output.intact(path):
        ledger = [
            Claim(**e) for e in tomllib.loads(output.read_text("ledger", path))["claim"]
        ]
        report(ledger, Found())
        return ledger


def counted(path: Path) -> dict[str, Any]:
    """Numbers of claims by verdict, and their `digest`, as a ledger types them; empty
    if it types none.
    """
    with output.intact(path):
        return dict(tomllib.loads(output.read_text("ledger", path)).get("verdicts", {}))


@dataclass(frozen=True)
class Found:
    """Summary of the stored evidence (`evidence.found`).

    Attributes
    ----------
    verdicts : mapping of str to str
        Verdict per check, and per cited test that was run (``tests.PATH::NAME``).
    equations : mapping of str to set of str
        Names of the equations tested by the rows of a check (patterns such as
        ``key_*``).
    """

    verdicts: Mapping[str, str] = field(default_factory=dict)
    equations: Mapping[str, set[str]] = field(default_factory=dict)

    def about(self, address: str, names: list[str]) -> bool:
        """Whether a check tests one of the given equations."""
        patterns = self.equations.get(address, ())
        pairs = itertools.product(names, patterns)
        return any(fnmatch.fnmatchcase(name, pattern) for name, pattern in pairs)


def computed(claim: Claim, found: Found) -> str:
    """Verdict of a claim computed from its evidence.

    The worst verdict among its checks and its tests (*tested*). Tests of an equation or
    formula count only if no check tests an equation that the claim names. A check
    without a stored result is *undecided*. A figure alone is *drawn*; equations and
    code alone are no evidence. Errata are marked by their kind and need evidence like
    other claims.
    """
    checks = claim.evidence("check")
    tests = claim.evidence("test")
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
    return _counts(computed(c, found) for c in claims)


def _counts(words: Iterable[str]) -> dict[str, int]:
    counts = Counter(words)
    return {v: counts[v] for v in (*VERDICTS, "FAIL")}


def digest(claims: list[Claim], found: Found) -> str:
    """Eight hexadecimal digits that follow from which claim has which verdict: opposite
    changes of two claims leave the counts as they are, but not this.
    """
    return _which(claims, [computed(c, found) for c in claims])


def _which(claims: list[Claim], words: list[str]) -> str:
    return output.hashed(
        sorted(f"{c.id}: {word}\n" for c, word in zip(claims, words, strict=True))
    )[:8]


def without_result(claims: list[Claim], found: Found) -> list[str]:
    """Cited checks without a stored result."""
    cited = itertools.chain.from_iterable(c.evidence("check") for c in claims)
    return sorted({*cited} - found.verdicts.keys())


def expected(claim: Claim, verdict: str) -> bool:
    """Whether a computed verdict is the typed one; where none is typed, whether it is
    at least agreement, or follows from the ledger alone (as *limit* of a claim that
    holds in part).
    """
    if claim.verdict:
        return verdict == claim.verdict
    return verdict not in LESS or (claim.partly and verdict == "limit")


def different(
    claims: list[Claim], found: Found, typed: Mapping[str, Any] | None = None
) -> list[str]:
    """Claims whose computed verdict is not the expected one, then counts of verdicts
    and the digest if they are not those of ``typed`` (`counted`; a digest that is not
    typed is not compared, and nothing is if ``typed`` is empty).
    """
    words = [computed(c, found) for c in claims]
    ids = [c.id for c, word in zip(claims, words, strict=True) if not expected(c, word)]
    if not typed:
        return ids
    now, which = _counts(words), _which(claims, words)
    off = [
        f"{n} {v} instead of {typed.get(v, 0)}"
        for v, n in now.items()
        if n != typed.get(v, 0)
    ]
    if (before := typed.get("digest", which)) != which:
        off.append(f"digest {which} instead of {before}")
    return ids + off


def report(claims: list[Claim], found: Found) -> str:
    """Ledger as a text table with computed verdicts, followed by the coverage and the
    checks without a result.
    """
    rows = [(c.id, computed(c, found), " ".join(c.says.split())) for c in claims]
    covered = coverage(claims, found)
    counts = ", ".join(f"{n} {v}" for v, n in covered.items() if n or v != "FAIL")
    agreed = sum(covered[v] for v in VERDICTS[:2])
    share = agreed / len(claims)
    lines = [
        output.table(("where", "verdict", "says"), rows, wide=False),
        f"{len(claims)} claims, {agreed} exact or in agreement ({share:.0%}),"
        f" {covered['tested']} by tests alone: {counts}",
    ]
    lines += [
        f"no result is stored for check:{a}" for a in without_result(claims, found)
    ]
    return "\n".join(lines)


def as_dicts(claims: list[Claim], found: Found) -> list[dict[str, Any]]:
    """The ledger as dictionaries for JSON; ``verdict`` is the typed one, where there is
    one.
    """
    return [{**asdict(c), "computed": computed(c, found)} for c in claims]
