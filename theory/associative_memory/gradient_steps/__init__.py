"""Three gradient steps build an induction head (slides; Bietti et al. 2023)."""

from __future__ import annotations

from theory.associative_memory.gradient_steps import population
from theory.associative_memory.gradient_steps.parameters import Parameters
from theory.associative_memory.gradient_steps.population import second_gradient
from theory.equation import Equation
from theory.flow import Flow

__all__ = ["Parameters", "equations", "flows", "second_gradient", "sections"]


def flows() -> dict[str, Flow]:
    """No dynamics: three steps."""
    return {}


def sections() -> dict[str, list[Equation]]:
    """All equations, grouped as a write-up would."""
    return {"Three gradient steps: population gradients": [*population.equations().values()]}


def equations() -> dict[str, Equation]:
    """All equations by name."""
    return {e.name: e for section in sections().values() for e in section}
