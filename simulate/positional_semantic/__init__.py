"""Students of the positional-semantic task (Cui et al., arXiv:2402.03902)."""

from simulate.positional_semantic import histogram, linear
from simulate.positional_semantic.gamp import gamp
from simulate.positional_semantic.learner import SYSTEM
from simulate.positional_semantic.linear import fit_linear
from simulate.positional_semantic.student import Data, Problem, initial_weights, sample
from theory.positional_semantic import Parameters

__all__ = [
    "SYSTEMS",
    "Data",
    "Parameters",
    "Problem",
    "sample",
    "fit_linear",
    "gamp",
    "initial_weights",
    "train",
]

SYSTEMS = {"attention": SYSTEM, "linear": linear.SYSTEM, "histogram": histogram.SYSTEM}
train = SYSTEM.train
