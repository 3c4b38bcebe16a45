"""Mean logits and the mean-field loss against autograd over all inputs."""

import numpy as np
import torch

from theory.equation import Equation
from theory.state_tracking.micro import ALL, OWN
from verify.check import Check, Sides, identity
from verify.report import Table
from verify.state_tracking.inputs import AUTOGRAD, AUTOGRAD_WHY, EXACT, Inputs, cross_entropy, grad


def mean_logits(eq: Table) -> list[Check]:
    """Mean logits (11, 12, 35) over all inputs."""
    x = Inputs()
    values, (correct, other) = x.values(), (v.detach() for v in x.mean_logits())
    sides = Sides(eq, EXACT, "exact average over all inputs, float64")
    sides.add("mean correct logit", "logit_correct", values, correct)
    sides.add("  at one position", "logit_correct_position", values, correct)
    sides.add("mean other logit", "logit_other", values, other)
    return sides.checks()


def loss_derivatives(eq: Table) -> list[Check]:
    """Loss (10) and its derivatives with respect to the logits (43) and A (61)."""
    x = Inputs()
    values = x.values()
    z = [
        torch.tensor(values[k], dtype=torch.float64, requires_grad=True) for k in ("z_k", "z_kbar")
    ]
    loss = cross_entropy(z[0], z[1], x.p.N)
    sides = Sides(eq, AUTOGRAD, AUTOGRAD_WHY)
    for name, equation, measured in (
        ("mean-field loss", "loss", float(loss.detach())),
        ("mean-field loss by the margin", "loss_of_margin", float(loss.detach())),
        ("margin", "margin", values["z_k"] - values["z_kbar"]),
        ("mass on wrong states", "g", values["g"]),
        ("dl/dz_k", "dloss_dz_k", grad(loss, z[0])),
        ("dl/dz_kbar", "dloss_dz_kbar", grad(loss, z[1])),
        ("dl/dA through all inputs", "dloss_dA", grad(x.loss(), x.A)),
    ):
        sides.add(name, equation, values, measured)
    return sides.checks()


def of_entries(equation: Equation, x: Inputs) -> np.ndarray:
    """Evaluate an equation in the entries of M* for every (b, r, s) at once."""
    own = x.teachers.numpy()
    return equation.evaluate(x.values() | {OWN: own, ALL: own.sum(0)})


def entry_derivatives(eq: Table) -> list[Check]:
    """Derivatives with respect to single entries of M (47-49) and their update (52)."""
    x = Inputs()
    R, S = x.overlaps()
    correct, other = x.mean_logits()
    step = -x.p.eta * grad(x.loss(), x.M)
    pairs = [
        ("dR/dM", "dR_dM", grad(R, x.M)),
        ("dS/dM", "dS_dM", grad(S, x.M)),
        ("dz_k/dM through all inputs", "dz_k_dM", grad(correct, x.M)),
        ("dz_kbar/dM through all inputs", "dz_kbar_dM", grad(other, x.M)),
        ("update of M through all inputs", "update_M", step),
    ]
    return [
        identity(name, e, of_entries(eq[e], x), measured, AUTOGRAD, AUTOGRAD_WHY)
        for name, e, measured in pairs
    ]
