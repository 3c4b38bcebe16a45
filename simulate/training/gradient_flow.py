"""Gradient flow of all weights of a student by autograd, the limit of gradient descent
for small steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import scipy.integrate
import torch
from torch import Tensor

Weights = Mapping[str, Tensor]


def rates(
    loss: Callable[[Weights], Tensor], weights: Weights
) -> tuple[Tensor, dict[str, Tensor]]:
    """Rates of named weights: minus the gradient of the loss; zero for weights on which
    it does not depend.
    """
    held = {n: w.detach().requires_grad_() for n, w in weights.items()}
    total = loss(held)
    slopes = torch.autograd.grad(total, list(held.values()), materialize_grads=True)
    return total.detach(), {n: -slope for n, slope in zip(held, slopes, strict=True)}


def integrate(
    loss: Callable[[Weights], Tensor],
    weights: Weights,
    until: float,
    *,
    at: Sequence[float] | None = None,
    events: Mapping[str, Callable[[Weights], float]] | None = None,
    rtol: float = 1e-10,
    atol: float = 1e-13,
) -> tuple[list[dict[str, Tensor]], dict[str, float]]:
    """Integrate d weights / dt = - gradient of the loss (DOP853).

    Parameters
    ----------
    loss : callable
        Loss as a function of named weights; returns a scalar tensor.
    weights : mapping of str to Tensor
        Initial weights, in double precision on the CPU.
    until : float
        Final time.
    at : sequence of float, optional
        Output times, increasing; only the final time by default.
    events : mapping of str to callable, optional
        Functions of the weights; the first zero of each is located.
    rtol, atol : float
        Tolerances of the integrator.

    Returns
    -------
    list of dict
        Weights at the output times.
    dict
        First time of each event; NaN if it does not occur.
    """
    shapes = {n: w.shape for n, w in weights.items()}
    events = events or {}

    def split(y: np.ndarray) -> dict[str, Tensor]:
        parts = torch.as_tensor(y).split([s.numel() for s in shapes.values()])
        return {
            n: x.reshape(s) for (n, s), x in zip(shapes.items(), parts, strict=True)
        }

    def joined(parts: Weights) -> np.ndarray:
        return torch.cat([w.detach().flatten() for w in parts.values()]).numpy()

    def right_hand_side(_: float, y: np.ndarray) -> np.ndarray:
        return joined(rates(loss, split(y))[1])

    def crossing(event: Callable[[Weights], float]) -> Callable[..., float]:
        return lambda _, y: float(event(split(y)))

    run = scipy.integrate.solve_ivp(
        right_hand_side,
        (0, until),
        joined(weights),
        "DOP853",
        t_eval=[until] if at is None else at,
        events=[*map(crossing, events.values())],
        rtol=rtol,
        atol=atol,
    )
    first = (float(t[0]) if t.size else np.nan for t in run.t_events or [])
    return [split(y) for y in run.y.T], dict(zip(events, first, strict=True))
