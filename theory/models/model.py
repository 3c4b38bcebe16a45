"""A model, and where its parts are: its subpackages in every wing, here or in another
installed package.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import symtable
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from theory.call.refusal import ParameterError, error_summary

COMMANDS = ("gradients", "timescales", "trajectories", "fidelity", "laws", "thresholds")
# Attributes that commands require of a model's subpackages.
REQUIRED_NAMES = {
    "theory": ("Parameters", "equations", "sections"),
    "simulate": ("SYSTEMS",),
}


@dataclass(frozen=True)
class Model:
    """A model, one system of a model, or a family of systems.

    Attributes
    ----------
    name : str
        Package name, the same in ``theory``, ``simulate`` and ``verify``;
        ``FAMILY.SYSTEM`` for a system. A family's flow, parameters, onset and students
        are those of its first system.
    title : str
        One-line description.
    paper : str
        Key of the paper's folder under ``papers``.
    package : str
        For a model outside this toolkit, its package; empty for models of this toolkit.
        It has subpackages ``theory``, ``simulate``, ``verify`` and ``papers``, or is
        flat: then ``theory.py`` (with the onset), ``simulate.py`` and ``papers.py``
        (beside ``claims.toml``) are modules, and so is each ``verify`` command
        (``gradients.py``, ...) and the theory of each system.
    stated : bool
        Whether its theory follows from a statement (``theory.NAME.stated``): what it
        has no module for is then what a wing has for every statement.
    beside : bool
        Whether ``MODEL.SYSTEM`` stands beside its model: its equations and checks are
        its own, and no part of the model's.
    others : mapping of str to Model
        By name: the models of its package, among which a family finds its systems; see
        `together`.
    """

    name: str
    title: str
    paper: str
    package: str = ""
    stated: bool = False
    beside: bool = False
    others: Mapping[str, Model] = field(default_factory=dict, repr=False, compare=False)

    @property
    def family(self) -> str:
        """Name of the family that a system belongs to; empty for other models."""
        return self.name.rpartition(".")[0]

    @property
    def systems(self) -> list[Model]:
        """Systems of a family, headline first; empty for other models."""
        return [
            m for m in self.others.values() if m.family == self.name and not m.beside
        ]

    @property
    def checks(self) -> tuple[str, ...]:
        """The ``verify`` commands that the model implements, i.e. has a module for."""
        return tuple(c for c in COMMANDS if self.offering(c))

    def offering(self, command: str) -> list[Model]:
        """Systems that implement a ``verify`` command; the model itself if it has no
        systems.
        """
        return [m for m in self.systems or [self] if m.has("verify", command)]

    def path(self, wing: str) -> str:
        """Dotted name of the model's subpackage (or module) in a wing (``theory``,
        ``simulate``, ``verify``).
        """
        nested, *flat = self._paths(wing)
        return next((p for p in flat if not _there(nested) and _there(p)), nested)

    def _paths(self, wing: str) -> list[str]:
        """Candidate paths of a wing: a subpackage; in a flat package a system's own
        module, and for the commands of ``verify`` the package itself.
        """
        if not self.package:
            return [f"{wing}.{self.name}"]
        system = self.name.partition(".")[2]
        parts = [(self.package, wing, system)]
        parts += [(self.package, "", system)] if system or wing == "verify" else []
        return [".".join(filter(None, p)) for p in parts]

    def place(self, wing: str, module: str) -> str:
        """Dotted name of a module of the model in a wing, or of its family, whose
        modules serve all its systems. A model of this toolkit may be one file in a
        wing, in which ``module`` is a name; then that of the file. Empty if there is
        none. Nothing but packages is imported.
        """
        above = None if self.beside else self.others.get(self.family)
        rooms = self._paths(wing) + (above._paths(wing) if above else [])
        try:
            with self._one_line_errors(self.package):
                for room in rooms:
                    if _there(path := f"{room}.{module}"):
                        return path
                for room in () if self.package else rooms:
                    if module in _defined(room):
                        return room
                return ""
        except ParameterError as error:
            leave_out(f"{wing} of model {self.name}", error)
            return ""

    def has(self, wing: str, module: str) -> bool:
        """Whether the model has a module in a wing, found without importing it."""
        stated = self.stated and (
            module == "onset"
            if wing == "theory"
            else _there(f"{wing}.statement.{module}")
        )
        return stated or bool(self.place(wing, module))

    def wing(self, wing: str, module: str | None = None) -> ModuleType:
        """Import the model's subpackage in one wing, or one of its modules (for a
        family, its headline's).

        Raises
        ------
        ParameterError
            If the model does not have it (some systems have no onset), or a foreign
            package fails to load.
        """
        room = self.systems[0] if module and self.systems else self
        path = room.place(wing, module) if module else room.path(wing)
        if room.stated and not _there(path):
            derived = room.wing("theory")
            return (
                derived
                if wing == "theory" and module == "onset"
                else of_all(derived.stated, wing, module)
            )
        if self.package and module == "onset" and not path:
            # a flat package's onset is a name in its theory
            path = f"{self.package}.theory"
        imported = self._room(path or f"{room.path(wing)}.{module}")
        required = (
            ("onset",)
            if module == "onset"
            else ()
            if module
            else REQUIRED_NAMES.get(wing, ())
        )
        lacking = [d for d in required if not hasattr(imported, d)]
        if self.package and lacking:
            raise ParameterError(
                f"{self.name}: {imported.__name__} lacks {', '.join(lacking)}"
            )
        return imported

    def command(self, command: str) -> Callable[..., Any]:
        """Function of a request behind a ``verify`` command: `report` of the module of
        its name, or the function of its name where the model is one file. Errors as in
        `wing`.
        """
        module = self.wing("verify", command)
        report: Callable[..., Any] = getattr(module, "report", None) or getattr(
            module, command
        )
        return report

    def ledger(self) -> ModuleType:
        """Import the folder of the model's paper: figures, claims, write-up. Errors as
        in `wing`.
        """
        return self._room(
            f"{self.package}.papers" if self.package else f"papers.{self.paper}"
        )

    def _room(self, path: str) -> ModuleType:
        try:
            with self._one_line_errors(path):
                return importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{path}.".startswith(f"{error.name}."):
                raise
            raise ParameterError(f"{self.name}: has no {path}") from None

    @contextlib.contextmanager
    def _one_line_errors(self, path: str) -> Iterator[None]:
        """Import from a package that may be foreign. Any failure becomes a one-line
        error, and its output does not reach stdout.
        """
        try:
            with contextlib.redirect_stdout(sys.stderr if self.package else sys.stdout):
                yield
        except (Exception, SystemExit) as error:
            missing = isinstance(error, ModuleNotFoundError) and f"{error.name}."
            if not self.package or (missing and f"{path}.".startswith(missing)):
                raise
            raise ParameterError(
                f"{self.name}: {path} does not load: {error_summary(error)}"
            ) from error


def _there(path: str) -> bool:
    """Whether a module of that name exists, in this toolkit or a package. A folder
    without code does not count (an older version may have left one).
    """
    room = path.rpartition(".")[0]
    try:
        above = importlib.util.find_spec(room) if room and _there(room) else None
        if above is not None and above.submodule_search_locations is None:
            return False  # a file, which looking for its parts would import
        spec = importlib.util.find_spec(path) if path else None
        return spec is not None and spec.origin is not None
    except ModuleNotFoundError as error:
        if error.name is None or not f"{path}.".startswith(f"{error.name}."):
            raise  # a package is there, but not what it imports
        return False


@functools.cache
def _defined(path: str) -> frozenset[str]:
    """Names that a module defines, found without importing it; none if there is no such
    module.
    """
    spec = importlib.util.find_spec(path) if _there(path) else None
    if spec is None or spec.origin is None:
        return frozenset()
    file = spec.origin
    names = symtable.symtable(
        Path(file).read_text(encoding="utf-8"), file, "exec"
    ).get_symbols()
    return frozenset(
        x.get_name() for x in names if x.is_assigned() and not x.is_imported()
    )


def of_all(stated: Any, wing: str, module: str | None) -> Any:
    """Module of a wing that serves all statements, or the result of its function
    ``of(statement)``.

    Raises
    ------
    ParameterError
        If statements have no such module.
    """
    path = ".".join(filter(None, (wing, "statement", module)))
    if not _there(path):
        raise ParameterError(f"{stated.name}: has no {path}")
    imported = importlib.import_module(path)
    return imported.of(stated) if hasattr(imported, "of") else imported


def leave_out(what: str, error: BaseException) -> None:
    """Print a warning that a model of another package is skipped."""
    said = str(error) if isinstance(error, ParameterError) else error_summary(error)
    warnings.warn(f"{what} left out: {said}", stacklevel=2)


def together(models: Iterable[Model]) -> tuple[Model, ...]:
    """Models of one package, each of which knows the others: a family its systems."""
    others: dict[str, Model] = {}
    others |= {m.name: replace(m, others=others) for m in models}
    return tuple(others.values())
