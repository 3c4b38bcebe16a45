"""Derivatives of attention by keys and queries against autograd, and the constants c."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sympy import KroneckerDelta

from simulate.state_tracking.student import Student
from theory.state_tracking import Parameters, definitions, task
from theory.state_tracking.symbols import i as i_symbol
from theory.state_tracking.symbols import k as k_symbol
from verify.check import Check, identity, listed, sampled
from verify.report import Table
from verify.state_tracking.inputs import AUTOGRAD, DRAWS, EXACT, GENERATOR, Inputs, P


def of_blocks(x: Inputs) -> dict[str, Any]:
    """Numbers of all rotary blocks, the last axis, at all pairs of positions."""
    q, k = (w.detach().numpy().reshape(-1, 2).T for w in (x.student.W_Q, x.student.W_K))
    i, j = np.indices((x.p.L, x.p.L))
    known = {"omega_n": x.p.frequencies, "d_h": x.p.d_h, "Delta_ij": (j - i - x.p.L)[..., None]}
    return known | {"q_1": q[0], "q_2": q[1], "k_1": k[0], "k_2": k[1]}


def chain(eq: Table, x: Inputs, pi: np.ndarray) -> dict[str, np.ndarray]:
    """grad_W A from the pieces (65)-(68), for any attention matrix."""
    p, numbers = x.p, of_blocks(x)
    softmax = eq["softmax_derivative"]
    pi_i, pi_k, same = (
        definitions.pi[i_symbol],
        definitions.pi[k_symbol],
        KroneckerDelta(i_symbol, k_symbol),
    )
    right = pi.diagonal()[:, None]
    d_softmax = softmax.evaluate({same: np.eye(p.L), pi_i: right, pi_k: pi})
    d_A = eq["dA_dpi"].evaluate({"L": p.L})
    out = {}
    for w in "qk":
        parts = [
            np.einsum(
                "ij,ijn->n",
                d_A * d_softmax,
                np.broadcast_to(eq[f"dl_d{w}_{c}"].evaluate(numbers), (p.L, p.L, p.d_h // 2)),
            )
            for c in (1, 2)
        ]
        out[w] = np.stack(parts, 1).ravel()
    return out


class Pinned(torch.nn.Module):
    """A of a student whose attention is set to the ansatz, with the derivatives of the actual
    logits.
    """

    def __init__(self, student: Student, A: float) -> None:
        super().__init__()
        self.student, eye = student, torch.eye(student.p.L, dtype=torch.float64)
        self.target = A * eye + (1 - A) / (student.p.L - 1) * (1 - eye)
        self.tokens = torch.zeros(1, student.p.L, dtype=torch.long)  # irrelevant here

    def forward(self) -> torch.Tensor:
        """Mean attention on the right action."""
        real = self.student.attention(self.tokens, self.tokens)[0].log()
        return torch.softmax(real - real.detach() + self.target.log(), dim=1).diagonal().mean()


def ansatz_factor(student: Student, A: float, W_Q: torch.Tensor, W_K: torch.Tensor) -> np.ndarray:
    """d_g N |grad_W A|^2 under the ansatz, by autograd, for a batch of keys and queries
    ``(draws, d_h, 1)``.
    """
    module = Pinned(student, A)

    def value(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(module, {"student.W_Q": q, "student.W_K": k}, ())

    gradients = torch.func.vmap(torch.func.grad(value, argnums=(0, 1)))(W_Q, W_K)
    return (
        student.p.d_g
        * student.p.N
        * sum(g.square().sum((1, 2)) for g in gradients).detach().numpy()
    )


def attention_derivatives(eq: Table) -> list[Check]:
    """Attention logit (5), grad A by the chain (62)-(68) through the real attention, Lambda (70),
    c(A) (69).
    """
    x = Inputs()
    p, student = x.p, x.student
    pi = student.attention(x.actions[:1], x.states[:1, :-1])[0]
    by_autograd = dict(
        zip(
            "qk", torch.autograd.grad(pi.diagonal().mean(), [student.W_Q, student.W_K]), strict=True
        )
    )
    pieces = chain(eq, x, pi.detach().numpy())
    blocks = of_blocks(x)
    logits = eq["attention_logit"].evaluate(blocks).sum(-1)
    rows = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    omega = p.frequencies[1:]
    i, j = np.indices((p.L, p.L))
    double_sum = np.array([np.cos(w * (i - j))[i != j].mean() for w in omega])
    norms = {f"W_{w.upper()}2": blocks[f"{w}_1"] ** 2 + blocks[f"{w}_2"] ** 2 for w in "qk"}
    lam = np.append(1.0, eq["lambda"].evaluate({"omega_n": omega, "L": p.L}))  # omega_1 = 2 pi
    values = {"A": 0.37, "N": p.N, "d_g": p.d_g, "d_h": p.d_h, "lambda": lam, **norms}
    return [
        identity("attention", "attention_logit", rows, pi.detach().numpy(), *EXACT),
        identity(
            "grad A by W_Q",
            "dl_dq_1, dl_dq_2, softmax_derivative, dA_dpi",
            pieces["q"],
            by_autograd["q"][:, 0].numpy(),
            *AUTOGRAD,
        ),
        identity(
            "grad A by W_K",
            "dl_dk_1, dl_dk_2, softmax_derivative, dA_dpi",
            pieces["k"],
            by_autograd["k"][:, 0].numpy(),
            *AUTOGRAD,
        ),
        identity("lambda_n, mean over pairs i != k", "lambda", lam[1:], double_sum, *EXACT),
        identity(
            "c(A) with attention pinned to the ansatz",
            "c_ansatz",
            eq["c_ansatz"].evaluate(values),
            ansatz_factor(student, 0.37, student.W_Q[None], student.W_K[None])[0],
            *AUTOGRAD,
        ),
    ]


@listed
def attention_constant(eq: Table) -> Iterator[Check]:
    """c_omega (14) and the averaged c(A) against the mean over drawn keys and queries, at two
    settings.
    """
    for name, p in (("tiny", P), ("Table 2", Parameters.table_2())):
        rng = np.random.default_rng(GENERATOR)
        student = Student(
            p.replace(N=2, d_g=2), task.draw_weights(p.replace(N=2, d_g=2), rng), torch.float64
        )
        scale = (
            p.d_g * p.N / 4
        )  # the factor d_g N of the full size; attention does not depend on N and d_g
        W_Q, W_K = (torch.tensor(rng.uniform(-1, 1, (DRAWS, p.d_h, 1))) for _ in "QK")
        start, later = (scale * ansatz_factor(student, A, W_Q, W_K) for A in (1 / p.L, 0.6))
        values = p.values() | {"c_omega": eq["c_omega"].evaluate(p.values())}
        ansatz = eq["c_ansatz_mean"].evaluate(values | {"A": 0.6})
        closure = eq["c_closure"].evaluate(values | {"A": 1 / p.L})
        yield from [
            sampled(f"c_omega, {name}", "c_omega", values["c_omega"], start / (1 - 1 / p.L)),
            sampled(f"mean c(A) at A = 0.6, {name}", "c_ansatz_mean", ansatz, later),
            sampled(f"closure at A = 1/L, {name}", "c_closure", closure, start),
        ]
