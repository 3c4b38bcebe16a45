"""Superposition: interference and capacity of Hebbian memories with random embeddings (slides;
Cabannes et al. 2024).
"""

from __future__ import annotations

from theory.associative_memory.superposition import moments, recall, zipf
from theory.associative_memory.superposition.parameters import Parameters
from theory.associative_memory.superposition.recall import gaussian, sphere
from theory.equation import Equation
from theory.flow import Flow

__all__ = ["Parameters", "equations", "flows", "gaussian", "sections", "sphere"]


def flows() -> dict[str, Flow]:
    """No dynamics: the memory is given."""
    return {}


def sections() -> dict[str, list[Equation]]:
    """All equations, grouped as a write-up would."""
    return {
        "Superposition: interference": [*moments.equations().values()],
        "Superposition: recall and capacity": [*recall.equations().values()],
        "Superposition: Zipf frequencies": [*zipf.equations().values()],
    }


def equations() -> dict[str, Equation]:
    """All equations by name."""
    return {e.name: e for section in sections().values() for e in section}
