"""Separate key and query: times and heights of the staircase, for the full flow and for
students.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np

from linear_attention.simulate import student, train
from linear_attention.theory import heads, separate
from linear_attention.theory.parameters import Parameters
from linear_attention.verify import flows
from linear_attention.verify.flows import ODE
from verify.check import Check, identity, near, sampled
from verify.emergence import first_crossing
from verify.report import Report, Request, Table

SEEDS = range(4)
SEEN = 12  # students on drawn tokens; 5% is detected
STAIRS = Parameters(attention="separate")
EXPONENTS = (0.02, 0.01, 0.005, 0.0025)  # starts
LEFT = 1e-2, "what small starts leave of a step"
FIRST = 5e-3, "next order in the start, 0.01"
LATER = 0.03, "frozen at once what takes a time of order one to be learned"


def staircase(p: Parameters, seed: int, until: float, drops: int) -> tuple[np.ndarray, Any]:
    """Times of the first drops of the flow of all weights, and its end."""
    events = flows.learning(p, range(0, drops * p.R, p.R))
    path, times = flows.flow(p, student.start(p, seed), until, events=events)
    return np.array(list(times.values())), path[-1]


def predicted(p: Parameters, seed: int, drops: int | None = None, eta: float = 0.0) -> np.ndarray:
    """Times of the first drops (or all) from the start of every head."""
    begun, known = student.start(p, seed), p.values()
    v, K, Q = (begun[n].numpy() for n in "vKQ")
    times = heads.drops(v, K, Q, known["lambda"], known["a"], eta)
    return np.array([*islice(times, drops)])


def between(p: Parameters, seed: int, expected: np.ndarray) -> list[float]:
    """Losses half-way between the drops on a logarithmic axis, and at the end."""
    at = [*np.sqrt(expected[1:] * expected[:-1]), 1.3 * expected[-1]]
    return flows.losses(p, flows.flow(p, student.start(p, seed), at[-1], at=at)[0])


def heights(table: Table, p: Parameters, seed: int, expected: np.ndarray) -> list[Check]:
    """Plateaus of the loss."""
    rows = []
    for m, loss in enumerate(between(p, seed, expected), 1):
        level = table["plateau"].evaluate(p.learned(m * p.R))
        rows.append(near(f"loss after drop {m}, R = {p.R}", "plateau", level, loss, *LEFT))
    return rows


def aligned(table: Table) -> list[Check]:
    """Times of aligned heads: the flow of all weights, and descent with a step."""
    p = STAIRS.replace(begin="aligned", start=0.05, steps=1000, eval_every=1)
    expected = [float(table["t_aligned"].evaluate(mode)) for mode in p.modes]
    times, _ = staircase(p, 0, 100, 4)
    t_d, tiny = separate.equations()["t_aligned"], p.values() | {"u_0": 1e-5}
    label, leading = "drop of a tiny aligned head", table["t_leading"].evaluate(tiny)
    why = "next order in the start, 1e-5"
    rows = [
        identity("drops of aligned heads", "t_aligned", expected, times, *ODE),
        near(label, "t_leading", leading, t_d.evaluate(tiny), 1e-3, why),
    ]
    learned = train(p, progress=False, workers=1).learned
    for d, mode in enumerate(p.modes[:2]):
        base, at, one = float(t_d.evaluate(mode)), f"drop {d + 1}", learned.isel(direction=d)
        rows.append(flows.added_by_steps(table, "t_step", base, mode, one, at))
    return rows


def generic(table: Table) -> list[Check]:
    """Any start: times of the drops, heights between them, and conserved quantities."""
    expected = [predicted(STAIRS, seed) for seed in SEEDS]
    found = [staircase(STAIRS, k, 1.15 * e[-1], 4) for k, e in zip(SEEDS, expected, strict=True)]
    ratio = np.array([times for times, _ in found]) / expected
    what, begun = "of generic heads, over the time by quadrature", student.start(STAIRS, SEEDS[0])
    return [
        *flows.conserved(table, "separate", "separate_norm", begun, found[0][1]),
        near(f"first drop {what}", "heads by quadrature", 1.0, ratio[:, 0], *FIRST),
        near(f"later drops {what}", "heads by quadrature", 1.0, ratio[:, 1:], *LATER),
        *heights(table, STAIRS, SEEDS[0], expected[0]),
    ]


def rank(table: Table) -> list[Check]:
    """A head of rank two takes two directions in one drop, the second soon after the first."""
    p = STAIRS.replace(R=2, H=2)
    return heights(table, p, 0, predicted(p, 0))


def exponents(table: Table) -> list[Check]:
    """The time of the first drop is a power of 1/start with exponent one, not a logarithm."""
    each, x = [STAIRS.replace(start=s) for s in EXPONENTS], np.log(1 / np.array(EXPONENTS))
    times = [[staircase(p, k, 2 * predicted(p, k, 1)[0], 1)[0][0] for p in each] for k in SEEDS]
    leading = np.log([float(table["t_leading"].evaluate(p.values())) for p in each])
    expected, powers = np.polyfit(x, leading, 1)[0], np.polyfit(x, np.log(times).T, 1)[0]
    label, why = "fitted power of 1/start, separate", "starts up to 0.02, over one decade"
    return [near(label, "t_leading", expected, powers, 0.03, why)]


def students(table: Table, **more: Any) -> list[Check]:
    """The attention on drawn tokens, all weights moving: its first drop, seed by seed."""
    p = STAIRS.replace(start=0.05, student="tokens", batch_size=256, steps=600, eval_every=2)
    times = first_crossing(train(p, range(SEEN), **more).learned.isel(direction=0), 0.5).values
    ratio = times / [predicted(p, seed, 1, p.eta)[0] for seed in range(SEEN)]
    label = "first drop of the attention on drawn tokens, over its time by quadrature"
    return [sampled(label, "heads by quadrature", 1.0, ratio)]


def report(request: Request) -> Report:
    """Everything on the derived equations."""
    return flows.report(
        request, separate.equations(), (aligned, generic, rank, exponents), students
    )
