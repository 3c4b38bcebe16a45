"""How the time of a head on a burst approaches that at large N."""

from theory.induction_heads.bursty import Parameters, emergence_time, stated
from verify.check import Check
from verify.statement.emergence import approached

SIZES = (64, 128, 256, 512)


def of_bursts() -> list[Check]:
    """What the second layer sees is of order B/N, and left out."""
    return [
        approached(
            stated,
            [Parameters(N=B * N, B=B) for N in SIZES],
            "alpha",
            emergence_time,
            "burst_time",
            lambda p: 1 / p.N,
        )
        for B in (1, 2)
    ]


GROUPS = (of_bursts,)
