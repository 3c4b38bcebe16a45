"""Messages that name a flag name the one that is meant, and one that there is."""

from __future__ import annotations

import ast
import functools
import importlib
import re
from pathlib import Path

import pytest
import xarray as xr

from theory.call.refusal import ParameterError
from theory.models import command_line
from theory.runtime import cli

ROOT = Path(__file__).parents[1]
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
WINGS = ("theory", "simulate", "verify", "papers")
FILES = [
    f
    for wing in WINGS
    for f in (ROOT / wing).rglob("*.py")
    if FLAG.search(f.read_text())
]
FOREIGN = {"--junitxml", "--short"}  # of other programs


@functools.cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def texts(file: Path) -> list[str]:
    """Literal text of a file, but for docstrings."""
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree(file))
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
        and isinstance(node.body[0], ast.Expr)
    }
    nodes = [
        n
        for n in ast.walk(tree(file))
        if isinstance(n, ast.Constant) and id(n) not in docs
    ]
    return [n.value for n in nodes if isinstance(n.value, str)]


def test_flags_in_messages_are_there():
    """Of some command: those of all commands, and those that a file adds."""
    known = {*(f"--{name}" for name in cli.FLAGS), "--help", "--version", *FOREIGN}
    every = {file: texts(file) for file in FILES}
    known |= {
        word for words in every.values() for word in words if FLAG.fullmatch(word)
    }

    named = {
        (flag, file.name)
        for file in FILES
        for word in every[file]
        for flag in FLAG.findall(word)
    }
    assert {(flag, file) for flag, file in named if flag not in known} == set()


def test_a_flag_before_its_value_is_that_of_the_value():
    """``--seeds {args.seeds}``: the same word twice."""
    seen = 0
    for file in FILES:
        for message in (
            n for n in ast.walk(tree(file)) if isinstance(n, ast.JoinedStr)
        ):
            for text, value in zip(message.values, message.values[1:], strict=False):
                flag = isinstance(text, ast.Constant) and re.search(
                    r"^--([a-z-]+) $", text.value
                )
                of = value.value if isinstance(value, ast.FormattedValue) else None
                if flag and isinstance(of, ast.Attribute):
                    assert of.attr == flag[1].replace("-", "_"), (
                        file.name,
                        ast.unparse(message),
                    )
                    seen += 1
    assert seen > 5


REFUSED = """
simulate.__main__ --text=table.csv
simulate.__main__ --data=table.csv induction_heads
simulate.__main__ --seeds=1,1
simulate.__main__ --until=0
simulate.__main__ --alpha=0
simulate.__main__ --until=5 associative_memory.noisy_bigram
simulate.__main__ --alpha=5 associative_memory.noisy_bigram
simulate.__main__ --until=5 --set=epochs=5
simulate.__main__ --alpha=5 --set=epochs=5
simulate.__main__ --preset=none
simulate.__main__ --workers=0
simulate.__main__ --dtype=int8
simulate.sweep --shard=2/2 --seeds=2
simulate.sweep --scheduler=http://here --seeds=2
simulate.sweep --grid=eta= --seeds=2
simulate.sweep --grid=eta --seeds=2
simulate.sweep --grid=eta=1,1 --seeds=2
simulate.sweep --grid=eta=(1) --seeds=2
simulate.sweep --grid=alpha=1,2 --alpha=1 positional_semantic
simulate.discover.__main__ --sizes=N own.py
theory.onset --until=0
theory.onset --alpha=0
theory.onset --alpha=1 --until=1
theory.onset --plot=state_tracking
theory.onset --preset=none
theory.onset --fluctuations state_tracking
theory.onset --set=N
theory.explore --runs=nowhere.nc
theory.explore --runs=table.csv
theory.explore --runs=other.nc
verify.trajectories --runs=table.csv
verify.trajectories --columns=alpha --runs=table.csv
verify.trajectories --columns=alpha=t,A=x
verify.trajectories --columns=alpha,A --runs=table.csv
verify.trajectories --columns=t=t,A=x --runs=table.csv
verify.trajectories --columns=alpha=t --runs=table.csv
verify.trajectories --columns=alpha=t*-1,A=x --runs=table.csv
verify.trajectories --rows=x --columns=alpha=t,A=x --runs=table.csv
verify.trajectories --seeds=4 --columns=alpha=t,A=x --runs=table.csv
verify.trajectories --until=4 --columns=alpha=t,A=x --runs=table.csv
verify.trajectories --alpha=4 --columns=alpha=t,A=x --runs=table.csv
verify.trajectories --device=cpu --columns=alpha=t,A=x --runs=table.csv
verify.trajectories --plot=x.png --columns=alpha=t,A=x --runs=table.csv
verify.trajectories --set=N=8 --runs=students.nc
verify.trajectories --preset=demo --runs=students.nc
verify.trajectories --seeds=4 --runs=students.nc
verify.trajectories --alpha=4 --runs=students.nc
verify.trajectories --device=cpu --runs=students.nc
verify.timescales --seeds=1
verify.timescales --until=0
verify.gradients --nonsense
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With files that are there, and are not what is asked for."""
    place = tmp_path_factory.mktemp("files")
    (place / "table.csv").write_text("t,x\n0,1\n1,2\n")
    (place / "own.py").write_text("def make(N=4):\n    raise SystemExit\n")
    xr.Dataset({"x": ("t", [1.0])}, attrs={"kind": "other"}).to_netcdf(
        place / "other.nc"
    )
    return place


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_a_refusal_names_the_flag_that_is_wrong(line, folder, monkeypatch):
    """The first flag of the message is that of the line, in which others follow."""
    monkeypatch.chdir(folder)
    module, *words = line.split()
    with pytest.raises(ParameterError) as caught:
        importlib.import_module(module).main(words)
    assert FLAG.findall(str(caught.value))[:1] == [words[0].partition("=")[0]], (
        caught.value
    )


@pytest.mark.parametrize("name", sorted(cli.FLAGS))
def test_an_option_given_twice_is_an_error_or_a_list(name):
    """The last of two would win in silence."""
    made = command_line.parser("theory.onset", "of a test", name, model=False)
    action = made._option_string_actions[f"--{name}"]
    if action.nargs == 0:
        return  # the same, however often it is said
    values = ["1", "2"] if name in ("alpha", "until") else ["a=1", "b=2"]
    words = [word for value in values for word in (f"--{name}", value)]
    if name == "set":
        assert made.parse_args(words).set == values
        return
    with pytest.raises(ParameterError, match=f"--{name}: is given twice"):
        made.parse_args(words)
    assert made.parse_args(words[:2]) == made.parse_args(words[:2])
