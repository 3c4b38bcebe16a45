"""How far theories that do not know a student's training set are from single students: fits to
`verify.state_tracking.domains`, plain descent over N, L, d_g, d_h and n_train.
"""

import numpy as np

from theory.state_tracking.parameters import Parameters

RANGES = {"N": (4, 40), "L": (2, 10), "d_g": (2, 32), "d_h": (8, 128), "n_train": (20, 30000)}
# Coefficients of 1 and of the logarithms of N, L - 1, d_g, d_h and n_train, by level: of the logit
# of the largest deviation of A; two of three settings are within a factor of SPREAD.
OFF = {
    "flow": (-1.16, -0.08, 1.52, -0.29, -0.1, -0.05),
    "own_start": (-0.96, -0.23, 2.05, -0.49, -0.16, -0.07),
    "dressed": (-0.88, -0.11, 1.41, -0.51, 0.09, -0.35),
    "cavity_ample_data": (-1.08, -0.05, 1.39, -0.48, 0.1, -0.35),
    "cavity": (-1.01, -0.06, 1.39, -0.49, 0.08, -0.35),
}
SPREAD = {"flow": 1.4, "own_start": 1.55, "dressed": 2.05, "cavity_ample_data": 2.1, "cavity": 2.1}
# The same of the logarithm of how much earlier than the flow single students reach A = 1/2.
EARLY = (4.8, -0.96, 0.34, -1.19, -0.58, -0.07)
EARLY_SPREAD = 1.4
# Share of students that do not reach it by 1.6 times the flow's time, below a number of sequences.
NEVER = {80: 0.125, 200: 0.05}


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


def earlier(p: Parameters) -> float:
    """Time of A = 1/2 of single students over that of the flow, geometric mean; about."""
    return float(np.exp(-np.exp(features(p) @ EARLY)))


def students_of_flow(p: Parameters) -> str:
    """When single students reach A = 1/2, in words."""
    never = [share for sequences, share in NEVER.items() if p.n_train < sequences]
    late = f"; with n_train = {p.n_train} about {never[0]:.0%} of them do not" if never else ""
    return (
        f"single students are off by about {off_by(p, 'flow'):.1g} in A and reach A = 1/2 at about "
        f"{earlier(p):.1g} of this time, two of three within a factor of {EARLY_SPREAD:g}{late}; "
        "predict(p, seeds=3) follows drawn students"
    )


def few(p: Parameters) -> bool:
    """Whether students have so few sequences or actions that the flow misses their mean, too."""
    return earlier(p) < 0.8 or p.n_train < max(NEVER)
