"""Positional against semantic learning in a solvable dot-product attention layer (Cui et al.,
arXiv:2402.03902).
"""

from __future__ import annotations

from theory.equation import Equation
from theory.flow import Flow
from theory.positional_semantic import (
    branches,
    definitions,
    errors,
    fixed_point,
    free_entropy,
    linear,
    moments,
    onset,
    state_evolution,
    thresholds,
)
from theory.positional_semantic.branches import curve, phase_diagram
from theory.positional_semantic.channel import State
from theory.positional_semantic.errors import test_error
from theory.positional_semantic.fixed_point import FixedPoint, solve
from theory.positional_semantic.linear import baseline
from theory.positional_semantic.parameters import Parameters
from theory.positional_semantic.predict import predict
from theory.positional_semantic.thresholds import Thresholds

__all__ = [
    "FixedPoint",
    "Parameters",
    "State",
    "Thresholds",
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


def flows() -> dict[str, Flow]:
    """None: the theory describes minima, with the sample complexity alpha = n/d in the place of a
    training time.
    """
    return {}


def sections() -> dict[str, list[Equation]]:
    """All equations, grouped as a write-up would."""
    return {
        "Definitions": [*definitions.equations().values()],
        "Output channel": [*moments.equations().values()],
        "Free entropy": [*free_entropy.equations().values(), free_entropy.D_EQUATION],
        "State evolution": [*state_evolution.equations().values(), state_evolution.NORM_EQUATION],
        "Errors": [*errors.equations().values()],
        "Linear baseline": [*linear.equations().values()],
    }


def equations() -> dict[str, Equation]:
    """All equations by name."""
    return {e.name: e for section in sections().values() for e in section}
