"""What the best level of the ladder is off by at Table 1, seed by seed, as `python -m
verify.fidelity --json` gives it: running it takes minutes.
"""

import numpy as np

from verify.state_tracking.fidelity import Fidelity

BEST = {
    "half_time": [-0.0043068, 0.00036811, 0.0046369, -0.0016153, 0.0050987],
    "rollout_half_time": [0.0030237, -0.007158, 0.008325, 0.0077154, -0.0052156],
    "A": [0.0091954, 0.010594, 0.017161, 0.0085667, 0.015672],
    "loss": [0.0046586, 0.010664, 0.013906, 0.0067426, 0.012185],
    "rollout_accuracy": [0.060096, 0.08028, 0.055811, 0.086752, 0.081745],
    "variance_other": [0.0054545, 0.0053556, 0.00894, 0.0065706, 0.0064775],
    "variance_correct": [0.0093418, 0.0033457, 0.009523, 0.0069779, 0.01063],
    "at_equal_A": [0.011565, 0.012576, 0.00773, 0.0042851, 0.019673],
}
INSIDE, PAIRED = 0.78182, 0.63636


def best() -> Fidelity:
    """The level as if it had been run."""
    return Fidelity({name: np.array(x) for name, x in BEST.items()}, INSIDE, PAIRED)
