"""In-context linear regression by linear attention (Zhang et al., arXiv:2501.16265)."""

from linear_attention.theory import merged, separate
from linear_attention.theory.onset import emergence_times, onset
from linear_attention.theory.parameters import Parameters
from linear_attention.theory.scope import applies
from theory.catalogue import family

__all__ = [
    "Parameters",
    "applies",
    "emergence_times",
    "equations",
    "flows",
    "merged",
    "onset",
    "sections",
    "separate",
]

sections, equations = family([merged, separate])
flows = lambda: merged.flows() | separate.flows()  # noqa: E731
