"""Times and heights of the drops,
by the flow of all reduced weights and by students.
"""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch

from linear_attention import separate
from linear_attention import simulate as student
from linear_attention.parameters import Parameters
from linear_attention.simulate import Weights, train
from linear_attention.theory import drops as any_start
from linear_attention.theory import equations, level, merged_time
from simulate.training.gradient_flow import integrate
from verify.checks.check import (
    Check,
    Sides,
    against,
    identity,
    near,
    sampled,
    vanishing,
)
from verify.checks.report import Report, Request, Table, gathered
from verify.compare.emergence import first_crossing, smooth_crossing
from verify.rates import rates
from verify.statement.printed import every

ODE = 1e-6, "ODE of all weights at 1e-10"
SEEDS = range(4)
STARTS = (1.5e-6, 1.186e-7)  # P(0)
SMALL = 3e-3, "corrections of the order of the start, sqrt(P(0)) = 1e-3"
TINY = tuple(10.0**-k for k in (3, 4, 5, 6))  # starts, merged
DECADES = 1e-2, "starts up to 0.001 shift a time by up to 0.003, over three decades"
WHITE = Parameters.white()
ALIGNED = WHITE.replace(H=1, begin="aligned")
ETAS = (0.02, 0.01, 0.005)
SEEN = 12  # students on drawn tokens; 5% is detected
STAIRS = Parameters(attention="separate")
STAIRCASE = STAIRS.replace(begin="aligned", start=0.05, steps=1000, eval_every=1)
LARGER = (0.02, 0.01, 0.005, 0.0025)  # starts, separate
LEFT = 1e-2, "what small starts leave of a step"
FIRST = 5e-3, "next order in the start, 0.01"
LATER = 0.03, "frozen at once what takes a time of order one to be learned"
ALONE = dict(progress=False, workers=1)
Rows = Iterator[Check]


def follow(p: Parameters, begun: Weights, until: float, **more: Any) -> Any:
    """Weights at some times, and times of events,
    of the flow of every reduced weight.
    """
    loss = student.population(p)
    return integrate(lambda weights: loss(weights) / 2, begun, until, **more)


def losses(p: Parameters, path: list[Weights]) -> list[float]:
    """Loss along a path."""
    return [float(x) for x in map(student.population(p), path)]


def conserved(table: Table, p: Parameters, begun: Weights, last: Weights) -> Rows:
    """Invariants at the end of a flow equal those at its start and those of the
    equation.
    """
    now, before = (student.invariants(w) for w in (last, begun))
    (name, values), system = next(iter(now.items())), f"{p.attention} invariants"
    drift = torch.cat([(x - before[n]).flatten() for n, x in now.items()])
    yield vanishing(f"{system} along training", name, drift, 1e-7, ODE[1])
    known = p.values() | {n: w.detach().numpy() for n, w in last.items()}
    sides = Sides(table, 1e-9, "rounding of sums")
    every(sides, f"{system} by the equation", name, known, values.numpy())
    yield from sides.checks()


def by_steps(
    table: Table, name: str, p: Parameters, direction: int, where: str
) -> Check:
    """Power of the step in what the time of a drop by steps leaves out."""
    settings = [
        p.replace(eta=eta, eval_every=1, steps=round(p.eta * p.steps / eta))
        for eta in ETAS
    ]
    paths = [
        train(q, **ALONE).learned.isel(seed=0, direction=direction) for q in settings
    ]
    told = [table[name].number(q.modes[direction]) for q in settings]
    rate = rates(told, [smooth_crossing(x, 0.5) for x in paths], ETAS, 2)
    return rate.check(f"power of the step in what its delay leaves out, {where}", name)


def drop(p: Parameters, seed: int, begun: Weights | None = None) -> float:
    """Time at which the flow of all weights has done three quarters of its decrease of
    the loss.
    """
    loss, height = student.population(p), level(p)
    events = {"drop": lambda weights: loss(weights) - height}
    return follow(p, begun or student.start(p, seed), 30, events=events)[1]["drop"]


def flow(table: Table) -> Rows:
    """White data: generic heads, an unbalanced head, and s over time."""
    row = partial(against, table)
    for P_0 in STARTS:
        p = WHITE.replace(start=P_0**0.5)
        label = f"drop of generic heads, P(0) = {P_0:g}"
        yield row(
            near, label, "T_drop", p.values(), [drop(p, seed) for seed in SEEDS], *SMALL
        )
    begun, known = student.start(ALIGNED, 0), ALIGNED.values()
    (last,), _ = follow(ALIGNED, begun, 3.0)
    s, numbers = student.matrix(last)[0, 0], known | {"t": 3.0}
    yield row(identity, "s of a balanced head", "merged_s", numbers, s, *ODE)
    begun["v"] = begun["v"] + 0.1
    v, u = float(begun["v"][0]), float(begun["U"].norm())
    known |= {"kappa": v**2 - u**2, "s_0": v * u / known["D"] ** 0.5}
    label = "drop of an unbalanced head"
    yield row(identity, label, "T_unbalanced", known, drop(ALIGNED, 0, begun), *ODE)


def early(table: Table) -> Rows:
    """Early growth of every head (while W is small),
    and the invariants at all times.
    """
    row = partial(against, table, identity)
    p = Parameters(start=1e-6)
    square = torch.as_tensor(p.eigenvalues**2).diag()
    known = p.values()
    begun = student.start(p, 1)
    rate, t = (
        known["gamma"],
        8 / known["gamma"],
    )  # grown e^8-fold: W is still below 1e-5
    (last,), _ = follow(p, begun, t)
    (v, u), now = (
        (w["v"], (w["U"] * square).sum((1, 2)) / rate) for w in (begun, last)
    )
    yield row(
        "rate of the growth", "merged_rate", known, square.norm(), 1e-12, "a norm"
    )
    known |= {"v": v.numpy(), "u": u.numpy(), "t": t}
    for x, measured in zip("vu", now, strict=True):
        label = f"{x} of every head, early"
        yield row(
            label, f"merged_{x}_early", known, measured, 1e-4, "W of 1e-5 by then"
        )
    p = Parameters()
    begun = student.start(p, 0)
    (last,), _ = follow(p, begun, 20)
    yield from conserved(table, p, begun, last)


def spectra(table: Table) -> Rows:
    """Any Lambda: one effective head of D + 1 numbers against all heads; exponents in
    the start.

    The time is linear in ln(1/start) with slope 1/gamma; as a power of 1/start its
    exponent is close to zero.
    """
    x = np.log(1 / np.array(TINY))
    each = [Parameters(start=s) for s in TINY]
    times = np.array([[drop(p, seed) for p in each] for seed in SEEDS])
    theory = np.array([merged_time(p) for p in each])
    slope = np.polyfit(x, times.mean(0), 1)[0]
    power, expected = (np.polyfit(x, np.log(y), 1)[0] for y in (times.mean(0), theory))
    gamma = table["merged_rate"].evaluate(each[0].values())
    of = "merged_du_dt"
    yield near(
        "drop at any Lambda", of, theory[1], times[:, 1], 1e-2, "order of the start"
    )
    yield near(
        "slope of the drop over ln of 1/start",
        "merged_rate",
        1 / gamma,
        slope,
        *DECADES,
    )
    yield near("fitted power of 1/start, merged", of, expected, power, *DECADES)


def steps(table: Table) -> Rows:
    """Delay by finite steps of gradient descent, for students of the population
    gradient.
    """
    yield by_steps(
        table, "T_step", ALIGNED.replace(steps=round(4 / ALIGNED.eta)), 0, "white data"
    )
    for d in range(2):
        yield by_steps(table, "t_step", STAIRCASE, d, f"drop {d + 1}")


def merged_students(table: Table, **more: Any) -> list[Check]:
    """The attention on drawn tokens, all weights moving: eight seeds, merged."""
    p = WHITE.replace(student="tokens", batch_size=256, steps=250, eval_every=2)
    times = first_crossing(
        train(p, range(8), **more).learned.mean("direction"), 0.5
    ).values
    label = "drop of the attention on drawn tokens"
    return [against(table, sampled, label, "T_step", p.values(), times)]


def staircase(
    p: Parameters, seed: int, until: float, drops: int
) -> tuple[np.ndarray, Any]:
    """Times at which each drop's first direction is half learned by the flow, and its
    end.
    """
    half = student.final(p) / 2
    events = {
        str(d): lambda weights, d=d: student.matrix(weights)[d, d] - half[d]
        for d in range(0, drops * p.R, p.R)
    }
    path, times = follow(p, student.start(p, seed), until, events=events)
    return np.array(list(times.values())), path[-1]


def predicted(
    p: Parameters, seed: int, drops: int | None = None, eta: float = 0.0
) -> np.ndarray:
    """Times of the first drops (or all) from the start of every head."""
    begun, known = student.start(p, seed), p.values()
    v, K, Q = (begun[n].numpy() for n in "vKQ")
    return np.array(
        [*islice(any_start(v, K, Q, known["lambda"], known["a"], eta), drops)]
    )


def between(p: Parameters, seed: int, expected: np.ndarray) -> list[float]:
    """Losses half-way between the drops on a logarithmic axis, and at the end."""
    times = [*np.sqrt(expected[1:] * expected[:-1]), 1.3 * expected[-1]]
    return losses(p, follow(p, student.start(p, seed), times[-1], at=times)[0])


def heights(table: Table, p: Parameters, seed: int, expected: np.ndarray) -> Rows:
    """Plateaus of the loss."""
    for m, loss in enumerate(between(p, seed, expected), 1):
        label = f"loss after drop {m}, R = {p.R}"
        yield against(table, near, label, "plateau", p.learned(m * p.R), loss, *LEFT)


def aligned(table: Table) -> Rows:
    """Times of aligned heads: the flow of all weights."""
    p = STAIRCASE
    expected = [table["t_aligned"].number(mode) for mode in p.modes]
    times, _ = staircase(p, 0, 100, 4)
    yield identity("drops of aligned heads", "t_aligned", expected, times, *ODE)
    t_d = separate.equations()["t_aligned"]
    tiny = p.values() | {"u_0": 1e-5}
    label = "drop of a tiny aligned head"
    why = "next order in the start, 1e-5"
    yield against(table, near, label, "t_leading", tiny, t_d.evaluate(tiny), 1e-3, why)


def generic(table: Table) -> Rows:
    """Any start: times of the drops, heights between them, and conserved quantities."""
    expected = [predicted(STAIRS, seed) for seed in SEEDS]
    paths = [
        staircase(STAIRS, k, 1.15 * e[-1], 4)
        for k, e in zip(SEEDS, expected, strict=True)
    ]
    yield from conserved(table, STAIRS, student.start(STAIRS, SEEDS[0]), paths[0][1])
    ratio = np.array([times for times, _ in paths]) / expected
    by = "heads by quadrature"
    what = "of generic heads, over the time by quadrature"
    yield near(f"first drop {what}", by, 1.0, ratio[:, 0], *FIRST)
    yield near(f"later drops {what}", by, 1.0, ratio[:, 1:], *LATER)
    yield from heights(table, STAIRS, SEEDS[0], expected[0])


def rank(table: Table) -> Rows:
    """A head of rank two takes two directions in one drop, the second soon after the
    first.
    """
    p = STAIRS.replace(R=2, H=2)
    return heights(table, p, 0, predicted(p, 0))


def exponents(table: Table) -> Rows:
    """The time of the first drop is a power of 1/start with exponent one, not a
    logarithm.
    """
    each = [STAIRS.replace(start=s) for s in LARGER]
    x = np.log(1 / np.array(LARGER))
    times = [
        [staircase(p, k, 2 * predicted(p, k, 1)[0], 1)[0][0] for p in each]
        for k in SEEDS
    ]
    leading = np.log([table["t_leading"].number(p.values()) for p in each])
    expected = np.polyfit(x, leading, 1)[0]
    powers = np.polyfit(x, np.log(times).T, 1)[0]
    label = "fitted power of 1/start, separate"
    yield near(
        label, "t_leading", expected, powers, 0.03, "starts up to 0.02, over one decade"
    )


def separate_students(table: Table, **more: Any) -> list[Check]:
    """The attention on drawn tokens, all weights moving: its first drop,
    seed by seed.
    """
    p = STAIRS.replace(
        start=0.05, student="tokens", batch_size=256, steps=600, eval_every=2
    )
    times = first_crossing(
        train(p, range(SEEN), **more).learned.isel(direction=0), 0.5
    ).values
    ratio = times / [predicted(p, seed, 1, p.eta)[0] for seed in range(SEEN)]
    label = "first drop of the attention on drawn tokens, over its time by quadrature"
    return [sampled(label, "heads by quadrature", 1.0, ratio)]


LAWS = {
    "merged": ((flow, early, spectra, steps), merged_students),
    "separate": ((aligned, generic, rank, exponents), separate_students),
}


def report(request: Request) -> Report:
    """Everything on the derived equations of one system."""
    groups, students = LAWS[request.model.name.rpartition(".")[2]]
    table = equations()
    return Report([*gathered(groups, table), *students(table, **request.training)])
