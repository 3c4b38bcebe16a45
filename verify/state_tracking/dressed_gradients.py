"""Forces of the dressed loss, and decay of the variance of M, against autograd."""

import itertools

import numpy as np
import torch

from simulate.state_tracking.student import Student
from theory.state_tracking import Parameters, dressed, task
from verify.check import Check, identity
from verify.report import Table
from verify.state_tracking.inputs import AUTOGRAD, AUTOGRAD_WHY, GENERATOR


def dressed_derivatives(eq: Table) -> list[Check]:
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
    out = [
        identity(
            "force on the right action",
            "dloss_dpi_margin",
            eq["dloss_dpi_margin"].evaluate(values),
            part[0].item(),
            AUTOGRAD,
            AUTOGRAD_WHY,
        ),
        identity(
            "force against concentration",
            "dloss_dpi_noise",
            against,
            (whole - part).numpy(),
            AUTOGRAD,
            AUTOGRAD_WHY,
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
    states = [every[:, 2]]
    for t in range(p.L):
        states.append(perms[every[:, t], states[-1]])
    actions, path = torch.as_tensor(every[:, : p.L]), torch.as_tensor(np.stack(states, 1))
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
    return [
        *out,
        identity(
            "decay of the variance of M at M = 0",
            "dV_dalpha",
            rate,
            -2 * p.eta * p.d_g * p.N * bend * V,
            AUTOGRAD,
            AUTOGRAD_WHY,
        ),
    ]
