"""Every band says why its theory has no order that a rate could test, or which one it
has.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import verify
from verify.state_tracking import ensemble

ROOT = Path(verify.__file__).parent
PASSED_ON = {  # reasons that tables and callers give
    ("ensemble.py", "why"),
    ("gradients.py", "why"),
    ("trajectories.py", "why"),
}


def bands():
    """Every `Band` of the package, with the text of its reason."""
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and getattr(node.func, "id", "") == "Band"
                and node.args
            ):
                yield path.relative_to(ROOT.parent), node.lineno, node.args[-1]


def reason(path, node):
    """The text of an expression; None where a function is given it."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(x.value for x in node.values if isinstance(x, ast.Constant))
    name = ast.unparse(node)
    assigned = {}
    for line in ast.walk(ast.parse((ROOT.parent / path).read_text())):
        if isinstance(line, ast.Assign) and line.lineno < node.lineno:
            assigned[ast.unparse(line.targets[0]), line.lineno] = line.value
    before = [where for where in assigned if where[0] == name]
    if before and name.islower():  # the last one above is that of the band
        value = assigned[max(before, key=lambda where: where[1])]
        if isinstance(value, ast.Constant | ast.JoinedStr):
            return reason(path, value)
    if name.isupper():
        module = importlib.import_module(".".join(path.with_suffix("").parts))
        return getattr(module, name)
    return None


def test_a_band_says_why_it_is_no_rate():
    """In its reason."""
    every = [*bands()]
    for path, line, node in every:
        found = reason(path, node)
        told = (
            "order" in found if found else (path.name, ast.unparse(node)) in PASSED_ON
        )
        assert told, (path, line)
    assert len(every) > 40


@pytest.mark.parametrize("table", ["PAPER", "OURS", "MOMENTS", "PAPER_TIMES"])
def test_so_do_tables_of_bands(table):
    """Those of state tracking, whose reasons are beside their limits."""
    assert all("order" in why for *_, why in getattr(ensemble, table).values())
