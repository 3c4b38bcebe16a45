"""How far each level of theory is off, as measured on the ensembles that come with the code.

Numbers are (measured - predicted) over the largest predicted size, seed by seed from each seed's
own start: mean over the 20 seeds of the demo's setting with 3.5 standard errors to either side, and
the hull of the same over all four settings (``tests/verify/test_bands.py`` measures them again).
"""

from __future__ import annotations

from theory.state_tracking import Parameters
from verify.check import Band

CLOSURE = "closure c(A)"
NEGLECTED = "closure c(A); logit variance neglected"
FROZEN = "closure c(A); Gaussian logits with the variance of time 0"
GAUSSIAN = "Gaussian logits"
UNKNOWN = "not known why"
CAVITY = "columns of M taken as independent noise to each other"
HIGHER = "moments beyond the second, entries of M taken as one Gaussian"
# variable: (low, high) at the demo's setting, (low, high) over four settings, why
PAPER = {
    "A": ((0.17, 0.45), (-0.22, 0.45), CLOSURE),
    "R": ((0.060, 0.099), (-0.053, 0.099), CLOSURE),
    "S": ((-0.42, -0.23), (-0.49, 0.35), NEGLECTED),
    "loss": ((-0.094, -0.032), (-0.094, 0.12), NEGLECTED),
    "logit_correct": ((0.069, 0.142), (-0.068, 0.142), CLOSURE),
    "logit_other": ((-0.134, -0.066), (-0.134, 0.066), CLOSURE),
    "accuracy": ((-0.21, -0.072), (-0.70, -0.072), FROZEN),
    "rollout_accuracy": ((-0.58, -0.20), (-1.01, -0.20), FROZEN),
}
# Of `predict`, with accuracies at one evaluation in six (`trajectories.EVERY`).
OURS = {
    "A": ((-0.013, 0.064), (-0.013, 0.064), CAVITY),
    "R": ((-0.0045, 0.0004), (-0.0045, 0.0075), CAVITY),
    "S": ((-0.35, -0.12), (-0.52, 0.24), UNKNOWN),
    "loss": ((-0.0151, -0.0025), (-0.0151, 0.0023), CAVITY),
    "logit_correct": ((0.0040, 0.0136), (-0.0025, 0.0136), CAVITY),
    "logit_other": ((-0.0161, -0.0037), (-0.0161, 0.0053), CAVITY),
    "accuracy": ((-0.036, 0.000), (-0.038, 0.027), CAVITY),
    "rollout_accuracy": ((-0.048, 0.013), (-0.13, 0.09), CAVITY),
}
# Largest deviation of the rollout accuracy of a seed from Eqs. (17)-(18) with its own measured
# means and variances.
MOMENTS = {"rollout": ((0.21, 0.30), (0.21, 0.60), "Gaussian logits, one accuracy for all steps")}
# Emergence times, measured / predicted - 1.
PAPER_TIMES = {
    "A": ((-0.25, -0.14), (-0.25, 0.10), CLOSURE),
    "rollout_accuracy": ((0.124, 0.191), (0.124, 0.65), FROZEN),
}
NOISY_TIMES = {
    "A": ((-0.026, 0.008), (-0.036, 0.011), HIGHER),
    "rollout_accuracy": ((-0.080, -0.054), (-0.15, -0.054), GAUSSIAN),
}


def bands(table: dict[str, tuple], p: Parameters) -> dict[str, Band]:
    """The bands of one level of theory for some parameters: the demo's own, or the hull over all
    settings.
    """
    demo = Parameters.demo().replace(epochs=p.epochs, eval_every=p.eval_every, n_test=p.n_test)
    return {
        name: Band(low, high, why)
        for name, (here, anywhere, why) in table.items()
        for low, high in [here if p == demo else anywhere]
    }
