"""Induction heads in the disentangled two-layer transformer (Musat et al., arXiv:2511.01033)."""

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
from theory.induction_heads.all_weights import burst, law, plateau, recent, scores
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
    law.predicted(4), law.predicted(4, "uniform"), descent.times(4)  # compiles
    rows, spent = [], {}
    ways: dict[str, Any] = {"flow": (descent.times, {}), "law": (law.predicted, {})}
    ways["flow, rtol 1e-7"] = (descent.times, {"rtol": 1e-7})
    for query in descent.QUERIES:
        for size in SIZES:
            drop = {}
            for way, (run, options) in ways.items():
                spent[way, query, size], times = measured(partial(run, size, query, **options))
                drop[way] = times["T_drop"]
            for way, other, tolerance in (("flow", "flow, rtol 1e-7", 1e-5), ("law", "law", AGREE)):
                error = float(abs(drop[other] / drop["flow"] - 1))
                bar = math.inf if way == "law" and size < SIZES[-1] else tolerance
                name = f"{way}, {query} q, N = {size}"
                rows.append(row(name, 1, spent[way, query, size], error, bar))
    return {
        "ratio": spent["flow", "last", SIZES[-1]] / spent["law", "last", SIZES[-1]],
        "agree": all(r["within"] for r in rows),
        "rows": rows,
        "note": "one point is one N with all its emergence times; error: of the flow, rtol 1e-9 against 1e-7; of the law, against the flow",
    }
