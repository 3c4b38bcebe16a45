"""Words of a command line: seeds, numbers, choices, targets, tables."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from theory import onset
from theory.call.refusal import ParameterError
from theory.runtime import cli, output

matplotlib.use("Agg")


SEEDS = {
    "3": [0, 1, 2],
    "1": [0],
    "2:5": [2, 3, 4],
    "3,5": [3, 5],
    "7,": [7],
    "0,2,1": [0, 2, 1],
    None: [0, 1],
}
NO_SEEDS = [
    "0",
    "-3",
    "5:5",
    "5:2",
    "-1:3",
    "1,1",
    "1,-2",
    "1:2:3",
    "1.5",
    "a",
    ",",
    "",
    ":",
    "3:",
]


@pytest.mark.parametrize(("text", "expected"), SEEDS.items())
def test_seeds(text, expected):
    """A number, a half-open range or a list; the default where nothing is given."""
    assert cli.seeds(text, "2") == expected


@pytest.mark.parametrize("text", NO_SEEDS)
def test_wrong_seeds(text):
    """One line with what was given and what is allowed."""
    with pytest.raises(ParameterError) as caught:
        cli.seeds(text, "8")
    assert (
        str(caught.value)
        == f"--seeds {text}: must be 8 (0..7), 0:20 (half-open) or 3,5, without repeats"
    )


def test_json_for_machines():
    """NumPy becomes plain, what is not finite becomes null, at every depth."""
    value = {
        "a": np.float64(1.5),
        2: (np.arange(2), [np.nan, np.inf]),
        "c": {"d": np.int64(3), "e": None, "f": "x"},
    }
    assert json.loads(output.to_json(value)) == {
        "a": 1.5,
        "2": [[0, 1], [None, None]],
        "c": {"d": 3, "e": None, "f": "x"},
    }


def test_table():
    """Columns as wide as their widest cell, no trailing blanks."""
    assert (
        output.table(("a", "long name"), [("1", "2"), ("three", "")])
        == "a      long name\n-----  ---------\n1      2\nthree"
    )


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_positive(value):
    """Positive and finite, or not given."""
    assert cli.positive("--x", None) is None and cli.positive("--x", 2.0) == 2.0
    with pytest.raises(ParameterError, match=r"^--x \S+: must be positive and finite$"):
        cli.positive("--x", value)


def test_choose():
    """The entry, or the nearest name; without one near, only the list."""
    table = {"alpha": 1, "beta": 2}
    assert cli.choose("--what", "beta", table) == 2
    with pytest.raises(
        ParameterError,
        match="^--what alpah: must be one of alpha, beta; did you mean 'alpha'\\?$",
    ):
        cli.choose("--what", "alpah", table)
    with pytest.raises(
        ParameterError, match="^--what zzz: must be one of alpha, beta$"
    ):
        cli.choose("--what", "zzz", table)


def test_what_may_not_be_replaced_is_written_directly(tmp_path):
    """A link stays a link, and its target receives the text;
    a device stays a device.
    """
    target, link = tmp_path / "target.tex", tmp_path / "link.tex"
    target.write_text("old")
    link.symlink_to(target)
    output.write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new\n"
    if os.path.exists("/dev/full"):
        with pytest.raises(OSError, match="No space"):
            output.write_text(Path("/dev/full"), "text")
        assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_a_table_fits_the_terminal(monkeypatch):
    """Words are broken over lines; columns that do not fit even so are named; all with
    wide.
    """
    monkeypatch.setenv("COLUMNS", "30")
    rows = [("a", "1.5", "a few words that are long", "2"), ("b", "2.5", "short", "3")]
    fitted = output.table(("x", "value", "meaning", "n"), rows, wide=False)
    assert max(map(len, fitted.splitlines())) <= 30
    assert "a few words that   2\n            are long" in fitted
    many = [[str(k) * 8 for k in range(9)]]
    narrow = output.table([f"c{k}" for k in range(9)], many, wide=False)
    assert "22222222" in narrow and "33333333" not in narrow
    assert "c8 (--wide)" in narrow.splitlines()[-1]
    assert "88888888" in output.table([f"c{k}" for k in range(9)], many)


def test_advice_is_followed_to_the_end():
    """A parameter is advised where there is one, a flag where one is near, else
    nothing.
    """
    for words, advice in (
        (["--eta", "1"], "; parameters are set by --set eta=VALUE (see"),
        (["induction_heads", "--nonsense=1"], "unknown flag --nonsense (see"),
        (["--steps", "3"], "unknown flag --steps (see"),
        (["--quite"], "; did you mean --quiet? (see"),
        (
            ["--unti", "3"],
            "; did you mean --until? (see",
        ),  # not the beginning of a flag
    ):
        with pytest.raises(ParameterError) as caught:
            onset.main(words)
        assert advice in str(caught.value)
