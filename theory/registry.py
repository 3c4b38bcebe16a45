"""The models of the toolkit, one line each, and those that other packages bring; every generic
command runs over this table.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

from theory.parameters import ParameterError, nearest

COMMANDS = ("gradients", "timescales", "trajectories", "fidelity", "laws", "thresholds")
GROUP = "solvable_transformers.models"  # entry points of packages that bring a model


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
            return importlib.util.find_spec(f"{self.path(wing)}.{module}") is not None
        except ModuleNotFoundError:
            return False

    def wing(self, wing: str, module: str | None = None) -> ModuleType:
        """Import this model's package in one wing, or one of its modules (a family's headline's).

        Raises
        ------
        ParameterError
            If the model has none, as some systems have no onset.
        """
        room = self.systems[0] if module and self.systems else self
        path = ".".join(filter(None, (room.path(wing), module)))
        try:
            return importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{path}.".startswith(f"{error.name}."):
                raise
            raise ParameterError(f"{self.name}: has no {path}") from None

    def ledger(self) -> ModuleType:
        """Import the folder of its paper: figures, claims, write-up."""
        return importlib.import_module(
            f"{self.package}.papers" if self.package else f"papers.{self.paper}"
        )


def _elsewhere() -> Iterator[Model]:
    """Models that installed packages offer, one or several per entry point; what does not load is
    named and left out.
    """
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            offered = entry.load()
            from theory.statement.model import StatedModel, model
            from theory.statement.stated import Statement

            several = [offered] if isinstance(offered, Model | Statement) else list(offered)
            models = [model(m, entry.name) if isinstance(m, Statement) else m for m in several]
            if not all(
                isinstance(m, Model) and (m.package or isinstance(m, StatedModel)) for m in models
            ):
                raise TypeError("neither a statement nor a Model with a package")
            yield from models
        except Exception as error:  # a stranger's package may do anything
            warnings.warn(
                f"model {entry.name} ({entry.value}) left out: {type(error).__name__}: {error}",
                stacklevel=2,
            )


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
    return {**own, **{m.name: m for m in _elsewhere() if m.name not in own}}


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
