"""Noisy bigrams: the global association is learned long before the one in context (slides; Chen et
al. 2024).
"""

from __future__ import annotations

from theory.associative_memory.noisy_bigram import samples
from theory.associative_memory.noisy_bigram.parameters import Parameters
from theory.associative_memory.noisy_bigram.samples import feed_forward_success, value_recovered
from theory.equation import Equation
from theory.flow import Flow

__all__ = [
    "Parameters",
    "equations",
    "feed_forward_success",
    "flows",
    "sections",
    "value_recovered",
]


def flows() -> dict[str, Flow]:
    """No dynamics: one step."""
    return {}


def sections() -> dict[str, list[Equation]]:
    """All equations, grouped as a write-up would."""
    return {"Noisy bigrams: samples needed": [*samples.equations().values()]}


def equations() -> dict[str, Equation]:
    """All equations by name."""
    return {e.name: e for section in sections().values() for e in section}
