"""What is measured along a run, under the same names as in theory."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from simulate.state_tracking import task
from simulate.state_tracking.gradients import Attention, Grouped, Plain
from simulate.state_tracking.student import Student, draw_weights
from simulate.state_tracking.task import Sequences
from theory.numeric import dirichlet_kernel, function
from theory.state_tracking import Parameters, attention
from theory.state_tracking.symbols import W_K2, W_Q2, L, N, d_g, d_h
from theory.state_tracking.symbols import A as A_

MEANING = {
    "A": "mean attention on the right action (8)",
    "R": "overlap with the own teacher (9a)",
    "S": "overlap with the other teachers (9b); NaN for d_g = 1",
    "zeta": "mean sum of the logits (40), conserved",
    "loss": "training loss (7)",
    "logit_correct": "mean logit of the correct state, training set",
    "logit_other": "mean logit of the other states, training set",
    "variance_correct": "variance of the correct logit, training set",
    "variance_other": "variance of the other logits, training set",
    "kurtosis_correct": "excess kurtosis of the correct logit: 0 if normal, -1.2 if uniform",
    "kurtosis_other": "excess kurtosis of the other logits",
    "accuracy": "next-token accuracy under teacher forcing, test set",
    "step_accuracy": "next-token accuracy per step, test set",
    "rollout_accuracy": "final accuracy of greedy rollouts, test set",
    "attention": "attention of each step (row) on each action (column)",
    "c_A": "d_g N |grad_W A|^2, the attention factor as it is (63)",
    "c_ansatz": "the attention factor under the uniform ansatz, current norms (69)",
}


@torch.no_grad()
def overlaps(M: Tensor, teachers: Tensor) -> tuple[float, float, float]:
    """R, S and zeta (Eqs. 9, 40); S is NaN when there is one action only."""
    d_g, N = M.shape[:2]
    M, teachers = M.double(), teachers.double()
    own = (teachers * M).sum()
    every = (teachers.sum(0) * M.sum(0)).sum()
    R = own / (d_g * N)
    S = (every - own) / (d_g * (d_g - 1) * N) if d_g > 1 else torch.tensor(torch.nan)
    return float(R), float(S), float(M.sum() / (d_g * N))


@torch.no_grad()
def predictions(student: Student, data: Sequences) -> tuple[np.ndarray, float]:
    """Accuracy per step under teacher forcing ``(L,)``, and of the last state of greedy rollouts."""
    device, L = student.M.device, student.p.L
    actions, states = (torch.as_tensor(x, device=device) for x in (data.actions, data.states))
    columns = student.M.permute(2, 0, 1)
    rolled, hits = states[:, 0], []
    for t in range(L):
        for current, forced in ((states[:, t], True), (rolled, False)):
            o = student.retrieve(student.attention(actions, current[:, None], t), actions)[:, 0]
            guess = torch.einsum("na,nar->nr", o, columns[current]).argmax(1)
            if forced:
                hits.append((guess == states[:, t + 1]).double().mean())
            else:
                rolled = guess
    return torch.stack(hits).cpu().numpy(), float((rolled == states[:, L]).double().mean())


@torch.no_grad()
def attention_factor(student: Student) -> tuple[float, float]:
    """d_g N |grad_W A|^2 as it is, and as Eq. (69) gives it from the current weights; NaN if the embedding is learned."""
    p = student.p
    if not p.fix_embedding:
        return np.nan, np.nan
    head = Attention(student)
    found = sum(float(g.double().square().sum()) for g in head.gradient_of_A(student))
    A = float(head.forward(student).diagonal().double().mean())
    return p.d_g * p.N * found, ansatz_factor(p, A, student.W_Q.double(), student.W_K.double())


def ansatz_factor(p: Parameters, A: float, W_Q: Tensor, W_K: Tensor) -> float:
    """Attention factor c(A) of Eq. (69) for given weights; 0 for L = 1, where A does not move."""
    if p.L == 1:
        return 0.0
    norms = (w.square().reshape(-1, 2).sum(1).cpu().numpy() for w in (W_Q, W_K))
    return float(_compiled_ansatz()(A, p.N, p.d_g, p.d_h, lambda_of_frequencies(p), *norms))


@functools.cache
def _compiled_ansatz() -> Callable:
    return attention.equations()["c_ansatz"].lambdify(A_, N, d_g, d_h, attention.lambda_, W_Q2, W_K2)


@functools.cache
def lambda_of_frequencies(p: Parameters) -> np.ndarray:
    """Eigenvalues lambda_n of Eq. (70), shape ``(d_h/2,)``, 1 at multiples of 2 pi."""
    power = (L * dirichlet_kernel(attention.w, L)) ** 2
    form = attention.equations()["lambda"].rhs.subs(attention.power_of_plane_waves(), power)
    return function(form, [attention.w, L])(p.frequencies, p.L)


def untrained_statistics(p: Parameters, seed: int) -> dict[str, float]:
    """Loss and logit moments of a seed's student before training."""
    stream = task.streams(seed)
    perms = task.draw_permutations(p, stream["task"])
    data = task.draw_sequences(perms, p.n_train, p.L, stream["train"])
    student = Student(p, draw_weights(p, stream["initialisation"]))
    found = Grouped(student, data).statistics(student)
    return {name: float(v) for name, v in found.items() if v.ndim == 0}


def measure(student: Student, train: Grouped | Plain, test: Sequences, teachers: Tensor) -> dict[str, np.ndarray]:
    """All quantities of `MEANING` at one time."""
    found: dict[str, object] = dict(train.statistics(student))
    R, S, zeta = overlaps(student.M, teachers)
    steps, final = predictions(student, test)
    real, ansatz = attention_factor(student)
    found |= {"A": found["attention"].diagonal().double().mean(), "R": R, "S": S, "zeta": zeta,  # type: ignore[attr-defined]
              "accuracy": steps.mean(), "step_accuracy": steps, "rollout_accuracy": final,
              "c_A": real, "c_ansatz": ansatz}  # fmt: skip
    return {name: (v.detach().cpu().double().numpy() if isinstance(v, Tensor) else np.asarray(v, float))
            for name, v in found.items()}  # fmt: skip
