"""State tracking in a solvable one-block transformer (Forner, Kuehn, Thamm, Rosenow,
arXiv:2606.18164).
"""

from theory.dynamics.catalogue import catalogue
from theory.state_tracking import (
    attention,
    composite,
    dynamics,
    exact,
    inversion,
    late_time,
    rollout,
)
from theory.state_tracking.dynamics import flow, thermodynamic_limit
from theory.state_tracking.model import definitions, mean_field
from theory.state_tracking.model.mean_field import c_omega, initial_variance
from theory.state_tracking.model.parameters import Parameters
from theory.state_tracking.onset import equations as onset_equations
from theory.state_tracking.onset import onset
from theory.state_tracking.rollout import trajectory, with_accuracy
from theory.state_tracking.single_students import (
    cavity,
    dressed,
    fixed_disorder,
    per_seed,
)
from theory.state_tracking.single_students.levels import applies
from theory.state_tracking.single_students.predict import (
    drawn_times,
    emergence_times,
    predict,
)
from theory.symbols.special import gaussian_accuracy

__all__ = [
    "Parameters",
    "applies",
    "c_omega",
    "composite",
    "emergence_times",
    "equations",
    "flow",
    "flows",
    "gaussian_accuracy",
    "initial_variance",
    "inversion",
    "onset",
    "per_seed",
    "drawn_times",
    "predict",
    "sections",
    "thermodynamic_limit",
    "trajectory",
    "with_accuracy",
]

flows, sections, equations = catalogue(
    {
        "Definitions": [definitions],
        "Mean logits": [mean_field.logit_equations],
        "Mean-field loss": [mean_field],
        "Gradients of single entries": [mean_field.entry_equations],
        "Teacher overlaps": [definitions.overlap_equations],
        "Attention": [attention],
        "Order-parameter dynamics": [dynamics, flow],
        "Early time": [dynamics.early_equations],
        "Onset": [onset_equations],
        "Exact solution": [exact],
        "Constant attention and late time": [late_time],
        "Composite for all times": [composite],
        "Variance of the logits": [mean_field.variance_equations],
        "Dressed theory": [dressed],
        "Cavity equations": [cavity],
        "Fixed-disorder theory": [fixed_disorder],
        "Rollout accuracy": [rollout],
        "Momentum": [dynamics.momentum_equations],
    },
    flow,
    thermodynamic_limit,
)
