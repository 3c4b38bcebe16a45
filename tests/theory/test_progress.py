"""Progress: a bar on a terminal, one line a minute elsewhere,
nothing outside commands.
"""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from theory import onset
from theory.runtime import progress


@pytest.fixture
def fast(monkeypatch):
    """A minute that lasts a twentieth of a second."""
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.05)
    monkeypatch.setattr(progress, "POLL_SECONDS", 0.01)


def wait(capsys, text, seconds=10.0):
    """Everything on stderr until a text is there."""
    seen, end = "", time.monotonic() + seconds
    while text not in seen:
        assert time.monotonic() < end, seen
        time.sleep(0.02)
        seen += capsys.readouterr().err
    return seen


def test_lines_where_there_is_no_terminal(fast, capsys):
    """Work, share done and what is at hand, of every bar; each on a line of its own."""
    counter = [0]
    with (
        progress.bar("verify.laws"),
        progress.bar("training", 20, "epoch", count=lambda: counter[0]),
    ):
        progress.stage("seed 3")
        counter[0] = 5
        seen = wait(capsys, "25%")
    assert (
        "] verify.laws; training: 25% of 20 epochs seed 3\n" in seen
        and "\r" not in seen
    )


def test_nothing_within_a_minute_without_a_terminal(capsys):
    """What takes seconds leaves no line in a log."""
    with progress.bar("work", 3):
        time.sleep(0.6)
    assert capsys.readouterr().err == ""


def test_a_terminal_sees_it_move_while_the_work_does_not_look_up(monkeypatch, capsys):
    """Within the first second, and without a single update."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress.bar("verify.laws"):
        progress.stage("k_hop")
        seen = wait(capsys, "[00:01]", 5.0)
    assert "verify.laws [00:00]" in seen and "k_hop" in seen


def test_each_is_silent_without_a_command(fast, capsys, monkeypatch):
    """Whoever calls from Python and asked for nothing sees nothing;
    nor does --quiet.
    """
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress.bar("verify.laws", show=False):
        for _ in progress.each(range(3), "points"):
            progress.stage("here")
            time.sleep(0.05)
    assert list(progress.each(range(3), "points")) == [0, 1, 2]
    assert capsys.readouterr().err == ""


def test_each_names_the_item_at_hand(fast, capsys):
    """Number and name."""
    with progress.bar("papers"):
        for figure in progress.each(["2", "closure"], "figures"):
            if figure == "closure":
                seen = wait(capsys, "closure")
    assert "papers; figures: 50% of 2 items closure" in seen


def test_a_failure_closes_the_bars(fast):
    """The next command starts from nothing."""
    with (
        pytest.raises(ValueError, match="stop"),
        progress.bar("a"),
        progress.bar("b", 2),
    ):
        raise ValueError("stop")
    assert progress._running == []


class Shell:
    """A notebook's shell, as IPython has it, with what its cell shows."""

    kernel = "running"

    def __init__(self):
        self.shown = []

    def display(self, data, raw, display_id):
        """Below the cell."""
        assert raw and display_id
        return self

    def update(self, data, raw):
        """In the place of what was shown."""
        self.shown.append(data["text/html"])


def test_a_notebook_sees_bars_below_its_cell(fast, capsys, monkeypatch):
    """They move, an inner one goes, the last state stays; nothing on stderr."""
    shell = Shell()
    monkeypatch.setitem(
        sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell)
    )
    monkeypatch.setitem(
        sys.modules, "IPython.display", SimpleNamespace(display=shell.display)
    )
    with progress.bar("a < b", 2, "step") as outer:
        with progress.bar("inner", 4, "epoch"):
            time.sleep(0.2)
        outer.done = 2
        time.sleep(0.1)
    assert any(
        x.count("<progress") == 2 and "inner: 0% of 4 epochs" in x for x in shell.shown
    )
    last = shell.shown[-1]
    assert last.count("<progress") == 1 and '<progress value="2" max="2">' in last
    assert "a &lt; b: 100% of 2 steps" in last
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_an_executed_notebook_keeps_its_bar():
    """A real kernel, students by a pool; nothing is printed when the kernel ends."""
    for package in ("ipykernel", "nbclient"):
        pytest.importorskip(package, reason=f"{package} is not installed (extra docs)")
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (
        '<progress value="80" max="80">' in done.stdout
        and "training: 100%" in done.stdout
    )
    assert "Traceback" not in done.stdout + done.stderr


CELL = """
import tempfile
from simulate import state_tracking as students
from theory import state_tracking as st
p = st.Parameters.presets()["demo"]().replace(epochs=40)
runs = students.train(p, seeds=2, store=tempfile.mkdtemp(), workers=2)
"""
NOTEBOOK = f"""
import nbclient, nbformat
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell({CELL!r})])
nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
print([output.data.get("text/html") for output in notebook.cells[0].outputs])
"""


def test_an_onset_that_takes_long_says_that_it_works(fast, capsys):
    """Unless it is asked to be quiet."""
    heads = ["induction_heads", "--set=N=300"]
    assert onset.main(heads) == 0
    assert "] theory.onset induction_heads\n" in capsys.readouterr().err
    assert onset.main([*heads, "--quiet"]) == 0
    assert "theory.onset" not in capsys.readouterr().err
