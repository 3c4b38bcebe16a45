"""Derivations beyond the paper against autograd: forces of the dressed loss and the decay of the
variance of M; a penalty on the divergence from an old policy, its value and slopes.
"""

import itertools
from collections.abc import Iterator

import numpy as np
import torch
from torch.distributions import Categorical, kl_divergence

from simulate.state_tracking.student import Student
from theory.lowered import Lowered
from theory.state_tracking import Parameters, dressed, task
from verify.check import Check, Sides, identity, listed
from verify.report import Table
from verify.state_tracking.inputs import AUTOGRAD, GENERATOR

N, L, WEIGHT = 6, 4, 0.2  # states, steps and weight of the penalty
BEFORE = 0.4  # margin of the right state where rewards took over
MARGINS = (0.9, 1.7, 3.1)


@listed
def dressed_derivatives(eq: Table) -> Iterator[Check]:
    """Forces of the dressed loss by autograd of its definition, and the decay of M's variance by an
    exact Hessian.
    """
    N, d_g, V, R, S, zeta = 6, 5, 0.3, 0.7, 0.1, 0.2
    row = torch.tensor(
        [0.4, 0.1, 0.2, 0.3], dtype=torch.float64, requires_grad=True
    )  # the first is the right action

    def loss(detach: bool) -> torch.Tensor:
        c_R = row[0] + (1 - row[0]) / d_g
        right = c_R * R + (1 - c_R) * S
        z = torch.cat([right[None], ((zeta - right) / (N - 1)).expand(N - 1)])
        noise = V * ((1 - 1 / d_g) * row.square().sum() + 1 / d_g)
        weights = torch.softmax(z, 0)
        cost = (weights * (1 - weights)).sum()  # sum of second derivatives of ln Z
        return torch.logsumexp(z, 0) - right + (noise.detach() if detach else noise) * cost / 2

    (whole,), (part,) = (torch.autograd.grad(loss(detach), row) for detach in (False, True))
    margin = eq["margin_position"].evaluate(
        {"pi_i": 0.4, "N": N, "d_g": d_g, "R": R, "S": S, "zeta": zeta}
    )
    values = {
        "N": N,
        "d_g": d_g,
        "R": R,
        "S": S,
        "g": eq["g"].evaluate({"N": N, "m": margin}),
        "V_M": V,
        "v_i": V * ((1 - 1 / d_g) * 0.3 + 1 / d_g),
    }
    values["h_i"] = eq["noise_cost"].evaluate(values)
    entry = dressed.pi[dressed.i, dressed.j]
    against = [eq["dloss_dpi_noise"].evaluate(values | {entry: x}) for x in row.tolist()]
    yield from [
        identity(
            "force on the right action",
            "dloss_dpi_margin",
            eq["dloss_dpi_margin"].evaluate(values),
            part[0].item(),
            *AUTOGRAD,
        ),
        identity(
            "force against concentration",
            "dloss_dpi_noise",
            against,
            (whole - part).numpy(),
            *AUTOGRAD,
        ),
    ]
    # Every sequence of a small task at M = 0, where all logits are equal: curvature of the loss
    # along single entries.
    p = Parameters(N=3, L=2, d_g=3, d_h=4, eta=0.7)
    rng = np.random.default_rng(GENERATOR)
    student = Student(
        p, {**task.draw_weights(p, rng), "M": np.zeros((p.d_g, p.N, p.N))}, torch.float64
    )
    perms, starts = task.draw_permutations(p, rng), np.arange(p.N)
    every = np.array(list(itertools.product(range(p.d_g), range(p.d_g), starts)))
    states = task.visited(perms, every[:, : p.L], every[:, 2])
    actions, path = torch.as_tensor(every[:, : p.L]), torch.as_tensor(states)
    weights = dict(student.named_parameters())

    def of_M(M: torch.Tensor) -> torch.Tensor:
        logits = torch.func.functional_call(
            student, {**weights, "M": M.reshape(student.M.shape)}, (actions, path[:, :-1])
        )
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), path[:, 1:].flatten())

    hessian = torch.autograd.functional.hessian(
        of_M, torch.zeros(student.M.numel(), dtype=torch.float64)
    )
    bend = torch.as_tensor(hessian).diagonal().mean().item()
    attention = student.attention(actions[:1], path[:1, :-1])[0].detach().numpy()
    spread = eq["spread"].evaluate({"participation": (attention**2).sum(1), "d_g": p.d_g})
    curvature = np.full(p.L, eq["curvature"].evaluate({"g": 1 - 1 / p.N, "N": p.N}))
    rate = eq["dV_dalpha"].evaluate(
        {"spread": spread, "curvature": curvature, "eta": p.eta, "V_M": V, "L": p.L}
    )
    yield identity(
        "decay of the variance of M at M = 0",
        "dV_dalpha",
        rate,
        -2 * p.eta * p.d_g * p.N * bend * V,
        *AUTOGRAD,
    )


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
    sides = Sides(eq, *AUTOGRAD)
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
    return [identity(name, "divergence_slope", by_logit, measured, *AUTOGRAD)]


def penalty_derivatives(eq: Table) -> list[Check]:
    """A penalty on the mean-field student and on all transitions."""
    return clocks(eq) + transitions(eq)
