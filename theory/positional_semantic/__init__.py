"""Positional against semantic learning in a solvable dot-product attention layer (Cui
et al., arXiv:2402.03902).
"""

from theory.dynamics.catalogue import catalogue
from theory.positional_semantic import (
    branches,
    errors,
    fixed_point,
    free_entropy,
    state_evolution,
)
from theory.positional_semantic.branches import Thresholds, curve, phase_diagram
from theory.positional_semantic.channel import State
from theory.positional_semantic.errors import baseline, test_error
from theory.positional_semantic.fixed_point import FixedPoint, solve
from theory.positional_semantic.model import definitions
from theory.positional_semantic.model.parameters import Parameters, applies
from theory.positional_semantic.onset import charts as charts
from theory.positional_semantic.onset import onset, predict, thresholds

__all__ = [
    "FixedPoint",
    "Parameters",
    "State",
    "Thresholds",
    "applies",
    "baseline",
    "branches",
    "curve",
    "equations",
    "fixed_point",
    "flows",
    "onset",
    "phase_diagram",
    "predict",
    "sections",
    "solve",
    "test_error",
    "thresholds",
]

# There is no flow: the theory describes minima of the loss as functions of the sample
# complexity alpha = n/d.
flows, sections, equations = catalogue(
    {
        "Definitions": [definitions],
        "Output channel": [definitions.output_channel],
        "Free entropy": [free_entropy, free_entropy.D_EQUATION],
        "State evolution": [state_evolution, state_evolution.NORM_EQUATION],
        "Stability": [state_evolution.stability],
        "Errors": [errors],
        "Linear baseline": [errors.linear_layer],
    }
)
