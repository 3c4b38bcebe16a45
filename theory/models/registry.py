"""Table of the toolkit's models and of models in other installed packages. Every
generic command uses this table.
"""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Any

from theory.call.refusal import ParameterError, nearest
from theory.models import plugins
from theory.models.model import COMMANDS, Model, together

__all__ = [
    "COMMANDS",
    "MODELS",
    "OWN",
    "TABLE",
    "Model",
    "find",
    "named",
    "offering",
    "optional_module",
    "require_command",
]


# Models of this toolkit: name, title, paper.
OWN = together(
    (
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
        Model(
            "associative_memory.k_hop", "k-fold composition by curriculum", "bietti2025"
        ),
    )
)
MODELS: dict[str, Model]  # models that are not systems of a family, by name
TABLE: dict[str, Model]  # all models and systems


@functools.cache
def _table() -> dict[str, Model]:
    return {m.name: m for m in (*OWN, *plugins.elsewhere(OWN))}


def _models() -> dict[str, Model]:
    return {key: m for key, m in _table().items() if not m.family}


def __getattr__(name: str) -> dict[str, Model]:
    """Make ``MODELS`` and ``TABLE`` on first access, which imports the packages that
    provide a model.
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
        from theory.models import stated  # loads the engine

        return stated.of_file(name)
    known, file = ", ".join(_models()), Path(f"{name}.py")
    hint = f"did you mean the file {file}?" if file.is_file() else nearest(name, table)
    message = f"no model named '{name}'; there are {known}; {hint}"
    raise ParameterError(message.rstrip(" ;"))


def named(name: str) -> Model | None:
    """Model of students with this name, that of a model or of one of its kinds; None if
    unknown.
    """
    while name and name not in _table():
        name = name.rpartition(".")[0]
    return _table().get(name)


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
