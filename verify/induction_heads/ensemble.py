"""Ensemble for the checks: a given file,
or students of the demo preset, trained once.
"""

from simulate.induction_heads.learner import DISENTANGLED
from theory.induction_heads import Parameters
from theory.induction_heads.structure import HEAD
from verify.checks.ensemble_source import of_system

SOURCE = of_system(DISENTANGLED, Parameters.demo(), "48", HEAD)
