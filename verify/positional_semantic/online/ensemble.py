"""One-pass students of a few seeds."""

from simulate.positional_semantic.online import MEANING, SYSTEM
from theory.positional_semantic.online import Parameters
from verify.ensemble import Source

NEEDED = {x: ("seed", "t") for x in MEANING} | {"t": ("t",), "step": ("t",)}
SOURCE = Source(SYSTEM, Parameters(), "12", NEEDED)
