"""In-context Markov chains: the unigram solution, the plateau, the bigram solution (Edelman et al.,
arXiv:2402.11004); derived from a statement (`theory.statement`).
"""

from theory.induction_heads.markov import emergence
from theory.induction_heads.markov.numbers import (
    TIMES,
    applies,
    emergence_time,
    plateau_length,
    unigram_time,
)
from theory.induction_heads.markov.statement import stated
from theory.statement.model import served

__all__ = [
    "Parameters",
    "applies",
    "derived",
    "emergence_time",
    "emergence_times",
    "equations",
    "flow",
    "flows",
    "onset",
    "plateau_length",
    "predict",
    "sections",
    "stated",
    "unigram_time",
]

Parameters, derived, flow, flows, sections, equations, onset, emergence_times, predict = served(
    stated, {"In-context Markov chains: plateau": [emergence]}, TIMES
)
