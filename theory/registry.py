"""The models of the toolkit: one line each; every generic command and test runs over this table."""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass
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
    """

    name: str
    title: str
    paper: str
    checks: tuple[str, ...]

    def wing(self, package: str, module: str | None = None) -> ModuleType:
        """Import this model's package in one wing, or one of its modules."""
        return importlib.import_module(".".join(filter(None, (package, self.name, module))))


MODELS = {
    m.name: m
    for m in (
        Model("state_tracking", "Chain-of-thought state tracking: RoPE retrieval + logic module (Forner et al.)",
              "forner2026", ("gradients", "timescales", "trajectories")),
        Model("positional_semantic", "Positional against semantic dot-product attention (Cui et al.)",
              "cui2024", ("gradients", "thresholds")),
    )
}  # fmt: skip


def find(name: str) -> Model:
    """Look a model up by name.

    Raises
    ------
    ParameterError
        If there is none, naming the nearest.
    """
    if name in MODELS:
        return MODELS[name]
    near = difflib.get_close_matches(name, MODELS, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise ParameterError(f"model: no model named '{name}'; there are {', '.join(MODELS)}{hint}")
