"""Gradients as associative memories: lemma, one step, and gradient flow (slides; Bietti et al.
2023).
"""

from theory.associative_memory.gradient_memory import descent, lemma
from theory.associative_memory.gradient_memory.descent import flow
from theory.associative_memory.gradient_memory.numbers import margin
from theory.associative_memory.gradient_memory.parameters import Parameters, applies
from theory.catalogue import catalogue

__all__ = ["Parameters", "applies", "equations", "flow", "flows", "margin", "sections"]

flows, sections, equations = catalogue(
    {
        "Gradients as memories": [lemma],
        "One gradient step, and descent to the end": [descent, flow],
    },
    flow,
)
