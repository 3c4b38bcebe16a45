"""In-context linear regression by linear attention (Zhang et al., arXiv:2501.16265)."""

from __future__ import annotations

from linear_attention.theory import merged, separate
from linear_attention.theory.parameters import Parameters
from theory.equation import Equation
from theory.flow import Flow

__all__ = ["Parameters", "equations", "flows", "merged", "sections", "separate"]


def sections() -> dict[str, list[Equation]]:
    """All equations, grouped as a write-up would."""
    return merged.sections() | separate.sections()


def equations() -> dict[str, Equation]:
    """All equations by name."""
    return merged.equations() | separate.equations()


def flows() -> dict[str, Flow]:
    """The ODE systems of both."""
    return merged.flows() | separate.flows()
