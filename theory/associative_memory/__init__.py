"""Weights as associative memories (slides of A. Bietti, 2025): small systems, headed by
factual recall.

Each subpackage is one system with its own ``Parameters``. The names here are those of
the headline system, `factual_recall`, but ``equations()`` and ``sections()`` cover all
systems.
"""

from theory.associative_memory import (
    factual_recall,
    gradient_memory,
    gradient_steps,
    k_hop,
    noisy_bigram,
    superposition,
    trigger_task,
)
from theory.associative_memory.factual_recall import (
    Parameters,
    applies,
    emergence_times,
    flow,
    flows,
    onset,
    predict,
)
from theory.dynamics.catalogue import family

SYSTEMS = (
    factual_recall,
    gradient_memory,
    superposition,
    trigger_task,
    gradient_steps,
    noisy_bigram,
    k_hop,
)

__all__ = [
    "SYSTEMS",
    "Parameters",
    "applies",
    "emergence_times",
    "equations",
    "factual_recall",
    "flow",
    "flows",
    "gradient_memory",
    "gradient_steps",
    "k_hop",
    "noisy_bigram",
    "onset",
    "predict",
    "sections",
    "superposition",
    "trigger_task",
]

sections, equations = family(SYSTEMS)
