"""Positional against semantic learning in a solvable dot-product attention layer (Cui et al.,
arXiv:2402.03902).
"""

from theory.catalogue import catalogue
from theory.positional_semantic import (
    definitions,
    errors,
    extensions,
    free_entropy,
    linear,
    moments,
    stability,
    state_evolution,
)
from theory.positional_semantic.numbers import branches, fixed_point
from theory.positional_semantic.numbers.branches import curve, phase_diagram
from theory.positional_semantic.numbers.channel import State
from theory.positional_semantic.numbers.errors import test_error
from theory.positional_semantic.numbers.fixed_point import FixedPoint, solve
from theory.positional_semantic.numbers.linear import baseline
from theory.positional_semantic.numbers.thresholds import Thresholds
from theory.positional_semantic.onset import onset, thresholds
from theory.positional_semantic.parameters import Parameters
from theory.positional_semantic.predict import predict
from theory.positional_semantic.scope import applies

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
    "extensions",
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

# There is no flow: the theory describes minima of the loss as functions of the sample complexity
# alpha = n/d.
flows, sections, equations = catalogue(
    {
        "Definitions": [definitions],
        "Output channel": [moments],
        "Free entropy": [free_entropy, free_entropy.D_EQUATION],
        "State evolution": [state_evolution, state_evolution.NORM_EQUATION],
        "Stability": [stability],
        "Errors": [errors],
        "Linear baseline": [linear],
        "Extensions": [extensions],
    }
)
