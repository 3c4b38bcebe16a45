"""Means over ALL prompts, exactly: three points per Gaussian number, and the whole flow as an ODE.

No Gaussian number enters a squared error of linear attention with a power above four, and the rule
of Gauss and Hermite with three nodes is exact up to five: what is summed is what would be
integrated. So the real attention is held against the theory without noise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import scipy.integrate
import torch
from torch import Tensor

from linear_attention.simulate import student
from linear_attention.simulate.student import Weights
from linear_attention.theory.merged.onset import SHARE, plateau
from linear_attention.theory.parameters import Parameters

SEED = 20250127  # any fixed number; the checks hold for all
FLOW = dict(method="DOP853", rtol=1e-10, atol=1e-13)


@cache
def every(spectrum: str, N: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens (prompts, D+1, N+1), answers and weights of all prompts of the rule."""
    x = np.array([float(v) for v in spectrum.split(",")])
    rule = ((-(3**0.5), 1 / 6), (0.0, 2 / 3), (3**0.5, 1 / 6))
    grid = np.array(list(itertools.product(rule, repeat=x.size * (N + 2))))
    points = grid[:, :, 0].reshape(-1, x.size, N + 2)
    teacher, inputs = points[:, :, :1], points[:, :, 1:] * x[:, None] ** 0.5
    labels = (teacher * inputs).sum(1, keepdims=True)
    answers = labels[:, 0, -1].copy()
    labels[:, 0, -1] = 0
    weights = grid[:, :, 1].prod(1)
    X = np.concatenate([inputs, labels], 1)
    return torch.as_tensor(X), torch.as_tensor(answers), torch.as_tensor(weights)


def mean_loss(p: Parameters, weights: Weights) -> Tensor:
    """Loss of the attention on tokens over all prompts."""
    X, answers, share = every(p.spectrum, p.N)
    return (share * (answers - student.attention(weights, X)).square()).sum()


def rates(p: Parameters, weights: Weights) -> tuple[float, Weights]:
    """Loss, and the rates of all weights of the attention by autograd."""
    held = {n: w.detach().requires_grad_() for n, w in weights.items()}
    total = mean_loss(p, held)
    slopes = torch.autograd.grad(total / 2, list(held.values()), allow_unused=True)
    found = {
        n: torch.zeros_like(w) if s is None else -s
        for (n, w), s in zip(held.items(), slopes, strict=True)
    }
    return float(total.detach()), found


def numbers(p: Parameters, weights: Weights, **more: Any) -> dict[str, Any]:
    """Values by symbol name for `task.at`, weights and W and G included."""
    known = p.values() | {n: w.numpy() for n, w in weights.items()}
    W = student.matrix(weights)
    return known | {"W": W.numpy(), "G": student.Population(p).force(W).numpy()} | more


Event = Callable[[Weights], float]


def integrate(
    p: Parameters,
    weights: Weights,
    until: float,
    events: Mapping[str, Event] | None = None,
    at: Any = None,
) -> tuple[dict[str, float], Weights, list[float]]:
    """Gradient flow of every reduced weight: first time of each event, the end, the losses."""
    shapes, population = {n: w.shape for n, w in weights.items()}, student.Population(p)

    def split(y: np.ndarray) -> Weights:
        parts = torch.as_tensor(y).split([s.numel() for s in shapes.values()])
        return {n: x.reshape(s) for (n, s), x in zip(shapes.items(), parts, strict=True)}

    def joined(held: Weights) -> np.ndarray:
        return torch.cat([w.flatten() for w in held.values()]).numpy()

    def moving(_: float, y: np.ndarray) -> np.ndarray:
        held = split(y)
        return joined(student.population_rates(held, population.force(student.matrix(held))))

    watched = [lambda t, y, event=event: event(split(y)) for event in (events or {}).values()]
    done = scipy.integrate.solve_ivp(
        moving, (0, until), joined(weights), events=watched, t_eval=at, **FLOW
    )
    found = [float(t[0]) if len(t) else np.nan for t in done.t_events or []]
    losses = [float(population.loss(student.matrix(split(y)))) for y in done.y.T]
    return dict(zip(events or {}, found, strict=True)), split(done.y[:, -1]), losses


def dropping(p: Parameters) -> Event:
    """Three quarters of what the loss loses in all are gone."""
    population, D = student.Population(p), p.eigenvalues.size
    level = SHARE * plateau(p, D) + (1 - SHARE) * plateau(p, 0)
    return lambda weights: float(population.loss(student.matrix(weights))) - level


def learning(p: Parameters, d: int) -> Event:
    """Direction ``d``, counted from 0, is half learned."""
    known = p.values()
    half = known["lambda"][d] / known["a"][d] / 2
    return lambda weights: float(student.matrix(weights)[d, d]) - half
