"""Ensemble for the checks: a given file, or students of the demo preset, trained once."""

from simulate.induction_heads.learner import DISENTANGLED, MEANING
from theory.induction_heads import Parameters
from theory.induction_heads.structure import HEAD
from verify.ensemble import Source

NEEDED = {
    "t": ("t",),
    "step": ("t",),
    "pseudo": ("seed", "t", "parameter"),
    **{x: ("seed", "t") for x in (*MEANING, *HEAD) if x != "pseudo"},
}
SOURCE = Source(DISENTANGLED, Parameters.demo(), "48", NEEDED)
