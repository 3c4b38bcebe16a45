"""Key and query apart: times and heights of the staircase, by the whole flow and by students."""

from __future__ import annotations

from typing import Any

import numpy as np

from linear_attention.simulate import student, train
from linear_attention.theory import separate, task
from linear_attention.theory.parameters import Parameters
from linear_attention.verify.groups import Table, law
from linear_attention.verify.prompts import integrate, learning
from verify.check import Check, identity, near, sampled, vanishing
from verify.emergence import first_crossing
from verify.report import Report, Request, gathered

SEEDS = range(4)
SEEN = 12  # students on drawn tokens: 5% shows
STAIRS = Parameters(attention="separate")
EXPONENTS = (0.02, 0.01, 0.005, 0.0025)  # starts
ODE = 1e-6, "ODE of all weights at 1e-10"
LEFT = 1e-2, "what small starts leave of a step"
FIRST = 5e-3, "next order in the start, 0.01"
LATER = 0.03, "frozen at once what takes a time of order one to be learned"


def staircase(p: Parameters, seed: int, until: float, drops: int, at: Any = None) -> Any:
    """Times of the first drops of the flow of all weights, its end, and its losses."""
    events = {str(m): learning(p, m * p.R) for m in range(drops)}
    times, last, losses = integrate(p, student.start(p, seed), until, events, at)
    return np.array(list(times.values())), last, losses


def predicted(p: Parameters, seed: int) -> np.ndarray:
    """Times of all drops by quadrature of every head."""
    begun, known = student.start(p, seed), p.values()
    v, K, Q = (begun[n].numpy() for n in "vKQ")
    return separate.heads.drops(v, K, Q, known["lambda"], known["a"])


def heights(table: Table, p: Parameters, seed: int, expected: np.ndarray) -> list[Check]:
    """Losses half-way between the drops, and at the end, on a logarithmic axis."""
    at = [*np.sqrt(expected[1:] * expected[:-1]), 1.3 * expected[-1]]
    _, _, losses = staircase(p, seed, at[-1], 0, at)
    rows = []
    for m, loss in enumerate(losses, 1):
        level = task.at(table["plateau"].rhs, p.values() | {"m": m * p.R})
        rows.append(near(f"loss after drop {m}, R = {p.R}", "plateau", level, loss, *LEFT))
    return rows


def aligned(table: Table) -> list[Check]:
    """Times of aligned heads: the flow of all weights, and descent with a step."""
    p = STAIRS.replace(begin="aligned", start=0.05, steps=1000, eval_every=1)
    known, t_d = p.values(), separate.equations()["t_aligned"]
    pairs = zip(known["lambda"], known["a"], strict=True)
    modes = [known | {"lambda_1": x, "a_1": y} for x, y in pairs]
    times, _, _ = staircase(p, 0, 100, 4)
    expected = [float(table["t_aligned"].evaluate(x)) for x in modes]
    found = [identity("drops of aligned heads", "t_aligned", expected, times, *ODE)]
    tiny, label = known | {"u_0": 1e-5}, "drop of a tiny aligned head"
    why = "next order in the start, 1e-5"
    found.append(law(table, "t_leading", label, tiny, t_d.evaluate(tiny), 1e-3, why))
    learned = train(p, progress=False, workers=1).learned
    for d, mode in enumerate(modes[:2]):
        base = float(t_d.evaluate(mode))
        adds = float(first_crossing(learned.isel(direction=d), 0.5).values[0]) - base
        shift, label = (
            float(table["t_step"].evaluate(mode)) - base,
            f"what a step adds, drop {d + 1}",
        )
        found.append(near(label, "t_step", shift, adds, 0.04, "next order in eta"))
    return found


def generic(table: Table) -> list[Check]:
    """Any start: times of the drops by quadrature, heights between them, and what is conserved."""
    pairs = []
    for seed in SEEDS:
        expected = predicted(STAIRS, seed)
        times, last, _ = staircase(STAIRS, seed, 1.15 * expected[-1], 4)
        pairs.append((expected, times))
    drift = student.invariants(last) - student.invariants(student.start(STAIRS, seed))
    label = "separate invariants along training"
    found = [vanishing(label, "separate_norm", drift, 1e-7, ODE[1])]
    for name, part, within in (
        ("first drop", slice(1), FIRST),
        ("later drops", slice(1, None), LATER),
    ):
        ratio = np.concatenate([times[part] / expected[part] for expected, times in pairs])
        worst = float(ratio[np.abs(ratio - 1).argmax()])
        label = f"{name} of generic heads, over the time by quadrature"
        found.append(near(label, "v_squared", 1.0, worst, *within))
    return found + heights(table, STAIRS, SEEDS[0], pairs[0][0])


def rank(table: Table) -> list[Check]:
    """A head of rank two takes two directions in one drop, the second soon after the first."""
    p = STAIRS.replace(R=2, H=2)
    return heights(table, p, 0, predicted(p, 0))


def exponents(table: Table) -> list[Check]:
    """The time of the first drop is a power of 1/start: one, not a logarithm."""
    powers = []
    for seed in SEEDS:
        each = [STAIRS.replace(start=s) for s in EXPONENTS]
        times = [staircase(p, seed, 2 * predicted(p, seed)[0], 1)[0][0] for p in each]
        powers.append(np.polyfit(np.log(1 / np.array(EXPONENTS)), np.log(times), 1)[0])
    leading = [float(table["t_leading"].evaluate(p.values())) for p in each]
    expected = np.log(leading[-1] / leading[0]) / np.log(EXPONENTS[0] / EXPONENTS[-1])
    worst, label = max(powers, key=lambda y: abs(y - expected)), "fitted power of 1/start, separate"
    return [near(label, "t_leading", expected, worst, 0.03, "starts up to 0.02, over one decade")]


def students(table: Table, **more: Any) -> list[Check]:
    """The attention on drawn tokens, all weights moving: its first drop, seed by seed."""
    p = STAIRS.replace(start=0.05, student="tokens", batch_size=256, steps=600, eval_every=2)
    times = first_crossing(train(p, range(SEEN), **more).learned.isel(direction=0), 0.5).values
    ratio = times / [predicted(p, seed)[0] for seed in range(SEEN)]
    label = "first drop of the attention on drawn tokens, over its time by quadrature"
    return [sampled(label, "v_squared", 1.0, ratio)]


def report(request: Request) -> Report:
    """Everything on the derived equations."""
    table = separate.equations()
    rows = gathered((aligned, generic, rank, exponents), table)
    return Report([*rows, *students(table, **request.training)])
