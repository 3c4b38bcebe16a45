"""The symmetric reduction of factual recall against autograd of the plain student, on all facts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from simulate.associative_memory.factual_recall import LinearAttention, task
from simulate.associative_memory.factual_recall.student import Learner
from theory.associative_memory.factual_recall import Parameters, equations
from verify.check import Check, Sides, identity, vanishing
from verify.report import Table, derivations

AUTOGRAD, AUTOGRAD_WHY = 1e-12, "autograd in float64"
P = Parameters(S=6, R=4, D=3, noise_tokens=5, T=7)


class Symmetric:
    """The plain student at a symmetric point, on a batch with every fact once and all noise tokens
    equally often.
    """

    def __init__(self) -> None:
        p = self.p = P
        self.at = {"w_r": 0.7, "w_s": 0.4, "delta_r": 1.1, "delta_s": 0.9}
        self.table = task.fact_table(p)
        subject, relation = (torch.as_tensor(v.ravel()) for v in np.indices((p.S, p.R)))
        self.answer = torch.as_tensor(self.table.ravel())
        self.counts = torch.zeros(len(subject), p.vocabulary, dtype=torch.float64)
        rows = torch.arange(len(subject))
        self.counts[rows, subject] = 1
        self.counts[rows, p.S + relation] = 1
        self.counts[:, p.S + p.R : -1] = (p.T - 3) / p.noise_tokens
        self.counts[:, -1] = 1
        self.student = LinearAttention(p)
        own = torch.zeros(p.vocabulary, p.answers, dtype=torch.float64)
        for r in range(p.R):
            own[p.S + r, r * p.D : (r + 1) * p.D] = 1
        own[torch.arange(p.S)[:, None], torch.as_tensor(self.table)] = 1
        self.own = own.bool()
        with torch.no_grad():
            w, V = self.student.w, self.student.V
            w[:], V[:] = 0.3, 0.2
            for rows_, letter in ((slice(0, p.S), "s"), (slice(p.S, p.S + p.R), "r")):
                w[rows_] = self.at[f"w_{letter}"]
                V[rows_] += self.at[f"delta_{letter}"] * own[rows_]
        self.losses = torch.nn.functional.cross_entropy(
            self.student.of_counts(self.counts), self.answer, reduction="none"
        )
        self.loss = self.losses.mean()
        self.slopes = torch.autograd.grad(
            self.loss, [self.student.w, self.student.V], retain_graph=True
        )

    def values(self) -> dict[str, float]:
        """Numbers by symbol name."""
        v = {
            **self.p.values(),
            **self.at,
            "X": self.at["w_r"] * self.at["delta_r"],
            "Y": self.at["w_s"] * self.at["delta_s"],
        }
        return v | {
            f"g_{q}": (n - 1) / (np.exp(v[gain]) + n - 1)
            for q, n, gain in (("r", self.p.R, "X"), ("s", self.p.D, "Y"))
        }


def losses(eq: Table) -> list[Check]:
    """Checks of the factorised loss and its two parts; every fact has the same loss."""
    x = Symmetric()
    v = x.values()
    logits = x.student.of_counts(x.counts).detach()
    blocks = torch.softmax(logits, 1).reshape(-1, x.p.R, x.p.D).sum(2)
    of_relation = -blocks.gather(1, (x.answer // x.p.D)[:, None]).log().mean()
    whole = float(x.loss.detach())
    scaled = torch.logsumexp(logits - logits.min(1, keepdim=True).values, 1).exp()
    sides = Sides(eq, AUTOGRAD, AUTOGRAD_WHY)
    sides.add("loss", "recall_loss", v, whole)
    sides.add("relation part", "loss_relation", v, of_relation)
    sides.add("subject part", "loss_subject", v, whole - float(of_relation))
    sides.add("normalisation, least logit 0", "recall_partition", v, scaled[0])
    sides.add("loss of every fact", "recall_loss", v, x.losses.detach())
    return sides.checks()


def rates(eq: Table) -> list[Check]:
    """Checks of the rate of every weight: equal within its group, and zero for frozen weights."""
    x = Symmetric()
    v, p = x.values(), x.p
    d_w, d_V = (-g.numpy() for g in x.slopes)
    sides = Sides(eq, AUTOGRAD, AUTOGRAD_WHY)
    for letter, rows in (("r", slice(p.S, p.S + p.R)), ("s", slice(0, p.S))):
        own = x.own[rows].numpy()
        plus, minus = d_V[rows][own], d_V[rows][~own]
        gaps = plus[:, None] - minus[None, :]
        sides.add(f"dw_{letter}/dt, every weight", f"dw_{letter}_dt", v, d_w[rows])
        sides.add(f"ddelta_{letter}/dt, every pair of entries", f"ddelta_{letter}_dt", v, gaps)
    frozen = np.append(d_V[p.S + p.R :].ravel(), d_w[p.S + p.R :])
    label, why = "noise and end rows: no gradient", "rounding of sums to zero"
    return [*sides.checks(), vanishing(label, "recall_loss", frozen, 1e-15, why)]


def engine(eq: Table) -> list[Check]:
    """The training code's gradients (from counts) against autograd of the module that reads
    tokens.
    """
    rng = np.random.default_rng(1)
    p = P.replace(epsilon=0.5)
    tokens, answer = task.draw_sequences(p, 32, task.fact_table(p), rng)
    learner, student = Learner(p, 0), LinearAttention(p)
    for name in ("w", "V"):
        value = rng.normal(size=getattr(learner, name).shape)
        setattr(learner, name, value)
        getattr(student, name).data = torch.tensor(value)
    loss = torch.nn.functional.cross_entropy(
        student(torch.as_tensor(tokens)), torch.as_tensor(answer)
    )
    found = learner.gradient(task.token_counts(p, tokens).astype(float), answer)
    return [
        identity(
            f"training gradient of {name}", "engine", mine, theirs.numpy(), AUTOGRAD, AUTOGRAD_WHY
        )
        for name, mine, theirs in zip(
            "wV", found, torch.autograd.grad(loss, [student.w, student.V]), strict=True
        )
    ]


COVERS: dict[Callable[[Table], list[Check]], tuple[str, ...]] = {
    losses: ("recall_loss", "loss_relation", "loss_subject", "recall_partition"),
    rates: ("dw_r_dt", "dw_s_dt", "ddelta_r_dt", "ddelta_s_dt"),
    engine: (),
}

checks, report = derivations(COVERS, equations)
