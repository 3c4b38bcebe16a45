"""Evidence: what the ``verify`` commands of a model found, stored beside its ledger with commit,
cost and a hash of the sources.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from theory import output, registry
from theory.registry import Model
from theory.sources import digest
from verify.check import VERDICTS
from verify.report import Request, collect

ROOT = Path(__file__).parents[1]
KEPT = (
    "id",
    "name",
    "equation",
    "predicted",
    "measured",
    "standard_error",
    "verdict",
    "sees",
    "why",
)


def place(model: Model) -> Path:
    """File of a model's evidence, beside its ledger."""
    return Path(str(model.ledger().__file__)).with_name("evidence.json")


def sources(model: Model) -> str:
    """Digest of every source that may change a verdict of this model: what all models share, and
    its own packages.
    """
    others = {m.name for m in registry.MODELS.values()} - {model.name}
    folders = [ROOT / wing for wing in ("theory", "simulate", "verify")]
    if model.package:
        folders.append(Path(str(importlib.import_module(model.package).__file__)).parent)
    return digest(
        path
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
        if path.relative_to(folder).parts[0] not in {*others, "device"}
    )


def commit(of: Path) -> str:
    """Commit that is checked out where a file is kept; a word where nothing keeps it."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=of.parent, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    kept = of.parent.is_dir() and git("ls-files", "--", of.name)
    return git("rev-parse", "--short=12", "HEAD") if kept else "not under version control"


def load(model: Model) -> dict[str, Any]:
    """Stored evidence: per command its checks and tables, what they cost and what they were made
    with.
    """
    path = place(model)
    return json.loads(path.read_text()) if path.is_file() else {}


def verdicts(stored: Mapping[str, Any]) -> dict[str, str]:
    """The worst verdict per address ``command.id``: rows that differ in parameters alone share
    one.
    """
    found: dict[str, str] = {}
    for command, record in stored.items():
        for row in record["checks"]:
            address = f"{command}.{row['id']}"
            found[address] = max(
                found.get(address, VERDICTS[0]), row["verdict"], key=VERDICTS.index
            )
    return found


def renew(model: Model, commands: Iterable[str], progress: bool) -> dict[str, Any]:
    """Run ``verify`` commands and store what they find, one after the other, each as soon as it is
    done.

    Parameters
    ----------
    model : Model
        Whose commands.
    commands : iterable of str
        Names such as ``gradients``.

    Returns
    -------
    dict
        All stored evidence of the model.
    """
    stored = load(model)
    for command in commands:
        begun = time.monotonic()
        report = collect(Request(model, progress=progress), command)
        stored[command] = {
            "commit": commit(Path(str(model.ledger().__file__))),
            "sources": sources(model),
            "seconds": round(time.monotonic() - begun),
            "checks": [{k: v for k, v in c.as_dict().items() if k in KEPT} for c in report.checks],
            "tables": {k: [header, *rows] for k, (header, rows) in report.tables.items()},
        }
        with output.atomic(place(model)) as temporary:
            temporary.write_text(output.to_json(dict(sorted(stored.items()))) + "\n")
    return stored


def state(model: Model, stored: Mapping[str, Any]) -> list[str]:
    """One line per command: when it was run and what it cost, or that it is stale or missing."""
    now, lines = sources(model), []
    for command in model.checks:
        record = stored.get(command)
        if record is None:
            lines.append(f"verify.{command}: never run")
        else:
            fresh = "" if record["sources"] == now else ", stale: sources have changed since"
            lines.append(
                f"verify.{command}: {record['seconds']} s at commit {record['commit']}{fresh}"
            )
    return lines
