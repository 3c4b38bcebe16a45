"""The models of the toolkit, one line each, and those that other packages bring; every generic
command runs over this table.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.metadata
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType

from theory.parameters import ParameterError


@dataclass(frozen=True)
class Model:
    """One solvable model.

    Attributes
    ----------
    name : str
        Package name, the same in ``theory``, ``simulate`` and ``verify``.
    title : str
        One line for people.
    paper : str
        Key of the paper's folder under ``papers``.
    checks : tuple of str
        The ``verify`` commands this model answers to.
    systems : mapping of str to tuple of str
        Subpackages that are systems of their own, each with its ``verify`` commands; the first is
        the headline, whose modules (onset, checks) are the model's.
    package : str
        Package with the rooms ``theory``, ``simulate``, ``verify`` and ``papers`` of a model that
        lives elsewhere; empty for those of this toolkit, whose rooms are in its wings.
    """

    name: str
    title: str
    paper: str
    checks: tuple[str, ...]
    systems: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    package: str = ""

    def wing(self, package: str, module: str | None = None) -> ModuleType:
        """Import this model's package in one wing, or one of its modules.

        Raises
        ------
        ParameterError
            If the model has none, as some systems have no onset.
        """
        headline = next(iter(self.systems), None) if module else None
        name, _, system = self.name.partition(".")
        room = (self.package, package) if self.package else (package, name)
        path = ".".join(filter(None, (*room, system, headline, module)))
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

    def offering(self, command: str) -> list[Model]:
        """The systems that answer to a ``verify`` command; the model itself where it has no
        systems.
        """
        return [
            m
            for m in (map(self.system, self.systems) if self.systems else [self])
            if command in m.checks
        ]

    def system(self, name: str) -> Model:
        """One of the systems as a model of its own, addressed as ``model.system``."""
        return replace(self, name=f"{self.name}.{name}", checks=self.systems[name], systems={})


def _elsewhere() -> Iterator[Model]:
    """Models that installed packages offer; one that does not load is named and left out."""
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            model = entry.load()
            if not isinstance(model, Model) or not model.package:
                raise TypeError("not a Model with a package")
            yield model
        except Exception as error:  # a stranger's package may do anything
            warnings.warn(
                f"model {entry.name} ({entry.value}) left out: {type(error).__name__}: {error}",
                stacklevel=2,
            )


GROUP = "solvable_transformers.models"  # entry points of packages that bring a model
OWN = {
    m.name: m
    for m in (
        Model(
            "state_tracking",
            "Chain-of-thought state tracking: RoPE retrieval + logic module (Forner et al.)",
            "forner2026",
            ("gradients", "timescales", "trajectories", "fidelity"),
        ),
        Model(
            "induction_heads",
            "Induction heads in a disentangled two-layer transformer (Musat et al.)",
            "musat2025",
            ("gradients", "timescales", "trajectories"),
        ),
        Model(
            "positional_semantic",
            "Positional against semantic dot-product attention (Cui et al.)",
            "cui2024",
            ("gradients", "thresholds"),
        ),
        Model(
            "associative_memory",
            "Weights as associative memories: factual recall and six more systems (Bietti et al.)",
            "bietti2025",
            ("gradients", "timescales", "trajectories", "laws"),
            {
                "factual_recall": ("gradients", "timescales", "trajectories"),
                "gradient_memory": ("gradients",),
                "superposition": ("laws",),
                "trigger_task": ("laws",),
                "gradient_steps": ("laws",),
                "noisy_bigram": ("laws",),
                "k_hop": ("laws",),
            },
        ),
    )
}


MODELS: dict[str, Model]  # all of them, by name


@functools.cache
def _models() -> dict[str, Model]:
    return {**OWN, **{m.name: m for m in _elsewhere() if m.name not in OWN}}


def __getattr__(name: str) -> dict[str, Model]:
    """``MODELS``, made when first asked for: a package that brings a model imports this module
    before it has one.
    """
    if name == "MODELS":
        return _models()
    raise AttributeError(f"module {__name__} has no attribute {name}")


def find(name: str) -> Model:
    """Look a model up by name, or one of its systems by ``model.system``.

    Raises
    ------
    ParameterError
        If there is none, naming the nearest.
    """
    models = _models()
    known = {**models, **{f"{m.name}.{s}": m for m in models.values() for s in m.systems}}
    if name in known:
        return (
            known[name]
            if name in models
            else known[name].system(name.removeprefix(f"{known[name].name}."))
        )
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise ParameterError(f"model: no model named '{name}'; there are {', '.join(models)}{hint}")
