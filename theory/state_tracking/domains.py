"""How far theories that do not know a student's training set are from single students: fits to
`verify.state_tracking.domains`, plain descent over N, L, d_g, d_h and n_train.
"""

import numpy as np

from theory.state_tracking.parameters import Parameters

RANGES = {"N": (4, 40), "L": (2, 10), "d_g": (2, 32), "d_h": (8, 128), "n_train": (20, 30000)}
# Coefficients of 1 and of the logarithms of N, L - 1, d_g, d_h and n_train, by level: of the logit
# of the largest deviation of A; two of three settings are within a factor of SPREAD.
OFF = {
    "flow": (-1.41, -0.05, 1.62, -0.27, -0.11, -0.05),
    "own_start": (-1.62, -0.2, 2.37, -0.47, -0.16, -0.06),
    "dressed": (-1.62, -0.04, 1.76, -0.48, 0.07, -0.34),
    "cavity_ample_data": (-1.75, 0.01, 1.75, -0.46, 0.07, -0.34),
    "cavity": (-1.75, 0.01, 1.75, -0.46, 0.07, -0.34),
}
SPREAD = {"flow": 1.4, "own_start": 1.7, "dressed": 2.3, "cavity_ample_data": 2.3, "cavity": 2.3}
# The same for the logarithm of a student's time of A = 1/2 over that of the flow.
TIME = (-1.63, 0.2, -0.19, 0.24, 0.14, 0.01)
TIME_SPREAD = 1.4


def features(p: Parameters) -> np.ndarray:
    """What the fits multiply: sizes outside the ranges of the map count as its ends."""
    sizes = [np.clip(getattr(p, name), *ends) - (name == "L") for name, ends in RANGES.items()]
    return np.array([1, *np.log(sizes)])


def off_by(p: Parameters, level: str) -> float:
    """Largest deviation of A from single students, mean over these; about, see `SPREAD`."""
    return float(1 / (1 + np.exp(-features(p) @ OFF[level])))


def note(p: Parameters, level: str) -> str:
    """The deviation in words."""
    return (
        f"level = {level!r}: A of single students is off by about {off_by(p, level):.1g}, within a "
        f"factor of {SPREAD[level]:g}; level = 'fixed_disorder' follows their training sets"
    )


def time_note(p: Parameters) -> str:
    """When single students reach A = 1/2, in words."""
    return (
        f"one curve for all seeds: single students are off by about {off_by(p, 'flow'):.1g} in A and "
        f"reach A = 1/2 at about {np.exp(features(p) @ TIME):.1f} alpha_half, two of three within a "
        f"factor of {TIME_SPREAD:g}; predict(p, seeds=3) follows drawn students"
    )
