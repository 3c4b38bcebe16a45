"""Updates of the overlaps R and S against autograd, for drawn teachers and on average."""

import itertools

import numpy as np
import torch

from theory.state_tracking import task
from verify.check import Check, Sides, sampled
from verify.report import Table
from verify.state_tracking.inputs import (
    AUTOGRAD,
    AUTOGRAD_WHY,
    DRAWS,
    EXACT,
    EXACT_WHY,
    GENERATOR,
    Inputs,
    P,
    grad,
)


def projected(x: Inputs) -> tuple[float, float]:
    """Changes of R and S in one epoch of descent on the mean-field loss; exact, as they are linear
    in M.
    """
    R, S = x.overlaps()
    step = -x.p.eta * grad(x.loss(), x.M)
    return float((grad(R, x.M) * step).sum()), float((grad(S, x.M) * step).sum())


def overlap_updates(eq: Table) -> list[Check]:
    """Updates of R and S with the drawn teachers' tau (54, 56), and sigma = tau (58)."""
    x = Inputs()
    values, (dR, dS) = x.values(), projected(x)
    own = x.teachers.numpy()
    triples = [np.trace(own[a].T @ own[c]) for a, b, c in itertools.permutations(range(x.p.d_g), 3)]
    sides, exact = Sides(eq, AUTOGRAD, AUTOGRAD_WHY), Sides(eq, EXACT, EXACT_WHY)
    sides.add("update of R", "delta_R", values, dR)
    sides.add("update of S", "delta_S", values, dS)
    exact.add("sigma = tau", "sigma_overlap", values, np.mean(triples) / x.p.N)
    return [*sides.checks(), *exact.checks()]


def seed_means(eq: Table) -> list[Check]:
    """Updates averaged over drawn teachers (59), and the mean overlaps (77 and for independent
    draws).

    All draws start from M = 0, with the same logits and hence the same g; one autograd call gives
    the descent step of every draw.
    """
    p = P.replace(L=2)
    x, rng = Inputs(p), np.random.default_rng(GENERATOR)
    kinds = {kind: p.replace(permutations=kind) for kind in ("iid", "distinct")}
    drawn = {
        kind: np.stack([task.draw_permutations(q, rng) for _ in range(DRAWS)])
        for kind, q in kinds.items()
    }
    perms = torch.tensor(drawn["iid"])
    M = torch.zeros(DRAWS, p.d_g, p.N, p.N, dtype=torch.float64, requires_grad=True)
    o = x.student.retrieve(x.attention()[None], x.actions).detach()
    current = x.states[None, :, 0].expand(DRAWS, -1)
    correct = total = torch.zeros(DRAWS, dtype=torch.float64)
    for t in range(p.L):
        following = perms[torch.arange(DRAWS)[:, None], x.actions[:, t], current]
        state = torch.nn.functional.one_hot(current, p.N).double()
        weight = (o[None, :, t, :, None] * state[:, :, None, :]).flatten(
            2
        )  # (draw, input, action and state)
        logits = weight @ M.permute(0, 1, 3, 2).flatten(1, 2)
        correct = correct + logits.gather(2, following[..., None]).mean(1)[:, 0] / p.L
        total = total + logits.sum(2).mean(1) / p.L
        current = following
    other = (total - correct) / (p.N - 1)
    wide = torch.cat([correct[:, None], other[:, None].expand(-1, p.N - 1)], 1)
    loss = torch.nn.functional.cross_entropy(
        wide, torch.zeros(DRAWS, dtype=torch.long), reduction="sum"
    )
    step = -p.eta * torch.autograd.grad(loss, M)[0]
    teachers = torch.nn.functional.one_hot(perms, p.N).transpose(2, 3).double()
    own = (teachers * step).sum((1, 2, 3)) / (p.d_g * p.N)
    every = (teachers.sum(1) * step.sum(1)).sum((1, 2))
    off = (every / p.N - own * p.d_g) / (p.d_g * (p.d_g - 1))
    values = x.values() | {"g": 1 - 1 / p.N}
    overlaps = {
        kind: [task.teacher_overlap(perm) for perm in perms] for kind, perms in drawn.items()
    }
    return [
        sampled(
            "update of R, mean over teachers",
            "delta_R_mean",
            eq["delta_R_mean"].evaluate(values),
            own,
        ),
        sampled(
            "update of S, mean over teachers",
            "delta_S_mean",
            eq["delta_S_mean"].evaluate(values),
            off,
        ),
        *(
            sampled(
                f"mean teacher overlap, {kind}",
                f"tau_bar_{kind}",
                eq[f"tau_bar_{kind}"].evaluate({"N": P.N}),
                found,
            )
            for kind, found in overlaps.items()
        ),
    ]
