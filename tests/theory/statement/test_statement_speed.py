"""Speed of derivations with their printed equations, and of the command: times are recorded with
``pytest -m slow --benchmark-enable`` and not asserted.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import pytest
import sympy as sp

sys.path.insert(0, str(Path(__file__).parent))
import systems

from theory.statement import benchmark as speed
from theory.statement import check

pytestmark = pytest.mark.slow
ACCEPTANCE = {
    "bigram": systems.bigram,
    "recall": systems.recall,
    "recall, softmax": functools.partial(systems.recall, "softmax"),
    "retrieval, iid P = 5": functools.partial(systems.retrieval, 5, False),
    "regression": systems.regression,
    "state tracking, closure": systems.tracking,
    "state tracking, group": functools.partial(systems.tracking, sp.Rational(1, 2), None, True),
    "induction": systems.induction,
    "induction, q = 3": functools.partial(systems.induction, 3, 6, True),
}
FILE = """
from theory.statement import *
N = sizes("N")
token = sort("token", N)
follows = teacher("follows", (token,), token, injective=True)
W, z = weight("W", token, token), draw(token)
bigram = statement(cross_entropy(lambda y: W[z, y], over=token, target=follows(z)), name="bigram")
"""


@pytest.mark.parametrize("name", ACCEPTANCE)
def test_derived_and_printed(name, benchmark):
    """Right at inputs that the derivation did not see."""
    found = benchmark.pedantic(speed.printed, (name, ACCEPTANCE[name]()), rounds=1)
    benchmark.extra_info.update(found)
    assert found["error"] <= check.AGREE


def test_the_command_over_imports(tmp_path, benchmark):
    """Of a small file; the bar is 2.5."""
    (tmp_path / "model.py").write_text(FILE)
    benchmark.extra_info.update(
        benchmark.pedantic(speed.command, (str(tmp_path / "model.py"),), rounds=1)
    )


def test_what_is_slow_or_wrong_is_not_within():
    """A row over its bar, and one with an error."""
    assert not speed.row("slow", 2.1, 2.0)["within"]
    assert not speed.row("wrong", 0.1, 2.0, 1e-8)["within"]


def test_a_file_has_a_benchmark(tmp_path, capsys):
    """By the command; what is read again is quicker than what is derived."""
    from theory import benchmark as command

    (tmp_path / "model.py").write_text(FILE)
    assert command.main([str(tmp_path / "model.py"), "--quiet"]) == 0
    assert "read again and printed" in capsys.readouterr().out
