"""The flow (15) and what it is made of against autograd: small steps of descent; mean
logits, the mean-field loss and its derivatives by entries of M; updates of the overlaps
R and S.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.special
import torch
from torch import Tensor

from simulate.state_tracking.student import Student
from theory.equations.equation import Equation
from theory.state_tracking import Parameters, dynamics
from theory.state_tracking.model import task
from theory.state_tracking.model.mean_field import ALL, OWN
from verify.checks.check import Check, Sides, identity, listed, sampled
from verify.checks.report import Table, sided

# All inputs of a tiny task, on which the checks of gradients evaluate equations and
# autograd

# Frequencies that distinguish three positions.
P = Parameters(N=4, L=3, d_g=4, d_h=6, rope_theta=10.0)
DRAWS = 8000  # standard errors below 1%: an error of 5% is detected at 5 sigma or more
# Relative tolerances, and why.
EXACT = 1e-12, "both sides float64, few operations"
AUTOGRAD = 1e-9, "autograd in float64"
GENERATOR = 20260616  # any fixed seed; the checks hold for all


class Inputs:
    """All d_g^L N inputs of a tiny task, random matrices, and mean logits as autograd
    functions of M and A.
    """

    def __init__(self, p: Parameters = P, seed: int = GENERATOR) -> None:
        rng = np.random.default_rng(seed)
        self.p, self.rng = p, rng
        self.perms = task.draw_permutations(p, rng)
        self.teachers = torch.tensor(task.teacher_matrices(self.perms))
        every = np.array(list(itertools.product(*[range(p.d_g)] * p.L, range(p.N))))
        actions, first = every[:, : p.L], every[:, -1]
        self.actions = torch.tensor(actions)
        self.states = torch.tensor(task.visited(self.perms, actions, first))
        self.student = Student(p, task.draw_weights(p, rng), torch.float64)
        self.M = self.student.M
        self.A = torch.tensor(0.37, dtype=torch.float64, requires_grad=True)
        self.tau = task.teacher_overlap(self.perms)

    def attention(self) -> Tensor:
        """Attention of the ansatz: A on the right action, uniform elsewhere."""
        eye = torch.eye(self.p.L, dtype=torch.float64)
        return self.A * eye + (1 - self.A) / (self.p.L - 1) * (1 - eye)

    def mean_logits(self) -> tuple[Tensor, Tensor]:
        """Mean correct and mean other logit over all inputs, through the student's own
        logic module.
        """
        current = self.states[:, :-1]
        logits = self.student.logic(
            self.student.retrieve(self.attention()[None], self.actions), current
        )
        correct = logits.gather(2, self.states[:, 1:, None])
        other = (logits.sum(2, keepdim=True) - correct) / (self.p.N - 1)
        return correct.mean(), other.mean()

    def overlaps(self) -> tuple[Tensor, Tensor]:
        """R and S by definition (9): traces, pair by pair."""
        traces = torch.einsum("ars,brs->ab", self.teachers, self.M) / self.p.N
        off = ~torch.eye(self.p.d_g, dtype=torch.bool)
        return traces.diagonal().mean(), traces[off].mean()

    def loss(self) -> Tensor:
        """Mean-field loss: cross-entropy of a logit vector made of the two means."""
        return cross_entropy(*self.mean_logits(), self.p.N)

    def values(self) -> Any:
        """Numbers by symbol name at this point."""
        p, A = self.p, self.A.item()
        R, S = (x.item() for x in self.overlaps())
        correct, other = (x.item() for x in self.mean_logits())
        c_R = A + (1 - A) / p.d_g
        # Softmax of the mean logits: probability of wrong states.
        right = scipy.special.softmax([correct, *[other] * (p.N - 1)])[0]
        zeta = self.M.sum().item() / (p.d_g * p.N)
        values = {"A": A, "pi_i": A, "R": R, "S": S, "zeta": zeta, "tau": self.tau}
        values |= {"c_R": c_R, "c_S": 1 - c_R}
        values |= {"z_k": correct, "z_kbar": other, "m": correct - other}
        return p.values() | values | {"g": 1 - right}


def cross_entropy(correct: Tensor, other: Tensor, N: int) -> Tensor:
    """Cross-entropy of the vector (correct, other, ..., other)."""
    logits = torch.cat([correct[None], other.expand(N - 1)])
    return torch.nn.functional.cross_entropy(logits[None], torch.tensor([0]))


def grad(of: Tensor, by: Tensor) -> np.ndarray:
    """Gradient as an array."""
    return torch.autograd.grad(of, by, retain_graph=True)[0].numpy()


@listed
def flow_increments(eq: Table) -> Iterator[Check]:
    """One small step of descent on the mean-field loss changes A, R and S as in the
    flow.

    W_Q, W_K and M are all trained; A is that of the actual attention. The flow is given
    the drawn teachers' tau and the c_omega that makes its closure exact at this point;
    the limit of a vanishing step is taken by extrapolating two steps.
    """
    x = Inputs()
    p, student = x.p, x.student

    def state() -> Tensor:
        x.A = student.attention(x.actions[:1], x.states[:1, :-1])[0].diagonal().mean()
        return torch.stack([x.A, *x.overlaps()])

    before = state()
    weights = [student.W_Q, student.W_K, student.M]
    steps = torch.autograd.grad(x.loss(), weights, retain_graph=True)
    by_heads = torch.autograd.grad(before[0], weights[:2])
    factor = p.d_g * p.N * sum(g.square().sum().item() for g in by_heads)
    values = x.values()
    values |= {"c_omega": factor / (p.L * values["A"] * (1 - values["A"]))}
    start = [w.detach().clone() for w in weights]

    def slope(h: float) -> np.ndarray:
        for w, w0, g in zip(weights, start, steps, strict=True):
            w.data = w0 - p.eta * p.d_g * p.N * h * g
        return ((state() - before) / h).detach().numpy()

    h = 1e-4
    measured = 2 * slope(h / 2) - slope(h)
    system = dynamics.flow("tau")
    chained = eq["dA_dalpha_chain"].evaluate(values | {"c_A": factor})
    predicted = {
        s.name: Equation(s.name, s, rhs, "", "exact").evaluate(values)
        for s, rhs in system.expanded.items()
    }
    close = 1e-6, "third-order term of the extrapolation, step 1e-4"
    what, name = "dA/dalpha by the chain rule", "dA_dalpha_chain"
    yield identity(what, name, chained, measured[0], *close)
    names = ("dA_dalpha", "dR_dalpha", "dS_dalpha")
    for s, name, value in zip("ARS", names, measured, strict=True):
        yield identity(f"d{s}/dalpha of the flow", name, predicted[s], value, *close)


@listed
def flow_at_paper_overlap(eq: Table) -> Iterator[Check]:
    """The flow (15) at tau = 1/N against its pieces: mean updates per epoch and the
    closed attention equation.
    """
    x = Inputs()
    p = x.p
    values = x.values() | {"c_omega": 0.83}
    c_A = eq["c_closure"].evaluate(values)
    by_chain = eq["dA_dalpha_chain"].evaluate(values | {"c_A": c_A})
    at_random_overlap = values | {"tau": 1 / p.N}
    delta_R = eq["delta_R"].evaluate(at_random_overlap)
    delta_S = eq["delta_S"].evaluate(at_random_overlap)
    updates = {"R": delta_R * p.d_g * p.N, "S": delta_S * p.d_g * p.N}
    pieces = {"A": by_chain} | updates
    spelled = dynamics.flow().where
    for name, piece in pieces.items():
        rhs = eq[f"d{name}_dalpha"].rhs
        for short, meaning in spelled.items():
            rhs = rhs.subs(short, meaning)
        flow_value = Equation(name, rhs, rhs, "", "exact").evaluate(values)
        yield identity(
            f"flow (15) of {name} from its pieces",
            f"d{name}_dalpha",
            flow_value,
            piece,
            *EXACT,
        )


@sided(EXACT[0], "exact average over all inputs, float64")
def mean_logits(sides: Sides) -> None:
    """Mean logits (11, 12, 35) over all inputs."""
    values = Inputs().values()
    sides.add("mean correct logit", "logit_correct", values, values["z_k"])
    sides.add("  at one position", "logit_correct_position", values, values["z_k"])
    sides.add("mean other logit", "logit_other", values, values["z_kbar"])


@sided(*AUTOGRAD)
def loss_derivatives(sides: Sides) -> None:
    """Loss (10) and its derivatives with respect to the logits (43) and A (61)."""
    x = Inputs()
    correct, other = z = x.mean_logits()
    loss, values = cross_entropy(*z, x.p.N), x.values()
    for name, equation, measured in (
        ("mean-field loss", "loss", loss.item()),
        ("mean-field loss by the margin", "loss_of_margin", loss.item()),
        ("margin", "margin", values["m"]),
        ("mass on wrong states", "g", values["g"]),
        ("dl/dz_k", "dloss_dz_k", grad(loss, correct)),
        ("dl/dz_kbar", "dloss_dz_kbar", grad(loss, other)),
        ("dl/dA through all inputs", "dloss_dA", grad(loss, x.A)),
    ):
        sides.add(name, equation, values, measured)


@sided(*AUTOGRAD)
def entry_derivatives(sides: Sides) -> None:
    """Derivatives with respect to single entries of M (47-49) and their update (52),
    for every (b, r, s) at once.
    """
    x = Inputs()
    teachers = x.teachers.numpy()
    values = x.values() | {OWN: teachers, ALL: teachers.sum(0)}
    names = ("dR", "dS", "dz_k", "dz_kbar")
    for k, (name, of) in enumerate(
        zip(names, (*x.overlaps(), *x.mean_logits()), strict=True)
    ):
        label = f"{name}/dM" + " through all inputs" * (k > 1)
        sides.add(label, f"{name}_dM", values, grad(of, x.M))
    step = -x.p.eta * grad(x.loss(), x.M)
    sides.add("update of M through all inputs", "update_M", values, step)


def overlap_updates(eq: Table) -> list[Check]:
    """Updates of R and S, linear in M, with the drawn teachers' tau (54, 56), and
    sigma = tau (58).
    """
    x = Inputs()
    values, step = x.values(), -x.p.eta * grad(x.loss(), x.M)
    teachers = x.teachers.numpy()
    triples = [
        np.trace(teachers[a].T @ teachers[c])
        for a, b, c in itertools.permutations(range(x.p.d_g), 3)
    ]
    sides, exact = Sides(eq, *AUTOGRAD), Sides(eq, *EXACT)
    for name, overlap in zip("RS", x.overlaps(), strict=True):
        change = (grad(overlap, x.M) * step).sum()
        sides.add(f"update of {name}", f"delta_{name}", values, change)
    exact.add("sigma = tau", "sigma_overlap", values, np.mean(triples) / x.p.N)
    return [*sides.checks(), *exact.checks()]


def seed_means(eq: Table) -> list[Check]:
    """Updates averaged over drawn teachers (59), and the mean overlaps (77 and for
    independent draws). The update for a draw's own tau is a row of `overlap_updates`.
    """
    rng, overlaps = np.random.default_rng(GENERATOR), {}
    for kind in ("iid", "distinct"):
        p = P.replace(permutations=kind)
        drawn = (task.draw_permutations(p, rng) for _ in range(DRAWS))
        overlaps[kind] = np.array([task.teacher_overlap(perms) for perms in drawn])
    values = Inputs().values() | {"g": 1 - 1 / P.N, "tau": overlaps["iid"]}
    rows = [
        (
            f"update of {x}, mean over teachers",
            f"delta_{x}_mean",
            eq[f"delta_{x}"].evaluate(values),
        )
        for x in "RS"
    ]
    rows += [
        (f"mean teacher overlap, {x}", f"tau_bar_{x}", y) for x, y in overlaps.items()
    ]
    return [sampled(name, e, eq[e].evaluate(values), found) for name, e, found in rows]
