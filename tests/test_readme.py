"""README is correct: its Python runs and prints what stands beside it, its model has
the printed flow, its commands run, with the flags they name, and it cites what
CITATION.cff does.
"""

import contextlib
import importlib
import io
import re
from pathlib import Path

import numpy as np
import pytest

from theory import state_tracking
from theory.models.registry import find
from theory.positional_semantic.branches import Thresholds
from verify.associative_memory.factual_recall import SWEPT

README = (Path(__file__).parents[1] / "README.md").read_text()
INDEX = (Path(__file__).parents[1] / "docs/index.md").read_text()
EXAMPLE, STATEMENT = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
ROWS = [row for row in re.findall(r"^\| `(python -m .*?)\s*\|$", README, re.MULTILINE)]


def test_the_example_prints_what_it_says():
    """Every line runs; what ``print`` writes is its comment, to the last digit. So do
    the lines of the site's first page, which starts alike.
    """
    names = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(EXAMPLE, names)
    promised = re.findall(r"^print\(.*\)  # (.*)$", EXAMPLE, re.MULTILINE)
    assert len(promised) >= 2 and printed.getvalue().splitlines() == promised
    (cell,) = re.findall(r"^```{code-cell}.*\n([^`]*)", INDEX, re.MULTILINE)
    lines = [
        line for line in cell.splitlines() if line.partition("  #")[0] not in EXAMPLE
    ]
    exec("\n".join(lines), names)


def test_the_stated_model_has_the_printed_flow(monkeypatch, tmp_path):
    """In eight lines, as the file that the text names."""
    name = re.search(r"`(\w+\.py)`", README)[1]
    (tmp_path / name).write_text(STATEMENT)
    monkeypatch.chdir(tmp_path)
    (equation,) = find(name).wing("theory").derived().flow.equations().values()
    (printed,) = re.findall(r"^\$\$(.*)\$\$$", README, re.MULTILINE)
    plain = lambda text: re.sub(r"\s|\\(left|right)|[{}]", "", text).replace(
        r"\frac", ""
    )
    assert plain(equation.latex()) == plain(printed)
    assert len(STATEMENT.replace("\n\n", "\n").splitlines()) == 8


def test_the_citation():
    """Title, version and author of CITATION.cff."""
    source = (Path(__file__).parents[1] / "CITATION.cff").read_text()
    cited = dict(
        re.findall(r'^(?:  - )?(\w+(?:-\w+)?): "?([^"\n]+)', source, re.MULTILINE)[::-1]
    )
    year = cited["date-released"][:4]
    author = re.search(r"^authors:\n  - name: (.*)", source, re.MULTILINE)[1]
    for field, value in {
        "author": f"{{{author}}}",
        "title": cited["title"],
        "version": cited["version"],
        "year": year,
    }.items():
        assert f"{field} = {{{value}}}" in README, field


def test_the_first_screens():
    """Sixty lines at most before the commands."""
    assert README[: README.index("## Commands")].count("\n") <= 60


@pytest.mark.parametrize("row", ROWS, ids=[row.split("`")[0] for row in ROWS])
def test_commands(row, capsys):
    """Every command of the table answers --help, and knows the flags its row names."""
    command = row.split("`")[0]
    module = importlib.import_module(command.split()[2])
    main = (
        module.main
        if hasattr(module, "main")
        else importlib.import_module(f"{module.__name__}.__main__").main
    )
    with pytest.raises(SystemExit) as done:
        main(["--help"])
    shown = capsys.readouterr().out
    assert done.value.code == 0 and "usage: " in shown
    flags = set(re.findall(r"(?<!\w)(--[a-z-]+)", row))
    assert {flag for flag in flags if flag not in shown} == set()


def test_the_table_is_read():
    """Not an empty list of rows."""
    assert len(ROWS) > 10


# How each command of the table is run here: its arguments, in a quick form, and how the
# first line of its answer begins. Files are written by `folder`.
QUICK = {
    "theory": ("copying.py", "copying: "),
    "theory.latex": ("associative_memory.superposition --fragment", r"\begingroup"),
    "theory.onset": (
        "state_tracking --preset demo --plot onset.png",
        "state_tracking: N = 16; L = 8;",
    ),
    "theory.explore": ("associative_memory.gradient_memory --out page.html", "page"),
    "simulate": (
        "associative_memory --preset small --seeds 2 --until 1 --out runs.nc",
        "students at step 5, t = 1, stored in runs.nc",
    ),
    "simulate.sweep": (
        "associative_memory --grid R=2,4 --seeds 1 --until 1 --out grid",
        "2 runs, 2 jobs, 0 failed",
    ),
    "simulate.discover": ("module.py:head", "1 order parameter for 4 weights"),
    "verify.gradients": ("associative_memory.gradient_memory", "result: 12 exact"),
    "verify.timescales": ("associative_memory --preset small --seeds 2", "result: "),
    "verify.trajectories": ("copying.py --seeds 2 --until 1 --plot c.png", "result: 2"),
    "verify.fidelity": ("--plot levels.png", "result: "),
    "verify.laws": ("associative_memory.noisy_bigram", "result: 11 agrees"),
    "verify.rates": ("state_tracking", "result: 7 agrees, 0 FAIL"),
    "verify.fit": (
        "state_tracking --preset demo --runs curve.csv --columns alpha=alpha,A=A"
        " --free c_omega",
        "parameter  fitted",
    ),
    "verify.thresholds": (
        "--seeds 3 --set d=16 --set steps=10 --set n_test=50 --set order=6",
        "result: ",
    ),
    "papers": ("forner2026 --figure onset --out figures", "figures/figure_onset.png"),
}
MODULE = """
import torch


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.read = torch.nn.Parameter(torch.full((2,), 0.1))
        self.write = torch.nn.Parameter(torch.full((2,), 0.1))

    def loss(self, x):
        answer = (self.read * self.write).sum() * x
        return ((x - answer) ** 2).mean() / 2


def head():
    return Head(), torch.ones(4)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of a user: README's statement, a module, a measured curve, a store."""
    (tmp_path / "copying.py").write_text(STATEMENT)
    (tmp_path / "module.py").write_text(MODULE)
    times = np.linspace(0, 8, 21)
    curve = state_tracking.flow().solve(
        state_tracking.Parameters.demo(), alpha=8, at=times
    )
    curve.A.to_dataframe().to_csv(tmp_path / "curve.csv")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_RUNS", str(tmp_path / "runs"))
    sweep = {"epsilon": ((1e-2, 1e-3), SWEPT["epsilon"][1])}
    monkeypatch.setattr("verify.associative_memory.factual_recall.SWEPT", sweep)
    known = lambda p: Thresholds(0.3, 1.25, 1.49)
    places = {"alpha_c": (0.5, 2.0), "alpha_l": (0.5, 2.0)}
    monkeypatch.setattr("verify.positional_semantic.thresholds.thresholds", known)
    monkeypatch.setattr("verify.positional_semantic.thresholds.FACTORS", places)
    monkeypatch.setattr("verify.state_tracking.fidelity.SETTINGS", ("L_2",))
    monkeypatch.setattr("verify.state_tracking.fidelity.DRAWN", "L_2")
    monkeypatch.setattr("simulate.training.pool.cores", lambda: 1)
    return tmp_path


def test_every_command_of_the_table_has_a_quick_form():
    """A row that is added is run, too."""
    assert {row.split("`")[0].split()[2] for row in ROWS} == set(QUICK)


@pytest.mark.parametrize("command", QUICK)
def test_commands_run(command, folder, forked):
    """Exit code and first line of every command of the table."""
    arguments, first = QUICK[command]
    done = forked(command, *arguments.split(), seconds=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(first), done.stdout[:200]
