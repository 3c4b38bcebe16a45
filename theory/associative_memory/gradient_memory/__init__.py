"""Gradients as memories: the lemma, one step, and descent to the end (slides; Bietti et al.
2023).
"""

from __future__ import annotations

from theory.associative_memory.gradient_memory import descent, lemma
from theory.associative_memory.gradient_memory.descent import flow, margin
from theory.associative_memory.gradient_memory.parameters import Parameters
from theory.catalogue import catalogue

__all__ = ["Parameters", "equations", "flow", "flows", "margin", "sections"]

flows, sections, equations = catalogue(
    {
        "Gradients as memories": [lemma],
        "One gradient step, and descent to the end": [descent, flow],
    },
    flow,
)
