"""k-fold composition: the agreement identity and learning by curriculum (slides; Wang et al.
2025).
"""

from __future__ import annotations

import numpy as np

from theory import sweep
from theory.associative_memory.k_hop import agreement, overlaps
from theory.associative_memory.k_hop.overlaps import (
    curriculum_times,
    direct_time,
    flow,
    mixture,
    mixture_time,
)
from theory.associative_memory.k_hop.parameters import Parameters, Pointers
from theory.associative_memory.k_hop.predict import predict
from theory.equation import Equation
from theory.flow import Flow

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
    "predict",
    "probability",
    "sections",
]


@sweep.over_fields
def probability(p: Parameters, fixed_points: np.ndarray) -> float:
    """Agreement of two sets of hidden permutations that send ``fixed_points[j]`` points of hop j
    alike.
    """
    return agreement.probability(fixed_points, p.N)


def flows() -> dict[str, Flow]:
    """Flows of one to three hops by name, for both kinds of kernels."""
    return {
        f.name: f for kind in overlaps.LEARNERS for f in (flow(hops, kind) for hops in (1, 2, 3))
    }


def sections() -> dict[str, list[Equation]]:
    """All equations, grouped as a write-up would."""
    return {
        "k hops: agreement": [*agreement.equations().values()],
        "k hops: overlaps": [*overlaps.equations().values(), *flow(3).equations().values()],
    }


def equations() -> dict[str, Equation]:
    """All equations by name."""
    return {e.name: e for section in sections().values() for e in section}
