"""Gradients as associative memories: lemma, one step, and gradient flow (slides; Bietti et al.
2023).
"""

from typing import Any

import numpy as np

from theory import sweep
from theory.associative_memory.gradient_memory import descent, lemma, numbers
from theory.associative_memory.gradient_memory.descent import flow
from theory.associative_memory.gradient_memory.parameters import MEMORY, Parameters, applies
from theory.catalogue import catalogue
from theory.scope import guard

__all__ = ["Parameters", "applies", "equations", "flow", "flows", "margin", "sections"]


@guard(MEMORY)
@sweep.over_fields
def margin(p: Parameters, t: Any) -> np.ndarray:
    """Margin of `margin_flow` at times ``t = eta * steps``."""
    return numbers.margin(p.N, p.K, t)


flows, sections, equations = catalogue(
    {
        "Gradients as memories": [lemma],
        "One gradient step, and descent to the end": [descent, flow],
    },
    flow,
)
