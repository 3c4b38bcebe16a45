"""Table of the toolkit's models and of models in other installed packages. Every
generic command uses this table.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import symtable
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from theory.call.parameters import ParameterError, nearest
from theory.call.values import error_summary

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
    """

    name: str
    title: str
    paper: str
    package: str = ""
    stated: bool = False
    beside: bool = False

    @property
    def family(self) -> str:
        """Name of the family that a system belongs to; empty for other models."""
        return self.name.rpartition(".")[0]

    @property
    def systems(self) -> list[Model]:
        """Systems of a family, headline first; empty for other models."""
        return [m for m in _table().values() if m.family == self.name and not m.beside]

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
        above = None if self.beside else _table().get(self.family)
        rooms = [path for m in (self, above) if m for path in m._paths(wing)]
        from theory.models import plugins

        try:
            with self._one_line_errors(self.package):
                modules = next(
                    (p for p in (f"{room}.{module}" for room in rooms) if _there(p)), ""
                )
                named = (
                    room
                    for room in rooms
                    if not self.package and module in _defined(room)
                )
                return modules or next(named, "")
        except ParameterError as error:
            plugins.leave_out(f"{wing} of model {self.name}", error)
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


# Models of this toolkit: name, title, paper.
OWN = (
    Model(
        "state_tracking",
        "Chain-of-thought state tracking: RoPE retrieval + logic module"
        " (Forner et al.)",
        "forner2026",
    ),
    Model(
        "induction_heads",
        "Induction heads in a disentangled two-layer transformer (Musat et al.)",
        "musat2025",
    ),
    Model(
        "induction_heads.bursty",
        "Induction heads on a burst of right pairs",
        "musat2025",
        stated=True,
        beside=True,
    ),
    Model(
        "positional_semantic",
        "Positional against semantic dot-product attention (Cui et al.)",
        "cui2024",
    ),
    Model(
        "associative_memory",
        "Weights as associative memories: factual recall and other systems"
        " (Bietti et al.)",
        "bietti2025",
    ),
    Model(
        "associative_memory.factual_recall",
        "Factual recall by linear attention",
        "bietti2025",
    ),
    Model(
        "associative_memory.gradient_memory",
        "One gradient step as an associative memory",
        "bietti2025",
    ),
    Model(
        "associative_memory.superposition",
        "Capacity of memories in superposition",
        "bietti2025",
    ),
    Model(
        "associative_memory.trigger_task",
        "In-context recall of what follows a trigger",
        "bietti2025",
    ),
    Model(
        "associative_memory.gradient_steps",
        "Three gradient steps on the trigger task",
        "bietti2025",
    ),
    Model(
        "associative_memory.noisy_bigram",
        "In-context recall beside a noisy bigram",
        "bietti2025",
    ),
    Model("associative_memory.k_hop", "k-fold composition by curriculum", "bietti2025"),
)
MODELS: dict[str, Model]  # models that are not systems of a family, by name
TABLE: dict[str, Model]  # all models and systems


@functools.cache
def _table() -> dict[str, Model]:
    from theory.models import plugins

    return {m.name: m for m in (*OWN, *plugins.elsewhere())}


def _models() -> dict[str, Model]:
    return {key: m for key, m in _table().items() if not m.family}


def __getattr__(name: str) -> dict[str, Model]:
    """Make ``MODELS`` and ``TABLE`` on first access: a package that provides a model
    imports this module before it defines the model.
    """
    if name == "TABLE":
        return _table()
    if name == "MODELS":
        return _models()
    raise AttributeError(f"module {__name__} has no attribute {name}")


def find(name: str) -> Model:
    """Look up a model by name, a system by ``family.system``, or the statement in a
    file ``FILE.py``.

    Raises
    ------
    ParameterError
        If there is none; the message names the nearest.
    """
    table = _table()
    if name in table:
        return table[name]
    if name.endswith(".py") or ".py:" in name:
        from theory.statement.model import of_file

        return of_file(name)
    known, file = ", ".join(_models()), Path(f"{name}.py")
    hint = f"did you mean the file {file}?" if file.is_file() else nearest(name, table)
    message = f"no model named '{name}'; there are {known}; {hint}"
    raise ParameterError(message.rstrip(" ;"))


def offering(command: str) -> list[str]:
    """Models that implement a ``verify`` command, in the order of the registry."""
    return [m.name for m in _models().values() if command in m.checks]


def require_command(model: Model, command: str) -> None:
    """Raise an error if a model does not implement a ``verify`` command, listing the
    models that do.

    Raises
    ------
    ParameterError
        If the model does not list the command among its checks.
    """
    if command not in model.checks:
        there = ", ".join(f"verify.{c}" for c in model.checks)
        raise ParameterError(
            f"verify.{command}: not for {model.name}, but for"
            f" {', '.join(offering(command))}; {model.name} has {there}"
        )


def optional_module(model: Model, wing: str, module: str) -> Any:
    """Import an optional module of a model.

    Raises
    ------
    ParameterError
        If the model does not have it; the message lists the models that do.
    """
    with contextlib.suppress(ParameterError):
        return model.wing(wing, module)
    others = []
    for other in _models().values():
        with contextlib.suppress(ParameterError):
            other.wing(wing, module)
            others.append(other.name)
    raise ParameterError(
        f"{wing}.{module}: not for {model.name}, but for {', '.join(others)}"
    )
