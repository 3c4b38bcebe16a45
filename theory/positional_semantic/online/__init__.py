"""One-pass descent of the tied attention layer of rank one: which overlap grows, and where it ends
(beyond Cui et al., arXiv:2402.03902; cf. Arnaboldi et al., arXiv:2506.02651).
"""

from theory.catalogue import catalogue
from theory.positional_semantic.online import dynamics
from theory.positional_semantic.online.dynamics import flow, held_flow, predict
from theory.positional_semantic.online.numbers import (
    basin,
    ends,
    growth_rates,
    share,
    shares,
    window,
)
from theory.positional_semantic.online.onset import charts as charts
from theory.positional_semantic.online.onset import emergence_times, onset
from theory.positional_semantic.online.parameters import Parameters, applies

__all__ = [
    "Parameters",
    "applies",
    "basin",
    "emergence_times",
    "ends",
    "equations",
    "flow",
    "flows",
    "growth_rates",
    "onset",
    "predict",
    "sections",
    "share",
    "shares",
    "window",
]

flows, sections, equations = catalogue(
    {"One-pass descent": [dynamics], "Small overlaps": [dynamics.early_equations]}, flow, held_flow
)
