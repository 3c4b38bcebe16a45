"""All inputs of a tiny task, on which the checks of gradients evaluate equations and autograd."""

import itertools

import numpy as np
import torch

from simulate.state_tracking.student import Student
from theory.state_tracking import Parameters, task

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
