"""Students of the state-tracking task (Forner et al., arXiv:2606.18164)."""

from simulate.state_tracking.learner import SYSTEM
from simulate.state_tracking.student import (
    GLUStudent,
    Student,
    teacher_weights,
    with_full_embedding,
)
from theory.state_tracking import Parameters

__all__ = [
    "SYSTEMS",
    "GLUStudent",
    "Parameters",
    "Student",
    "teacher_weights",
    "train",
    "with_full_embedding",
]

SYSTEMS = {"student": SYSTEM}
train = SYSTEM.train
