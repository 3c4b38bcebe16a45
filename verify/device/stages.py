"""Stages of ``verify.device``: each has a time limit, is recorded when it ends, and is not repeated
once done.
"""

import json
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from simulate.state_tracking import benchmark
from theory.parameters import ParameterError
from theory.runtime import output
from verify import check_table
from verify.device import scale, students
from verify.device.scale import Job

GRACE = 30.0  # seconds allowed for a stage to stop
LEAST = 20.0  # no stage starts with less time left, in seconds


def gradients(job: Job) -> None:
    """Gradients of every student on the device, and resumption of every student after an
    interruption.
    """
    for model in dict.fromkeys(name.partition(".")[0] for name in students.kinds()):
        job.checks += students.checks(model, job.device)
    for name in students.kinds():
        job.checks += students.resumed(name, job.device, tiny=True)[1:]


def agreement(job: Job) -> None:
    """Ensembles compared with the CPU, and resumed."""
    for name in students.COMPARED:
        job.checks += students.agreement(name, job.device, job.tiny)


def stacks(job: Job) -> None:
    """Stacks of several sizes against single seeds."""
    for dtype in students.TOLERANCE:
        rows, equal = students.stacks(job.device, dtype, job.tiny)
        job.checks += rows
        job.numbers.setdefault("share of seeds with equal bits", {}).update(equal)


def speed(job: Job) -> None:
    """Time of a step relative to the device's peak rates, and one minute of training."""
    p = scale.setting("table_1", job.tiny)
    limits = benchmark.ceilings(job.device, 64 if job.tiny else 8192)
    job.numbers |= {"floors": benchmark.floors(p), "ceilings": limits, "steps": []}
    for seeds in (1, 2) if job.tiny else (1, 16, 100):
        row = benchmark.step_time(p, job.device, seeds, 0.01 if job.tiny else 3, limits)
        job.numbers["steps"].append(row)
    job.numbers["training"] = scale.a_minute(job, 0.0 if job.tiny else 60.0)


# With the time limit of each in seconds.
STAGES: dict[str, tuple[Callable[[Job], None], float]] = {
    "gradients": (gradients, 420),
    "agreement": (agreement, 420),
    "stacks": (stacks, 240),
    "speed": (speed, 360),
    **{n: (partial(scale.tracking, name=n), 480) for n in ("table_1", "table_2")},
    "transformer": (scale.transformer, 480),
    "emergence": (scale.emergence_times, 480),
    "attention_layer": (scale.attention_layer, 480),
}


@contextmanager
def limited(seconds: float) -> Iterator[list[bool]]:
    """Context manager: interrupt the block when the time is over, like Ctrl-C; training completes
    its step and keeps a checkpoint. The returned list then contains True.

    No effect on systems without alarm signals.
    """
    over = [False]

    def ring(*_: Any) -> None:
        over[0] = True
        signal.raise_signal(signal.SIGINT)

    if not hasattr(signal, "setitimer"):
        yield over
        return
    alarm = signal.signal(signal.SIGALRM, ring)
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3), GRACE)
    try:
        yield over
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, alarm)
        signal.signal(signal.SIGINT, interrupt)


def run(
    names: Sequence[str],
    device: torch.device,
    out: Path,
    store: Path,
    seconds: float,
    tiny: bool,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Run the stages that are not done yet; ``report.json`` and ``report.txt`` are rewritten after
    every stage.

    Raises
    ------
    ParameterError
        If the folder contains the report of another device, or mixes a dry run with a real one.
    """
    report = begin(out, device, tiny)
    end = time.monotonic() + seconds
    for name in names:
        work, most = STAGES[name]
        record = report["stages"].setdefault(name, {"status": "not begun", "seconds": 0.0})
        left = end - time.monotonic() - GRACE
        if record["status"] == "done":
            say(f"{name}: done before")
        elif left < LEAST:
            say(f"{name}: not begun, {max(0.0, left):.0f} s left")
        else:
            say(f"{name}: at most {min(most, left):.0f} s")
            training = report["stages"].get("speed", {}).get("numbers", {}).get("training", {})
            each = training.get("us_per_seed_epoch")
            job = Job(device, tiny, out, store, min(most, left), each)
            start, status, error = time.monotonic(), "done", ""
            try:
                with limited(job.seconds) as over:
                    work(job)
            except KeyboardInterrupt:
                if not over[0]:
                    raise
                status = "unfinished"
            except Exception as caught:  # a failing stage must not stop the others
                status, error = "failed", "".join(traceback.format_exception(caught))
            say(f"{name}: {status} {error.strip().rpartition(chr(10))[2]}".rstrip())
            report["stages"][name] = {
                "status": status,
                "seconds": record["seconds"] + time.monotonic() - start,
                "numbers": job.numbers,
                "files": job.files,
                "checks": [c.as_dict() for c in job.checks],
                "text": check_table.table(job.checks) if job.checks else "",
                "error": error,
            }
        for file, content in (("json", output.to_json(report)), ("txt", text(report))):
            with output.atomic(out / f"report.{file}") as temporary:
                temporary.write_text(content + "\n")
    return report


def begin(out: Path, device: torch.device, tiny: bool) -> dict[str, Any]:
    """Report of earlier calls, or an empty one."""
    here, path = {"dry_run": tiny, **benchmark.describe(device)}, out / "report.json"
    if not path.exists():
        return {**here, "stages": {}}
    why = "not a report of this command"
    try:
        report = json.loads(path.read_text())
        other = [f"{n} = {report[n]} there, {v} here" for n, v in here.items() if report[n] != v]
        if not other and isinstance(report["stages"], dict):
            return report
        why = f"of another run ({', '.join(other)})" if other else why
    except (ValueError, KeyError, TypeError):
        pass
    raise ParameterError(f"{path}: {why}; remove it or name another --out")


def succeeded(report: dict[str, Any], names: Sequence[str]) -> bool:
    """Whether the named stages are done and no check has failed."""
    stages = report["stages"]
    fine = all(row["within"] for r in stages.values() for row in r.get("checks", ()))
    return fine and all(stages[name]["status"] == "done" for name in names)


def text(report: dict[str, Any]) -> str:
    """The report as text: one line per stage, then the results of each."""
    kind = "DRY RUN at tiny sizes: no number below means anything" if report["dry_run"] else ""
    parts = [f"{report.get('name') or report['device']}, torch {report['torch']}. {kind}"]
    rows = [
        [name, r["status"], f"{r['seconds']:.0f}", ", ".join(r.get("files", ()))]
        for name, r in report["stages"].items()
    ]
    parts.append(output.table(("stage", "status", "s", "files"), rows))
    for name, r in report["stages"].items():
        for title, numbers in r.get("numbers", {}).items():
            if isinstance(numbers, list) and numbers and isinstance(numbers[0], dict):
                cells = [[_short(v) for v in row.values()] for row in numbers]
                parts.append(f"{name}, {title}\n{output.table(list(numbers[0]), cells)}")
            else:
                parts.append(f"{name}, {title}: {_short(numbers)}")
        parts += filter(None, (r.get("text"), r.get("error")))
    return "\n\n".join(parts)


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_short(v)}" for k, v in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)
