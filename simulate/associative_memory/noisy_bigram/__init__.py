"""One gradient step on noisy bigrams, and a model with both paths for ablation."""

from simulate.associative_memory.noisy_bigram.paths import SYSTEM, Learner, one_step, sample
from theory.associative_memory.noisy_bigram import Parameters

__all__ = ["Learner", "Parameters", "sample", "one_step", "train"]

train = SYSTEM.train
