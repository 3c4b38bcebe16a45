"""How the time of the relation approaches that of many tokens."""

from theory.associative_memory.softmax_recall import Parameters, emergence_time, stated
from verify.check import Check
from verify.statement.emergence import approached

TOKENS = (64, 128, 256, 512, 1024)


def of_others() -> list[Check]:
    """Subject and end token, one in T tokens each, are taken to stay; subjects are as many."""
    settings = [Parameters(S=T, R=4, D=4, T=T, n=16) for T in TOKENS]
    what = "a_r", emergence_time, "softmax_recall_emergence"
    return [approached(stated, settings, *what, lambda p: 1 / p.T)]


GROUPS = (of_others,)
