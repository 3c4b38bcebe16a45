"""Digests of source files without comments and docstrings (of single definitions:
`verify.digests`).
"""

import ast
import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (ast.ClassDef, *FUNCTIONS)


def digest(files: Iterable[Path]) -> str:
    """Digest of Python files, in the given order: sixteen hexadecimal digits."""
    return hashed(_plain(file.read_text(encoding="utf-8")) for file in files)


def hashed(texts: Iterable[str]) -> str:
    """Digest of texts, in the given order."""
    sha = hashlib.sha256()
    for text in texts:
        sha.update(text.encode())
    return sha.hexdigest()[:16]


@functools.cache
def _plain(text: str) -> str:
    return ast.unparse(undocumented(text))


def undocumented(text: str) -> ast.Module:
    """Code of a file without docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if (
            isinstance(node, (ast.Module, *DEFINITIONS))
            and ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return tree
