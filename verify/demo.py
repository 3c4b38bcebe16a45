"""The main job, in one go: ``make demo``, or ``python -m verify.demo``."""

import contextlib
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import xarray as xr

from simulate.state_tracking import __main__ as students
from theory import latex, onset, registry
from theory import state_tracking as st
from theory.runtime import cli, output, plotting, progress
from theory.state_tracking.levels import LEVELS
from verify import check_table, ensemble, report
from verify.check import VERDICTS
from verify.emergence import first_crossing
from verify.report import Report
from verify.state_tracking.climb import BEST, climb, half_times, rms
from verify.state_tracking.trajectories import JUDGED

SEEDS, LENGTH = "4", "12"  # number of students, and the time to which they train
INTRO = """\
Four small transformers learn to compose permutations ("actions"), writing the state after each
(Forner et al., arXiv:2606.18164). Training takes about a minute."""
TABLE = """\
RESULT    When does attention find the right action? It pays half of itself (A = 1/2) at this time,
          in units of {epochs} epochs of gradient descent (in brackets: error of the prediction):"""
BELOW = """\
          The paper's mean-field curve is one for all students. Our theory follows each student from
          its initial weights and training data; nothing is fitted."""


def result(p: st.Parameters, runs: xr.Dataset) -> tuple[list[str], str]:
    """Table of the students' times beside the predicted ones, and its last line as a sentence."""
    measured = first_crossing(runs.A, 0.5).values
    paper, ours = (half_times(p, runs, level) for level in ("flow", BEST))
    header = ("student", "measured", "by the paper's curve", "by our best theory")
    rows = [
        (str(seed), f"{t:.2f}", *(f"{x:.2f} ({x / t - 1:+z.1%})" for x in (a, b)))
        for seed, t, a, b in zip(runs.seed.values, measured, paper, ours, strict=True)
    ]
    errors = [f"{rms(x, measured):.1%}" for x in (paper, ours)]
    rows.append(("rms", "", *errors))
    table = [INDENT + line for line in output.table(header, rows).splitlines()]
    lines = [*TABLE.format(epochs=p.d_g * p.N).splitlines(), *table, *BELOW.splitlines()]
    return lines, (
        f"Attention emerges at {measured.min():.2f} to {measured.max():.2f}. The paper's curve is off by "
        f"{errors[0]}, our best theory by {errors[1]}."
    )


def steps(folder: Path, p: st.Parameters, runs: xr.Dataset) -> Iterator[str]:
    """All that is made of the students, one line each; the tables go into files."""
    yield (
        f"trained   {runs.sizes['seed']} one-block transformers, {int(runs.epoch[-1])} epochs on {p.n_train} "
        "sequences each: students.nc"
    )
    quietly(folder / "equations.txt", latex.main, "--out", str(folder / "equations.tex"))
    yield (
        f"derived   {len(st.equations())} equations, from the model to the dynamics of its order parameters: "
        "equations.tex"
    )
    model = registry.find("state_tracking")
    for what, command in (("derivatives against autograd", "gradients"), COMPARED):
        request = report.Request(
            model, runs=folder / "students.nc" if command == "trajectories" else None
        )
        made = report.collect(request, command)
        (folder / f"{command}.txt").write_text(made.text(wide=True) + "\n")
        yield f"checked   {len(made.checks)} {what}: {counted(made)}: {command}.txt"
    yield from explanation(p, runs)
    plotting.save(made.draw(), folder / "students.png")
    words = ("--preset", "demo", "--plot", str(folder / "onset.png"))
    quietly(folder / "onset.txt", onset.main, *words)
    yield (
        "drawn     students, the paper's curve and our best theory: students.png; when attention "
        "emerges, in closed form: onset.png"
    )


WIDTH, INDENT = 100, 10 * " "
COMPARED = ("statements on the students", "trajectories")
PLAIN = dict.fromkeys(VERDICTS, "agree") | {
    "exact": "exact",
    "FAIL": "fail",
    "undecided": "need more students",
}


def counted(made: Report) -> str:
    """Verdicts of a report in plain words."""
    counts = Counter(PLAIN[c.verdict] for c in made.checks)
    parts = [f"{counts[word]} {word}" for word in dict.fromkeys(PLAIN.values()) if counts[word]]
    (size, decided), *_ = [*check_table.enough(made.checks).items()][-2:] or [(0, 0)]
    more = f" ({size} would decide {decided})" if decided else ""
    return ", ".join(parts) + more


def explanation(p: st.Parameters, runs: xr.Dataset) -> list[str]:
    """Final off-target overlap of the students, by a simple level and the one that explains it."""
    level = next(reversed(climb(p, runs, "S", JUDGED)), JUDGED)
    lines = [f"explained {_ends(runs)}  overlap with wrong permutations (S) at the end, students"]
    for x in dict.fromkeys((JUDGED, level)):
        ends = _ends(st.predict(p, runs, level=x, accuracies=False))
        text = f"{ends}  by the level {x}, which knows of a student {LEVELS[x].knows}"
        lines += textwrap.wrap(text, WIDTH, initial_indent=INDENT, subsequent_indent=35 * " ")
    return lines


def _ends(curves: xr.Dataset) -> str:
    return " ".join(f"{v:z.3f}" for v in curves.S.isel(alpha=-1).values)


def quietly(path: Path, command: Callable[[Sequence[str]], int], *words: str) -> None:
    """Run a command of the model, with its output in a file."""
    with path.open("w") as file, contextlib.redirect_stdout(file):
        command(["state_tracking", *words])


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.parser("verify.demo", "Derive, train, compare: what make demo runs.", model=False)
    parser.add_argument(
        "--folder", type=Path, default=Path("output/demo"), help="where results are written"
    )
    folder: Path = parser.parse_args(argv).folder
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "students.nc"
    progress.say(INTRO)
    with (folder / "students.txt").open("w") as table, contextlib.redirect_stdout(table):
        words = ["--preset", "demo", "--seeds", SEEDS, "--alpha", LENGTH, "--out", str(file)]
        students.main(words)
    p, runs = ensemble.of(registry.find("state_tracking")).read(file)
    lines, sentence = result(p, runs)
    progress.say("\n".join(lines))
    progress.say(f"STEPS     All tables and figures are in {folder}.")
    for line in steps(folder, p, runs):
        progress.say(textwrap.fill(line, WIDTH, subsequent_indent=INDENT))
    progress.say(f"RESULT    {sentence}")
    progress.say(
        "NEXT      python -m verify.trajectories: twenty students; docs/start.md: first steps"
    )
    return 0


if __name__ == "__main__":
    cli.run(main)
