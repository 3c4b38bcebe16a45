"""Derivations beyond the paper against autograd: forces of the dressed loss and the
decay of the variance of M; attention by keys and queries, and the constants c.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sympy import KroneckerDelta
from torch import Tensor

from simulate.state_tracking.student import Student
from theory.state_tracking import Parameters
from theory.state_tracking.model import definitions, task
from theory.state_tracking.model.symbols import i as i_symbol
from theory.state_tracking.model.symbols import k as k_symbol
from theory.state_tracking.single_students import dressed
from verify.checks.check import Check, Sides, identity, listed, sampled
from verify.checks.report import Table, sided
from verify.state_tracking.flow_gradients import (
    AUTOGRAD,
    DRAWS,
    EXACT,
    GENERATOR,
    Inputs,
    P,
)


@sided(*AUTOGRAD)
def dressed_derivatives(sides: Sides) -> None:
    """Forces of the dressed loss by autograd of its definition, and the decay of M's
    variance by an exact Hessian.
    """
    N, d_g, V, R, S, zeta = 6, 5, 0.3, 0.7, 0.1, 0.2
    row = torch.tensor(
        [0.4, 0.1, 0.2, 0.3], dtype=torch.float64, requires_grad=True
    )  # the first is the right action

    def loss(detach: bool) -> Tensor:
        c_R = row[0] + (1 - row[0]) / d_g
        right = c_R * R + (1 - c_R) * S
        z = torch.cat([right[None], ((zeta - right) / (N - 1)).expand(N - 1)])
        noise = V * ((1 - 1 / d_g) * row.square().sum() + 1 / d_g)
        weights = torch.softmax(z, 0)
        cost = (weights * (1 - weights)).sum()  # sum of second derivatives of ln Z
        return (
            torch.logsumexp(z, 0)
            - right
            + (noise.detach() if detach else noise) * cost / 2
        )

    (whole,), (part,) = (
        torch.autograd.grad(loss(detach), row) for detach in (False, True)
    )
    values = {"N": N, "d_g": d_g, "R": R, "S": S, "zeta": zeta, "pi_i": 0.4, "V_M": V}
    values["v_i"] = V * ((1 - 1 / d_g) * 0.3 + 1 / d_g)
    for symbol, name in (("m", "margin_position"), ("g", "g"), ("h_i", "noise_cost")):
        values[symbol] = sides.table[name].evaluate(values)
    entries = {dressed.pi[dressed.i, dressed.j]: row.detach().numpy()}
    sides.add("force on the right action", "dloss_dpi_margin", values, part[0])
    sides.add(
        "force against concentration", "dloss_dpi_noise", values | entries, whole - part
    )
    # Every sequence of a small task at M = 0, where all logits are equal: curvature of
    # the loss along single entries.
    x = Inputs(Parameters(N=3, L=2, d_g=3, d_h=4, eta=0.7))
    p, student, path = x.p, x.student, x.states
    weights = dict(student.named_parameters())

    def of_M(M: Tensor) -> Tensor:
        seen = (x.actions, path[:, :-1])
        logits = torch.func.functional_call(student, {**weights, "M": M}, seen)
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), path[:, 1:].flatten()
        )

    hessian = torch.func.hessian(of_M)(torch.zeros_like(x.M)).reshape(
        (x.M.numel(),) * 2
    )
    attention = student.attention(x.actions[:1], path[:1, :-1])[0]
    known = {
        "participation": attention.square().sum(1).detach().numpy(),
        "g": 1 - 1 / p.N,
    }
    known |= {"V_M": V, "N": p.N, "L": p.L, "d_g": p.d_g, "eta": p.eta}
    for name in ("spread", "curvature"):
        known[name] = sides.table[name].evaluate(known) + np.zeros(p.L)
    bend = hessian.diagonal().mean()
    sides.add(
        "decay of the variance of M at M = 0",
        "dV_dalpha",
        known,
        (-2 * p.eta * p.d_g * p.N * bend * V).detach(),
    )


# Derivatives of attention by keys and queries against autograd, and the constants c


def of_blocks(x: Inputs) -> dict[str, Any]:
    """Numbers of all rotary blocks, the last axis, at all pairs of positions."""
    q, k = (w.detach().numpy().reshape(-1, 2).T for w in (x.student.W_Q, x.student.W_K))
    i, j = np.indices((x.p.L, x.p.L))
    known = {
        "omega_n": x.p.frequencies,
        "d_h": x.p.d_h,
        "Delta_ij": (j - i - x.p.L)[..., None],
    }
    return known | {"q_1": q[0], "q_2": q[1], "k_1": k[0], "k_2": k[1]}


def chain(eq: Table, x: Inputs, pi: np.ndarray) -> dict[str, np.ndarray]:
    """grad_W A from the pieces (65)-(68), for any attention matrix."""
    p, numbers = x.p, of_blocks(x)
    softmax = eq["softmax_derivative"]
    pi_i = definitions.pi[i_symbol]
    pi_k = definitions.pi[k_symbol]
    same = KroneckerDelta(i_symbol, k_symbol)
    right = pi.diagonal()[:, None]
    d_softmax = softmax.evaluate({same: np.eye(p.L), pi_i: right, pi_k: pi})
    d_A = eq["dA_dpi"].evaluate({"L": p.L})
    gradients = {}
    for w in "qk":
        components = [eq[f"dl_d{w}_{c}"].evaluate(numbers) for c in (1, 2)]
        slope = np.stack(components, -1)
        gradients[w] = np.tensordot(d_A * d_softmax, slope).ravel()
    return gradients


class Pinned(torch.nn.Module):
    """A of a student whose attention is set to the ansatz, with the derivatives of the
    actual logits.
    """

    def __init__(self, student: Student, A: float) -> None:
        super().__init__()
        self.student, eye = student, torch.eye(student.p.L, dtype=torch.float64)
        self.target = A * eye + (1 - A) / (student.p.L - 1) * (1 - eye)
        self.tokens = torch.zeros(1, student.p.L, dtype=torch.long)  # irrelevant here

    def forward(self) -> Tensor:
        """Mean attention on the right action."""
        real = self.student.attention(self.tokens, self.tokens)[0].log()
        return (
            torch.softmax(real - real.detach() + self.target.log(), dim=1)
            .diagonal()
            .mean()
        )


def ansatz_factor(student: Student, A: float, W_Q: Tensor, W_K: Tensor) -> np.ndarray:
    """d_g N |grad_W A|^2 under the ansatz, by autograd, for a batch of keys and queries
    ``(draws, d_h, 1)``.
    """
    module = Pinned(student, A)

    def value(q: Tensor, k: Tensor) -> Tensor:
        return torch.func.functional_call(
            module, {"student.W_Q": q, "student.W_K": k}, ()
        )

    gradients = torch.func.vmap(torch.func.grad(value, argnums=(0, 1)))(W_Q, W_K)
    squares = sum(g.square().sum((1, 2)) for g in gradients).detach().numpy()
    return student.p.d_g * student.p.N * squares


@listed
def attention_derivatives(eq: Table) -> Iterator[Check]:
    """Attention logit (5), grad A by the chain (62)-(68) through the real attention,
    Lambda (70), c(A) (69).
    """
    x = Inputs()
    p, student = x.p, x.student
    pi = student.attention(x.actions[:1], x.states[:1, :-1])[0]
    by_autograd = torch.autograd.grad(pi.diagonal().mean(), [student.W_Q, student.W_K])
    blocks = of_blocks(x)
    logits = eq["attention_logit"].evaluate(blocks).sum(-1)
    rows = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    yield identity("attention", "attention_logit", rows, pi.detach().numpy(), *EXACT)

    pieces = chain(eq, x, pi.detach().numpy())
    for w, by_w in zip("qk", by_autograd, strict=True):
        yield identity(
            f"grad A by W_{w.upper()}",
            f"dl_d{w}_1, dl_d{w}_2, softmax_derivative, dA_dpi",
            pieces[w],
            by_w[:, 0].numpy(),
            *AUTOGRAD,
        )

    omega = p.frequencies[1:]
    lam = eq["lambda"].evaluate({"omega_n": omega, "L": p.L})
    i, j = np.indices((p.L, p.L))
    double_sum = np.array([np.cos(w * (i - j))[i != j].mean() for w in omega])
    what = "lambda_n, mean over pairs i != k"
    yield identity(what, "lambda", lam, double_sum, *EXACT)

    values: dict[str, Any] = {"A": 0.37, "N": p.N, "d_g": p.d_g, "d_h": p.d_h}
    values["lambda"] = np.append(1.0, lam)  # omega_1 = 2 pi
    for w in "qk":
        values[f"W_{w.upper()}2"] = blocks[f"{w}_1"] ** 2 + blocks[f"{w}_2"] ** 2
    factor = ansatz_factor(student, 0.37, student.W_Q[None], student.W_K[None])[0]
    yield identity(
        "c(A) with attention pinned to the ansatz",
        "c_ansatz",
        eq["c_ansatz"].evaluate(values),
        factor,
        *AUTOGRAD,
    )


@listed
def attention_constant(eq: Table) -> Iterator[Check]:
    """c_omega (14) and the averaged c(A) against the mean over drawn keys and queries,
    at two settings.
    """
    for name, p in (("tiny", P), ("Table 2", Parameters.table_2())):
        rng, few = np.random.default_rng(GENERATOR), p.replace(N=2, d_g=2)
        student = Student(few, task.draw_weights(few, rng), torch.float64)
        # The factor d_g N of the full size; attention does not depend on N and d_g.
        scale = p.d_g * p.N / 4
        W_Q, W_K = (torch.tensor(rng.uniform(-1, 1, (DRAWS, p.d_h, 1))) for _ in "QK")
        start, later = (
            scale * ansatz_factor(student, A, W_Q, W_K) for A in (1 / p.L, 0.6)
        )
        values = p.values() | {"c_omega": eq["c_omega"].evaluate(p.values())}
        ansatz = eq["c_ansatz_mean"].evaluate(values | {"A": 0.6})
        closure = eq["c_closure"].evaluate(values | {"A": 1 / p.L})
        c_omega, measured = values["c_omega"], start / (1 - 1 / p.L)
        yield sampled(f"c_omega, {name}", "c_omega", c_omega, measured)
        yield sampled(f"mean c(A) at A = 0.6, {name}", "c_ansatz_mean", ansatz, later)
        yield sampled(f"closure at A = 1/L, {name}", "c_closure", closure, start)
