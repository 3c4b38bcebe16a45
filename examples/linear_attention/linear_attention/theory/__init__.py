"""In-context linear regression by linear attention (Zhang et al., arXiv:2501.16265)."""

from linear_attention.theory import merged, separate
from linear_attention.theory.parameters import Parameters
from linear_attention.theory.scope import applies
from theory.catalogue import family

__all__ = ["Parameters", "applies", "equations", "flows", "merged", "sections", "separate"]

sections, equations = family([merged, separate])
flows = lambda: merged.flows() | separate.flows()  # noqa: E731
