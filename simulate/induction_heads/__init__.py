"""Students of the induction-head task (Musat et al., arXiv:2511.01033)."""

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

SYSTEMS = {
    **learner.SYSTEMS,
    "standard": standard.SYSTEM,
    **{x.stated.name: of(x.stated).SYSTEMS["student"] for x in (bursty,)},
}
train = learner.DISENTANGLED.train
