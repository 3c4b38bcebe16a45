"""Three gradient steps build an induction head (slides; Bietti et al. 2023)."""

from theory.associative_memory.gradient_steps import population
from theory.associative_memory.gradient_steps.numbers import second_gradient
from theory.associative_memory.gradient_steps.parameters import Parameters, applies
from theory.catalogue import catalogue

__all__ = ["Parameters", "applies", "equations", "flows", "second_gradient", "sections"]

# No dynamics: three steps.
flows, sections, equations = catalogue({"Three gradient steps: population gradients": [population]})
