"""One-pass descent of the positional-semantic layer: population loss, rates and growth rates
against autograd of all weights; students, extrapolated to many dimensions, against the flow; where
random starts end.

In three dimensions (teacher, positions, one more) and on Gauss-Hermite nodes of all six token
entries the mean over sentences is a sum, whose gradient autograd gives.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from simulate.positional_semantic import online as students
from theory import titles
from theory.positional_semantic.online import Parameters, equations, predict
from theory.positional_semantic.online.numbers import numbers_at
from theory.runtime import plotting
from theory.special import gauss_hermite
from verify import ensemble
from verify.check import Check, Sides, identity, listed, near, sampled
from verify.positional_semantic import random_starts
from verify.positional_semantic.minima import at_infinity, over_d
from verify.report import Report, Request, Table, derivations
from verify.trajectories import compare, overlay

# Rates against autograd

NODES = (14, 14, 6)  # for a token's three entries; weights are small along the last
LEAST = 1e-11  # weight of a node; all below have less than 1e-7 together
POINTS = (
    Parameters(omega=0.3, sigma=0.4, decay=0.02),
    Parameters(omega=0.6, target="alternative", sigma=0.3),
)
WEIGHTS = ((0.5, 0.3, -0.15), (0.2, -0.4, 0.1))  # along the teacher, the positions, the rest
NODES_WHY = 2e-6, "Gauss-Hermite nodes of all six entries"
CLOSE = 1e-3  # an overlap this small is at its linear stage, to its square
SMALL = 1e-3  # norm by sqrt(d) of small weights; the next order is its square
STUDENT = ("q", "m", "theta")


@cache
def tokens(sigma: float) -> tuple[Tensor, Tensor]:
    """Entries of both tokens in three dimensions, shape ``(sentence, 2, 3)``, and weights."""
    axes, shares = zip(*map(gauss_hermite, NODES), strict=True)
    x = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
    weight = np.stack(np.meshgrid(*shares, indexing="ij"), -1).reshape(-1, 3).prod(1)
    both = np.outer(weight, weight)
    first, second = np.nonzero(both > LEAST)
    return torch.as_tensor(sigma * np.stack([x[first], x[second]], 1)), torch.as_tensor(
        both[first, second]
    )


def sentence(p: Parameters, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Loss of every sentence with a Gram matrix of sigma^2, its fields, and weights of the mean."""
    x, weight = tokens(p.sigma)
    z = x @ w + torch.tensor([1.0, -1.0], dtype=w.dtype) * w[1]
    student = torch.softmax(z[:, :, None] * z[:, None, :], 2)
    h = x[..., 0]
    target = (1 - p.omega) * torch.softmax(h[:, :, None] * h[:, None, :], 2)
    gap = target + p.omega * torch.as_tensor(p.A) - student
    return p.sigma**2 / 2 * gap.square().sum((1, 2)), z, weight


def state(p: Parameters, w: Tensor) -> dict[str, float]:
    """Order parameters of weights."""
    return {"q": p.sigma**2 * float(w @ w), "m": float(w[1]), "theta": p.sigma**2 * float(w[0])}


def rates_of_overlaps(table: Table) -> list[Check]:
    """Loss, noise and rates, free and at a given norm, at two points."""
    sides = Sides(table, *NODES_WHY)
    for p, values in zip(POINTS, WEIGHTS, strict=True):
        w = torch.tensor(values, dtype=torch.float64, requires_grad=True)
        losses, z, weight = sentence(p, w)
        loss = (losses * weight).sum()
        (down,) = torch.autograd.grad(loss, [w], retain_graph=True)
        (slopes,) = torch.autograd.grad(losses.sum(), [z])
        noise = float((slopes.square().sum(1) * weight).sum())
        moved = -down - p.decay * w.detach()
        w = w.detach()
        step = {
            "q": 2 * p.sigma**2 * float(moved @ w) + p.values()["step"] * p.sigma**4 * noise,
            "m": float(moved[1]),
            "theta": p.sigma**2 * float(moved[0]),
        }
        known = p.values() | {**state(p, w), "noise": noise}
        sides.add("population loss", "population_loss", known, loss.detach())
        sides.add("squared slopes of a sentence", "noise", known, noise)
        for x in STUDENT:
            sides.add(f"rate of {x}", f"d{x}_dt", known, step[x])
            if x != "q":
                along = step[x] - known[x] * step["q"] / (2 * known["q"])
                sides.add(f"rate of {x} at a given norm", f"d{x}_dt_held", known, along)
    return sides.checks()


@listed
def growth(table: Table) -> Iterator[Check]:
    """Growth rates against rates at a small overlap; those of small weights against them."""
    for p in POINTS:
        for x in ("m", "theta"):
            known = numbers_at(p)
            near_zero = known | {x: CLOSE}
            for end in ("", "_held"):
                rate = equations()[f"d{x}_dt{end}"].number(near_zero) / CLOSE
                equation = f"growth_{x}{end}"
                yield near(
                    f"growth of {x}{end.replace('_', ', norm ')}, {p.target}",
                    equation,
                    table[equation].number(known),
                    rate,
                    1e-3,
                    "next order in the overlap",
                    scale=abs(rate) + 1e-3,
                )
    p = Parameters(omega=0.3, scale=SMALL, batch=None)
    known = numbers_at(p)
    for x in STUDENT:
        yield near(
            f"growth of small weights, {x}",
            f"growth_{x}_small",
            table[f"growth_{x}_small"].number(known),
            _per_overlap(known, x),
            1e-4,
            "next order in the norm",
        )


def _per_overlap(known: Mapping[str, Any], x: str) -> float:
    """Rate per weight in a direction, at zero overlaps and without the noise of steps."""
    if x == "q":
        return equations()["dq_dt"].number(known) / (2 * known["q"])
    return equations()[f"growth_{x}"].number(known)


def escape(table: Table) -> list[Check]:
    """Overlaps of 1/sqrt(d) that grow at their rates are one at their escape times."""
    cases = ((100, 0.2), (10**6, 0.01))
    times = [table["T_escape"].evaluate({"d": d, "growth": rate}) for d, rate in cases]
    ends = [np.exp(rate * t) / d**0.5 for t, (d, rate) in zip(times, cases, strict=True)]
    return [identity("an overlap at its escape time", "T_escape", 1.0, ends, 1e-12, "rounding")]


GRADIENTS = (rates_of_overlaps, growth, escape)
checks, gradients = derivations(GRADIENTS, equations)


# Students against the flow

SOURCE = ensemble.of_system(students.SYSTEM, seeds="12")
SHARES = (0.25, 0.5, 1.0)  # of the run, at which students are compared
SEEN = 0.15  # relative deviation that 16 seeds at two sizes resolve, by the scatter of four
NAMES = {"q": "q", "m": "m", "theta": r"\theta"}


def trajectories(request: Request) -> Report:
    """Order parameters at d = infinity, linear in 1/d through d/2 and d; all curves at d in the
    notes.
    """
    p, runs = ensemble.get(request)
    curve = predict(p, runs)
    beside = compare(curve, runs)
    notes = [f"at d = {p.d}: {beside.spoken()}"]
    if request.runs is not None:
        return Report(beside.checks, notes, draw=lambda: draw(p, curve, runs))
    half = p.replace(d=p.d // 2, steps=p.steps // 2, eval_every=max(1, p.eval_every // 2))
    smaller = students.train(half, runs.seed.values.tolist(), **request.training)
    checks = at_many_dimensions(curve, {half.d: smaller, p.d: runs})
    return Report(checks, notes, draw=lambda: draw(p, curve, runs))


@listed
def at_many_dimensions(curve: xr.Dataset, runs: dict[int, xr.Dataset]) -> Iterator[Check]:
    """Students extrapolated seed by seed, at some times."""
    sizes = sorted(runs)
    end = float(curve.t[-1])
    for share in SHARES:
        curves = [runs[d].sel(t=share * end, method="nearest") for d in sizes]
        there = curve.interp(t=float(curves[-1].t), method="cubic")
        for x in NAMES:
            values = at_infinity(over_d([of[x].drop_vars("t") for of in curves], sizes)).values
            if np.ptp(values) < 1e-12 * np.abs(values).max():
                continue  # held
            yield sampled(
                f"{x} at t = {float(curves[-1].t):.3g}",
                f"d{x}_dt",
                float(there[x]),
                values,
                required=SEEN,
                scale=float(np.abs(curve[x]).max()),
            )


@plotting.panels(1, 2)
def draw(p: Parameters, curve: xr.Dataset, runs: xr.Dataset, *axes: Any) -> Any:
    """Students as bands, the flow as lines."""
    overlaps = {x: (f"${tex}$", f"C{k}") for k, (x, tex) in enumerate(NAMES.items())}
    loss = {"loss": ("loss", "C3")}
    panels = {"order parameter": overlaps, r"loss $\mathbb{E}|y-f|^2/(2d)$": loss}
    overlay(axes, panels, runs, curve, r"time $t = \eta \cdot$ steps$/d$")
    return titles.of_runs(p, runs)


thresholds = random_starts.report
