"""k-fold composition: the agreement identity and learning by curriculum (slides; Wang et al.
2025).
"""

from __future__ import annotations

from functools import partial

from theory.associative_memory.k_hop import agreement, overlaps
from theory.associative_memory.k_hop.agreement import probability
from theory.associative_memory.k_hop.overlaps import (
    curriculum_times,
    direct_time,
    flow,
    mixture,
    mixture_time,
)
from theory.associative_memory.k_hop.parameters import Parameters, Pointers
from theory.catalogue import catalogue

__all__ = [
    "Parameters",
    "Pointers",
    "curriculum_times",
    "direct_time",
    "equations",
    "flow",
    "flows",
    "mixture",
    "mixture_time",
    "probability",
    "sections",
]

flows, sections, equations = catalogue(
    {"k hops: agreement": [agreement], "k hops: overlaps": [overlaps, partial(flow, 3)]},
    *(partial(flow, hops, kind) for kind in overlaps.LEARNERS for hops in (1, 2, 3)),
)
