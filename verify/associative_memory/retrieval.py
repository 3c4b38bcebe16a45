"""When a softmax head finds the key: students against the integral; and their balance."""

from typing import Any

import numpy as np

from simulate.statement import of
from theory.associative_memory.retrieval import Parameters, emergence_time, equations, stated
from verify.check import Band, Check, sampled
from verify.report import Report, Request
from verify.statement.emergence import LONGER, approached, emergence

# How the time of a softmax head approaches that of many keys and values

VALUES = (32, 64, 128, 256)


def of_few_shown() -> list[Check]:
    """The probability of values that are shown, P/M at the start, is left out."""
    settings = [Parameters(N=M, M=M, P=4) for M in VALUES]
    what = "A", emergence_time, "retrieval_emergence"
    return [approached(stated, settings, *what, lambda p: 1 / p.M)]


rates = (of_few_shown,)


# When a softmax head finds the key

GRID = tuple(
    Parameters(N=N, M=M, P=P, eta=0.5, eval_every=2)
    for N, M, P in ((32, 32, 4), (16, 32, 4), (32, 24, 4), (32, 32, 8))
)
STEPS = Band(-0.02, 0.02, "steps of length eta = 0.5: 2% is allowed")
SEEDS = (0, 1, 2)


def balance(p: Parameters, progress: bool) -> Check:
    """Change of the balance in students, over the integral of its rate along the same run. It would
    be conserved if every value were shown.
    """
    runs = of(stated).train(p.run_to(LONGER * emergence_time(p)), seeds=SEEDS, progress=progress)
    known: dict[str, Any] = {x.name: getattr(p, x.name) for x in stated.symbols}
    known |= {name: runs[name].values for name in ("delta_K", "delta_V", "A")}
    known["u_unseen"] = equations()["retrieval_unseen"].evaluate(known)
    change = equations()["retrieval_balance"].evaluate(known)[:, -1]
    rate = equations()["retrieval_balance_rate"].evaluate(known)
    what = f"change of the balance over its rate's integral, students, M = {p.M}, P = {p.P}"
    share = change / np.trapezoid(rate, runs.t.values, axis=1)
    return sampled(what, "retrieval_balance_rate", 1.0, share, band=STEPS)


def timescales(request: Request) -> Report:
    """All settings; a dozen students."""
    request.of_its_own()
    show = request.progress
    checks, notes = emergence(
        stated, GRID, "A", emergence_time, "retrieval_emergence", seeds=SEEDS, progress=show
    )
    return Report([*of_few_shown(), *checks, balance(GRID[0], show)], notes)
