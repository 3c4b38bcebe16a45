"""Gaussian data of unit variance: the loss to first order in 1/D, students with all
weights trained from D = 16 to 256, and the law of fast attention.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from simulate.induction_heads import student as task
from simulate.induction_heads import train
from simulate.induction_heads.student import NAMES, Nineteen, squared_error
from simulate.training.pool import one_thread
from simulate.training.streams import of_torch
from theory.induction_heads import Parameters
from theory.induction_heads.all_weights import descent, gaussian
from theory.induction_heads.all_weights.running import loss_and_gradient
from theory.induction_heads.onset import all_weights_times
from verify.checks.check import (
    Band,
    Check,
    Noted,
    identity,
    listed,
    sampled,
    with_notes,
)
from verify.induction_heads.flow_laws import dropped, limit

# Population loss on Gaussian data to first order in 1/D, computed from the network
#
# The loss over D is a function of inner products divided by D, which are uncorrelated,
# with third moments of order 1/D^2. The coefficient of 1/D is half the sum of second
# derivatives times variances, by central differences between frames with shifted inner
# products.

SHIFT = (
    1e-2  # shift of an inner product; relative error of the coefficient 1e-5 (measured)
)


def _shifts(size: int, own: float) -> Tensor:
    """Shifts of single entries of a symmetric matrix, in units of their standard
    deviation: (entries, size, size).
    """
    i, j = torch.tril_indices(size, size)
    shifts = torch.zeros(len(i), size, size, dtype=torch.float64)
    each = torch.arange(len(i))
    shifts[each, i, j] = shifts[each, j, i] = _deviation("other")
    shifts[each[i == j], i[i == j], i[i == j]] = own
    return shifts


def _deviation(name: str) -> float:
    """Standard deviation of an inner product divided by D, times sqrt(D)."""
    return float(
        np.sqrt(gaussian.equations()[f"gram_variance_{name}"].evaluate({"D": 1}))
    )


def realised(*grams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Items, labels and codes in 2N dimensions with given inner products.

    Parameters
    ----------
    *grams : Tensor
        Gram matrices of items and labels (frames, 2N, 2N), and twice those of the
        components of codes in the eigenspaces +1 and -1 of M (frames, N, N): p.p' is
        their mean, p M p' half their difference.

    Returns
    -------
    tuple of Tensor
        Each (frames, N, 2N).
    """
    tokens, plus, minus = (torch.linalg.cholesky(g) for g in grams)
    size = plus.shape[-1]
    return (
        tokens[:, :size],
        tokens[:, size:],
        torch.cat([plus + minus, plus - minus], -1) / 2,
    )


def shifted(size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Frames with one inner product shifted up or down."""
    tokens = _shifts(2 * size, _deviation("own"))
    plain, swapped = (_shifts(size, _deviation(name)) for name in ("own", "swapped"))
    still = tokens.new_zeros(len(tokens), size, size)
    tokens = torch.cat([tokens, tokens.new_zeros(2 * len(plain), 2 * size, 2 * size)])

    def both(*shifts: Tensor) -> Tensor:
        shift = SHIFT * torch.cat(shifts)
        eye = torch.eye(shift.shape[-1], dtype=shift.dtype)
        return torch.cat([eye + shift, eye - shift])

    return realised(
        both(tokens), both(still, plain, swapped), both(still, plain, -swapped)
    )


def coefficient(
    size: int, mask: str = "strict"
) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """Coefficient of 1/D in the loss over D for a uniform query, and its gradient, as a
    function of the nineteen pseudo-parameters, with alphas and betas multiplied by D.
    """
    data = shifted(size)
    count = len(data[0])
    query = torch.arange(size).repeat_interleave(count)
    items, labels, codes = (x.repeat(size, 1, 1) for x in data)
    batch = task.batch_of(items, labels, codes, query)
    student = Nineteen(2 * size, mask, torch.float64)

    def of(theta: np.ndarray) -> tuple[float, np.ndarray]:
        student.theta.data = torch.as_tensor(theta, dtype=torch.float64)
        student.zero_grad()
        loss = squared_error(student(batch.X), batch.y, "sum")
        loss.backward()
        still, slope = loss_and_gradient(theta, size, "uniform", mask)
        scale = count / 2 / SHIFT**2
        moved = torch.as_tensor(student.theta.grad).numpy()
        return scale * (float(loss.detach()) - still), scale * (moved - slope)

    return of


SIZE, DIMENSIONS = 4, (16, 32, 64, 128, 256)  # the paper's smallest N
SEEDS = range(10)
BATCHES = (64, 256)
# from this D on only the larger batch: at 64, 0.8 of the weights lie outside the 19
NOISY = 256
RATES = {128: 1 / 16, 256: 1 / 16}  # learning rate; batch noise grows with eta D
RATE = 1 / 8
LONGER = 1.25  # than descent: small batches drop later
LARGE = (
    16,
    32,
)  # N, D of the default setting, where `theory.onset` has leading order in 1/D
LARGE_SEEDS = range(6)
LEADING = {  # learning rate: of seeds 100 to 109, +- 6 standard errors
    1 / 8: Band(0.0095, 0.0217, "terms of order 1/D, and noise of batches"),
    1.0: Band(0.036, 0.0745, "terms of order 1/D, noise of batches, and large steps"),
}
HALF_FILLED = (4, 8)  # sizes at N = D/2, as the paper's
LOSS_DIMENSIONS = (64, 128)
GROUPS, DRAWS = 32, 2000
LAW_SIZE, LAW_PACES, LAW_RTOL = 2048, (64, 128), 1e-6  # values of D / N^(1/2)
TOLERANCES = {
    "last": lambda N: (math.log(N) / N, "ln N / N: the order that the law leaves out"),
    "uniform": lambda N: (
        1 / math.log(N),
        "1 / ln N: the order that the law leaves out",
    ),
}


def speeds(D: float) -> dict[str, float]:
    """Relative rates in the scale of normalised vectors, in which gammas move at rate
    1.
    """
    return descent.rates("gaussian", D)[0] or {}


def parameters(D: int, size: int = SIZE, batch: int = 1, steps: int = 1) -> Parameters:
    """Parameters of students with all weights trained on Gaussian data."""
    return Parameters(
        N=size,
        D=D,
        query="uniform",
        eta=RATES.get(D, RATE),
        batch_size=batch,
        steps=steps,
        eval_every=max(1, steps // 100),
    )


def drop(D: int, size: int = SIZE, order: int = 1) -> float:
    """Steps of descent on the population loss until it is 1/2,
    to order 0 or 1 in 1/D.
    """
    p = parameters(D, size)
    correction = coefficient(size, p.mask) if order else None
    step = (
        p.eta / D * np.array(list(speeds(D).values()))
    )  # eta / D in the scale of gammas
    theta, before = np.zeros(len(NAMES)), 1.0
    for number in range(int(descent.HORIZON * size**2 / p.eta)):
        loss, gradient = loss_and_gradient(theta, size, "uniform", p.mask)
        if correction is not None:
            more, slope = correction(theta)
            loss, gradient = loss + more / D, gradient + slope / D
        if loss < descent.HALF:
            return number - (descent.HALF - loss) / (before - loss)
        theta, before = theta - step * gradient, loss
    return np.inf


def points() -> dict[str, np.ndarray]:
    """Points at which the loss is expanded: one with all nineteen pseudo-parameters
    nonzero, and an induction head at which each of the three variances contributes at
    least a seventh of the coefficient.
    """
    head = {"alpha_2": 2.0, "alpha_3": 2.0, "beta_2": 3.0, "gamma_3": 1.0}
    return {
        "all nineteen": 0.5 * np.random.default_rng(4).standard_normal(len(NAMES)),
        "a head": np.array([head.get(n, 0.0) for n in NAMES]),
    }


def excess(theta: np.ndarray, size: int, D: int, groups: int, draws: int) -> np.ndarray:
    """D (mean loss on Gaussian data - that on orthonormal), one estimate per group of
    draws.

    The loss is regressed on the inner products, whose means are known; this removes
    their linear effect, which is D^(1/2) times larger.
    """
    student = Nineteen(2 * size, "strict", torch.float64)
    student.theta.data = torch.as_tensor(theta)
    still = loss_and_gradient(theta, size, "uniform", "strict")[0]
    query = torch.arange(size).repeat_interleave(draws)
    estimates = []
    for group in range(groups):
        random = of_torch(D, group)
        shapes = ((2 * size, D), (size, D // 2), (size, D // 2))
        drawn = (
            torch.randn(draws, *s, generator=random, dtype=torch.float64)
            for s in shapes
        )
        grams = [x @ x.mT / x.shape[-1] for x in drawn]
        items, labels, codes = (x.repeat(size, 1, 1) for x in realised(*grams))
        batch = task.batch_of(items, labels, codes, query)
        with torch.no_grad():
            errors = (student(batch.X) - batch.y).square().sum(-1)
        losses = errors.view(size, draws).mean(0)
        columns = [torch.ones(draws, 1, dtype=torch.float64)]
        for gram in grams:
            i, j = torch.tril_indices(*gram.shape[1:])
            columns.append((gram - torch.eye(gram.shape[-1]))[:, i, j])
        fit = torch.linalg.lstsq(torch.cat(columns, 1), losses[:, None])
        estimates.append(D * (float(fit.solution[0]) - still))
    return np.array(estimates)


@listed
def loss_to_first_order(
    size: int = SIZE, groups: int = GROUPS, draws: int = DRAWS
) -> Iterator[Check]:
    """Coefficient of 1/D in the loss, extrapolated to infinite D from two values."""
    with one_thread():
        first_order = coefficient(size)
        for place, theta in points().items():
            values = [excess(theta, size, D, groups, draws) for D in LOSS_DIMENSIONS]
            yield sampled(
                f"coefficient of 1/D in the loss on Gaussian data, N = {size}, {place}",
                "gram_variance_other",
                first_order(theta)[0],
                limit(LOSS_DIMENSIONS, values),
            )


@cache
def descents(D: int, size: int) -> tuple[float, float]:
    """Steps to the drop to order 0 and 1 in 1/D."""
    with one_thread():
        return drop(D, size, 0), drop(D, size, 1)


def drops(
    D: int, size: int, trained: Callable[[Parameters], xr.Dataset]
) -> dict[int | None, np.ndarray]:
    """Number of steps to the drop for every seed, by batch size; ``trained`` returns
    the runs.

    The entry None is the limit of infinite batch size: seed by seed, the term linear in
    1/batch is removed using two batch sizes, if D allows.
    """
    steps = int(LONGER * descents(D, size)[1])
    by_batch: dict[int | None, np.ndarray] = {}
    for batch in BATCHES if D < NOISY else BATCHES[1:]:
        p = parameters(D, size, batch, steps)
        by_batch[batch] = dropped(trained(p)).values / p.time_per_step
    if len(by_batch) == 1:
        return by_batch
    return {**by_batch, None: limit(BATCHES, [*by_batch.values()])}


@with_notes
def students(**more: Any) -> Iterator[Check | str]:
    """Drop of students with all weights trained, extrapolated in the batch size,
    against descent on the population loss to first order in 1/D.
    """
    for D in DIMENSIONS:
        zero, predicted = descents(D, SIZE)
        steps = drops(D, SIZE, lambda p: train(p, seeds=SEEDS, **more))
        batch, best = list(steps.items())[-1]
        yield sampled(
            f"steps to the drop on Gaussian data, N = {SIZE}, D = {D},"
            f" {batch_in_words(batch)}",
            "first order in 1/D",
            predicted,
            best,
        )
        ratios = [
            f"{x.mean() / zero:.3f} ({batch_in_words(b)})" for b, x in steps.items()
        ]
        yield (
            f"  Gaussian data, uniform q, N = {SIZE}, D = {D}: steps to the drop over"
            f" {zero:.1f} of order zero in 1/D: {', '.join(ratios)}; first order"
            f" {predicted / zero:.3f}"
        )


@listed
def leading_order(seeds: Iterable[int] = LARGE_SEEDS, **more: Any) -> Iterator[Check]:
    """Drop of students of the default sizes against the number of `theory.onset`: the
    flow to leading order in 1/D.
    """
    for eta, band in LEADING.items():
        N, D = LARGE
        p = parameters(D, N, BATCHES[1]).replace(eta=eta)
        predicted = all_weights_times(p)["T_drop"] / p.time_per_step
        steps = int(LONGER * predicted)
        p = p.replace(steps=steps, eval_every=max(1, steps // 100))
        yield sampled(
            f"steps to the drop on Gaussian data by leading order, N = {N}, D = {D},"
            f" eta = {eta:g}",
            "leading order in 1/D",
            predicted,
            dropped(train(p, seeds=seeds, **more)).values / p.time_per_step,
            band=band,
        )


def batch_in_words(batch: int | None) -> str:
    """Batch size in words."""
    return "infinite batch" if batch is None else f"batch {batch}"


def half_filled() -> list[str]:
    """First order in 1/D at N = D/2, as in the paper."""
    lines = []
    for N in HALF_FILLED:
        zero, first = descents(2 * N, N)
        lines.append(
            f"  Gaussian data, N = {N}, D = {2 * N}: first order in 1/D moves the drop"
            f" by {first / zero - 1:+.1%}"
        )
    return lines


@listed
def against_law(size: int = LAW_SIZE) -> Iterator[Check]:
    """Times of the flow of all weights, with inner products as at D = infinity, over
    those of the equations; extrapolated to infinite D / N^(1/2).
    """
    equations = gaussian.equations()
    for query in descent.QUERIES:
        ratios: dict[str, list[float]] = {}
        for pace in LAW_PACES:
            D = pace * math.sqrt(size)
            measured = descent.times(size, query, speed=speeds(D), rtol=LAW_RTOL)
            for short in ("T_beta", "T_drop"):
                predicted = equations[f"{short}_gaussian_{query}"].evaluate(
                    {"N": size, "D": D, "theta": descent.HALF}
                )
                ratios.setdefault(short, []).append(
                    measured[short] / (D * predicted)
                )  # gammas at 1
        tolerance, why = TOLERANCES[query](size)
        yield from [
            identity(
                f"{short}_gaussian_{query} over the flow of all weights, N = {size}",
                f"{short}_gaussian_{query}",
                1.0,
                limit(LAW_PACES, at_two),
                tolerance,
                why,
            )
            for short, at_two in ratios.items()
        ]


def everything(**more: Any) -> Noted:
    """All of the above: checks and notes of ``verify.timescales``."""
    rows, notes = students(**more)
    checks = [*loss_to_first_order(), *against_law(), *rows, *leading_order(**more)]
    return checks, [*notes, *half_filled()]
