"""State tracking in a solvable one-block transformer (Forner, Kuehn, Thamm, Rosenow,
arXiv:2606.18164).
"""

from __future__ import annotations

from theory.equation import Equation
from theory.flow import Flow
from theory.state_tracking import (
    attention,
    columns,
    composite,
    definitions,
    dressed,
    dynamics,
    early_time,
    exact,
    inversion,
    late_time,
    logits,
    loss,
    micro,
    onset,
    overlaps,
    per_seed,
    rollout,
    variance,
)
from theory.state_tracking.attention import c_omega
from theory.state_tracking.dynamics import flow, thermodynamic_limit
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.predict import predict
from theory.state_tracking.quadrature import emergence_time
from theory.state_tracking.rollout import gaussian_accuracy, trajectory, with_accuracy
from theory.state_tracking.variance import initial_variance

__all__ = [
    "Parameters",
    "c_omega",
    "composite",
    "emergence_time",
    "equations",
    "flow",
    "flows",
    "gaussian_accuracy",
    "initial_variance",
    "inversion",
    "onset",
    "per_seed",
    "predict",
    "sections",
    "thermodynamic_limit",
    "trajectory",
    "with_accuracy",
]


def flows() -> dict[str, Flow]:
    """The model's ODE systems by name."""
    return {f.name: f for f in (flow(), thermodynamic_limit())}


def sections() -> dict[str, list[Equation]]:
    """All equations, grouped as a write-up would."""
    return {
        "Definitions": [*definitions.equations().values()],
        "Mean logits": [*logits.equations().values()],
        "Mean-field loss": [*loss.equations().values()],
        "Gradients of single entries": [*micro.equations().values()],
        "Teacher overlaps": [*overlaps.equations().values()],
        "Attention": [*attention.equations().values()],
        "Order-parameter dynamics": [*dynamics.equations().values(), *flow().equations().values()],
        "Early time": [*early_time.equations().values()],
        "Onset": [*onset.equations().values()],
        "Exact solution": [*exact.equations().values()],
        "Constant attention and late time": [*late_time.equations().values()],
        "Composite for all times": [*composite.equations().values()],
        "Variance of the logits": [*variance.equations().values()],
        "Dressed theory": [*dressed.equations().values()],
        "Column statistics": [*columns.equations().values()],
        "Rollout accuracy": [*rollout.equations().values()],
    }


def equations() -> dict[str, Equation]:
    """All equations by name."""
    return {e.name: e for section in sections().values() for e in section}
