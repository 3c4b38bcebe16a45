"""``python -m tests.injection [SYSTEM ...]``: a wrong factor and a wrong sign in every
equation that a check cites, and what its rows say; renews ``tests/injection.json``.

A fault multiplies the right-hand side wherever it is read. Each has a process of its
own, so that nothing derived before hides it. Students are trained once, and kept in the
run store.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import json
import os
import pickle
import re
import tempfile
from pathlib import Path
from typing import Any

import joblib

from simulate.training.pool import one_thread
from theory.equations import equation
from theory.models import registry
from theory.runtime import progress
from verify.checks import digests
from verify.checks.check import Check
from verify.checks.report import Request

RESULTS = Path(__file__).with_name("injection.json")
# Commands that train students for half an hour; faults are put into their rows by hand,
# in tests/verify/test_reward_checks.py and test_training_law_checks.py.
ASIDE = ("laws state_tracking",)
COMMANDS = (
    "trajectories",
    "timescales",
    "laws",
    "thresholds",
)  # gradients: tests/verify
LEAST = 0.05  # relative fault that must be seen
# that no store keeps, or that are trained where the theory puts them: a command's
STUDENTS = {
    # functions, each with what does not tell its calls apart
    "thresholds positional_semantic": {"each": [], "_gap": ["centre"]}
}
# what takes minutes and makes notes, no rows: a constant of a module, and its value
# here
NOTES = {
    "timescales induction_heads": (
        "verify.induction_heads.all_weights.all_weights_times.all_weights_times.gaussian",
        "HALF_FILLED",
        (),
    )
}
EQUIVALENT = {  # faults that no row can see
    "zeta": (
        "zero on average at the start, and it does not move: so is, and does not, any"
        " multiple"
    )
}


def put(system: registry.Model, name: str, factor: float) -> None:
    """Make this process read one equation wrongly; what is made of it has the fault
    already.
    """
    plain, wrong = equation._WhenRead.__get__, system.wing("theory").equations()[name]

    def read(self: Any, of: Any, kind: Any = None) -> Any:
        value = plain(self, of, kind)
        if of is not wrong:
            return value
        return value * factor if value != 0 else value + factor - 1  # of scale one

    equation._WhenRead.__get__ = read  # type: ignore[method-assign]


def names(system: registry.Model) -> set[str]:
    """Names of equations; not of what flows move and carry, which special solvers
    integrate.
    """
    theory = system.wing("theory")
    flows = theory.flows().values()
    carried = {x.name for f in flows for x in f.state}.union(
        *(f.observables for f in flows)
    )
    return set(theory.equations()) - carried - EQUIVALENT.keys()


def found(
    command: str, system: registry.Model, memory: joblib.Memory, *fault: Any
) -> Any:
    """Checks of a command by a process of its own, with a fault of `put` or none; and
    `names`.

    Where the command ends in an error, that. What `STUDENTS` names is in `memory`, from
    the run without a fault.
    """
    out, into = os.pipe()
    if (child := os.fork()) == 0:
        result: Any
        if fault:
            put(system, *fault)
        try:
            module, key = system.wing("verify", command), f"{command} {system.name}"
            if key in NOTES:
                place, name, value = NOTES[key]
                setattr(importlib.import_module(place), name, value)
            for name, free in STUDENTS.get(key, {}).items():
                setattr(module, name, memory.cache(getattr(module, name), ignore=free))
            with one_thread():
                checks = system.command(command)(Request(system)).checks
            result = checks, None if fault else names(system)
        except Exception as e:
            result = f"{type(e).__name__}: {e}"
        with os.fdopen(into, "wb") as f:
            pickle.dump(result, f)
        os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as f:
        result = pickle.load(f)
    os.waitpid(child, 0)
    return result


def cites(check: Check, name: str) -> bool:
    """Whether a row rests on an equation; patterns are allowed."""
    return any(fnmatch.fnmatchcase(name, c) for c in re.split(r",\s*", check.equation))


def inject(
    command: str, system: registry.Model, only: str = "*"
) -> list[dict[str, Any]]:
    """Every name that rows of a command cite, by both faults: which of its own rows
    fail.
    """
    with tempfile.TemporaryDirectory() as folder:
        return _inject(command, system, only, joblib.Memory(folder, verbose=0))


def _inject(
    command: str, system: registry.Model, only: str, memory: joblib.Memory
) -> list[dict[str, Any]]:
    sound = found(command, system, memory)
    if isinstance(sound, str):
        raise SystemExit(f"error: verify.{command} {system.name}: {sound}")
    checks, equations = sound
    if failing := [c.id for c in checks if c.verdict == "FAIL"]:
        raise SystemExit(
            f"error: verify.{command} {system.name}: fails without a fault: {failing}"
        )
    rows = []
    wanted = sorted(
        n
        for n in equations
        if any(cites(c, n) for c in checks) and fnmatch.fnmatchcase(n, only)
    )
    for name in progress.each(wanted, "equations"):
        own = [c for c in checks if cites(c, name)]
        seen = 1 + max(LEAST, 2 * min(c.detectable for c in own))
        for factor in (seen, -1.0):
            now = found(command, system, memory, name, factor)
            failing = (
                now[:160]
                if isinstance(now, str)
                else sorted(
                    {c.id for c in now[0] if cites(c, name) and c.verdict == "FAIL"}
                )
            )
            rows.append(
                {
                    "equation": name,
                    "factor": round(factor, 3),
                    "rows": len(own),
                    "seen by": failing,
                }
            )
            print(f"{command} {system.name}: {rows[-1]}", flush=True)
    return rows


def main(argv: list[str] | None = None) -> int:
    """Command line; exit code 1 where a fault is not seen."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.injection", description=__doc__
    )
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help="all by default")
    parser.add_argument("--command", choices=COMMANDS, help="this one alone")
    parser.add_argument(
        "--equation",
        default="*",
        metavar="PATTERN",
        help="only these; others keep their results",
    )
    given = parser.parse_args(argv)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for command in [given.command] if given.command else COMMANDS:
        for model in registry.MODELS.values():
            for system in model.offering(command):
                if not given.systems or system.name in given.systems:
                    made = results.setdefault(f"{command} {system.name}", {"rows": []})
                    new = inject(command, system, given.equation)
                    others = [
                        row
                        for row in made["rows"]
                        if not fnmatch.fnmatchcase(row["equation"], given.equation)
                    ]
                    if not others:  # else some are of what the sources were
                        made["sources"] = digests.sources(model, command)
                    made["rows"] = sorted(others + new, key=lambda row: row["equation"])
                    RESULTS.write_text(
                        json.dumps(dict(sorted(results.items())), indent=1) + "\n"
                    )
    return int(
        any(not row["seen by"] for made in results.values() for row in made["rows"])
    )


if __name__ == "__main__":
    raise SystemExit(main())
