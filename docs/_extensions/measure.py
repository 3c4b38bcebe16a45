"""Take the benchmarks that the site shows: ``python docs/_extensions/measure.py [MODEL ...]``
renews ``docs/performance.json``. Best on an idle machine.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from papers import evidence
from simulate.benchmark import TABLES
from theory.registry import TABLE
from theory.runtime import output

PLACE = Path(__file__).parents[1] / "performance.json"


def ask(*words: str) -> Any:
    """What a command says in JSON; exit code 1 says that a number is not as wanted."""
    done = subprocess.run(
        [sys.executable, "-m", *words, "--json"], capture_output=True, text=True, check=False
    )
    if done.returncode > 1:
        raise OSError(f"{' '.join(words)}: exit code {done.returncode}: {done.stderr[-200:]}")
    return json.loads(done.stdout)


def machine() -> str:
    """Processor and load."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    name = next((x.partition(": ")[2] for x in lines if x.startswith("model name")), "")
    return (
        f"{name or platform.processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} "
        "when begun"
    )


def numbers(model: str) -> dict[str, Any]:
    """A model's numbers against the plain way."""
    told = ask("theory.benchmark", model)
    rows = [
        [
            r["way"],
            r["points"],
            f"{r['seconds']:.3g}",
            f"{r['microseconds_per_point']:.4g}",
            f"{r['error']:.1e}",
        ]
        for r in told["rows"]
    ]
    return {
        "command": f"python -m theory.benchmark {model}",
        "about": "A model's numbers, against the plain way.",
        "header": ["way", "points", "seconds", "microseconds per point", "error"],
        "rows": rows,
        "notes": [f"Ratio {told['ratio']:.3g}. {told['note']}"],
    }


def steps() -> dict[str, Any]:
    """A training step, plain module against engine."""
    told = ask("simulate.benchmark", "state_tracking", "--quiet")
    rows = [
        [r["name"], r["threads"], r["seeds"], f"{r['ms']:.3g}", f"{r['ratio']:.1f}"]
        for r in told["rows"]
    ]
    return {
        "command": "python -m simulate.benchmark state_tracking",
        "about": "One training step.",
        "header": ["how", "threads", "seeds", "ms per seed-step", "ratio"],
        "rows": rows,
        "notes": told["notes"],
    }


def costs(table: str) -> dict[str, Any]:
    """CPU times of one of the benchmark's other tables."""
    words = ("simulate.benchmark", "state_tracking", "--table", table)
    told = ask(*words)
    return {"command": " ".join(["python -m", *words]), **told}


def starts() -> dict[str, Any]:
    """CPU time of first answers."""
    told = ask("verify.start", "--rounds", "3")
    rows = [[r["command"], f"{r['seconds']:.2f}", f"{r['ratio']:.2f}"] for r in told["rows"]]
    return {
        "command": "python -m verify.start --rounds 3",
        "about": "CPU time of first answers in fresh processes; ratio to importing the libraries.",
        "header": ["command", "CPU s", "ratio"],
        "rows": rows,
        "notes": [],
    }


def main() -> None:
    """Measure one after the other and write."""
    place = machine()
    wanted = sys.argv[1:] or [m.name for m in TABLE.values() if m.has("theory", "benchmark")]
    tables = [*(numbers(name) for name in wanted), steps(), *map(costs, TABLES), starts()]
    made = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": evidence.commit(Path(__file__)),
        "machine": place,
        "command": " ".join(["python docs/_extensions/measure.py", *sys.argv[1:]]),
        "tables": tables,
    }
    with output.atomic(PLACE) as temporary:
        temporary.write_text(output.to_json(made) + "\n")


if __name__ == "__main__":
    main()
