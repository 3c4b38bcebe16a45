"""Induction heads in the disentangled two-layer transformer (Musat et al.,
arXiv:2511.01033).
"""

from theory.dynamics.catalogue import catalogue
from theory.induction_heads import (
    drop,
    dynamics,
    emergence,
    expansions,
    network,
    structure,
)
from theory.induction_heads.all_weights import (
    burst,
    gaussian,
    law,
    plateau,
    recent,
    scores,
)
from theory.induction_heads.dynamics import flow
from theory.induction_heads.onset import emergence_times, onset, predict
from theory.induction_heads.parameters import Parameters, applies

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
    "sections",
    "structure",
]

flows, sections, equations = catalogue(
    {
        "Definitions": [structure.definitions],
        "Which weights can leave zero": [structure],
        "Attention and loss for any queried pair": [network.attention_equations],
        "Three parameters: loss, gradient, invariant": [dynamics],
        "Flow": [flow],
        "Emergence times": [expansions],
        "Drop of the loss": [drop],
        "Uniform query": [dynamics.query_equations],
        "All weights": [scores, scores.loss_equations],
        "All weights: plateau and law": [plateau, law],
        "All weights: a burst of right pairs": [burst, burst.burst_loss_equations],
        "All weights: a recent right pair": [recent],
        "Gaussian data": [gaussian],
    },
    flow,
    plateau.flow,
)
