"""Emergence with all weights trained: closed flow against the network, asymptotic law against the
flow, students against both. Gaussian data are in `gaussian`.
"""

import itertools
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import scipy.stats
import torch
import xarray as xr

from simulate.induction_heads import standard, task, train
from simulate.induction_heads.student import NAMES, Student, assemble, project, squared_error
from simulate.pool import one_thread
from theory.induction_heads import Parameters
from theory.induction_heads.numbers import all_weights as times
from theory.induction_heads.numbers import leading_order
from theory.induction_heads.parameters import StandardParameters
from verify.check import Band, Check, identity, sampled
from verify.emergence import first_crossing
from verify.induction_heads import flow_laws, gaussian

QUERIES = {"last": "q = N", "uniform": "uniform q"}
MASKS = ("strict", "inclusive")
NETWORK_SIZE = 8
FLOW, FLOW_WHY = 1e-6, "two integrations at rtol 1e-9 over some 500 steps each"
LAW_SIZES, LAW_LARGEST = (64, 128, 256, 512), 2048
LAW_WHY = "terms of order N in the time; the law keeps N^2 at all orders of 1 / ln N and N ln N"
LINE = "a straight line in ln N for a slowly varying term of order N"
CORRECTED = {
    "T_gamma": (5e-3, f"{LINE}, which is what T_gamma is"),
    "others": (1e-3, f"{LINE}, a part ln N / N of these times"),
}
RATE = 0.2  # step of students in t
# Measured on seeds 0 to 7, which no check looks at; at infinite batch they agree within 1%.
NOISE = "noise of batches, of order 1/batch"
LARGER_BATCH: dict[tuple[str | int, ...], Band] = {
    ("last", 8): Band(-0.007, -0.0035, NOISE),
    ("last", 16): Band(-0.035, -0.02, NOISE),
    ("uniform", 16): Band(-0.012, -0.005, NOISE),
}
SECOND = "terms of order 1/batch^2"
INFINITE_BATCH: dict[tuple[str | int, ...], Band] = {("last", 16): Band(0.003, 0.009, SECOND)}
# On a burst: stated before any student was trained, but for the larger batch at N = 32 (1.8% late
# in four seeds that no check looks at).
LARGER_BATCH["last", 16, 2] = Band(-0.05, 0.01, NOISE)
LARGER_BATCH["last", 32, 4] = Band(0.01, 0.025, NOISE)
for burst in ((16, 2), (32, 4)):
    INFINITE_BATCH["last", *burst] = Band(-0.02, 0.02, SECOND)
STUDENT_SIZES, SEEDS, BATCHES = (8, 16), range(100, 108), (32, 128)
STANDARD_PAIRS, STANDARD_SEEDS, STANDARD_STEPS = (2, 4, 8), range(3), 400


class Network:
    """The full network on one orthonormal frame: loss and gradient with respect to the nineteen
    pseudo-parameters, by autograd, averaged over the queried pairs.
    """

    def __init__(self, size: int, query: str, mask: str) -> None:
        p = Parameters(N=size, data="orthonormal", query="last", mask=mask)
        one = task.orthonormal(p, 1, torch.Generator().manual_seed(7), torch.float64)
        asked = [size - 1] if query == "last" else range(size)
        items, labels, codes = (x.expand(len(asked), -1, -1) for x in one)
        self.batch = task.assemble(items, labels, codes, torch.tensor(list(asked)))
        self.student = Student(p.dimension, mask, torch.float64)

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        D = self.student.D
        weights = assemble(dict(zip(NAMES, theta.tolist(), strict=True)), D)
        for name, w in weights.items():
            getattr(self.student, name).data = w
        self.student.zero_grad()
        loss = squared_error(self.student(self.batch.X), self.batch.y, "sum")
        loss.backward()
        gradient = {k: torch.as_tensor(w.grad) for k, w in self.student.weights().items()}
        return float(loss.detach()), D * project(
            gradient
        ).numpy()  # a pseudo-parameter multiplies a matrix of squared norm D


def against_network(size: int = NETWORK_SIZE) -> list[Check]:
    """Drop and emergence times of the full network's gradient flow against those of the closed
    flow.
    """
    checks = []
    with one_thread():
        for query, label in QUERIES.items():
            for mask in MASKS:
                closed = times.times(size, query, mask)
                run = times.descend(Network(size, query, mask), size, times.moving(mask))
                measured = times.crossings(run, size)
                seen = [name for name in closed if np.isfinite(closed[name])]
                checks.append(
                    identity(
                        f"all-weights times of the network's own flow, {label}, {mask} mask",
                        "flow of all weights",
                        [closed[n] for n in seen],
                        [measured[n] for n in seen],
                        FLOW,
                        FLOW_WHY,
                    )
                )
    return checks


def descent(size: int = 6, steps: int = 300, **more: Any) -> list[Check]:
    """Training in the nineteen directions against the Euler map of the closed gradient, at every
    step.
    """
    checks = []
    for query, label in QUERIES.items():
        p = student_parameters(size, query, "nineteen", steps=steps).replace(eval_every=1)
        runs = train(p, seeds=[0], dtype="float64", **more)
        path = times.euler(size, query, p.mask, p.time_per_step, steps)
        checks.append(
            identity(
                f"all-weights descent step by step, {label}",
                "flow of all weights",
                path,
                runs.pseudo.values[0],
                1e-11,
                f"rounding of {steps} steps, float64",
            )
        )
    return checks


@cache
def flow_times(size: int, query: str, right: int = 1) -> dict[str, float]:
    """Times of the flow of all weights, strict mask; cached per size."""
    return times.times(size, query, right=right)


def against_law(
    sizes: Iterable[int] = LAW_SIZES, largest: int = LAW_LARGEST
) -> tuple[list[Check], list[str]]:
    """The law without fitted constants at the largest size, and with its term of order N fitted at
    smaller sizes.
    """
    checks: list[Check] = []
    notes: list[str] = []
    for query, label in QUERIES.items():
        table = {
            N: (flow_times(N, query), leading_order.predicted(N, query)) for N in (*sizes, largest)
        }
        for name in (*times.LEVELS, "T_drop"):
            flow, predicted = table[largest][0][name], table[largest][1][name]
            checks.append(
                identity(
                    f"all-weights law of {name}, {label}, N = {largest}",
                    "flow of five numbers",
                    predicted,
                    flow,
                    2 * np.log(largest) / largest,
                    "2 ln N / N: " + LAW_WHY,
                )
            )
            x = np.log(list(sizes))
            excess = [(table[N][0][name] - table[N][1][name]) / N for N in sizes]
            line = np.polyval(np.polyfit(x, excess, 1), np.log(largest))
            checks.append(
                identity(
                    f"all-weights law of {name} corrected from N <= {max(sizes)}, {label}, N = {largest}",
                    "flow of five numbers",
                    predicted + largest * line,
                    flow,
                    *CORRECTED["T_gamma" if name == "T_gamma" else "others"],
                )
            )
            drift = [
                np.log(table[b][0][name] / table[a][0][name]) / np.log(b / a)
                for a, b in itertools.pairwise([*sizes, largest])
            ]
            notes.append(
                f"  all weights, {label}: {name} local exponents "
                + ", ".join(f"{v:.3f}" for v in drift)
            )
    return checks, notes


def helped(sizes: Iterable[int] = (4, 16, 64, 256)) -> list[str]:
    """Hypothesis 2: ratio of T_drop of all weights to that of three, and the effect of holding some
    pseudo-parameters at zero.
    """
    notes = []
    for query, label in QUERIES.items():
        three = {
            N: (flow_laws.times(N) if query == "last" else flow_laws.uniform_times(N))["T_drop"]
            for N in sizes
        }
        notes.append(
            f"  all weights, {label}: T_drop over that of three numbers: "
            + ", ".join(f"{flow_times(N, query)['T_drop'] / three[N]:.3f} (N = {N})" for N in sizes)
        )
    return notes


def student_parameters(
    size: int,
    query: str,
    trained: str = "all",
    batch: int = 1,
    steps: int | None = None,
    right: int = 1,
) -> Parameters:
    """Parameters of students on orthonormal data, with runs long enough for the loss to drop."""
    D, burst = 2 * size, {"right": right} if right > 1 else {}
    steps = steps or int(1.4 * flow_times(size, query, **burst)["T_drop"] / RATE)
    p = Parameters(
        N=size,
        D=D,
        trained=trained,
        data="orthonormal",
        query=query,
        eta=RATE * D**2,
        batch_size=batch,
        steps=steps,
        eval_every=max(1, steps // 400),
        B=right,
    )
    return (
        p.replace(query="each", batch_size=size)
        if trained == "nineteen" and query == "uniform"
        else p
    )


def drop_of(runs: xr.Dataset) -> np.ndarray:
    """Time of loss 1/2 per seed."""
    return first_crossing(-runs.loss, -times.HALF).values


def of_batches(
    N: int,
    query: str,
    right: int = 1,
    seeds: Iterable[int] = SEEDS,
    batches: tuple[int, int] = BATCHES,
    **more: Any,
) -> tuple[list[Check], list[str]]:
    """Drop of students with all weights trained on finite batches, extrapolated in the batch size,
    against population descent with the same step.
    """
    p = student_parameters(N, query, right=right)
    where = f"{QUERIES[query]}, N = {N}" + (f", B = {right}" if right > 1 else "")
    path = times.euler(N, query, p.mask, p.time_per_step, p.steps, right)
    of = times.loss_of(N, query, p.mask, right)
    losses = np.array([of(x)[0] for x in path[:: p.eval_every]])
    after = int(np.flatnonzero(losses < times.HALF)[0])
    between = (losses[after - 1] - times.HALF) / (losses[after - 1] - losses[after])
    limit = p.time_per_step * p.eval_every * (after - 1 + between)
    small, large = (drop_of(train(p.replace(batch_size=b), seeds=seeds, **more)) for b in batches)
    ratio = batches[1] / batches[0]
    known = (query, N) if right == 1 else (query, N, right)
    checks = [
        sampled(
            f"all-weights T_drop of students at infinite batch, {where}",
            "flow of all weights",
            limit,
            (ratio * large - small) / (ratio - 1),
            band=INFINITE_BATCH.get(known),
        ),
        sampled(
            f"all-weights T_drop of students at the larger batch, {where}",
            "flow of all weights",
            limit,
            large,
            band=LARGER_BATCH.get(known),
        ),
    ]
    note = (
        f"  students, {where}: T_drop {small.mean():.2f} (batch {batches[0]}), {large.mean():.2f} "
        f"(batch {batches[1]}), descent {limit:.2f}"
    )
    return checks, [note]


def students(**more: Any) -> tuple[list[Check], list[str]]:
    """`of_batches` for all queries and sizes."""
    found = [of_batches(N, query, **more) for query in QUERIES for N in STUDENT_SIZES]
    return [c for checks, _ in found for c in checks], [n for _, notes in found for n in notes]


def standard_transformer(**more: Any) -> list[str]:
    """Exponent of the drop in the number of pairs for the standard transformer (Sec. 2), with a 95%
    interval.
    """
    drops = {}
    for pairs in STANDARD_PAIRS:
        p = StandardParameters(pairs=pairs, block=40, steps=STANDARD_STEPS)
        runs = standard.train(p, seeds=STANDARD_SEEDS, **more)
        drops[pairs] = first_crossing(-runs.loss.rename(step="t"), -np.log(pairs) / 2).values
    notes = [
        f"  standard transformer, {pairs} pairs: half of ln(pairs) after "
        + ", ".join(f"{v:.0f}" for v in d)
        + " steps"
        for pairs, d in drops.items()
    ]
    each = np.stack([drops[n] for n in STANDARD_PAIRS])
    if np.isfinite(each).all():
        fit = scipy.stats.linregress(
            np.log(np.repeat(STANDARD_PAIRS, each.shape[1])), np.log(each.ravel())
        )
        half = float(scipy.stats.t.ppf(0.975, each.size - 2) * fit.stderr)
        notes.append(
            f"  standard transformer: steps ~ pairs^{fit.slope:.2f} [{fit.slope - half:.2f}, {fit.slope + half:.2f}], AdamW"
        )
    return notes


def everything(**more: Any) -> tuple[list[Check], list[str]]:
    """All of the above: checks and notes of ``verify.timescales``."""
    checks = [*against_network(), *descent(**more)]
    rows, notes = against_law()
    checks += rows
    notes += helped()
    for part in (students, gaussian.everything):
        rows, lines = part(**more)
        checks, notes = checks + rows, notes + lines
    return checks, ["", "every weight moves:", *notes, *standard_transformer(**more)]
