"""Evidence: stored results of a model's ``verify`` commands and of the tests cited in
its ledger, with commit, cost and a digest of the code that they use.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from papers import claims
from papers.claims import Found
from simulate.store.storage import default_store
from theory import Model, ParameterError
from theory.runtime import output
from verify.checks.check import Check
from verify.checks.digests import sources
from verify.checks.report import Request, collect
from verify.checks.report_store import arrays
from verify.checks.verdict import VERDICTS

ROOT = Path(__file__).parents[1]
TESTS = "tests"  # name of the record of cited tests, next to the commands
KEPT = (
    "id",
    "name",
    "equation",
    "predicted",
    "measured",
    "standard_error",
    "verdict",
    "detectable",
    "why",
    "bound",
)


def place(model: Model) -> Path:
    """File of a model's evidence, next to its ledger."""
    return claims.place(model).with_name("evidence.json")


def commit(of: Path) -> str:
    """Commit checked out in the repository of a file; a placeholder word without a
    repository.
    """

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=of.parent, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    kept = of.parent.is_dir() and git("ls-files", "--", of.name)
    return (
        git("rev-parse", "--short=12", "HEAD") if kept else "not under version control"
    )


def load(model: Model) -> dict[str, Any]:
    """Stored evidence: per command its checks and tables, cost and provenance."""
    return read(place(model))


def read(path: Path) -> dict[str, Any]:
    """Stored evidence of a file; empty without the file.

    Raises
    ------
    ParameterError
        If the file is damaged.
    """
    if not path.exists():
        return {}
    with output.intact(path):
        stored = json.loads(output.read_text("evidence", path))
        found(stored)
        for record in stored.values():
            record["commit"], record["seconds"], record.get("sources")
        return stored


def found(stored: Mapping[str, Any]) -> Found:
    """Worst verdict per address ``command.id``, and the equations that its rows test.
    Rows that differ only in parameters share an address.
    """
    verdicts: dict[str, str] = {}
    equations: dict[str, set[str]] = {}
    for command, record in stored.items():
        for row in record["checks"]:
            address = f"{command}.{row['id']}"
            worst = verdicts.get(address, VERDICTS[0])
            verdicts[address] = max(
                worst, row["verdict"], key=(*VERDICTS, "tested").index
            )
            equations.setdefault(address, set()).update(
                re.split(r",\s*", row["equation"])
            )
    return Found(verdicts, equations)


def renew(
    model: Model, commands: Iterable[str], progress: bool, anew: bool = False
) -> dict[str, Any]:
    """Run ``verify`` commands, or the cited tests, one after the other, and store each
    result as soon as it is available. Commands whose stored result is of the same code
    are not run again.

    Parameters
    ----------
    model : Model
        Model whose commands are run.
    commands : iterable of str
        Names such as ``gradients``; ``tests`` for the tests cited in the ledger.
    anew : bool
        Whether to run a command even if its code has not changed.

    Returns
    -------
    dict
        All stored evidence of the model.
    """
    stored = load(model)
    for command in commands:
        code = "" if command == TESTS else sources(model, command)
        if code and not anew and stored.get(command, {}).get("sources") == code:
            continue
        begun = time.monotonic()
        checked_out = commit(claims.place(model))
        if command == TESTS:
            record: dict[str, Any] = {"checks": tested(cited(model)), "tables": {}}
        else:
            with arrays(default_store()):
                report = collect(Request(model, progress=progress), command)
            tables = {k: [header, *rows] for k, (header, rows) in report.tables.items()}
            record = {
                "sources": code,
                "checks": [kept(check) for check in report.checks],
                "tables": tables,
            }
        stored[command] = {
            "commit": checked_out,
            "seconds": round(time.monotonic() - begun),
            **record,
        }
        with output.atomic(place(model)) as temporary:
            temporary.write_text(output.to_json(dict(sorted(stored.items()))) + "\n")
    return stored


def kept(check: Check) -> dict[str, Any]:
    """Stored fields of a check. Bounds store their direction; rows that are neither
    *exact* nor
    *agrees* store the reason.
    """
    why = "" if check.verdict in VERDICTS[:2] else check.why
    row = {**check.as_dict(), "why": why}
    return {
        k: v for k, v in row.items() if k in KEPT and (v or k not in ("bound", "why"))
    }


def cited(model: Model) -> list[str]:
    """Addresses of the tests cited in a ledger."""
    ledger = claims.load(claims.place(model))
    return sorted({*chain.from_iterable(c.evidence("test") for c in ledger)})


def tested(addresses: list[str]) -> list[dict[str, str]]:
    """Run cited tests. One row per address: *tested* if at least one test of that name
    ran and all passed, otherwise *FAIL*.

    Raises
    ------
    ParameterError
        If the tests are not available, as in an installed package.
    """
    files = {address.partition("::")[0] for address in addresses}
    missing = [file for file in sorted(files) if not (ROOT / file).is_file()]
    if missing:
        raise ParameterError(
            f"--run {TESTS}: {missing[0]} is not in {ROOT}; a checkout has it"
        )
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "tests.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "", f"--junitxml={log}"]
        done = subprocess.run(
            [*command, *addresses],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if not log.is_file():
            raise ParameterError(
                f"--run {TESTS}: pytest stopped: {done.stdout.strip()[-300:]}"
            )
        cases = list(ElementTree.parse(log).iter("testcase"))
    passed: dict[str, bool] = {}
    for case in cases:
        file = case.get("classname", "").replace(".", "/") + ".py"
        bad = any(case.find(word) is not None for word in ("failure", "error"))
        for address in (file, f"{file}::{case.get('name', '').partition('[')[0]}"):
            if case.find("skipped") is None:
                passed[address] = passed.get(address, True) and not bad
    return [
        {
            "id": address,
            "name": address,
            "equation": "",
            "verdict": "tested" if passed.get(address) else "FAIL",
        }
        for address in addresses
    ]


def state(model: Model, stored: Mapping[str, Any]) -> list[str]:
    """One line per command: date and cost of its result, or that it is stale or
    missing.
    """
    late, lines = stale(model, stored), []
    for command in model.checks:
        record = stored.get(command)
        if record is None:
            lines.append(f"verify.{command}: never run")
        else:
            fresh = ", stale: sources have changed since" if command in late else ""
            lines.append(
                f"verify.{command}: {record['seconds']} s at commit"
                f" {record['commit']}{fresh}"
            )
    ran = stored.get(TESTS)
    lines.append(
        f"cited tests: {len(ran['checks'])} run, {ran['seconds']} s at commit"
        f" {ran['commit']}"
        if ran
        else f"cited tests: not run here (--run {TESTS} does)"
    )
    return lines


def stale(model: Model, stored: Mapping[str, Any]) -> list[str]:
    """Commands whose stored result was made with other sources."""
    return [
        command
        for command in model.checks
        if command in stored
        and stored[command].get("sources") != sources(model, command)
    ]
