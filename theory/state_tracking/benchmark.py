"""Benchmark: event times at many parameter points by the exact solution and by a loop over an ODE
integrator, both compared with mpmath.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import mpmath
import numpy as np
import scipy.integrate
import sympy as sp

from theory import numeric
from theory.state_tracking import exact
from theory.state_tracking.dynamics import flow
from theory.state_tracking.quadrature import emergence_time
from theory.state_tracking.symbols import A, N, S, d_g, zeta
from theory.timing import measured, row

POINTS, LOOPED, REFERENCES, DIGITS = 10_000, 100, 12, 20
RTOL, ATOL = 1e-10, 1e-12
HORIZON = 1e6  # end of integration in alpha; the loop does not know the event time in advance
AGREE = 1e-9  # relative, against mpmath


def sample(points: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random parameter points: sizes of the paper's robustness sweeps, initial values above the
    separatrix.
    """
    rng = np.random.default_rng(seed)
    size = {
        q: rng.integers(low, high + 1, points).astype(float)
        for q, low, high in (("N", 8, 64), ("d_g", 8, 64), ("L", 4, 40))
    }
    v = {
        **size,
        "eta": rng.uniform(0.1, 2, points),
        "c_omega": rng.uniform(0.5, 4, points),
        "tau": 1 / size["N"],
        "zeta": rng.normal(0, 0.3, points),
        "A_0": rng.uniform(0.5, 1.5, points) / size["L"],
        "S_0": rng.normal(0, 0.02, points),
    }
    edge = exact.equations()["separatrix"].evaluate(
        v | {"kappa": exact.equations()["kappa"].evaluate(v)}
    )
    return v | {"R_0": v["S_0"] + rng.uniform(0.5 * edge, 0.1)}


def integrator(values: Mapping[str, np.ndarray]) -> Callable[[int], float]:
    """Event time of one point by LSODA with a terminal event; right-hand side compiled for plain
    floats.
    """
    system = flow()
    free = sorted(
        set().union(*(e.free_symbols for e in system.expanded.values())) - set(system.state),
        key=str,
    )
    rates = sp.lambdify([*system.state, *free], list(system.expanded.values()), "math", cse=True)

    def event(_: float, state: np.ndarray) -> float:
        return state[0] - 0.5

    event.terminal = True  # type: ignore[attr-defined]

    def solve(k: int) -> float:
        fixed = [float(values[s.name][k]) for s in free]
        start = [float(values[q][k]) for q in ("A_0", "R_0", "S_0")]
        run = scipy.integrate.solve_ivp(
            lambda _, y: rates(*y.tolist(), *fixed),
            (0, HORIZON),
            start,
            method="LSODA",
            rtol=RTOL,
            atol=ATOL,
            events=event,
        )
        return float(run.t_events[0][0]) if run.t_events[0].size else math.nan

    return solve


def reference(values: Mapping[str, float], level: Any = "0.5", digits: int = DIGITS) -> mpmath.mpf:
    """Event time by mpmath from the symbolic solution: the integral for T nested in the integral
    for alpha.

    Both run over s in D = width sinh(s), so that the integrand does not peak.
    """
    eq = exact.equations()
    attention_at = numeric.function(
        eq["A_of_D"].rhs,
        (exact.D, exact.D_0, sp.Symbol("A_0", positive=True), exact.kappa),
        "mpmath",
    )
    of_margin = numeric.function(eq["margin_of_D"].rhs, (A, exact.D, S, N, d_g, zeta), "mpmath")
    with mpmath.workdps(digits):
        v = {q: mpmath.mpf(float(x)) for q, x in values.items() if np.ndim(x) == 0}
        if abs(v["tau"] * v["N"] - 1) < mpmath.mpf("1e-14"):
            v["tau"] = 1 / v["N"]
        v["D_0"] = v["R_0"] - v["S_0"]
        v["a"] = mpmath.mpf(level)
        for q in ("kappa", "pace", "off_target_drift"):
            v[q] = eq[q].evaluate(v, "mpmath")
        end = mpmath.sqrt(eq["D_of_level"].evaluate(v, "mpmath"))
        width = mpmath.sqrt(2 * v["A_0"] / v["kappa"])

        def speed(s: mpmath.mpf) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]:
            D = width * mpmath.sinh(s)
            attention = attention_at(D, v["D_0"], v["A_0"], v["kappa"])
            return D, attention, width * mpmath.cosh(s) / attention

        first = mpmath.asinh(v["D_0"] / width)
        last = mpmath.asinh(end / width)

        def slowness(s: mpmath.mpf) -> mpmath.mpf:
            D, attention, stretch = speed(s)
            T = mpmath.quad(lambda u: speed(u)[2], [first, s], method="gauss-legendre")
            off = v["S_0"] + (1 / v["d_g"] + v["off_target_drift"]) * T - (D - v["D_0"]) / v["d_g"]
            m = of_margin(attention, D, off, v["N"], v["d_g"], v["zeta"])
            return (1 + mpmath.exp(m) / (v["N"] - 1)) * stretch

        middle = (first + last) / 2
        total = mpmath.quad(slowness, [first, middle, last], method="gauss-legendre")
        return total / (v["eta"] * v["pace"])


def benchmark() -> dict[str, Any]:
    """Run the benchmark.

    Returns
    -------
    dict
        ``rows`` (way, points, seconds, microseconds per point, largest relative error against
        mpmath), ``ratio`` of the times per point, ``agree`` (both within 1e-9 of mpmath), ``apart``
        (largest relative difference of the two over all points looped over), ``note``.
    """
    values = sample(POINTS)
    emergence_time({q: x[:10] for q, x in values.items()})  # first call compiles
    spent, crossing = measured(lambda: emergence_time(values), 3)
    solve = integrator(values)
    solve(0)
    loop_spent, looped = measured(lambda: np.array([solve(k) for k in range(LOOPED)]), 1)
    true = [reference({q: x[k] for q, x in values.items()}) for k in range(REFERENCES)]

    def error(times: np.ndarray) -> float:
        return max(float(abs(t / r - 1)) for t, r in zip(times, true, strict=False))

    apart = float(np.max(np.abs(looped / crossing[:LOOPED] - 1)))
    solved = row("exact solution, quadrature", POINTS, spent, error(crossing), AGREE)
    loop = row("LSODA loop, terminal event", LOOPED, loop_spent, error(looped), AGREE)
    return {
        "ratio": loop["microseconds_per_point"] / solved["microseconds_per_point"],
        "agree": solved["within"] and loop["within"],
        "apart": apart,
        "rows": [solved, loop],
        "note": f"time of A = 1/2; exact: median of 3 runs over {POINTS} points; LSODA (rtol {RTOL:g}, atol {ATOL:g}) timed on the "
        f"first {LOOPED} of them; error: largest relative one on the first {REFERENCES}, against mpmath with {DIGITS} digits; "
        f"over all {LOOPED} the two differ by up to {apart:.1e}, the integrator's own error",
    }
