"""Times of A = 1/2 of state tracking at many settings, and flows at many values of one
number, over one integration after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import sympy as sp
from scipy.integrate import solve_ivp

from benchmarks.timing import least, show
from theory.dynamics.flow import Flow
from theory.dynamics.solution import parameter_names
from theory.models import registry
from theory.state_tracking.dynamics import flow
from theory.state_tracking.quadrature import emergence_time

POINTS = 10_000
ALONE = 20  # points of these that are integrated one after the other
OUTPUTS = 13
AROUND = 0.05  # of a number, over the points
SLOW = 0.1  # CPU seconds of one integration: too long for this many
HORIZON = 1e4  # of an integration in alpha that ends at A = 1/2


def settings(points: int) -> dict[str, np.ndarray]:
    """Sizes of the paper's sweeps, and initial values at which attention is learned."""
    rng = np.random.default_rng(0)
    sizes = {
        name: rng.integers(low, high + 1, points).astype(float)
        for name, low, high in (("N", 8, 64), ("d_g", 8, 64), ("L", 4, 40))
    }
    return {
        **sizes,
        "eta": rng.uniform(0.1, 2, points),
        "c_omega": rng.uniform(0.5, 4, points),
        "tau": 1 / sizes["N"],
        "zeta": rng.normal(0, 0.3, points),
        "A_0": rng.uniform(1.0, 1.5, points) / sizes["L"],
        "S_0": np.zeros(points),
        "R_0": rng.uniform(0.05, 0.1, points),
    }


def integrator(values: dict[str, np.ndarray]) -> Callable[[int], float]:
    """The time of A = 1/2 of one setting by SciPy, its rates compiled for floats."""
    of_flow = flow("tau")
    rates = list(of_flow.expanded.values())
    free = set().union(*(rate.free_symbols for rate in rates)) - set(of_flow.state)
    needed = sorted(free, key=str)
    compiled = sp.lambdify([*of_flow.state, *needed], rates, "math", cse=True)

    def event(_: float, state: np.ndarray) -> float:
        return state[0] - 0.5

    event.terminal = True  # type: ignore[attr-defined]

    def solve(k: int) -> float:
        fixed = [float(values[x.name][k]) for x in needed]
        start = [float(values[name][k]) for name in ("A_0", "R_0", "S_0")]
        run = solve_ivp(
            lambda _, y: compiled(*y.tolist(), *fixed),
            (0, HORIZON),
            start,
            method="LSODA",
            rtol=1e-10,
            atol=1e-12,
            events=event,
        )
        return float(run.t_events[0][0])

    return solve


def emergence_times() -> list[list[str]]:
    """By the exact solution, all settings in one call; by SciPy, one by one."""
    values = settings(POINTS)
    integrated = integrator(values)
    quadrature = least(lambda: emergence_time(values)) / POINTS
    integrated(0)  # compiles
    began = time.process_time()
    times = [integrated(k) for k in range(ALONE)]
    each = (time.process_time() - began) / ALONE
    exact = emergence_time({name: x[:ALONE] for name, x in values.items()})
    apart = float(np.nanmax(np.abs(np.array(times) / exact - 1)))
    return [
        ["LSODA with a terminal event", f"{1e6 * each:.3g}", "1", ""],
        [
            "exact solution, in one call",
            f"{1e6 * quadrature:.3g}",
            f"{each / quadrature:.3g}",
            f"{apart:.1e}",
        ],
    ]


def in_bulk(of_flow: Flow, p: Any) -> list[str] | None:
    """A row: CPU time of a point together and alone, and the largest difference, over
    the largest value; None if one integration takes too long.
    """
    values = p.values()
    names = [name for name in parameter_names(of_flow, {}) if name in values]
    numbers = {name: float(values[name]) for name in names}
    swept = next((name for name in ("eta", *numbers) if numbers.get(name)), None)
    if swept is None:
        return None
    end = getattr(p, p.LENGTH) * p.time_per_step
    at = np.linspace(0, end, OUTPUTS)

    def solve(**changed: Any) -> Any:
        fixed = {name: x for name, x in numbers.items() if name not in changed}
        return of_flow.solve(fixed, until=end, at=at, **changed)

    if least(solve, 0.0) > SLOW:
        return None
    points = numbers[swept] * np.linspace(1 - AROUND, 1 + AROUND, POINTS)
    began = time.process_time()
    together = solve(**{swept: points})
    each_together = (time.process_time() - began) / POINTS
    chosen = range(0, POINTS, POINTS // ALONE)
    began = time.process_time()
    alone = [solve(**{swept: points[k]}) for k in chosen]
    each_alone = (time.process_time() - began) / len(chosen)
    error = 0.0
    for k, one in zip(chosen, alone, strict=True):
        for x in of_flow.state:
            size = float(np.abs(one[x.name]).max())
            apart = float(np.abs(together[x.name][k].values - one[x.name]).max())
            error = max(error, apart / size if size else 0.0)
    return [
        of_flow.name,
        swept,
        f"{1e3 * each_alone:.2g}",
        f"{1e3 * each_together:.2g}",
        f"{each_alone / each_together:.2g}",
        f"{error:.1e}",
    ]


def main() -> None:
    """Print two tables."""
    header = ["way", "CPU us per setting", "times faster", "largest difference"]
    show(f"Time of A = 1/2 at {POINTS} settings", header, emergence_times())
    rows = []
    for model in registry.MODELS:
        theory = registry.find(model).wing("theory")
        p = theory.Parameters()
        if not hasattr(p, "LENGTH"):
            continue
        for of_flow in theory.flows().values():
            if of_flow.scope is None or not of_flow.scope.applies(p):
                rows.append(in_bulk(of_flow, p))
    header = ["flow", "over", "ms alone", "ms together", "ratio", "difference"]
    title = f"Flows at {POINTS} values of one number: CPU time of a point"
    show(title, header, [row for row in rows if row])


if __name__ == "__main__":
    main()
