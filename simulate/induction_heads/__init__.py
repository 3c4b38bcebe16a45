"""Students of the induction-head task (Musat et al., arXiv:2511.01033)."""

from dataclasses import replace

from simulate.induction_heads import learner, standard
from simulate.induction_heads.standard import Transformer
from simulate.induction_heads.student import (
    Constrained,
    Student,
    assemble,
    project,
    residual,
)
from simulate.statement import of
from simulate.training.plan import FEW_STEPS
from theory.induction_heads import Parameters, bursty
from theory.induction_heads.parameters import StandardParameters

__all__ = [
    "SYSTEMS",
    "Constrained",
    "Parameters",
    "StandardParameters",
    "Student",
    "Transformer",
    "assemble",
    "project",
    "residual",
    "standard",
    "train",
]

BURSTY = replace(
    of(bursty.stated).SYSTEMS["student"], tiny={"": dict(N=6, B=2, **FEW_STEPS)}
)
SYSTEMS = {**learner.SYSTEMS, "standard": standard.SYSTEM, bursty.stated.name: BURSTY}
train = learner.DISENTANGLED.train
