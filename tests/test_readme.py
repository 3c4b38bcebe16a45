"""README is correct: its Python block runs, its numbers are reproduced, its commands and flags
exist.
"""

import ast
import importlib
import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from simulate import state_tracking

README = (Path(__file__).parents[1] / "README.md").read_text()
(BLOCK,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
ROWS = [row for row in re.findall(r"^\| `(python -m .*?)\s*\|$", README, re.MULTILINE)]
NUMBER = r"-?\d+\.\d+(?:e[+-]?\d+)?"


def promised(comment: str) -> list[str]:
    """Numbers a comment ends with, behind its last colon."""
    return re.findall(NUMBER, comment.rpartition(":")[2])


def test_python_block(monkeypatch, tmp_path):
    """Every line runs, students at reduced length; every number in a comment is the value of its
    line, to the last digit.
    """
    train = state_tracking.train
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_RUNS", str(tmp_path))
    monkeypatch.setattr(
        "simulate.state_tracking.train",
        lambda p, alpha, seeds: train(
            p.replace(n_test=32, eval_every=32), [*seeds][:2], alpha=0.25, workers=1, progress=False
        ),
    )
    mpl.use("Agg")
    names, compared = {}, 0
    lines = BLOCK.splitlines()
    for statement in ast.parse(BLOCK).body:
        source = ast.get_source_segment(BLOCK, statement)
        numbers = promised(lines[statement.end_lineno - 1].partition("#")[2])
        if not numbers or not isinstance(statement, ast.Expr):
            exec(source, names)
            continue
        values = np.ravel(eval(source, names))
        assert len(values) == len(numbers), source
        for value, text in zip(values, numbers, strict=True):
            digits = len(text.partition(".")[2])
            assert f"{value:.{digits}f}" == text, source
        compared += len(numbers)
    assert compared >= 3


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
