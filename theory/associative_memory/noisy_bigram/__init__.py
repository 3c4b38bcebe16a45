"""Noisy bigrams: the global association is learned long before the in-context one (slides; Chen et
al. 2024).
"""

from theory.associative_memory.noisy_bigram import samples
from theory.associative_memory.noisy_bigram.numbers import feed_forward_success, value_recovered
from theory.associative_memory.noisy_bigram.parameters import Parameters, applies
from theory.catalogue import catalogue

__all__ = [
    "Parameters",
    "applies",
    "equations",
    "feed_forward_success",
    "flows",
    "sections",
    "value_recovered",
]

# No dynamics: one step.
flows, sections, equations = catalogue({"Noisy bigrams: samples needed": [samples]})
