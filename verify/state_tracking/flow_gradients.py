"""The flow (15) and what it is made of against autograd: small steps of descent; mean logits, the
mean-field loss and its derivatives by entries of M; updates of the overlaps R and S.
"""

import itertools
from collections.abc import Iterator

import numpy as np
import torch

from simulate.state_tracking.student import Student
from theory.equation import Equation
from theory.state_tracking import Parameters, dynamics, task
from theory.state_tracking.mean_field import ALL, OWN
from verify.check import Check, Sides, identity, listed, sampled
from verify.report import Table

# All inputs of a tiny task, on which the checks of gradients evaluate equations and autograd

# Frequencies that distinguish three positions.
P = Parameters(N=4, L=3, d_g=4, d_h=6, rope_theta=10.0)
DRAWS = 8000  # standard errors below 1%: an error of 5% is detected at 5 sigma or more
# Relative tolerances, and why.
EXACT = 1e-12, "both sides float64, few operations"
AUTOGRAD = 1e-9, "autograd in float64"
GENERATOR = 20260616  # any fixed seed; the checks hold for all


class Inputs:
    """All d_g^L N inputs of a tiny task, random matrices, and mean logits as autograd functions of
    M and A.
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

    def attention(self) -> torch.Tensor:
        """Attention of the ansatz: A on the right action, uniform elsewhere."""
        eye = torch.eye(self.p.L, dtype=torch.float64)
        return self.A * eye + (1 - self.A) / (self.p.L - 1) * (1 - eye)

    def mean_logits(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean correct and mean other logit over all inputs, through the student's own logic
        module.
        """
        current = self.states[:, :-1]
        logits = self.student.logic(
            self.student.retrieve(self.attention()[None], self.actions), current
        )
        correct = logits.gather(2, self.states[:, 1:, None])
        other = (logits.sum(2, keepdim=True) - correct) / (self.p.N - 1)
        return correct.mean(), other.mean()

    def overlaps(self) -> tuple[torch.Tensor, torch.Tensor]:
        """R and S by definition (9): traces, pair by pair."""
        p = self.p
        trace = (
            torch.stack(
                [torch.stack([torch.trace(t.T @ m) for m in self.M]) for t in self.teachers]
            )
            / p.N
        )
        R = trace.diagonal().mean()
        return R, (trace.sum() - trace.diagonal().sum()) / (p.d_g * (p.d_g - 1))

    def loss(self) -> torch.Tensor:
        """Mean-field loss: cross-entropy of a logit vector made of the two means."""
        return cross_entropy(*self.mean_logits(), self.p.N)

    def values(self) -> dict[str, float]:
        """Numbers by symbol name at this point."""
        R, S = (v.detach() for v in self.overlaps())
        correct, other = (v.detach() for v in self.mean_logits())
        p, A = self.p, float(self.A.detach())
        c_R = A + (1 - A) / p.d_g
        numbers = {
            "N": p.N,
            "L": p.L,
            "d_g": p.d_g,
            "d_h": p.d_h,
            "eta": p.eta,
            "A": A,
            "R": float(R),
            "S": float(S),
            "z_k": float(correct),
            "z_kbar": float(other),
            "m": float(correct - other),
            "c_R": c_R,
            "c_S": 1 - c_R,
            "tau": self.tau,
            "zeta": float(self.M.detach().sum() / (p.d_g * p.N)),
            "pi_i": A,
        }
        # Softmax of the mean logits: probability of wrong states.
        vector = torch.tensor(
            [numbers["z_k"]] + [numbers["z_kbar"]] * (p.N - 1), dtype=torch.float64
        )
        return numbers | {"g": float(1 - torch.softmax(vector, 0)[0])}


def cross_entropy(correct: torch.Tensor, other: torch.Tensor, N: int) -> torch.Tensor:
    """Cross-entropy of the vector (correct, other, ..., other)."""
    logits = torch.cat([correct[None], other.expand(N - 1)])
    return torch.nn.functional.cross_entropy(logits[None], torch.tensor([0]))


def grad(of: torch.Tensor, by: torch.Tensor) -> np.ndarray:
    """Gradient as an array."""
    return torch.autograd.grad(of, by, retain_graph=True)[0].numpy()


def flow_increments(eq: Table) -> list[Check]:
    """One small step of descent on the mean-field loss changes A, R and S as in the flow.

    W_Q, W_K and M are all trained; A is that of the actual attention. The flow is given the drawn
    teachers' tau and the c_omega that makes its closure exact at this point; the limit of a
    vanishing step is taken by extrapolating two steps.
    """
    x = Inputs()
    p, student = x.p, x.student

    def state() -> torch.Tensor:
        x.A = student.attention(x.actions[:1], x.states[:1, :-1])[0].diagonal().mean()
        return torch.stack([x.A, *x.overlaps()])

    before = state()
    weights = [student.W_Q, student.W_K, student.M]
    steps = torch.autograd.grad(x.loss(), weights, retain_graph=True)
    factor = (
        p.d_g
        * p.N
        * sum(float(g.square().sum()) for g in torch.autograd.grad(before[0], weights[:2]))
    )
    values = x.values()
    values["c_omega"] = factor / (p.L * values["A"] * (1 - values["A"]))
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
    why = "third-order term of the extrapolation, step 1e-4"
    names = ["dA_dalpha", "dR_dalpha", "dS_dalpha"]
    return [
        identity("dA/dalpha by the chain rule", "dA_dalpha_chain", chained, measured[0], 1e-6, why),
        *(
            identity(f"d{s}/dalpha of the flow", e, predicted[s], v, 1e-6, why)
            for s, e, v in zip("ARS", names, measured, strict=True)
        ),
    ]


@listed
def flow_at_paper_overlap(eq: Table) -> Iterator[Check]:
    """The flow (15) at tau = 1/N against its pieces: mean updates per epoch and the closed
    attention equation.
    """
    x = Inputs()
    values = x.values() | {"c_omega": 0.83}
    c_A = eq["c_closure"].evaluate(values)
    pieces = {
        "A": eq["dA_dalpha_chain"].evaluate(values | {"c_A": c_A}),
        "R": eq["delta_R"].evaluate(values | {"tau": 1 / x.p.N}) * x.p.d_g * x.p.N,
        "S": eq["delta_S"].evaluate(values | {"tau": 1 / x.p.N}) * x.p.d_g * x.p.N,
    }
    spelled = dynamics.flow().where
    for name, piece in pieces.items():
        rhs = eq[f"d{name}_dalpha"].rhs
        for short, meaning in spelled.items():
            rhs = rhs.subs(short, meaning)
        flow_value = Equation(name, rhs, rhs, "", "exact").evaluate(values)
        yield identity(
            f"flow (15) of {name} from its pieces", f"d{name}_dalpha", flow_value, piece, *EXACT
        )


def mean_logits(eq: Table) -> list[Check]:
    """Mean logits (11, 12, 35) over all inputs."""
    x = Inputs()
    values, (correct, other) = x.values(), (v.detach() for v in x.mean_logits())
    sides = Sides(eq, EXACT[0], "exact average over all inputs, float64")
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
    sides = Sides(eq, *AUTOGRAD)
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
    teachers = x.teachers.numpy()
    return equation.evaluate(x.values() | {OWN: teachers, ALL: teachers.sum(0)})


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
        identity(name, e, of_entries(eq[e], x), measured, *AUTOGRAD) for name, e, measured in pairs
    ]


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
    teachers = x.teachers.numpy()
    triples = [
        np.trace(teachers[a].T @ teachers[c])
        for a, b, c in itertools.permutations(range(x.p.d_g), 3)
    ]
    sides, exact = Sides(eq, *AUTOGRAD), Sides(eq, *EXACT)
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
    on_target = (teachers * step).sum((1, 2, 3)) / (p.d_g * p.N)
    every = (teachers.sum(1) * step.sum(1)).sum((1, 2))
    off = (every / p.N - on_target * p.d_g) / (p.d_g * (p.d_g - 1))
    values = x.values() | {"g": 1 - 1 / p.N}
    overlaps = {
        kind: [task.teacher_overlap(perm) for perm in perms] for kind, perms in drawn.items()
    }
    return [
        sampled(
            "update of R, mean over teachers",
            "delta_R_mean",
            eq["delta_R_mean"].evaluate(values),
            on_target,
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
                values_drawn,
            )
            for kind, values_drawn in overlaps.items()
        ),
    ]
