"""The committee against students: overlaps at given times, and the time of specialisation; and its
laws against its flow.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from committee import simulate
from committee.theory import HALF, Parameters, equations, flow
from verify.check import Check, against, at_most, listed, near, sampled
from verify.report import Table, reporting

EARLY = Parameters(K=3, N=500, eta=0.8, R_0=0.3, sigma=0.2)
TIME, MANY, SEEDS = 4.0, range(128), range(32)
HEAD = Parameters(K=2, N=500, eta=1.0, R_0=0.2)
SLOW = Parameters(K=2, eta=0.02, Q_0=1 / 3, C_0=0.33, R_0=0.4001, S_0=0.4)
NEXT = 0.03, "next order in eta = 0.02"


def escape(p: Parameters, until: float = 1e5) -> float:
    """Time of R - S = 1/2 by the flow."""
    return float(flow().solve(p, at=[0.0], events={"half": HALF}, alpha=until)["half"])


def trained(p: Parameters, seed: int, steps: int) -> dict[str, float]:
    """Measurements of a student after some examples."""
    student = simulate.Student(p, seed, None, None)  # type: ignore[arg-type]
    for n in range(steps):
        student.step(n)
    return student.measure()


def specialised(p: Parameters, seed: int, every: int = 50) -> float:
    """Time at which a student has R - S = 1/2, between two measurements."""
    student, before = simulate.Student(p, seed, None, None), -1.0  # type: ignore[arg-type]
    for n in range(1, 10**7):
        student.step(n)
        if n % every == 0:
            measured = student.measure()
            now = measured["R"] - measured["S"] - 0.5
            if now > 0:
                return (n - every * now / (now - before)) / p.N
            before = now
    return np.nan


@listed
def overlaps(table: Table) -> Iterator[Check]:
    """Early, with label noise: students of two sizes, linear in 1/N to infinite N."""
    steps = round(TIME * EARLY.N)
    made = [
        [trained(p, seed, round(TIME * p.N)) for seed in MANY]
        for p in (EARLY, EARLY.replace(N=2 * EARLY.N))
    ]
    curve = flow().solve(EARLY, at=[steps / EARLY.N], alpha=TIME)
    for name, scale in (("R", None), ("S", 0.3), ("Q", None), ("C", 0.3), ("loss", None)):
        small, large = (np.array([x[name] for x in runs]) for runs in made)
        expected = curve[name].values[-1]
        equation = "error" if name == "loss" else f"d{name}_dalpha"
        what = f"{name} of students, alpha = {TIME:g}"
        yield sampled(what, equation, expected, 2 * large - small, scale=scale)


def specialisation(table: Table) -> list[Check]:
    """Time of students, linear in 1/N to infinite N."""
    times = [
        np.array([specialised(p, seed) for seed in SEEDS])
        for p in (HEAD, HEAD.replace(N=2 * HEAD.N))
    ]
    limit = 2 * times[1] - times[0]
    return [sampled("time of R - S = 1/2 of students", "dR_dalpha", escape(HEAD), limit)]


@listed
def laws(table: Table) -> Iterator[Check]:
    """Small steps: error on the plateau, growth on it, end with and without noise."""
    p = SLOW
    known = SLOW.values()
    row = partial(against, table, near)
    curve = flow().solve(p, at=np.linspace(0, 400 / p.eta, 801), alpha=400 / p.eta)
    apart = (curve.R - curve.S).values
    inside = (apart > 1e-3) & (apart < 1e-2)
    there = curve.isel(alpha=inside)
    rate = np.polyfit(there.alpha, np.log(apart[inside]), 1)[0]
    yield row("error on the plateau", "plateau_error", known, there.loss[0], *NEXT)
    yield row("rate of escape", "escape_rate", known, rate, *NEXT)
    for name in ("R", "Q"):
        yield row(f"{name} on the plateau", f"plateau_{name}", known, there[name][0], *NEXT)
    for name, eta, sigma, off in (
        ("error_noise_slow", 0.02, 0.3, NEXT),
        ("error_noise", 0.8, 0.05, (0.01, "next order in sigma^2 = 0.0025")),
    ):
        noisy = Parameters(K=3, eta=eta, sigma=sigma, R_0=0.9, Q_0=1.0)
        end = flow().solve(noisy, at=[1e4], alpha=1e4).loss[-1]
        label = f"error at the end with label noise, eta = {eta:g}"
        yield row(label, name, noisy.values(), end, *off)


@listed
def stability(table: Table) -> Iterator[Check]:
    """The fixed point is stable below the largest learning rate and unstable above it."""
    for K in (2, 5):
        p = Parameters(K=K, R_0=1 - 1e-4, Q_0=1.0)
        largest = table["eta_max"].number(p.values())
        for share, word, sign in ((0.95, "below", 1), (1.05, "above", -1)):
            curve = flow().solve(p.replace(eta=share * largest), at=[0.0, 20.0, 60.0], alpha=60.0)
            growth = sign * np.log(float(curve.loss[-1] / curve.loss[1]))
            label = f"growth of the error {word} the largest eta, K = {K}"
            yield at_most(label, "eta_max", 0.0, growth, "decays below, grows above")


report = reporting(laws, stability, overlaps, specialisation, equations=equations)
