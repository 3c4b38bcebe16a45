"""Benchmark of emergence times with all weights trained: full flow, O(N) per step, and asymptotic
law, O(1) per step.
"""

import time
from typing import Any

from theory.induction_heads.numbers import all_weights as times
from theory.induction_heads.numbers import leading_order

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
    leading_order.predicted(4), leading_order.predicted(4, "uniform"), times.times(4)  # compiles
    for query in times.QUERIES:
        for size in SIZES:
            loose, seconds = {}, {}
            for way, run in (
                ("flow", times.times),
                ("law", leading_order.predicted),
                ("flow, rtol 1e-7", times.times),
            ):
                started = time.perf_counter()
                loose[way] = run(size, query, rtol=1e-7 if way.endswith("7") else times.RTOL)[
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
