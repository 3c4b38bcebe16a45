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
    return [
        approached(stated, settings, *what, lambda p: 1 / p.C, None, of)
        for *what, of in (
            ("attention", emergence_time, "iw_clock", 0.5),
            ("logit", solved_time, "iw_half", level),
        )
    ]


GROUPS = (of_race,)
