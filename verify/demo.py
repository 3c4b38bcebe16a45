"""The main job, from equations to trained students: ``python -m verify.demo`` (``make
demo``).
"""

import contextlib
import textwrap
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import xarray as xr

from simulate.state_tracking import __main__ as students
from theory import latex, onset
from theory import state_tracking as st
from theory.call import scope
from theory.models import command_line, registry
from theory.runtime import cli, output, plotting, progress
from verify.checks import check_table, ensemble_source, report
from verify.checks.check import Check
from verify.state_tracking.fidelity import BEST, TITLE, half_times, rms

TRAIN = ("--preset", "demo", "--seeds", "4", "--alpha", "12")
INDENT = 10 * " "
INTRO = """\
Four small transformers learn to compose permutations ("actions"), writing the state
after each (Forner et al., arXiv:2606.18164). Training takes about a minute."""
QUESTION = """\
RESULT    When does attention find the right action? Half of it rests there (A = 1/2)
          at this time, in units of {epochs} epochs of gradient descent (in brackets:
          error of the prediction):"""
BELOW = """\
          The paper's mean-field curve is one for all students. Our theory follows each
          student from its initial weights and training data; nothing is fitted."""
LEVELS = """\
explained why theories differ: what each knows of a student; how far off it is in the
          time of A = 1/2 and in R, S: overlaps with right and wrong permutations:"""
NEXT = (
    "NEXT      python -m verify.trajectories: twenty students; docs/start.md: first"
    " steps"
)


def result(p: st.Parameters, runs: xr.Dataset) -> tuple[str, str]:
    """Table of the students' times beside the predicted ones, and what it says as a
    sentence.
    """
    # The table says how far off the theories are: no warning.
    with warnings.catch_warnings(action="ignore", category=scope.FarOff):
        theories = [
            st.predict(p, runs, level=x, accuracies=False) for x in ("flow", BEST)
        ]
    measured, *predicted = map(half_times, (runs, *theories))
    flow, best = (f"{rms(x, measured):.1%}" for x in predicted)
    header = ("student", "measured", "by the paper's curve", "by our best theory")
    rows = []
    for seed, time, *both in zip(runs.seed.values, measured, *predicted, strict=True):
        cells = [f"{x:.2f} ({x / time - 1:+z.1%})" for x in both]
        rows.append((str(seed), f"{time:.2f}", *cells))
    rows.append(("rms", "", flow, best))
    table = textwrap.indent(output.table(header, rows), INDENT)
    text = "\n".join([QUESTION.format(epochs=p.d_g * p.N), table, BELOW])
    sentence = (
        f"RESULT    Attention emerges at {measured.min():.2f} to {measured.max():.2f}:"
        f" the paper's curve is off by {flow}, our theory by {best}."
    )
    return text, sentence


def steps(folder: Path, p: st.Parameters, runs: xr.Dataset) -> Iterator[str]:
    """All that is made of the students, one line each; the tables go into files."""
    yield f"STEPS     All tables and figures are in {folder}."
    yield (
        f"trained   {runs.sizes['seed']} one-block transformers,"
        f" {int(runs.epoch[-1])} epochs on {p.n_train} sequences each: students.nc"
    )
    quietly(
        folder / "log.txt",
        latex.main,
        "state_tracking",
        "--out",
        str(folder / "equations.tex"),
    )
    yield (
        f"derived   {len(st.equations())} equations, from the model to the dynamics of"
        " its order parameters: equations.tex"
    )
    model = registry.find("state_tracking")
    for what, command in (
        ("derivatives against autograd", "gradients"),
        ("statements on students", "trajectories"),
    ):
        store = folder / "students.nc" if command == "trajectories" else None
        made = report.collect(report.Request(model, runs=store), command)
        (folder / f"{command}.txt").write_text(made.text(wide=True) + "\n")
        yield (
            f"checked   {len(made.checks)} {what}: {counted(made.checks)}:"
            f" {command}.txt"
        )
    yield "\n".join(
        [LEVELS, textwrap.indent(output.table(*made.tables[TITLE]), INDENT[:4])]
    )
    plotting.save(made.draw and made.draw(), folder / "students.png")
    words = ("state_tracking", *TRAIN[:2], "--plot", str(folder / "onset.png"))
    quietly(folder / "onset.txt", onset.main, *words)
    yield (
        "drawn     students, the paper's curve, our best theory: students.png; onset,"
        " solved: onset.png"
    )


def counted(checks: Sequence[Check]) -> str:
    """Verdicts in plain words."""
    _, needed, _ = check_table.enough(checks)
    plain = {
        "exact": "exact",
        "FAIL": "fail",
        "undecided": f"need about {needed} students",
    }
    counts = Counter(plain.get(c.verdict, "agree") for c in checks)
    return ", ".join(f"{counts[word]} {word}" for word in sorted(counts))


def quietly(path: Path, command: Callable[[list[str]], int], *words: str) -> None:
    """Run a command with its output in a file."""
    with path.open("w") as file, contextlib.redirect_stdout(file):
        command([*words])


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = command_line.parser(
        "verify.demo", "Derive, train, compare: what make demo runs.", model=False
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("output/demo"),
        help="where results are written",
    )
    folder: Path = parser.parse_args(argv).folder
    folder.mkdir(parents=True, exist_ok=True)
    progress.say(INTRO)
    store = folder / "students.nc"
    quietly(folder / "students.txt", students.main, *TRAIN, "--out", str(store))
    p, runs = ensemble_source.of(registry.find("state_tracking")).read(store)
    table, sentence = result(p, runs)
    progress.say(table)
    for line in (*steps(folder, p, runs), sentence, NEXT):
        progress.say(line)
    return 0


if __name__ == "__main__":
    cli.run(main)
