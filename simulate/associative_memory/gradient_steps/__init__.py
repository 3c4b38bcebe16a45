"""Three gradient steps that build an induction head."""

from simulate.associative_memory.gradient_steps.steps import (
    InductionHead,
    Outcome,
    gradient,
    run,
    sample,
    test,
)
from theory.associative_memory.gradient_steps import Parameters

__all__ = ["InductionHead", "Outcome", "Parameters", "sample", "gradient", "run", "test"]
