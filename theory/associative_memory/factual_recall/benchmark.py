"""Benchmark: times at which either part of the loss has halved, by quadrature, closed form and
integration of the flow, all compared with mpmath.
"""

import time
from typing import Any

import mpmath

from theory import numeric
from theory.associative_memory.factual_recall import dynamics, numbers, timescales
from theory.associative_memory.factual_recall.dynamics import PARTS, Part
from theory.associative_memory.factual_recall.parameters import Parameters

SHARE = 0.5
POINTS = tuple(
    (Parameters(S=2 * D, R=R, D=D, epsilon=epsilon), part)
    for R in (2, 4, 8)
    for D in (4, 16)
    for epsilon in (1e-3, 1e-5)
    for part in PARTS
)
CHECKED, DIGITS = slice(None, None, 5), 30
AGREE = 1e-9  # relative; quadrature and flow are computed with tolerance 1e-12
LEADING = 1e-4  # closed form; the next term is of order epsilon^2 ln(1/epsilon)


def integrated(p: Parameters, part: Part, share: float) -> float:
    """Time by integrating the flow until the gain is reached."""
    goal = timescales.equations()["gain_at_share"].evaluate(
        {"share_left": share, "K": p.values()[part.choices.name]}
    )
    system = dynamics.flow()
    end = 1.5 * numbers.closed_form(p, part, share)  # end of the integration, known only here
    solution = system.solve(
        p, t=end, at=[end], events={"hit": system.where[part.gain] - float(goal)}
    )
    return float(solution.hit)


def reference(p: Parameters, part: Part, share: float) -> mpmath.mpf:
    """Time by mpmath from the symbolic integral over theta."""
    eq, given = timescales.equations(), numbers.constants(p, part)
    with mpmath.workdps(DIGITS):
        v = {name: mpmath.mpf(value) for name, value in given.items()}
        v["share_left"] = mpmath.mpf(share)
        for name in ("lambda_recall", "c_recall"):  # recomputed with all digits
            source = (
                eq[f"growth_{part.name}"]
                if name.startswith("lambda")
                else dynamics.equations()[f"ratio_{part.name}"]
            )
            v[name] = source.evaluate({q: mpmath.mpf(x) for q, x in p.values().items()}, "mpmath")
        goal = eq["gain_at_share"].evaluate(v, "mpmath")
        end = mpmath.asinh(2 * mpmath.sqrt(v["c_recall"]) * goal / v["epsilon"] ** 2) / 2
        integral = eq["hitting_time_exact"].rhs
        inner = integral.variables[0]
        free = sorted(integral.function.free_symbols - {inner}, key=str)
        slowness = numeric.function(integral.function, (inner, *free), "mpmath")
        values = [v[s.name] for s in free]
        cuts = [end * k / 8 for k in range(9)]
        return mpmath.quad(lambda x: slowness(x, *values), cuts)


def benchmark() -> dict[str, Any]:
    """Run the benchmark.

    Returns
    -------
    dict
        ``rows`` (way, points, seconds, microseconds per point, largest relative error against
        mpmath), ``ratio`` of the times per point, integration over quadrature, ``agree``, ``note``.
    """
    true = [reference(p, part, SHARE) for p, part in POINTS[CHECKED]]
    ways = (
        ("quadrature, any epsilon", numbers.time_of_share, AGREE),
        ("LSODA, terminal event", integrated, AGREE),
        ("closed form, epsilon -> 0", numbers.closed_form, LEADING),
    )
    rows: list[dict[str, Any]] = []
    for way, of, tolerance in ways:
        of(*POINTS[0], SHARE)  # first call derives and compiles
        started = time.perf_counter()
        results = [of(p, part, SHARE) for p, part in POINTS]
        spent = time.perf_counter() - started
        error = max(float(abs(t / r - 1)) for t, r in zip(results[CHECKED], true, strict=True))
        rows.append(
            {
                "way": way,
                "points": len(POINTS),
                "seconds": spent,
                "microseconds_per_point": 1e6 * spent / len(POINTS),
                "error": error,
                "within": error <= tolerance,
            }
        )
    return {
        "ratio": rows[1]["seconds"] / rows[0]["seconds"],
        "agree": all(r["within"] for r in rows),
        "rows": rows,
        "note": f"time at which a part of the loss is down to {SHARE:.0%}, both parts of {len(POINTS) // 2} settings, one after the "
        f"other; error: largest relative one at {len(true)} of them, against mpmath with {DIGITS} digits",
    }
