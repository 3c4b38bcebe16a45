"""Addresses of tests in the ledgers: a file, or one function of it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
ADDRESS = re.compile(r"(?P<file>tests/\w+/test_\w+\.py)(::(?P<name>test_\w+))?")


@cache
def functions(file: str) -> frozenset[str]:
    """Names of the test functions of a file, read without importing or parsing it."""
    path = ROOT / file
    text = path.read_text() if path.is_file() else ""
    return frozenset(re.findall(r"^def (test_\w+)\(", text, re.MULTILINE))


def exists(address: str) -> bool:
    """Whether an address is that of a file with tests, or of a test function in it."""
    match = ADDRESS.fullmatch(address)
    return (
        bool(match)
        and bool(functions(match["file"]))
        and (not match["name"] or match["name"] in functions(match["file"]))
    )
