"""k hops: agreement by enumeration, kernels, times with and without curriculum, kernel
learners.
"""

import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from simulate.associative_memory.k_hop import Parameters, answer, apply, train
from theory.associative_memory.k_hop import (
    curriculum_times,
    direct_time,
    equations,
    mixture_time,
    over_hops,
)
from theory.associative_memory.k_hop.overlaps import STAGE, overlap, phi
from verify.checks.check import Check, identity, listed
from verify.checks.report import reporting
from verify.compare.emergence import first_crossing

# k hops

SIZES = ((3, 2), (3, 3), (4, 2))
STUDENTS = Parameters(N=4, batch_size=256)
SEEDS = range(2)


def every_input(N: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """All given permutations ``(n, k, N)`` with all starting points ``(n,)``."""
    group = list(itertools.permutations(range(N)))
    products = itertools.product(group, repeat=k)
    permutations, starts = zip(*itertools.product(products, range(N)), strict=True)
    return np.array(permutations), np.array(starts)


@listed
def agreement() -> Iterator[Check]:
    """Checks of the agreement of random pairs of hidden permutations, counted over all
    inputs.
    """
    for N, k in SIZES:
        given, start = every_input(N, k)
        rng, worst = np.random.default_rng([N, k]), []
        for _ in range(12):
            first, second = rng.permuted(np.tile(np.arange(N), (2, k, 1)), axis=-1)
            counted = Fraction(
                int(
                    (answer(first, given, start) == answer(second, given, start)).sum()
                ),
                len(start),
            )
            law = over_hops(
                equations()["agreement"], phi, (first == second).sum(1).tolist(), N
            )
            worst.append((float(abs(law - counted)), float(law), float(counted)))
        error, predicted, measured = max(worst)
        yield Check(
            f"agreement, N = {N}, k = {k}, 12 pairs, all inputs",
            "agreement",
            predicted,
            measured,
            error,
            0.0,
            "both sides rational",
        )


def kernels() -> list[Check]:
    """Expected accuracy of doubly stochastic kernels, over all inputs."""
    N, k = 3, 2
    given, start = every_input(N, k)
    rng = np.random.default_rng(5)
    hidden = rng.permuted(np.tile(np.arange(N), (k, 1)), axis=-1)
    group = np.array(list(itertools.permutations(range(N))))
    matrices = np.eye(N)[group].transpose(0, 2, 1)  # [sigma, sigma(x), x]
    kernel = np.einsum(
        "jg,gyx->jyx", rng.dirichlet(np.ones(len(group)), size=k), matrices
    )
    chances = apply(*map(torch.as_tensor, (kernel, given, start))).numpy()
    right = chances[np.arange(len(start)), answer(hidden, given, start)]
    m = [(kernel[j][hidden[j], np.arange(N)].sum() - 1) / (N - 1) for j in range(k)]
    return [
        identity(
            "accuracy of doubly stochastic kernels, all inputs",
            "hop_accuracy",
            over_hops(equations()["hop_accuracy"], overlap, m, N),
            right.mean(),
            1e-13,
            "sums of a few hundred float64 terms",
        )
    ]


@listed
def times() -> Iterator[Check]:
    """Time of direct training against its law, and the constant time per hop of the
    curriculum.
    """
    for k in (3, 4, 6):
        p = Parameters(k=k, m_0=1e-3)
        yield identity(
            f"direct training, k = {k}, m_0 = 1e-3",
            "direct_time",
            equations()["direct_time"].number(p.values()),
            direct_time(p),
            6e-3,
            "m_0 (pi/4 or less) at k = 3, smaller beyond: end point and saturation",
        )
    mixed = np.diff([mixture_time(Parameters(k=k)) for k in (6, 7, 8, 9)])
    yield identity(
        "time per hop of the mixture of 1 .. k hops does not grow with k",
        "mixture",
        mixed.min(),
        mixed.max(),
        1e-4,
        "hops are learned one after the other, like a front at constant speed",
    )
    p = Parameters(k=8)
    ends = curriculum_times(p)
    stages = np.diff(ends)
    yield identity(
        "time per hop of the curriculum does not grow with k",
        "curriculum",
        stages[1:].min(),
        stages[1:].max(),
        1e-3,
        "earlier overlaps at 0.9 and above move little in later stages",
    )
    yield identity(
        "curriculum at k = 8: 1.372 + 1.543 (k - 1)",
        "curriculum",
        1.372 + 1.543 * 7,
        ends[-1],
        1e-3,
        "four digits on record",
    )
    yield identity(
        f"one hop to {STAGE:g}: quadrature of the rate, and the flow",
        "equal_overlaps",
        direct_time(p.replace(k=1), STAGE),
        ends[0],
        1e-9,
        "event of the integrator",
    )


@listed
def learner_runs(k: int, progress: bool = False) -> Iterator[dict[str, Any]]:
    """Kernel learners with and without curriculum: predicted time, students' times."""
    for curriculum, level in ((False, 0.5), (True, STAGE)):
        p = STUDENTS.replace(k=k, curriculum=curriculum)
        predicted = (
            curriculum_times(p, "softmax")[-1]
            if curriculum
            else direct_time(p, 0.5, "softmax")
        )
        p = p.replace(eta=predicted / 400, steps=600, eval_every=2)
        runs = train(p, SEEDS, progress=progress)
        yield {
            "curriculum": curriculum,
            "k": k,
            "p": p,
            "predicted": predicted,
            "runs": runs,
            "times": first_crossing(runs["product"], level).values,
        }


@listed
def learners() -> Iterator[Check]:
    """Kernel learners against the flow of softmax kernels."""
    for k in (2, 3, 4):
        for runs in learner_runs(k):
            kind = "curriculum" if runs["curriculum"] else "direct"
            yield identity(
                f"kernel learners, {kind}, k = {k}",
                "equal_overlaps_softmax",
                runs["predicted"],
                runs["times"].mean(),
                0.08,
                "400 steps of 256 samples: gradient noise, growing with 1/signal; 0.5%"
                " Euler lag",
            )


laws = reporting(agreement, kernels, times, learners)
