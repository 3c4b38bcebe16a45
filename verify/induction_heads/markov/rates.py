"""How the time of unigrams approaches that of even attention."""

from theory.induction_heads.markov import Parameters, stated, unigram_time
from verify.check import Check
from verify.statement.emergence import approached

LAGS = (32, 64, 128, 256)


def of_unigrams() -> list[Check]:
    """Attention, left out, moves the read-out in second order of its scores, which are of order
    1/D.
    """
    settings, what = [Parameters(D=D) for D in LAGS], ("unigrams", unigram_time, "markov_unigram")
    return [approached(stated, settings, *what, lambda p: 1 / p.D, 2)]


GROUPS = (of_unigrams,)
