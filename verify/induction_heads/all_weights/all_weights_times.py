"""Emergence with all weights trained: closed flow against the network, asymptotic law
against the flow, students against both. Gaussian data are in `gaussian`.
"""

import itertools
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np

from simulate.induction_heads import standard, train
from simulate.training.pool import one_thread
from theory.induction_heads import predict
from theory.induction_heads.all_weights import descent as times
from theory.induction_heads.all_weights import law
from theory.induction_heads.parameters import StandardParameters
from verify.checks.check import (
    Band,
    Check,
    Noted,
    identity,
    listed,
    sampled,
    together,
    with_notes,
)
from verify.compare.emergence import first_crossing
from verify.induction_heads import flow_laws
from verify.induction_heads.all_weights import gaussian
from verify.induction_heads.all_weights.all_weights_equations import Network
from verify.induction_heads.flow_laws import QUERIES, dropped, limit, orthonormal

MASKS = ("strict", "inclusive")
NETWORK_SIZE = 8
FLOW = 1e-6
FLOW_WHY = "two integrations at rtol 1e-9 over some 500 steps each"
LAW_SIZES, LAW_LARGEST = (64, 128, 256, 512), 2048
LAW_WHY = (
    "terms of order N in the time; the law keeps N^2 at all orders of 1 / ln N and N"
    " ln N"
)
LINE = "a straight line in ln N for a slowly varying term of order N"
CORRECTED = {
    "T_gamma": (5e-3, f"{LINE}, which is what T_gamma is"),
    "others": (1e-3, f"{LINE}, a part ln N / N of these times"),
}
RATE = 0.2  # step of students in t
# Measured on seeds 0 to 7, which no check looks at; at infinite batch they agree within
# 1%.
NOISE = "noise of batches, of order 1/batch"
LARGER_BATCH: dict[tuple[str | int, ...], Band] = {
    ("last", 8): Band(-0.007, -0.0035, NOISE),
    ("last", 16): Band(-0.035, -0.02, NOISE),
    ("uniform", 16): Band(-0.012, -0.005, NOISE),
}
SECOND = "terms of order 1/batch^2"
INFINITE_BATCH: dict[tuple[str | int, ...], Band] = {
    ("last", 16): Band(0.003, 0.009, SECOND)
}
# On a burst: stated before any student was trained, but for the larger batch at N = 32
# (1.8% late in four seeds that no check looks at).
LARGER_BATCH["last", 16, 2] = Band(-0.05, 0.01, NOISE)
LARGER_BATCH["last", 32, 4] = Band(0.01, 0.025, NOISE)
for burst in ((16, 2), (32, 4)):
    INFINITE_BATCH["last", *burst] = Band(-0.02, 0.02, SECOND)
STUDENT_SIZES = (8, 16)
SEEDS = range(100, 108)
BATCHES = (32, 128)
STANDARD_PAIRS = (2, 4, 8)
STANDARD_SEEDS = range(3)
STANDARD_STEPS = 400


@listed
def against_network(size: int = NETWORK_SIZE) -> Iterator[Check]:
    """Drop and emergence times of the full network's gradient flow against those of the
    closed flow.
    """
    for (query, label), mask in itertools.product(QUERIES.items(), MASKS):
        closed = times.times(size, query, mask)
        with one_thread():
            run = times.descend(Network(size, query, mask), size, times.moving(mask))
        measured = times.crossings(run, size)
        reached = [name for name in closed if np.isfinite(closed[name])]
        yield identity(
            f"all-weights times of the network's own flow, {label}, {mask} mask",
            "flow of all weights",
            [closed[n] for n in reached],
            [measured[n] for n in reached],
            FLOW,
            FLOW_WHY,
        )


def step_by_step(
    name: str,
    equation: str,
    N: int,
    query: str,
    steps: int,
    right: int = 1,
    **more: Any,
) -> Check:
    """Training in the nineteen directions against the Euler map of the closed gradient,
    at every step.
    """
    p = orthonormal(N, query, "nineteen", RATE, steps, right=right).replace(
        eval_every=1
    )
    runs = train(p, seeds=[0], dtype="float64", **more)
    path = times.euler(N, query, p.mask, p.time_per_step, steps, right)
    why = f"rounding of {steps} steps, float64"
    return identity(name, equation, path, runs.pseudo.values[0], 1e-11, why)


def descent(size: int = 6, steps: int = 300, **more: Any) -> list[Check]:
    """`step_by_step` for both queries."""
    name = "all-weights descent step by step"
    return [
        step_by_step(
            f"{name}, {label}", "flow of all weights", size, query, steps, **more
        )
        for query, label in QUERIES.items()
    ]


@cache
def flow_times(size: int, query: str, right: int = 1) -> dict[str, float]:
    """Times of the flow of all weights, strict mask; cached per size."""
    return times.times(size, query, right=right)


@with_notes
def against_law(
    sizes: Iterable[int] = LAW_SIZES, largest: int = LAW_LARGEST
) -> Iterator[Check | str]:
    """The law without fitted constants at the largest size, and with its term of order
    N fitted at smaller sizes.
    """
    for query, label in QUERIES.items():
        flows = {N: flow_times(N, query) for N in (*sizes, largest)}
        laws = {N: law.predicted(N, query) for N in (*sizes, largest)}
        for name in (*times.LEVELS, "T_drop"):
            flow = flows[largest][name]
            predicted = laws[largest][name]
            yield identity(
                f"all-weights law of {name}, {label}, N = {largest}",
                "flow of five numbers",
                predicted,
                flow,
                2 * np.log(largest) / largest,
                "2 ln N / N: " + LAW_WHY,
            )
            excess = [(flows[N][name] - laws[N][name]) / N for N in sizes]
            line = np.polyfit(np.log(list(sizes)), excess, 1)
            correction = largest * np.polyval(line, np.log(largest))
            yield identity(
                f"all-weights law of {name} corrected from N <= {max(sizes)}, {label},"
                f" N = {largest}",
                "flow of five numbers",
                predicted + correction,
                flow,
                *CORRECTED["T_gamma" if name == "T_gamma" else "others"],
            )
            exponents = []
            for a, b in itertools.pairwise([*sizes, largest]):
                exponent = np.log(flows[b][name] / flows[a][name]) / np.log(b / a)
                exponents.append(f"{exponent:.3f}")
            local = ", ".join(exponents)
            yield f"  all weights, {label}: {name} local exponents {local}"


def helped(sizes: Iterable[int] = (4, 16, 64, 256)) -> list[str]:
    """Hypothesis 2: ratio of T_drop of all weights to
    that of three pseudo-parameters.
    """

    def ratio(N: int, query: str) -> str:
        over = flow_times(N, query)["T_drop"] / flow_laws.times(N, query)["T_drop"]
        return f"{over:.3f} (N = {N})"

    lines = []
    for query, label in QUERIES.items():
        ratios = ", ".join(ratio(N, query) for N in sizes)
        lines.append(
            f"  all weights, {label}: T_drop over that of three numbers: {ratios}"
        )
    return lines


@with_notes
def of_batches(
    N: int,
    query: str,
    right: int = 1,
    seeds: Iterable[int] = SEEDS,
    batches: tuple[int, int] = BATCHES,
    **more: Any,
) -> Iterator[Check | str]:
    """Drop of students with all weights trained on finite batches, extrapolated in the
    batch size, against population descent with the same step.
    """
    steps = int(1.4 * flow_times(N, query, right)["T_drop"] / RATE)
    p = orthonormal(N, query, "all", RATE, steps, right=right)
    where = f"{QUERIES[query]}, N = {N}" + (f", B = {right}" if right > 1 else "")
    predicted = dropped(predict(p)).values[0]
    small, large = (
        dropped(train(p.replace(batch_size=b), seeds=seeds, **more)).values
        for b in batches
    )
    known = (query, N) if right == 1 else (query, N, right)
    rows = {
        "infinite batch": (limit(batches, (small, large)), INFINITE_BATCH),
        "the larger batch": (large, LARGER_BATCH),
    }
    yield from [
        sampled(
            f"all-weights T_drop of students at {name}, {where}",
            "flow of all weights",
            predicted,
            measured,
            band=bands.get(known),
        )
        for name, (measured, bands) in rows.items()
    ]
    note = (
        f"  students, {where}: T_drop {small.mean():.2f} (batch {batches[0]}),"
        f" {large.mean():.2f} (batch {batches[1]}), descent {predicted:.2f}"
    )
    yield note


def students(**more: Any) -> Noted:
    """`of_batches` for all queries and sizes."""
    return together(
        of_batches(N, query, **more)
        for query, N in itertools.product(QUERIES, STUDENT_SIZES)
    )


@listed
def standard_transformer(**more: Any) -> Iterator[str]:
    """Exponent of the drop in the number of pairs for the standard transformer (Sec.
    2), with a 95% interval.
    """
    drops = {}
    for pairs in STANDARD_PAIRS:
        p = StandardParameters(pairs=pairs, block=40, steps=STANDARD_STEPS)
        runs = standard.train(p, seeds=STANDARD_SEEDS, **more)
        drops[pairs] = first_crossing(
            -runs.loss.rename(step="t"), -np.log(pairs) / 2
        ).values
    for pairs, times_of_seeds in drops.items():
        after = ", ".join(f"{v:.0f}" for v in times_of_seeds)
        yield (
            f"  standard transformer, {pairs} pairs: half of ln(pairs) after {after}"
            " steps"
        )
    each = np.stack([drops[n] for n in STANDARD_PAIRS])
    if np.isfinite(each).all():
        pairs_of_seeds = np.repeat(STANDARD_PAIRS, each.shape[1])
        slope, low, high = flow_laws.log_fit(pairs_of_seeds, each.ravel())
        yield (
            f"  standard transformer: steps ~ pairs^{slope:.2f} [{low:.2f},"
            f" {high:.2f}], AdamW"
        )


def everything(**more: Any) -> Noted:
    """All of the above: checks and notes of ``verify.timescales``."""
    parts: list[Noted] = [
        ([*against_network(), *descent(**more)], []),
        against_law(),
        ([], helped()),
        students(**more),
        gaussian.everything(**more),
    ]
    checks, notes = together(parts)
    return checks, ["", "every weight moves:", *notes, *standard_transformer(**more)]
