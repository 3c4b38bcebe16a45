"""Three descent steps on an induction head."""

from simulate.associative_memory.gradient_steps.steps import (
    InductionHead,
    Outcome,
    draw,
    gradient,
    run,
    test,
)
from theory.associative_memory.gradient_steps import Parameters

__all__ = ["InductionHead", "Outcome", "Parameters", "draw", "gradient", "run", "test"]
