"""k-fold composition: the agreement identity and learning by curriculum (slides; Wang et al.
2025).
"""

from functools import partial

from theory.associative_memory.k_hop import agreement, overlaps
from theory.associative_memory.k_hop.numbers import (
    curriculum_times,
    direct_time,
    mixture_time,
    probability,
)
from theory.associative_memory.k_hop.overlaps import flow, mixture
from theory.associative_memory.k_hop.parameters import Parameters, Pointers, applies
from theory.associative_memory.k_hop.predict import predict
from theory.catalogue import catalogue

__all__ = [
    "Parameters",
    "Pointers",
    "applies",
    "curriculum_times",
    "direct_time",
    "equations",
    "flow",
    "flows",
    "mixture",
    "mixture_time",
    "predict",
    "probability",
    "sections",
]

flows, sections, equations = catalogue(
    {"k hops: agreement": [agreement], "k hops: overlaps": [overlaps, partial(flow, 3)]},
    *(partial(flow, hops, kind) for kind in overlaps.LEARNERS for hops in (1, 2, 3)),
)
