"""Students of the fact-lookup task: linear attention trained by stochastic gradient descent."""

from simulate.associative_memory.factual_recall.student import SYSTEM, LinearAttention
from theory.associative_memory.factual_recall import Parameters

__all__ = ["LinearAttention", "Parameters", "train"]

train = SYSTEM.train
