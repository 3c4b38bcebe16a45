"""Induction heads in the disentangled two-layer transformer (Musat et al., arXiv:2511.01033)."""

import time
from typing import Any

from theory.catalogue import catalogue
from theory.induction_heads import (
    drop,
    dynamics,
    emergence,
    expansions,
    gaussian,
    network,
    structure,
)
from theory.induction_heads.all_weights import burst, descent, law, plateau, recent, scores
from theory.induction_heads.dynamics import flow
from theory.induction_heads.onset import emergence_times, onset, predict
from theory.induction_heads.parameters import Parameters, applies

__all__ = [
    "Parameters",
    "applies",
    "drop",
    "emergence",
    "emergence_times",
    "equations",
    "flow",
    "flows",
    "onset",
    "predict",
    "sections",
    "structure",
]

flows, sections, equations = catalogue(
    {
        "Definitions": [structure.definitions],
        "Which weights can leave zero": [structure],
        "Attention and loss for any queried pair": [network.attention_equations],
        "Three parameters: loss, gradient, invariant": [dynamics],
        "Flow": [flow],
        "Emergence times": [expansions],
        "Drop of the loss": [drop],
        "Uniform query": [dynamics.query_equations],
        "All weights": [scores, scores.loss_equations],
        "All weights: plateau and law": [plateau, law],
        "All weights: a burst of right pairs": [burst, burst.burst_loss_equations],
        "All weights: a recent right pair": [recent],
        "Gaussian data": [gaussian],
    },
    flow,
    plateau.flow,
)


# Benchmark of emergence times with all weights trained

SIZES = (64, 1000)
AGREE = 2e-2  # law against flow at the larger size; its error is of order ln N / N


def benchmark() -> dict[str, Any]:
    """Run the benchmark.

    Returns
    -------
    dict
        ``rows`` (way, points, seconds, microseconds per point, relative difference in T_drop from
        the flow of all weights at rtol 1e-9), ``ratio`` of seconds at the largest size, flow over
        law, ``agree``, ``note``.
    """
    rows, spent = [], {}
    law.predicted(4), law.predicted(4, "uniform"), descent.times(4)  # compiles
    for query in descent.QUERIES:
        for size in SIZES:
            loose, seconds = {}, {}
            for way, run in (
                ("flow", descent.times),
                ("law", law.predicted),
                ("flow, rtol 1e-7", descent.times),
            ):
                started = time.perf_counter()
                loose[way] = run(size, query, rtol=1e-7 if way.endswith("7") else descent.RTOL)[
                    "T_drop"
                ]
                seconds[way] = time.perf_counter() - started
            spent[query, size] = seconds
            for way, tolerance in (("flow, rtol 1e-7", 1e-5), ("law", AGREE)):
                error = abs(loose[way] / loose["flow"] - 1)
                taken = seconds["flow" if way.startswith("flow") else way]
                rows.append(
                    {
                        "way": f"{way.split(',')[0]}, {query} q, N = {size}",
                        "points": 1,
                        "seconds": taken,
                        "microseconds_per_point": 1e6 * taken,
                        "error": error,
                        "within": bool(error < tolerance) or (way == "law" and size < SIZES[-1]),
                    }
                )
    last = spent["last", SIZES[-1]]
    return {
        "ratio": last["flow"] / last["law"],
        "agree": all(r["within"] for r in rows),
        "rows": rows,
        "note": "one point is one N with all its emergence times; error: of the flow, rtol 1e-9 against 1e-7; of the law, against the flow",
    }
