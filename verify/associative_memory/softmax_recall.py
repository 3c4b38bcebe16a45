"""When relation and subject are found: students against the integral, and against the flow."""

from typing import Any

import numpy as np

from simulate.statement import of
from theory.associative_memory.softmax_recall import Parameters, emergence_time, flows, stated
from verify.check import Band, Check, sampled
from verify.report import Report, Request, merged
from verify.statement.emergence import LONGER, approached, emergence

# How the time of the relation approaches that of many tokens

TOKENS = (64, 128, 256, 512, 1024)


def of_others() -> list[Check]:
    """Subject and end token, one in T tokens each, are taken to stay; subjects are as many."""
    settings = [Parameters(S=T, R=4, D=4, T=T, n=16) for T in TOKENS]
    what = "a_r", emergence_time, "softmax_recall_emergence"
    return [approached(stated, settings, *what, lambda p: 1 / p.T)]


rates = (of_others,)


# When relation and subject are found

GRID = tuple(
    Parameters(S=S, R=R, D=D, T=T, n=n, eta=0.5, eval_every=4)
    for S, R, D, T, n in ((16, 4, 4, 16, 16), (32, 4, 4, 16, 16), (16, 4, 8, 16, 16))
)
SMALL = Parameters(S=8, R=4, D=4, T=8, n=16, eval_every=4)  # whose subject is found soon
LEFT = Band(0, 0.02, "attention beside the relation adds; no order: it depends on all sizes")
SEEDS = (0, 1, 2)


def subject(p: Any) -> float:
    """Time at which attention to the subject is 1/2, by the flow."""
    flow = flows()[stated.name]
    event = {"time": flow.observables["a_s"] - 0.5}
    return float(flow.solve(p, at=[0.0], t=1e4, events=event)["time"])


def plateau(progress: bool) -> Check:
    """Loss of students where the flow is slowest, between relation and subject."""
    p = SMALL.run_to(LONGER * subject(SMALL))
    runs = of(stated).train(p, seeds=SEEDS, progress=progress)
    curve = flows()[stated.name].solve(p, at=runs.t.values, t=float(runs.t[-1]))
    slope = np.gradient(curve.loss.values, curve.t.values)
    between = (curve.a_r.values > 0.5) & (curve.a_s.values < 0.5)
    there = runs.loss.values[:, int(np.argmax(np.where(between, slope, -np.inf)))]
    level = float(np.log(p.D))
    return sampled("loss on the plateau, students", "softmax_recall_split", level, there, band=LEFT)


def timescales(request: Request) -> Report:
    """Relation at three settings, subject and plateau at one; a dozen students."""
    request.of_its_own()
    show, name = request.progress, "softmax_recall_emergence"
    relation = emergence(stated, GRID, "a_r", emergence_time, name, progress=show)
    late = emergence(stated, [SMALL], "a_s", subject, "flow", progress=show)
    return merged([Report(*relation), Report(*late), Report([*of_others(), plateau(show)])])
