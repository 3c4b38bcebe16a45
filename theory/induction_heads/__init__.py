"""Induction heads in the disentangled two-layer transformer (Musat et al., arXiv:2511.01033)."""

from theory.catalogue import catalogue
from theory.induction_heads import (
    attention,
    definitions,
    drop,
    dynamics,
    expansions,
    gaussian,
    query,
    structure,
)
from theory.induction_heads.all_weights import burst, burst_loss, law, loss, plateau, recent, scores
from theory.induction_heads.dynamics import flow
from theory.induction_heads.numbers import emergence
from theory.induction_heads.onset import emergence_times, onset
from theory.induction_heads.parameters import Parameters
from theory.induction_heads.predict import predict
from theory.induction_heads.scope import applies

__all__ = [
    "Parameters",
    "applies",
    "drop",
    "emergence",
    "emergence_times",
    "equations",
    "flow",
    "flows",
    "onset",
    "predict",
    "query",
    "sections",
    "structure",
]

flows, sections, equations = catalogue(
    {
        "Definitions": [definitions],
        "Which weights can leave zero": [structure],
        "Attention and loss for any queried pair": [attention],
        "Three parameters: loss, gradient, invariant": [dynamics],
        "Flow": [flow],
        "Emergence times": [expansions],
        "Drop of the loss": [drop],
        "Uniform query": [query],
        "All weights": [scores, loss],
        "All weights: plateau and law": [plateau, law],
        "All weights: a burst of right pairs": [burst, burst_loss],
        "All weights: a recent right pair": [recent],
        "Gaussian data": [gaussian],
    },
    flow,
    plateau.flow,
)
