"""Momentum and schedules: the clock of `theory.clocks` among the equations of this model."""

from dataclasses import replace
from functools import cache

from theory import Equation, clocks
from theory.state_tracking.symbols import ref


@cache
def equations() -> dict[str, Equation]:
    """Those of `theory.clocks`."""
    place = ref("beyond the paper: momentum as a filter of gradients")
    return {name: replace(e, reference=place) for name, e in clocks.equations().items()}
