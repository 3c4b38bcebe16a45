"""CPU time of a derivation with its printed equations, and of the command that prints them."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable
from typing import Any

from theory import __main__ as listing
from theory.runtime import output
from theory.statement import check, kept
from theory.statement.derived import derive
from theory.statement.stated import Statement

SECONDS = 2.0  # of a derivation, printed
TIMES = 2.5  # of the imports, for a command
IMPORTS = "from theory import __main__; from theory.statement import kept, onset"


def row(way: str, seconds: float, most: float, error: float = 0.0) -> dict[str, Any]:
    """A row of the table of ``python -m theory.benchmark``."""
    within = seconds <= most and error <= check.AGREE
    spent = {"seconds": seconds, "microseconds_per_point": 1e6 * seconds}
    return {"way": way, "points": 1, **spent, "error": error, "within": within}


def printed(way: str, stated: Statement, of: Callable[[Statement], Any] = derive) -> dict[str, Any]:
    """A statement derived, and its equations as ``python -m theory`` prints them.

    The error is the largest of loss, gradients and sizes against listed inputs that the derivation
    did not see; none is listed for a closure.
    """
    started = time.process_time()
    made = of(stated)
    for equation in made.equations().values():
        listing.spoken(equation, output.width())
    spent = time.process_time() - started
    error = 0.0 if made.shared else max(check.confirm(made, seed=11).values())
    return row(way, spent, SECONDS, error)


def command(file: str) -> dict[str, Any]:
    """CPU time of ``python -m theory FILE.py`` with an empty cache, in units of the time of the
    imports.
    """

    def spent(*words: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], check=True, capture_output=True, env=env)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "SOLVABLE_TRANSFORMERS_CACHE": folder}
        imports = spent("-c", IMPORTS)
        return row(
            "python -m theory FILE.py over imports", spent("-m", "theory", file) / imports, TIMES
        )


def of(stated: Statement) -> types.SimpleNamespace:
    """The ``benchmark`` of a statement, for ``theory.benchmark``."""

    def benchmark() -> dict[str, Any]:
        """A statement derived anew, and read again."""
        rows = [printed("derived and printed", stated)]
        kept.derived(stated)
        rows.append(printed("read again and printed", stated, kept.derived))
        note = f"CPU seconds after imports; at most {SECONDS:g}; error: against listed inputs"
        agree = all(r["within"] for r in rows)
        ratio = rows[0]["seconds"] / rows[1]["seconds"]
        return {"ratio": ratio, "agree": agree, "rows": rows, "note": note}

    return types.SimpleNamespace(benchmark=benchmark)
