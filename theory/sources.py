"""Digest of source files without comments and docstrings, and the modules that a module imports.
Stored results are stale if and only if this digest has changed; stored numbers do not depend on
functions that draw.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def digest(files: Iterable[Path], *, drawing: bool = True) -> str:
    """Digest of Python files, in the given order: sixteen hexadecimal digits.

    Parameters
    ----------
    files : iterable of Path
    drawing : bool
        Whether functions ``draw`` that plot count.
    """
    found = hashlib.sha256()
    for file in files:
        found.update(_statements(file.read_text(encoding="utf-8"), drawing))
    return found.hexdigest()[:16]


def imported(
    names: Iterable[str], packages: Mapping[str, Path], without: Container[str] = ()
) -> dict[str, Path]:
    """Modules imported by the given modules, recursively, found by parsing without importing.

    Parameters
    ----------
    names : iterable of str
        Dotted names of the modules to start from.
    packages : mapping of str to Path
        Folder per top-level package; other packages are ignored.
    without : container of str
        Modules that are left out, together with modules imported by them only.

    Returns
    -------
    dict of str to Path
        File per module, by name: the given modules, everything they import (also inside functions),
        and the parent packages.
    """
    found: dict[str, Path] = {}
    todo = list(names)
    while todo:
        name = todo.pop()
        path = _file(name, packages)
        if path is not None and name not in found and name not in without:
            found[name] = path
            inside = name if path.name == "__init__.py" else name.rpartition(".")[0]
            todo += [name.rpartition(".")[0], *_imports(path.read_text(encoding="utf-8"), inside)]
    return dict(sorted(found.items()))


def _file(name: str, packages: Mapping[str, Path]) -> Path | None:
    top, *rest = name.split(".")
    if top not in packages:
        return None
    path = packages[top].joinpath(*rest)
    files = (path / "__init__.py", path.with_name(f"{path.name}.py"))
    return next((file for file in files if file.is_file()), None)


@functools.cache
def _imports(text: str, package: str) -> tuple[str, ...]:
    """Names imported by a file of a package; a name imported from a package may be a module."""

    def names() -> Iterator[str]:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                around = package.split(".")[: len(package.split(".")) + 1 - node.level]
                base = ".".join([*(around if node.level else []), *filter(None, [node.module])])
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)

    return tuple(names())


@functools.cache
def _statements(text: str, drawing: bool) -> bytes:
    tree = ast.parse(text)
    if not drawing:
        tree.body = [node for node in tree.body if not _draws(node)]
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree).encode()


def _draws(node: ast.stmt) -> bool:
    """A function ``draw`` that is given axes, or makes them by `theory.plotting`."""
    if not (isinstance(node, ast.FunctionDef) and node.name == "draw"):
        return False
    given = any(a.arg == "axes" for a in node.args.args)
    return given or any(isinstance(n, ast.Name) and n.id == "plotting" for n in ast.walk(node))
