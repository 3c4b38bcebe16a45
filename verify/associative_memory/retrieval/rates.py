"""How the time of a softmax head approaches that of many keys and values."""

from theory.associative_memory.retrieval import Parameters, emergence_time, stated
from verify.check import Check
from verify.statement.emergence import approached

VALUES = (32, 64, 128, 256)


def of_few_shown() -> list[Check]:
    """The probability of values that are shown, P/M at the start, is left out."""
    settings = [Parameters(N=M, M=M, P=4) for M in VALUES]
    what = "A", emergence_time, "retrieval_emergence"
    return [approached(stated, settings, *what, lambda p: 1 / p.M)]


GROUPS = (of_few_shown,)
