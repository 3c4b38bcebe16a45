"""The statement of factual recall against autograd: derived gradients, printed equations, and the
code that trains.
"""

from collections.abc import Callable

import numpy as np
import torch

from simulate.associative_memory import factual_recall
from simulate.associative_memory.factual_recall import Learner, LinearAttention
from theory.associative_memory.factual_recall import Parameters, dynamics, equations
from theory.associative_memory.factual_recall.statement import NAMES, recall
from theory.statement import kept
from verify.check import Check, Sides, identity
from verify.report import Table, derivations
from verify.statement.printed import Point, generic, numbers_of

AUTOGRAD = 1e-12, "autograd in float64"
P = Parameters(S=6, R=4, D=3, noise_tokens=5, T=5, epsilon=0.5)


def derived(_: Table) -> list[Check]:
    """Loss, sizes, gradients of all weights, frozen ones among them, and steps of descent."""
    return generic(kept.derived(recall()))


def printed(eq: Table) -> list[Check]:
    """Factorised loss and its two parts, of every fact; rates of attention and value gains."""
    made = kept.derived(recall())
    x = Point(made, dynamics.flow(), NAMES, numbers_of(P, made))
    sides = Sides(eq, *AUTOGRAD)
    sides.add("loss", "recall_loss", x.known, x.each["loss"])
    for part in ("relation", "subject"):
        sides.add(f"{part} part", f"loss_{part}", x.known, x.each[f"loss_{part}"])
    scaled = np.exp(x.known["X"] + x.known["Y"]) / x.each["accuracy"]
    sides.add("normalisation, least logit 0", "recall_partition", x.known, scaled)
    for name, rate in x.rates.items():
        sides.add(f"d{name}/dt", f"d{name}_dt", x.known, rate)
    return sides.checks()


def training(_: Table) -> list[Check]:
    """The code that trains, from counts, against autograd of the module that reads tokens. That the
    module is the statement's student is tested (`tests/simulate/statement/test_plain_students.py`).
    """
    rng = np.random.default_rng(1)
    tokens, answers = factual_recall.draw_sequences(P, 32, factual_recall.fact_table(P), rng)
    learner, module = Learner(P, 0), LinearAttention(P)
    for name in "wV":
        value = rng.normal(size=getattr(learner, name).shape)
        setattr(learner, name, value)
        getattr(module, name).data = torch.tensor(value)
    logits = module(torch.as_tensor(tokens))
    loss = torch.nn.functional.cross_entropy(logits, torch.as_tensor(answers))
    slopes = torch.autograd.grad(loss, [module.w, module.V])
    gradient = learner.gradient(factual_recall.token_counts(P, tokens).astype(float), answers)
    return [
        identity(f"training gradient of {name}", "engine", mine, theirs.numpy(), *AUTOGRAD)
        for name, mine, theirs in zip("wV", gradient, slopes, strict=True)
    ]


COVERS: dict[Callable[[Table], list[Check]], tuple[str, ...]] = {
    printed: (
        *("recall_loss", "loss_relation", "loss_subject", "recall_partition"),
        *("dw_r_dt", "dw_s_dt", "ddelta_r_dt", "ddelta_s_dt"),
    ),
    derived: (),
    training: (),
}

checks, report = derivations(COVERS, equations)
