"""One gradient step on noisy bigrams, and a model with both paths to ablate."""

from simulate.associative_memory.noisy_bigram.paths import SYSTEM, Learner, draw, one_step
from theory.associative_memory.noisy_bigram import Parameters

__all__ = ["Learner", "Parameters", "draw", "one_step", "train"]

train = SYSTEM.train
