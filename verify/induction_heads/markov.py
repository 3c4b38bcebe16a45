"""Unigrams, plateau, bigrams: formulas, flow, students of the statement, and two layers that are
shown sequences.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from simulate.induction_heads import contexts
from simulate.statement import of
from theory.induction_heads.markov import (
    Parameters,
    emergence_time,
    flows,
    plateau_length,
    stated,
    unigram_time,
)
from verify.check import Band, Check, identity, listed, sampled
from verify.emergence import first_crossing
from verify.report import Report, Request
from verify.statement.emergence import LONGER, approached, emergence, setting

# How the time of unigrams approaches that of even attention

LAGS = (32, 64, 128, 256)


def of_unigrams() -> list[Check]:
    """Attention, left out, moves the read-out in second order of its scores, which are of order
    1/D.
    """
    settings = [Parameters(D=D) for D in LAGS]
    what = ("unigrams", unigram_time, "markov_unigram")
    return [approached(stated, settings, *what, lambda p: 1 / p.D, 2)]


rates = (of_unigrams,)


# Unigrams, plateau, bigrams

COMMON = Parameters()
GRID = (COMMON, *(COMMON.replace(**x) for x in ({"U": 1000}, {"rho": 0.5}, {"k": 24, "m": 6})))
SEQUENCES = COMMON.replace(D=16, batch_size=32, eta=1.0)
LENGTH, GAP = 4096, 20  # tokens of a sequence; between lags, rho^20 = 1%
SEEDS = (0, 1, 2, 3)
NEXT = Band(
    -0.02, 0.02, "many lags, symbols, states, and steps; no order: each leaves out another power"
)
FINITE = "counts of finite sequences: -0.5% to +4% at 256 tokens, falling; 2% is allowed"


@listed
def plateaus(settings: Sequence[Any], progress: bool) -> Iterator[Check]:
    """Length of the plateau in students that were trained for the times of bigrams."""
    for p in settings:
        runs = of(stated).train(
            p.run_to(LONGER * emergence_time(p)), seeds=SEEDS, progress=progress
        )
        ends, begins = (
            first_crossing(runs[name], 0.5).values for name in ("attention_first", "unigrams")
        )
        name = f"length of the plateau, students, {setting(stated, p)}"
        yield sampled(name, "markov_unigram", plateau_length(p), ends - begins, band=NEXT)


def transformer(p: Any) -> Check:
    """Time of bigrams of a transformer on sequences, compared with descent on the flow with the
    same steps.
    """
    p = p.run_to(LONGER * emergence_time(p))
    runs = contexts.chain_descent(p, LENGTH, GAP, 0).expand_dims("seed")
    slow = flows()[stated.name].descend(p, p.eta, p.steps).expand_dims("seed")
    there, told = (first_crossing(x.attention_first, 0.5).values[0] for x in (runs, slow))
    name = f"time of attention_first = 0.5 on sequences of {LENGTH} tokens"
    return identity(name, "flow", told, there, NEXT.high, FINITE)


def timescales(request: Request) -> Report:
    """All settings; 28 students, and one on sequences."""
    request.of_its_own()
    show = request.progress
    given: dict[str, Any] = dict(seeds=SEEDS, progress=show)
    late = emergence(stated, GRID, "attention_first", emergence_time, "markov_time", NEXT, **given)
    apart = [p for p in GRID if p.U == 1]
    early = emergence(stated, apart, "unigrams", unigram_time, "markov_unigram", **given)
    checks = [*late[0], *of_unigrams(), *early[0], *plateaus(apart, show), transformer(SEQUENCES)]
    return Report(checks, [*late[1], *early[1]])
