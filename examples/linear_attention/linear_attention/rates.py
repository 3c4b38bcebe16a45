"""How descent in steps approaches the delay that a step adds in theory."""

from linear_attention.laws import steps
from linear_attention.theory import equations
from verify.checks.check import Check


def of_steps() -> list[Check]:
    """Merged and separate key and query."""
    return [*steps(equations())]


GROUPS = (of_steps,)
