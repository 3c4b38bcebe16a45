"""Digest of all code that a ``verify`` command may use for a model: the modules that
its modules import, and in them the definitions that it may use. Stored results are
stale if and only if their digest has changed.
"""

import ast
import functools
import importlib
import re
import symtable
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from theory.models.model import Model
from theory.runtime.output import FUNCTIONS, hashed, undocumented

ROOT = Path(__file__).parents[2]
WINGS = ("theory", "simulate", "verify")
# Modules that list or import every model, draw, print, make digests, read flags, show
# progress, look for memory, refuse files: what they do changes no number of a report.
ASIDE = (
    "verify",
    "verify.checks.admission",
    "verify.checks.digests",
    "verify.checks.report_store",
    "theory.models.model",
    "theory.models.registry",
    "theory.models.plugins",
    "verify.checks.students_on_device",
    "theory.runtime.plotting",
    "theory.equations.renaming",
    "theory.equations.titles",
    "theory.equations.printing",
    "theory.runtime.cli",
    "theory.runtime.in_symbols",
    "theory.models.command_line",
    "theory.models.solvable",
    "theory.runtime.memory",
    "theory.runtime.output",
    "theory.runtime.progress",
)


def sources(model: Model, command: str) -> str:
    """Digest of all code that may affect the results of a command for a model."""
    files = modules(model, command)
    return used(
        files.values(),
        [files[name] for name in _roots(model, command) if name in files],
    )


def _roots(model: Model, command: str) -> list[str]:
    """Modules that implement a command for a model; one model may share another's."""
    return [m.place("verify", command) for m in model.offering(command)]


def packages(model: Model) -> dict[str, Path]:
    """Folders of the wings, and of the package that a model comes from, by name."""
    folders = {wing: ROOT / wing for wing in WINGS}
    if model.package:
        top = model.package.partition(".")[0]
        folders[top] = Path(str(importlib.import_module(top).__file__)).parent
    return folders


def modules(model: Model, command: str) -> dict[str, Path]:
    """Files of the modules that implement a command, of the model's theory and
    students, and of everything that these import.

    Device measurements and the shortcut to shipped ensembles are excluded.
    """
    names = ["verify.checks.report", *_roots(model, command)]
    for system in model.offering(command):
        names += [system.path("theory"), system.path("simulate")]
    return imported(names, packages(model), ASIDE)


def used(
    files: Iterable[Path], roots: Iterable[Path] = (), names: Iterable[str] = ()
) -> str:
    """Digest of what Python files may execute together: sixteen hexadecimal digits.

    A function, class, method or constant counts if any counted code mentions its name,
    wherever it is defined; two of the same name both count. Methods of a class with
    bases count with the class, as others may call them; other statements outside
    functions always. Functions ``draw`` that plot and imports do not, so that code may
    move between modules, nor do annotations, names of local variables, and names of
    functions, classes and constants (`_unnamed`).

    Parameters
    ----------
    files : iterable of Path
        All files.
    roots : iterable of Path
        Those among them of which everything counts.
    names : iterable of str
        Definitions that count in any case.
    """
    always, parts = set(roots), []
    for file in files:
        for part in _parts(file.read_text(encoding="utf-8")):
            needed = frozenset() if file in always else part.names
            parts.append((part, needed))
    reached = set(names)
    before = -1
    while before < len(reached):
        before = len(reached)
        for part, needed in parts:
            if needed <= reached:
                reached |= part.mentions
    counted = [part for part, needed in parts if part.text and needed <= reached]
    return hashed(_unnamed(counted))


def _unnamed(parts: Sequence["Part"]) -> list[str]:
    """Digest of each part, sorted, with what modules define called by what it does: by
    the digests of its definitions, in which other such names are replaced likewise,
    until no further two names are told apart (colour refinement). A definition that is
    renamed wherever it is mentioned changes nothing; names of methods and of arguments
    count.
    """
    defined: set[str] = set()
    for part in parts:
        if len(part.names) == 1:
            defined |= part.names
    plain, inside = [], []
    for part in parts:
        words = re.split(r"(\w+)", part.text)
        plain.append(hashed("_" if w in defined else w for w in words))
        inside.append([w for w in words if w in defined])
    meaning = dict.fromkeys(defined, "")
    apart = -1
    while apart < len(set(meaning.values())):
        apart = len(set(meaning.values()))
        digests = []
        for text, names in zip(plain, inside, strict=True):
            digests.append(hashed([text, *(meaning[w] for w in names)]))
        definitions: dict[str, list[str]] = {name: [] for name in defined}
        for part, digest in zip(parts, digests, strict=True):
            for name in part.names & defined:
                definitions[name].append(digest)
        meaning = {name: hashed(sorted(each)) for name, each in definitions.items()}
    return sorted(digests)


def imported(
    names: Iterable[str], packages: Mapping[str, Path], without: Container[str] = ()
) -> dict[str, Path]:
    """Modules imported by the given modules, recursively, found by parsing without
    importing.

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
        File per module, by name: the given modules, everything they import (also inside
        functions), and the parent packages.
    """
    files: dict[str, Path] = {}
    todo = list(names)
    while todo:
        name = todo.pop()
        path = _file(name, packages)
        if path is not None and name not in files and name not in without:
            files[name] = path
            parent = name.rpartition(".")[0]
            inside = name if path.name == "__init__.py" else parent
            todo += [parent, *_imports(path.read_text(encoding="utf-8"), inside)]
    return dict(sorted(files.items()))


def _file(name: str, packages: Mapping[str, Path]) -> Path | None:
    top, *inner = name.split(".")
    if top not in packages:
        return None
    path = packages[top].joinpath(*inner)
    files = (path / "__init__.py", path.with_name(f"{path.name}.py"))
    return next((file for file in files if file.is_file()), None)


@functools.cache
def _imports(text: str, package: str) -> tuple[str, ...]:
    """Names imported by a file of a package; a name imported from a package may be a
    module.
    """

    def names() -> Iterator[str]:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                folders = package.split(".")
                around = folders[: len(folders) + 1 - node.level] if node.level else []
                base = ".".join([*around, node.module] if node.module else around)
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)

    return tuple(names())


@dataclass(frozen=True)
class Part:
    """Code that counts if all of some names are mentioned: a function, a method with
    its class, or statements (no names).
    """

    names: frozenset[str]
    text: str
    mentions: frozenset[str]


@functools.cache
def _parts(text: str) -> tuple[Part, ...]:
    def part(node: ast.stmt, *names: str) -> Part:
        node = _numbered(node)
        return Part(frozenset(names), ast.unparse(node), frozenset(_mentions(node)))

    def parts() -> Iterator[Part]:
        body = undocumented(text).body
        registered = _registered(body)
        if registered:
            yield Part(frozenset(), "", registered)
        for node in body:
            match node:
                case ast.ClassDef(bases=[]):
                    functions = [x for x in node.body if isinstance(x, FUNCTIONS)]
                    methods = [x for x in functions if x.name[0] != "_"]
                    others = [x for x in node.body if x not in methods]
                    node.body = others or [ast.Pass()]
                    yield part(node, node.name)
                    yield from (part(x, node.name, x.name) for x in methods)
                case ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                    yield part(node, name)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    if not _draws(node):
                        yield part(node, *([] if name.startswith("__") else [name]))
                case ast.AnnAssign(target=ast.Name(id=name)):
                    yield part(node, name)
                case ast.Import() | ast.ImportFrom():
                    yield Part(frozenset(), "", frozenset(_mentions(node)))
                case _:
                    yield part(node)

    return tuple(parts())


def _registered(body: Sequence[ast.stmt]) -> frozenset[str]:
    """Names of functions that an object of the module keeps, as by
    ``@chapter.derives(...)``: they are used without being mentioned.
    """
    objects, names = set[str](), set[str]()
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]):
                objects.add(name)
            case ast.FunctionDef(name=name, decorator_list=decorators):
                methods = [d.func for d in decorators if isinstance(d, ast.Call)]
                keepers = {ast.unparse(f).partition(".")[0] for f in methods}
                if keepers & objects:
                    names.add(name)
    return frozenset(names)


def _numbered(node: ast.stmt) -> ast.stmt:
    """Code whose functions call their local variables by numbers, in order of
    appearance, and have no annotations; arguments and names that also stand for
    something else in the same function stay.
    """
    for x in ast.walk(node):
        if isinstance(x, FUNCTIONS):
            x.returns = None
        elif isinstance(x, ast.arg):
            x.annotation = None
    todo: list[ast.AST] = [node]
    while todo:
        x = todo.pop()
        if isinstance(x, FUNCTIONS):
            local, numbers = _local(ast.unparse(x)), dict[str, str]()
            for y in ast.walk(x):
                if isinstance(y, ast.Name) and y.id in local:
                    y.id = numbers.setdefault(y.id, f"_{len(numbers)}")
        else:
            todo += ast.iter_child_nodes(x)
    return node


def _local(text: str) -> set[str]:
    """Names of a function, and of those inside it, that are local variables wherever
    they occur.
    """
    names: dict[str, bool] = {}
    todo = symtable.symtable(text, "", "exec").get_children()
    while todo:
        scope = todo.pop()
        todo += scope.get_children()
        for name in scope.get_symbols():
            plain = name.is_local() and not (
                name.is_parameter() or name.is_imported() or name.is_namespace()
            )
            if not name.is_free():
                names[name.get_name()] = plain and names.get(name.get_name(), True)
    return {name for name, plain in names.items() if plain}


def _mentions(node: ast.AST) -> Iterator[str]:
    """Names in code, attributes, words in quotes, and what is imported under another
    name.
    """
    for x in ast.walk(node):
        match x:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield name
            case ast.Constant(value=str() as name) | ast.alias(name=name, asname=str()):
                yield from name.split(".")


def _draws(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A function ``draw`` that is given axes, or makes them by
    `theory.runtime.plotting`.
    """
    given = any(a.arg == "axes" for a in node.args.args)
    plots = given or any(
        isinstance(n, ast.Name) and n.id == "plotting" for n in ast.walk(node)
    )
    return node.name == "draw" and plots
