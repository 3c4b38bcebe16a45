"""Measurements along a run, with the same names as in the theory."""

import functools

import numpy as np
import torch
from torch import Tensor

from simulate.state_tracking.gradients import Attention, Grouped, Plain
from simulate.state_tracking.student import Student, Students
from theory.numbers.numeric import function
from theory.state_tracking import Parameters, attention
from theory.state_tracking.model import task
from theory.state_tracking.model.symbols import W_K2, W_Q2, L, N, d_g, d_h
from theory.state_tracking.model.symbols import A as A_

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
    "kurtosis_correct": (
        "excess kurtosis of the correct logit: 0 if normal, -1.2 if uniform"
    ),
    "kurtosis_other": "excess kurtosis of the other logits",
    "accuracy": "next-token accuracy under teacher forcing, test set",
    "step_accuracy": "next-token accuracy per step, test set",
    "rollout_accuracy": "final accuracy of greedy rollouts, test set",
    "attention": "attention of each step (row) on each action (column)",
    "M_variance_correct": "variance of the teachers' entries of M",
    "M_variance_other": "variance of the other entries of M",
    "c_A": "d_g N |grad_W A|^2, the attention factor as it is (63)",
    "c_ansatz": "the attention factor under the uniform ansatz, current norms (69)",
}


@torch.no_grad()
def overlaps(M: Tensor, teachers: Tensor) -> dict[str, Tensor]:
    """R, S and zeta (Eqs. 9, 40) and the variances of M, for students ``(B, d_g, N,
    N)``; S is NaN for a single action.
    """
    d_g, N = M.shape[1:3]
    M, teachers = M.double(), teachers.double()
    on_own = (teachers * M).sum((1, 2, 3))
    every = (teachers.sum(1) * M.sum(1)).sum((1, 2))
    squares = M.square().sum((1, 2, 3))
    own_squares = (teachers * M.square()).sum((1, 2, 3))
    total = M.sum((1, 2, 3))
    right = d_g * N
    wrong = d_g * N * (N - 1)
    return {
        "R": on_own / right,
        "S": (
            (every - on_own) / (d_g * (d_g - 1) * N) if d_g > 1 else on_own * torch.nan
        ),
        "zeta": total / right,
        "M_variance_correct": own_squares / right - (on_own / right) ** 2,
        "M_variance_other": (
            (squares - own_squares) / wrong - ((total - on_own) / wrong) ** 2
        ),
    }


@torch.no_grad()
def predictions(
    students: Students, engine: Grouped | Plain, actions: Tensor, states: Tensor
) -> tuple[Tensor, Tensor]:
    """Accuracy per step under teacher forcing ``(B, L)``, and of the last state of
    greedy rollouts ``(B,)``.

    Parameters
    ----------
    students : Students
        B students.
    engine : Grouped or Plain
        Computes their attention.
    actions, states : Tensor, shapes (B, n, L) and (B, n, L + 1)
        Test sequences.
    """
    B, _, L = actions.shape
    columns = students.M.permute(0, 3, 1, 2).contiguous()
    which = torch.arange(B, device=actions.device)[:, None, None]
    rolled, hits = states[..., 0], []
    for t in range(L):
        for current, forced in ((states[..., t], True), (rolled, False)):
            pi = engine.attend(students, actions, current, t)
            guess = (
                (pi[..., None] * columns[which, current[..., None], actions])
                .sum(2)
                .argmax(-1)
            )
            if forced:
                hits.append((guess == states[..., t + 1]).double().mean(1))
            else:
                rolled = guess
    return torch.stack(hits, 1), (rolled == states[..., L]).double().mean(1)


@torch.no_grad()
def attention_factor(students: Students) -> tuple[np.ndarray, np.ndarray]:
    """Attention factor d_g N |grad_W A|^2, exactly and by Eq. (69) from the current
    weights; NaN if the embedding is learned.
    """
    p, W_Q, W_K = students.p, students.W_Q, students.W_K
    if not p.fix_embedding:
        return np.full(len(W_Q), np.nan), np.full(len(W_Q), np.nan)
    head = Attention(p, W_Q.dtype, W_Q.device)
    of_Q, of_K = (
        slope.double().square().sum((1, 2)) for slope in head.gradient_of_A(W_Q, W_K)
    )
    square = of_Q + of_K
    A = head.forward(W_Q, W_K).diagonal(dim1=1, dim2=2).double().mean(1).cpu().numpy()
    exact = p.d_g * p.N * square.cpu().numpy()
    return exact, ansatz_factor(p, A, W_Q.double(), W_K.double())


def ansatz_factor(p: Parameters, A: np.ndarray, W_Q: Tensor, W_K: Tensor) -> np.ndarray:
    """Attention factor c(A) of Eq. (69) for given weights; 0 for L = 1, where A is
    constant.
    """
    if p.L == 1:
        return np.zeros(len(A))
    equation = attention.equations()["c_ansatz"]
    compiled = equation.lambdify(A_, N, d_g, d_h, attention.lambda_, W_Q2, W_K2)
    norms = (w.square().reshape(len(A), -1, 2).sum(2).cpu().numpy() for w in (W_Q, W_K))
    return compiled(A, p.N, p.d_g, p.d_h, lambda_of_frequencies(p), *norms)


@functools.cache
def lambda_of_frequencies(p: Parameters) -> np.ndarray:
    """Eigenvalues lambda_n of Eq. (70), shape ``(d_h/2,)``, 1 at multiples of 2 pi."""
    return 1 - function(attention.gap_of_block(), [attention.w, L])(p.frequencies, p.L)


def untrained_statistics(p: Parameters, seed: int) -> dict[str, float]:
    """Loss, logit moments, attention and overlaps of a
    seed's student before training.
    """
    stream = task.streams(seed, p.data_draw)
    perms = task.draw_permutations(p, stream["task"])
    data = task.draw_sequences(perms, p.n_train, p.L, stream["train"])
    students = Students([Student(p, task.draw_weights(p, stream["initialisation"]))])
    statistics = Grouped(students, [data]).statistics(students)
    quantities = {
        **statistics,
        **overlaps(students.M, torch.as_tensor(task.teacher_matrices(perms))[None]),
    }
    quantities["A"] = statistics["attention"].diagonal(dim1=1, dim2=2).mean(1)
    return {name: float(v[0]) for name, v in quantities.items() if v.ndim == 1}


def measure(
    students: Students,
    engine: Grouped | Plain,
    test: tuple[Tensor, Tensor],
    teachers: Tensor,
) -> dict[str, np.ndarray]:
    """All quantities in `MEANING` at one time, each with a first axis over students.

    Parameters
    ----------
    students : Students
        B students.
    engine : Grouped or Plain
        Contains their training data.
    test : tuple of Tensor
        Actions ``(B, n, L)`` and states ``(B, n, L + 1)``.
    teachers : Tensor, shape (B, d_g, N, N)
        Permutation matrices.
    """
    quantities: dict[str, Tensor | np.ndarray] = {
        **engine.statistics(students),
        **overlaps(students.M, teachers),
    }
    quantities["A"] = quantities["attention"].diagonal(dim1=1, dim2=2).double().mean(1)  # type: ignore[union-attr, call-arg, call-overload]
    steps, quantities["rollout_accuracy"] = predictions(students, engine, *test)
    quantities |= {"step_accuracy": steps, "accuracy": steps.mean(1)}
    quantities["c_A"], quantities["c_ansatz"] = attention_factor(students)
    return {
        name: v.detach().cpu().double().numpy() if isinstance(v, Tensor) else v
        for name, v in quantities.items()
    }
