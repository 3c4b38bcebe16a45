"""When a softmax head finds the key: students against the integral; and their balance."""

import numpy as np
import xarray as xr

from simulate.statement import of
from theory.associative_memory.retrieval import Parameters, emergence_time, equations, flows, stated
from verify.check import Check, sampled
from verify.rates import rates as fitted
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
SEEDS = (0, 1, 2)


def balance(p: Parameters, runs: xr.Dataset) -> np.ndarray:
    """Change of the balance over the integral of its rate along the same run. It would be conserved
    if every value were shown.
    """
    known = {x.name: getattr(p, x.name) for x in stated.symbols}
    known |= {name: runs[name].values for name in ("delta_K", "delta_V", "A")}
    known["u_unseen"] = equations()["retrieval_unseen"].evaluate(known)
    change = equations()["retrieval_balance"].evaluate(known)[..., -1]
    rate = equations()["retrieval_balance_rate"].evaluate(known)
    return change / np.trapezoid(rate, runs.t.values, axis=-1)


def balances(p: Parameters, progress: bool) -> list[Check]:
    """How that of descent approaches 1 with its step, and students of the same steps."""
    p = p.run_to(LONGER * emergence_time(p))

    def descent(eta: float) -> np.ndarray:
        path = flows()[stated.name].descend(p, eta, round(p.eta * p.steps / eta))
        return balance(p, path)

    what = f"change of the balance over its rate's integral, M = {p.M}, P = {p.P}"
    runs = of(stated).train(p, seeds=SEEDS, progress=progress)
    steps = [p.eta, p.eta / 2, p.eta / 4]
    name = "retrieval_balance_rate"
    return [
        fitted(1.0, descent, steps).check(f"power of the step in the {what}", name),
        sampled(f"{what}, descent and students", name, float(descent(p.eta)), balance(p, runs)),
    ]


def timescales(request: Request) -> Report:
    """All settings; a dozen students."""
    request.of_its_own()
    show = request.progress
    checks, notes = emergence(
        stated, GRID, "A", emergence_time, "retrieval_emergence", seeds=SEEDS, progress=show
    )
    return Report([*of_few_shown(), *checks, *balances(GRID[0], show)], notes)
