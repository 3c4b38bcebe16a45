"""Key and query in one matrix: one abrupt drop."""

from __future__ import annotations

from linear_attention.theory import task
from linear_attention.theory.merged import drop, dynamics
from linear_attention.theory.parameters import Parameters
from theory.equation import Equation
from theory.flow import Flow

__all__ = ["Parameters", "drop", "dynamics", "equations", "flows", "sections"]


def sections() -> dict[str, list[Equation]]:
    """All equations, grouped as a write-up would."""
    return {
        "Task": [*task.equations().values()],
        "Merged key and query": [*dynamics.equations().values()],
        "Merged: white data": [*drop.equations().values()],
    }


def equations() -> dict[str, Equation]:
    """All equations by name."""
    return {x.name: x for section in sections().values() for x in section}


def flows() -> dict[str, Flow]:
    """White data; one effective head at D = 4."""
    return {x.name: x for x in (drop.flow(), dynamics.flow(4))}
