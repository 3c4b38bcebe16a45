"""The stages of ``verify.device``: each limited in time, recorded when it ends, and not repeated
when it is done.
"""

from __future__ import annotations

import json
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from simulate.state_tracking import device_time
from theory import output
from theory.parameters import ParameterError
from verify.check import Check, table
from verify.device import ensembles, paths, scale
from verify.device.scale import Job

Outcome = tuple[bool, list[Check], dict[str, Any], list[str]]  # finished; checks, numbers, files
TOTAL = 1800.0  # seconds of all calls together
GRACE = 30.0  # seconds that a stage may take to come to its end


@dataclass(frozen=True)
class Stage:
    """One stage: what it does, the most seconds it gets and the fewest with which it begins."""

    work: Callable[[Job], Outcome]
    most: float
    fewest: float


def gradients(job: Job) -> Outcome:
    """Every student's gradients on the device."""
    where = torch.device(job.device)
    return True, [row for model in paths.PATHS for row in paths.checks(model, where)], {}, []


def agreement(job: Job) -> Outcome:
    """Ensembles as on the CPU, and resumed."""
    rows: list[Check] = []
    with tempfile.TemporaryDirectory() as folder:
        for one in ensembles.ensembles(job.tiny):
            rows += ensembles.checks(
                one, job.device, Path(folder) / one.name, 1 if job.tiny else None
            )
    return True, rows, {}, []


def stacks(job: Job) -> Outcome:
    """Stacks of several sizes against seeds alone."""
    rows: list[Check] = []
    equal: dict[str, float] = {}
    p, sizes = ensembles.ensembles(job.tiny)[0].p, (1, 2, 3) if job.tiny else (1, 16, 100, 128)
    for dtype in paths.TOLERANCE:
        more, bits = ensembles.stacks(p, sizes, torch.device(job.device), dtype)
        rows, equal = rows + more, equal | bits
    return True, rows, {"share of seeds with equal bits": equal}, []


def speed(job: Job) -> Outcome:
    """Time of a step, its shares of the device's ceilings, and a minute of training."""
    where, p = torch.device(job.device), scale.setting("table_1", job.tiny)
    limits = device_time.ceilings(where, 64 if job.tiny else 8192)
    rows = [
        device_time.step_time(p, where, seeds, 2 if job.tiny else 20, limits)
        for seeds in ((1, 2) if job.tiny else (1, 16, 100))
    ]
    training = scale.a_minute(job, 0.0 if job.tiny else 60.0)
    return (
        True,
        [],
        {"floors": device_time.floors(p), "ceilings": limits, "steps": rows, "training": training},
        [],
    )


def at_scale(name: str) -> Callable[[Job], Outcome]:
    """One of the ensembles at the papers' sizes."""

    def work(job: Job) -> Outcome:
        finished, numbers, files = scale.STAGES[name](job)
        return finished, [], numbers, files

    return work


STAGES: dict[str, Stage] = {
    "gradients": Stage(gradients, 240, 20),
    "agreement": Stage(agreement, 420, 60),
    "stacks": Stage(stacks, 240, 30),
    "speed": Stage(speed, 360, 150),
    **{name: Stage(at_scale(name), 480, 60) for name in scale.STAGES},
}


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raise TimeoutError when a stage does not come to its end by itself (where the system has
    alarms).
    """
    if not hasattr(signal, "setitimer"):
        yield
        return

    def ring(*_: Any) -> None:
        raise TimeoutError(f"not at its end after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run(
    names: Sequence[str],
    device: torch.device,
    out: Path,
    store: Path,
    seconds: float,
    tiny: bool,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Carry out what is not done yet; ``report.json`` and ``report.txt`` are written anew after
    every stage.

    Raises
    ------
    ParameterError
        If the folder holds the report of another device, or of a dry run beside a real one.
    """
    report = begin(out, device, tiny)
    end = time.monotonic() + min(seconds, TOTAL - report["seconds"])
    for name in names:
        stage, record = STAGES[name], report["stages"].get(name, {})
        if record.get("status") == "done":
            say(f"{name}: done before")
            continue
        left = end - time.monotonic() - GRACE
        if left < (0 if tiny else stage.fewest):
            say(f"{name}: not begun, {max(0.0, left):.0f} s left")
            report["stages"][name] = {
                "seconds": 0.0,
                "checks": [],
                "numbers": {},
                "files": [],
                **record,
                "status": record.get("status", "not begun"),
            }
            continue
        say(f"{name}: at most {min(stage.most, left):.0f} s")
        numbers = {n: r["numbers"] for n, r in report["stages"].items()}
        job, start = (
            Job(str(device), tiny, out, store, min(stage.most, left), numbers),
            time.monotonic(),
        )
        record = {
            "status": "failed",
            "checks": [],
            "numbers": {},
            "files": [],
            "seconds": record.get("seconds", 0.0),
        }
        try:
            with alarm(job.seconds + GRACE / 2):
                finished, checks, found, files = stage.work(job)
            record |= {
                "status": "done" if finished else "unfinished",
                "numbers": found,
                "files": files,
                "checks": [asdict(c) for c in checks],
            }
        except Exception as error:  # a stage that fails must not take the others with it
            record["error"] = "".join(traceback.format_exception(error))
            say(f"{name}: failed, {type(error).__name__}: {error}")
        spent = time.monotonic() - start
        record["seconds"] += spent
        report["seconds"] += spent
        report["stages"][name] = record
        write(out, report)
    write(out, report)
    return report


def write(out: Path, report: dict[str, Any]) -> None:
    """Both forms of the report."""
    for name, content in (("report.json", output.to_json(report)), ("report.txt", text(report))):
        with output.atomic(out / name) as temporary:
            temporary.write_text(content + "\n")


def begin(out: Path, device: torch.device, tiny: bool) -> dict[str, Any]:
    """The report of earlier calls, or an empty one."""
    own = {"dry_run": tiny, **device_time.describe(device)}
    path = out / "report.json"
    if not path.exists():
        return {**own, "seconds": 0.0, "stages": {}}
    try:
        report = json.loads(path.read_text())
        theirs = {name: report[name] for name in own}
        if not isinstance(report["stages"], dict):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        raise ParameterError(
            f"{path}: not a report of this command; remove it or name another --out"
        ) from None
    if theirs != own:
        different = ", ".join(
            f"{n} = {theirs[n]} there, {own[n]} here" for n in own if theirs[n] != own[n]
        )
        raise ParameterError(
            f"{path}: of another run ({different}); remove it or name another --out"
        )
    return report


def rows(report: dict[str, Any]) -> list[Check]:
    """All checks of a report."""
    numbers = ("predicted", "measured", "error")
    return [
        Check(**{**row, **{n: np.nan for n in numbers if row[n] is None}})
        for record in report["stages"].values()
        for row in record["checks"]
    ]


def succeeded(report: dict[str, Any], names: Sequence[str]) -> bool:
    """Whether the named stages are done and no check failed."""
    done = all(report["stages"].get(name, {}).get("status") == "done" for name in names)
    return done and all(check.within for check in rows(report))


def text(report: dict[str, Any]) -> str:
    """The report as tables."""
    kind = (
        "DRY RUN at tiny sizes: no number below means anything" if report["dry_run"] else "measured"
    )
    parts = [
        f"{report.get('name') or report['device']}, torch {report['torch']}; {kind}; {report['seconds']:.0f} s in all"
    ]
    stages = [
        [name, r["status"], f"{r['seconds']:.0f}", ", ".join(r["files"]), _short(r)]
        for name, r in report["stages"].items()
    ]
    parts.append(output.table(("stage", "status", "s", "files", "numbers"), stages))
    found = report["stages"].get("speed", {}).get("numbers", {})
    if found:
        head = (
            "seeds",
            "us per seed-step",
            "as CUDA graph",
            "of lookup floor",
            "of dense floor",
            "of bandwidth",
            "idle",
        )
        parts.append(
            output.table(
                head,
                [
                    [
                        str(r["seeds"]),
                        f"{r['us_per_seed_step']:.4g}",
                        _graph(r),
                        *(
                            f"{r[k]:.1%}"
                            for k in (
                                "share_lookup",
                                "share_dense",
                                "share_bandwidth",
                                "share_idle",
                            )
                        ),
                    ]
                    for r in found["steps"]
                ],
            )
        )
        kernels = [
            [str(r["seeds"]), k["name"], f"{k['calls']:.3g}", f"{k['us']:.4g}"]
            for r in found["steps"]
            for k in r["kernels"]
        ]
        parts.append(output.table(("seeds", "kernel", "calls per step", "us per step"), kernels))
        parts += [
            f"{name}: {output.to_json(found[name])}" for name in ("floors", "ceilings", "training")
        ]
    checks = rows(report)
    return "\n\n".join([*parts, table(checks)] if checks else parts)


def _graph(row: dict[str, Any]) -> str:
    time_of = row["graph_us_per_seed_step"]
    return row["graph_error"] if time_of is None else f"{time_of:.4g}"


def _short(record: dict[str, Any]) -> str:
    if "error" in record:
        return record["error"].strip().splitlines()[-1]
    plain = {k: v for k, v in record["numbers"].items() if isinstance(v, int | float | str)}
    return ", ".join(
        f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in plain.items()
    )
