"""Stages of ``verify.device``: checks, then speed. Each has a time limit, is recorded when it
ends, and is not repeated once done. Ensembles at the papers' sizes: ``papers KEY --scale paper``.
"""

import json
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from simulate import pool
from simulate.state_tracking import benchmark, train
from theory.parameters import ParameterError
from theory.runtime import output
from verify import check_table
from verify.check import Check
from verify.device import students
from verify.device.students import FEW
from verify.state_tracking import ensemble

GRACE = 30.0  # seconds allowed for a stage to stop
LEAST = 20.0  # no stage starts with less time left, in seconds
SEEDS = 100  # of Table 1


@dataclass
class Job:
    """Settings of a stage (device, dry run, folder of runs, time limit) and its results."""

    device: torch.device
    tiny: bool
    store: Path
    seconds: float
    checks: list[Check] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """The time begins."""
        self.end = time.monotonic() + self.seconds

    def over(self, done: int = 0) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self.end

    def within(self, items: Iterable[Any]) -> Iterator[Any]:
        """Items, one after the other, as long as there is time.

        Raises
        ------
        KeyboardInterrupt
            When the time is over.
        """
        for item in items:
            if self.over():
                raise KeyboardInterrupt
            yield item


def gradients(job: Job) -> None:
    """Gradients of every student on the device, and resumption of every student after an
    interruption.
    """
    for model in job.within(dict.fromkeys(x.partition(".")[0] for x in students.kinds())):
        job.checks += students.checks(model, job.device)
    for name in job.within(students.kinds()):
        job.checks += students.resumed(name, job.device, tiny=True)[1:]


def agreement(job: Job) -> None:
    """Ensembles compared with the CPU, and resumed."""
    for name in job.within(students.COMPARED):
        job.checks += students.agreement(name, job.device, job.tiny)


def stacks(job: Job) -> None:
    """Stacks of several sizes against single seeds."""
    for dtype in job.within(students.TOLERANCE):
        rows, equal = students.stacks(job.device, dtype, job.tiny)
        job.checks += rows
        job.numbers.setdefault("share of seeds with equal bits", {}).update(equal)


def speed(job: Job) -> None:
    """Time of a step relative to the device's peak rates, and one minute of training."""
    p = setting(job.tiny)
    limits = benchmark.ceilings(job.device, 64 if job.tiny else 8192)
    job.numbers |= {"floors": benchmark.floors(p), "ceilings": limits, "steps": []}
    for seeds in (1, 2) if job.tiny else (1, 16, 100):
        row = benchmark.step_time(p, job.device, seeds, 0.01 if job.tiny else 3, limits)
        job.numbers["steps"].append(row)
    job.numbers["training"] = a_minute(job, 0.0 if job.tiny else 60.0)


def setting(tiny: bool) -> Any:
    """Parameters of students at Table 1 with the run length of the shipped ones."""
    given = ensemble.SETTINGS["table_1"]
    return given.p.replace(**FEW) if tiny else given.p.run_to(given.alpha)


def a_minute(job: Job, at_least: float) -> dict[str, Any]:
    """Time per seed and epoch of training at Table 1, including measurements, from the first
    ``at_least`` seconds.

    The runs remain in the store, where training goes on with them.
    """
    p = setting(job.tiny)
    seeds = range(2 if job.tiny else SEEDS)
    seen: list[tuple[int, float]] = []

    def enough(done: int = 0) -> bool:
        if done % p.eval_every == 1:  # just after a measurement, when the device is synchronised
            seen.append((done, time.monotonic()))
        return len(seen) > 1 and seen[-1][1] - seen[0][1] >= at_least

    begin = time.monotonic()
    with pool.stopping(enough):
        try:
            device = str(job.device)
            train(p, seeds, store=job.store, device=device, workers=1, progress=False)
        except KeyboardInterrupt:
            if not enough():
                raise
    if len(seen) < 2:
        return {"seeds": len(seeds), "note": "too short, or finished before"}
    epochs, seconds = (last - first for first, last in zip(seen[0], seen[-1], strict=True))
    each = seconds / epochs / len(seeds)
    return {
        "seeds": len(seeds),
        "epochs": epochs,
        "seconds": seconds,
        "us_per_seed_epoch": 1e6 * each,
        "seconds_before_the_first_epoch": seen[0][1] - begin,
        "minutes_for_100_seeds_of_20000_epochs": each * 100 * 20000 / 60,
    }


# With the time limit of each in seconds.
STAGES: dict[str, tuple[Callable[[Job], None], float]] = {
    "gradients": (gradients, 420),
    "agreement": (agreement, 420),
    "stacks": (stacks, 240),
    "speed": (speed, 360),
}


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
            job = Job(device, tiny, store, min(most, left))
            start, status, error = time.monotonic(), "done", ""
            try:
                with pool.stopping(job.over):  # training completes its step and keeps a checkpoint
                    work(job)
            except KeyboardInterrupt:
                if not job.over():
                    raise
                status = "unfinished"
            except Exception as caught:  # a failing stage must not stop the others
                status = "failed"
                error = "".join(traceback.format_exception(caught))
            say(f"{name}: {status} {error.strip().rpartition(chr(10))[2]}".rstrip())
            report["stages"][name] = {
                "status": status,
                "seconds": record["seconds"] + time.monotonic() - start,
                "numbers": job.numbers,
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
    here = {"dry_run": tiny, **benchmark.describe(device)}
    path = out / "report.json"
    if not path.exists():
        return {**here, "stages": {}}
    why = "not a report of this command"
    try:
        report = json.loads(path.read_text())
        other = [f"{n} = {report[n]} there, {v} here" for n, v in here.items() if report[n] != v]
        if not other:
            text(report)  # an error if anything is of another kind, as the next line
            succeeded(report, report["stages"])
            return report
        why = f"of another run ({', '.join(other)})"
    except Exception:
        pass  # whatever a file may hold
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
    rows = [[name, r["status"], f"{r['seconds']:.0f}"] for name, r in report["stages"].items()]
    parts.append(output.table(("stage", "status", "s"), rows))
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
