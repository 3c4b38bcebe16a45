"""No user string reaches an evaluator or a shell, and nothing is unpickled: by search
of the source and by tests.
"""

import ast
import json
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from simulate import sweep
from simulate.state_tracking import Parameters
from simulate.state_tracking import __main__ as students
from simulate.store import checkpoints, runs, storage
from theory import __main__ as listing
from theory import latex, onset
from theory.call.refusal import ParameterError
from theory.numbers import numeric
from theory.runtime import sealed
from verify import timescales

ROOT = Path(__file__).parents[2]
WINGS = ("theory", "simulate", "verify", "papers")
FORBIDDEN = {
    "eval",
    "exec",
    "compile",
    "parse_expr",
    "parse_latex",
    "S",
    "getoutput",
    "read_pickle",
}
OWNED = {
    ("os", "system"),
    ("os", "popen"),
    ("pickle", "load"),
    ("pickle", "loads"),
    ("joblib", "load"),
    ("cloudpickle", "load"),
    ("cloudpickle", "loads"),
    ("dill", "load"),
    ("dill", "loads"),
    ("yaml", "load"),
    ("marshal", "loads"),
}


def faults(source: str) -> list[str]:
    """Calls in a source text that would evaluate a string, unpickle, or run a shell."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        method = isinstance(node.func, ast.Attribute)
        name = node.func.attr if method else getattr(node.func, "id", "")
        owner = getattr(node.func.value, "id", "") if method else ""
        given = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
        if (
            name in FORBIDDEN
            and not (
                name == "compile" and method and owner != "builtins"
            )  # of re, of Numba
            and not (method and name == "eval" and not node.args)
        ) or (owner, name) in OWNED:
            found.append(name)
        if name in ("sympify", "_sympify") and given.get("strict") is not True:
            found.append("sympify")
        if (owner, name) == ("torch", "load") and given.get("weights_only") is not True:
            found.append("torch.load")
        if given.get("shell") or given.get("allow_pickle"):
            found.append("shell" if given.get("shell") else "allow_pickle")
        if (
            owner == "subprocess"
            and node.args
            and not isinstance(node.args[0], ast.List)
        ):
            found.append("subprocess of a text")
    return found


@pytest.mark.parametrize("wing", WINGS)
def test_the_source_has_none(wing):
    files = list((ROOT / wing).rglob("*.py"))
    assert files
    assert {str(f): bad for f in files if (bad := faults(f.read_text()))} == {}


@pytest.mark.parametrize(
    "line",
    [
        "eval(x)",
        "exec(x)",
        "sp.sympify(x)",
        "sympify(x, strict=False)",
        "sp.S(x)",
        "parse_expr(x)",
        "os.system(x)",
        "torch.load(f)",
        "torch.load(f, weights_only=False)",
        "pickle.loads(b)",
        "np.load(f, allow_pickle=True)",
        "subprocess.run(x, shell=True)",
        "subprocess.run('ls ' + x)",
        "joblib.load(f)",
        "compile(x, f, 'exec')",
        "builtins.compile(x, f, 'exec')",
    ],
)
def test_it_would_be_seen(line):
    assert faults(line)


HOSTILE = "__import__('os').makedirs({!r})"
FLAGS = [
    (listing, ["{}"]),
    (listing, ["state_tracking", "--equation={}"]),
    (latex, ["state_tracking", "--equation={}"]),
    (onset, ["--set=N={}"]),
    (onset, ["--set={}=1"]),
    (onset, ["--preset={}"]),
    (onset, ["--alpha={}"]),
    (students, ["--seeds={}"]),
    (students, ["--device={}"]),
    (students, ["--dtype={}"]),
    (sweep, ["--grid=N={}"]),
    (sweep, ["--grid={}"]),
    (sweep, ["--shard={}"]),
    (timescales, ["--runs={}"]),
]


@pytest.mark.parametrize(
    ("command", "arguments"),
    FLAGS,
    ids=lambda x: x[0] if isinstance(x, list) else x.__name__,
)
def test_a_hostile_flag_is_only_text(command, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = HOSTILE.format(str(tmp_path / "done"))
    with pytest.raises((ParameterError, OSError)):
        command.main([a.format(text) for a in arguments])
    assert not (tmp_path / "done").exists()


def test_a_string_is_no_expression(tmp_path):
    """The one place that compiles takes expressions; SymPy would evaluate a string."""
    for text in (HOSTILE.format(str(tmp_path / "done")), "1 + 1"):
        with pytest.raises(ParameterError):
            numeric.function(text, [])
    assert not (tmp_path / "done").exists()


class Bomb:
    """Unpickled, it makes a folder."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return Path.mkdir, (self.place,)


def test_a_hostile_checkpoint_is_not_unpickled(tmp_path):
    """Sealed as ours are, so that only the way it is read stands between it and us."""
    place = tmp_path / "seed-00000.nc"
    for k, content in enumerate((pickle.dumps(Bomb(tmp_path / "done")), None)):
        if content is None:
            torch.save(
                {"configuration": "c", "seed": 0, "epoch": Bomb(tmp_path / "done")},
                tmp_path / "raw",
            )
            content = (tmp_path / "raw").read_bytes()
        sealed.seal(place.with_suffix(".checkpoint"), content)
        with pytest.warns(UserWarning, match="seed-00000.checkpoint: cannot be read"):
            assert checkpoints.load_checkpoint(place, "c", 0) is None
        assert not (tmp_path / "done").exists(), k
    with pytest.raises(Exception, match="."):  # the bomb is one
        pickle.loads(pickle.dumps(Bomb(tmp_path / "no" / "parent")))


def test_a_hostile_file_is_only_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = HOSTILE.format("done")  # names of variables have no slash
    for attrs in (
        {"parameters": text},
        {"parameters": json.dumps({"optimizer": text})},
        {"parameters": json.dumps({text: 1})},
        {"model": text},
    ):
        data = xr.Dataset(
            {text: ("seed", np.zeros(2))},
            {"seed": [0, 1]},
            {
                "kind": storage.KIND,
                "model": "state_tracking",
                "parameters": Parameters().as_json(),
                **attrs,
            },
        )
        runs.write(data, tmp_path / "a.nc")
        with warnings.catch_warnings(), pytest.raises(ParameterError):
            timescales.main(["state_tracking", f"--runs={tmp_path / 'a.nc'}"])
    assert not (tmp_path / "done").exists()
