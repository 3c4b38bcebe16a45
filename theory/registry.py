"""The models of the toolkit, one line each, and those that other packages bring; every generic
command runs over this table.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from theory.parameters import ParameterError, brief, nearest

COMMANDS = ("gradients", "timescales", "trajectories", "fidelity", "laws", "thresholds")
GROUP = "solvable_transformers.models"  # entry points of packages that bring a model
# What every command asks of a model's room.
DOORS = {"theory": ("Parameters", "equations", "sections"), "simulate": ("SYSTEMS",)}


@dataclass(frozen=True)
class Model:
    """One solvable model, a system of one, or the family that its systems make up.

    Attributes
    ----------
    name : str
        Package name, the same in ``theory``, ``simulate`` and ``verify``; ``FAMILY.SYSTEM`` for a
        system. A family's flow, parameters, onset and students are those of its first system.
    title : str
        One line for people.
    paper : str
        Key of the paper's folder under ``papers``.
    package : str
        Package with the rooms ``theory``, ``simulate``, ``verify`` and ``papers`` of a model that
        lives elsewhere; empty for those of this toolkit, whose rooms are in its wings.
    """

    name: str
    title: str
    paper: str
    package: str = ""

    @property
    def family(self) -> str:
        """Name of the family that a system belongs to; empty for others."""
        return self.name.rpartition(".")[0]

    @property
    def systems(self) -> list[Model]:
        """The systems of a family, its headline first; none for others."""
        return [m for m in _table().values() if m.family == self.name]

    @property
    def checks(self) -> tuple[str, ...]:
        """The ``verify`` commands this model answers to: those it has a module for."""
        return tuple(c for c in COMMANDS if self.offering(c))

    def offering(self, command: str) -> list[Model]:
        """The systems that answer to a ``verify`` command; the model itself where it has no
        systems.
        """
        return [m for m in self.systems or [self] if m._has("verify", command)]

    def path(self, wing: str) -> str:
        """Dotted name of this model's room in a wing."""
        if self.package:
            return ".".join(filter(None, (self.package, wing, self.name.partition(".")[2])))
        return f"{wing}.{self.name}"

    def _has(self, wing: str, module: str) -> bool:
        try:
            with self._guest(self.path(wing)):
                return importlib.util.find_spec(f"{self.path(wing)}.{module}") is not None
        except ModuleNotFoundError:
            return False
        except ParameterError as error:
            _leave_out(f"{wing} of model {self.name}", error)
            return False

    def wing(self, wing: str, module: str | None = None) -> ModuleType:
        """Import this model's package in one wing, or one of its modules (a family's headline's).

        Raises
        ------
        ParameterError
            If the model has none, as some systems have no onset, or another package's does not
            load.
        """
        room = self.systems[0] if module and self.systems else self
        found = self._room(".".join(filter(None, (room.path(wing), module))))
        lacking = [d for d in DOORS.get(wing, ()) if not (module or hasattr(found, d))]
        if self.package and lacking:
            raise ParameterError(f"{self.name}: {found.__name__} lacks {', '.join(lacking)}")
        return found

    def ledger(self) -> ModuleType:
        """Import the folder of its paper: figures, claims, write-up; errors as in `wing`."""
        return self._room(f"{self.package}.papers" if self.package else f"papers.{self.paper}")

    def _room(self, path: str) -> ModuleType:
        try:
            with self._guest(path):
                return importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{path}.".startswith(f"{error.name}."):
                raise
            raise ParameterError(f"{self.name}: has no {path}") from None

    @contextlib.contextmanager
    def _guest(self, path: str) -> Iterator[None]:
        """Import from a package, which may be a stranger's and do anything: what goes wrong is one
        line, what is printed does not get into an answer.
        """
        try:
            with contextlib.redirect_stdout(sys.stderr if self.package else sys.stdout):
                yield
        except (Exception, SystemExit) as error:
            missing = isinstance(error, ModuleNotFoundError) and f"{error.name}."
            if not self.package or (missing and f"{path}.".startswith(missing)):
                raise
            raise ParameterError(f"{self.name}: {path} does not load: {brief(error)}") from error


def _leave_out(what: str, error: BaseException) -> None:
    """Name what another package offers and nobody can use."""
    said = str(error) if isinstance(error, ParameterError) else brief(error)
    warnings.warn(f"{what} left out: {said}", stacklevel=2)


@contextlib.contextmanager
def spared(model: Model) -> Iterator[None]:
    """Do something for one of many models: one of another package that fails at it is named, and
    the others are served.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        if not model.package:
            raise
        _leave_out(f"model {model.name}", error)


def _elsewhere() -> Iterator[Model]:
    """Models that installed packages offer, one or several per entry point; what cannot be used is
    named and left out.
    """
    taken = {m.name for m in OWN} | {m.paper for m in OWN}
    for entry in sorted(_entries(), key=lambda entry: (entry.name, entry.value)):
        try:
            with contextlib.redirect_stdout(sys.stderr):
                offered = entry.load()
                several = [offered] if isinstance(offered, Model) or _stated(offered) else offered
                models = [_model(m, entry) for m in several]
                _usable(models, taken)
        except (Exception, SystemExit) as error:  # a stranger's package may do anything
            _leave_out(f"model {entry.name} ({entry.value})", error)
            continue
        taken |= {m.name for m in models} | {m.paper for m in models}
        yield from models


def _stated(offered: Any) -> bool:
    """Whether it is a statement; nobody has made one before its language is loaded."""
    language = sys.modules.get("theory.statement.stated")
    return language is not None and isinstance(offered, language.Statement)


def _model(offered: Any, entry: importlib.metadata.EntryPoint) -> Any:
    """A model, or a statement as one, under the name of its entry point."""
    if not _stated(offered):
        return offered
    from theory.statement.model import model

    return replace(model(offered, entry.name), package=entry.module)


def _entries() -> Iterable[importlib.metadata.EntryPoint]:
    """Entry points of all packages but those whose list of them cannot be read."""
    try:
        return importlib.metadata.entry_points(group=GROUP)
    except Exception:  # one such list, and nobody would have any
        found: list[importlib.metadata.EntryPoint] = []
        for package in importlib.metadata.distributions():
            try:
                found += package.entry_points.select(group=GROUP)
            except Exception as error:
                _leave_out(f"entry points of {package.metadata['Name']}", error)
        return found


def _usable(models: list[Model], taken: set[str]) -> None:
    """Refuse what a package offers unless commands can serve it.

    Raises
    ------
    ParameterError
        Naming what is wrong.
    """
    if not models or not all(isinstance(m, Model) and m.package for m in models):
        raise ParameterError("not a Model with a package, or several")
    names = [m.name for m in models]
    for m in models:
        if not all(isinstance(x, str) for x in (m.name, m.title, m.paper, m.package)):
            raise ParameterError(f"Model({m.name!r}, ...): every field must be a word")
        if not re.fullmatch(r"[a-z_]\w*(\.[a-z_]\w*)?", m.name):
            raise ParameterError(f"name {m.name!r}: must be one word, or FAMILY.SYSTEM")
        if m.family and m.family not in names:
            raise ParameterError(f"{m.name}: offers no family {m.family}")
        if m.name in taken or m.paper in taken or names.count(m.name) > 1:
            word = m.paper if m.paper in taken else m.name
            raise ParameterError(f"{m.name}: the name {word} is taken")
        # A system's would load its family's room, which takes its time.
        if not m.family and importlib.util.find_spec(m.path("theory")) is None:
            raise ParameterError(f"{m.name}: has no {m.path('theory')}")


BIETTI = "bietti2025"
OWN = (
    Model(
        "state_tracking",
        "Chain-of-thought state tracking: RoPE retrieval + logic module (Forner et al.)",
        "forner2026",
    ),
    Model(
        "induction_heads",
        "Induction heads in a disentangled two-layer transformer (Musat et al.)",
        "musat2025",
    ),
    Model(
        "positional_semantic",
        "Positional against semantic dot-product attention (Cui et al.)",
        "cui2024",
    ),
    Model(
        "associative_memory",
        "Weights as associative memories: factual recall and six more systems (Bietti et al.)",
        BIETTI,
    ),
    Model("associative_memory.factual_recall", "Factual recall by linear attention", BIETTI),
    Model(
        "associative_memory.gradient_memory", "One gradient step as an associative memory", BIETTI
    ),
    Model("associative_memory.superposition", "Capacity of memories in superposition", BIETTI),
    Model("associative_memory.trigger_task", "In-context recall of what follows a trigger", BIETTI),
    Model("associative_memory.gradient_steps", "Three gradient steps on the trigger task", BIETTI),
    Model("associative_memory.noisy_bigram", "In-context recall beside a noisy bigram", BIETTI),
    Model("associative_memory.k_hop", "k-fold composition by curriculum", BIETTI),
)
MODELS: dict[str, Model]  # those that are no system of a family, by name
TABLE: dict[str, Model]  # all of them


@functools.cache
def _table() -> dict[str, Model]:
    own = {m.name: m for m in OWN}
    return {**own, **{m.name: m for m in _elsewhere()}}


def __getattr__(name: str) -> dict[str, Model]:
    """``MODELS`` and ``TABLE``, made when first asked for: a package that brings a model imports
    this module before it has one.
    """
    if name == "TABLE":
        return _table()
    if name == "MODELS":
        return {key: m for key, m in _table().items() if not m.family}
    raise AttributeError(f"module {__name__} has no attribute {name}")


def find(name: str) -> Model:
    """Look a model up by name, a system by ``family.system``, or what a file ``FILE.py`` states.

    Raises
    ------
    ParameterError
        If there is none, naming the nearest.
    """
    table = _table()
    if name in table:
        return table[name]
    if name.endswith(".py") or ".py:" in name:
        from theory.statement.model import of_file

        return of_file(name)
    known = ", ".join(m.name for m in table.values() if not m.family)
    message = f"model: no model named '{name}'; there are {known}; {nearest(name, table)}"
    raise ParameterError(message.rstrip(" ;"))
