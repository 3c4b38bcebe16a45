"""k-fold composition: the agreement identity and learning by curriculum (slides; Wang et al.
2025).
"""

from collections.abc import Sequence
from functools import partial

from theory import ParameterError, sweep
from theory.associative_memory.k_hop import agreement, numbers, overlaps
from theory.associative_memory.k_hop.numbers import curriculum_times, direct_time, mixture_time
from theory.associative_memory.k_hop.overlaps import flow, mixture
from theory.associative_memory.k_hop.parameters import Parameters, Pointers
from theory.associative_memory.k_hop.predict import predict
from theory.associative_memory.k_hop.scope import KERNEL_LEARNERS, applies
from theory.catalogue import catalogue
from theory.scope import guard

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


@guard(KERNEL_LEARNERS)
@sweep.over_fields
def probability(p: Parameters, fixed_points: Sequence[int]) -> float:
    """Agreement of two sets of hidden permutations that coincide at ``fixed_points[j]`` points of
    hop j.

    Raises
    ------
    ParameterError
        Unless there is one number per hop at which two permutations can coincide.
    """
    if len(fixed_points) != p.k:
        raise ParameterError(f"fixed_points: has {len(fixed_points)} hops, must have k = {p.k}")
    return numbers.probability(fixed_points, p.N)


flows, sections, equations = catalogue(
    {"k hops: agreement": [agreement], "k hops: overlaps": [overlaps, partial(flow, 3)]},
    *(partial(flow, hops, kind) for kind in overlaps.LEARNERS for hops in (1, 2, 3)),
)
