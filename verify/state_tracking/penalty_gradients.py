"""A penalty on the divergence from an old policy: its value and slopes against autograd."""

import numpy as np
import torch
from torch.distributions import Categorical, kl_divergence

from theory.lowered import Lowered
from verify.check import Check, Sides, identity
from verify.report import Table
from verify.state_tracking.inputs import AUTOGRAD, AUTOGRAD_WHY, GENERATOR

N, L, WEIGHT = 6, 4, 0.2  # states, steps and weight of the penalty
BEFORE = 0.4  # margin of the right state where rewards took over
MARGINS = (0.9, 1.7, 3.1)


def policy(margin: torch.Tensor) -> Categorical:
    """Next states of the mean-field student; the first is right."""
    return Categorical(logits=torch.cat([margin[None], torch.zeros(N - 1, dtype=margin.dtype)]))


def last_is_right(success: torch.Tensor) -> torch.Tensor:
    """Probability of the right state after all steps; from a wrong state it is reached as any state
    that is not the right next one.
    """
    right = torch.ones_like(success)
    for _ in range(L):
        right = right * success + (1 - right) * (1 - success) / (N - 1)
    return right


def clocks(eq: Table) -> list[Check]:
    """Divergence of a step, the clock of a reward with a penalty, and the weight that stops it, by
    the margin of the mean-field student.
    """
    old = policy(torch.tensor(BEFORE, dtype=torch.float64))
    sides = Sides(eq, AUTOGRAD, AUTOGRAD_WHY)
    for value in MARGINS:
        margin = torch.tensor(value, dtype=torch.float64, requires_grad=True)
        new = policy(margin)
        divergence, gain = kl_divergence(new, old), new.probs[0].log()  # minus the supervised loss
        pace, drag, unit = (
            float(torch.autograd.grad(x, margin, retain_graph=True)[0])
            for x in (last_is_right(new.probs[0]), L * divergence, gain)
        )
        numbers = {"N": N, "L": L, "penalty": WEIGHT, "success_0": float(old.probs[0])}
        numbers["success"] = float(new.probs[0].detach())
        clock = (pace - WEIGHT * drag) / unit
        sides.add("divergence of a step", "divergence", numbers, float(divergence.detach()))
        sides.add("clock with a penalty, by the margin", "penalty_clock", numbers, clock)
        sides.add(
            "weight that stops students, by the margin", "penalty_balance", numbers, pace / drag
        )
    return sides.checks()


def transitions(eq: Table) -> list[Check]:
    """Slope by every logit, through the softmax, of minus the divergence in the states that are
    visited.
    """
    steps, actions = 2, 3
    rng = np.random.default_rng(GENERATOR)
    z, before = (torch.tensor(rng.normal(size=(steps, actions, N, N))) for _ in range(2))
    visits = torch.tensor(rng.dirichlet(np.ones(N), size=steps))  # step, state
    z.requires_grad_()
    old, new = (Categorical(logits=x.transpose(2, 3)) for x in (before, z))  # next state last
    cost = (visits[:, None] * kl_divergence(new, old)).sum() / actions
    (measured,) = torch.autograd.grad(-WEIGHT * cost, z)
    entry = eq["divergence_slope"]
    P = new.probs.transpose(2, 3).detach().numpy()
    values = {
        "penalty": WEIGHT,
        "d_g": actions,
        "visits": visits.numpy(),
        "transition": P,
        "transition_old": old.probs.transpose(2, 3).numpy(),
    }
    (slope,) = Lowered({entry.lhs: entry.rhs}, [entry.lhs])(values)
    by_logit = P * (slope - (P * slope).sum(2, keepdims=True))
    name = "slope of the penalty, through the softmax"
    return [identity(name, "divergence_slope", by_logit, measured, AUTOGRAD, AUTOGRAD_WHY)]


def penalty_derivatives(eq: Table) -> list[Check]:
    """A penalty on the mean-field student and on all transitions."""
    return clocks(eq) + transitions(eq)
