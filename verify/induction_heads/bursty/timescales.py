"""T(N, B): flow, students of the statement, and disentangled transformers on such sequences, of
three numbers or of all weights.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from simulate.induction_heads import contexts as students
from simulate.induction_heads import train
from theory import induction_heads as ih
from theory.induction_heads.bursty import Parameters, contexts, emergence_time, stated
from verify.check import Check, identity, listed
from verify.emergence import first_crossing
from verify.induction_heads.bursty import every_weight, rates
from verify.report import Report, Request
from verify.statement.emergence import emergence

GRID = tuple(Parameters(N=N, B=B) for N, B in ((16, 1), (16, 2), (32, 4), (64, 4)))
NEXT = 0.02, "next order in B/N, as verify.rates measures it, and steps: 2% is allowed"
STEP = 0.25  # of the transformers, in the flow's time


@listed
def transformers(settings: Sequence[Parameters], **more: Any) -> Iterator[Check]:
    """Three numbers in a transformer that is shown sequences; the loss does not depend on them."""
    for p in settings:
        time = emergence_time(p)
        shown = ih.Parameters(
            N=p.N,
            B=p.B,
            trained="three",
            data="orthonormal",
            query="last",
            loss="sum",
            eta=STEP,
            batch_size=1,
            steps=int(1.2 * time / STEP),
            eval_every=1,
        )
        runs = train(shown, seeds=[0], dtype="float64", **more)
        there = float(first_crossing(runs.alpha, 0.5).values[0])
        what = f"time of alpha = 0.5, transformer, N = {p.N}, B = {p.B}"
        yield identity(what, "burst_time", time, there, *NEXT)


@listed
def mixtures() -> Iterator[Check]:
    """One head on contexts that differ: the flow of the mean loss, in a transformer."""
    for what, N, right, chances, step in (
        ("B = 1 or 2", 16, contexts.bursts(16, [1, 2]), contexts.zipf(2, 1.0), 0.5),
        ("B = 1 to 4", 32, contexts.bursts(32, [1, 2, 3, 4]), contexts.zipf(4, 2.0), 1.0),
        ("last quarter", 32, contexts.spread(32, 2, 0.25, 8), np.full(8, 1 / 8), 1.0),
        ("last half", 32, contexts.spread(32, 2, 0.5, 8), np.full(8, 1 / 8), 1.0),
    ):
        time = contexts.Mixture(right, chances).time()
        p = ih.Parameters(
            N=N,
            steps=int(1.2 * time / step),
            trained="three",
            data="orthonormal",
            query="last",
            batch_size=1,
        )
        runs = students.descent(p, right, chances, 0, step)
        there = float(first_crossing(runs.alpha.expand_dims("seed"), 0.5).values[0])
        label = f"time of alpha = 0.5, mixture of contexts, N = {N}, {what}"
        yield identity(label, "burst_time", time, there, *NEXT)


def report(request: Request) -> Report:
    """All settings; all weights are trained with ``--full``."""
    request.of_its_own()
    show = request.progress
    checks, notes = emergence(
        stated, GRID, "alpha", emergence_time, "burst_time", seeds=(0, 1), progress=show
    )
    checks += [*rates.of_bursts(), *transformers(GRID, **request.training), *mixtures()]
    rows, more = every_weight.everything(full=request.full, **request.training)
    return Report([*checks, *rows], [*notes, *more])
