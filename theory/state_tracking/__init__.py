"""State tracking in a solvable one-block transformer (Forner, Kuehn, Thamm, Rosenow,
arXiv:2606.18164).
"""

from __future__ import annotations

from theory.catalogue import catalogue
from theory.special import gaussian_accuracy
from theory.state_tracking import (
    attention,
    cavity,
    composite,
    definitions,
    dressed,
    dynamics,
    early_time,
    exact,
    fixed_disorder,
    late_time,
    logits,
    loss,
    micro,
    onset,
    overlaps,
    rollout,
    variance,
)
from theory.state_tracking.attention import c_omega
from theory.state_tracking.dynamics import flow, thermodynamic_limit
from theory.state_tracking.numbers import inversion, per_seed
from theory.state_tracking.numbers.quadrature import emergence_time
from theory.state_tracking.numbers.rollout import trajectory, with_accuracy
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.predict import predict
from theory.state_tracking.scope import applies
from theory.state_tracking.variance import initial_variance

__all__ = [
    "Parameters",
    "applies",
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

flows, sections, equations = catalogue(
    {
        "Definitions": [definitions],
        "Mean logits": [logits],
        "Mean-field loss": [loss],
        "Gradients of single entries": [micro],
        "Teacher overlaps": [overlaps],
        "Attention": [attention],
        "Order-parameter dynamics": [dynamics, flow],
        "Early time": [early_time],
        "Onset": [onset],
        "Exact solution": [exact],
        "Constant attention and late time": [late_time],
        "Composite for all times": [composite],
        "Variance of the logits": [variance],
        "Dressed theory": [dressed],
        "Cavity equations": [cavity],
        "Fixed-disorder theory": [fixed_disorder],
        "Rollout accuracy": [rollout],
    },
    flow,
    thermodynamic_limit,
)
