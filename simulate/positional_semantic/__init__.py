"""Students of the positional-semantic task (Cui et al., arXiv:2402.03902)."""

from simulate.positional_semantic.gamp import gamp
from simulate.positional_semantic.linear import fit_linear
from simulate.positional_semantic.student import Problem, initial_weights
from simulate.positional_semantic.task import Data, draw
from simulate.positional_semantic.trainer import train
from theory.positional_semantic import Parameters

__all__ = ["Data", "Parameters", "Problem", "draw", "fit_linear", "gamp", "initial_weights", "train"]
