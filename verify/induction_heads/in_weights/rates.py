"""The times of head and memory are exact: there is no difference to the flow."""

import numpy as np

from theory.induction_heads.in_weights import Parameters, emergence_time, solved_time, stated
from verify.check import Check
from verify.statement.emergence import approached

ITEMS = (64, 256, 1024)


def of_race() -> list[Check]:
    """Whatever the number of items."""
    settings = [Parameters(C=C) for C in ITEMS]
    level = float(np.log(settings[0].L + 1))
    half, solved = ("attention", emergence_time, "iw_clock"), ("logit", solved_time, "iw_half")
    return [
        approached(stated, settings, *half, lambda p: 1 / p.C, None),
        approached(stated, settings, *solved, lambda p: 1 / p.C, None, level),
    ]


GROUPS = (of_race,)
