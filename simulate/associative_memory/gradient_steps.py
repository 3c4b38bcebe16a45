"""Three gradient steps that build an induction head."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from theory.associative_memory.gradient_steps import Parameters
from theory.runtime import memory

# An induction head from three descent steps, one per matrix, each on its population
# gradient

CHUNK = 2500  # sequences at a time


def sample(
    p: Parameters, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens ``(count, T)``, answers ``(count,)``, 0-based places of the first trigger;
    triggers are 0..K-1.
    """
    tokens = rng.integers(p.K, p.N, size=(count, p.T))
    trigger = rng.integers(p.K, size=count)
    answer = rng.integers(p.K, p.N, size=count)
    place = rng.integers(p.T - 2, size=count)
    rows = np.arange(count)
    tokens[rows, place], tokens[rows, place + 1], tokens[:, -1] = (
        trigger,
        answer,
        trigger,
    )
    return tokens, answer, place


class InductionHead(torch.nn.Module):
    """Two attention layers on one-hot features in two blocks [token | remapped previous
    tokens]; zero initial weights.

    ``W_1 (T, T)``: positional scores of layer 1; ``W_2 (2N, N)``: keys against the last
    token; ``W_O (N, 2N)``: outputs of layer 2.
    """

    W_O: torch.nn.Parameter
    W_2: torch.nn.Parameter
    W_1: torch.nn.Parameter
    mask: Tensor

    def __init__(self, p: Parameters, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.p = p
        for name, shape in (
            ("W_O", (p.N, 2 * p.N)),
            ("W_2", (2 * p.N, p.N)),
            ("W_1", (p.T, p.T)),
        ):
            self.register_parameter(
                name, torch.nn.Parameter(torch.zeros(shape, dtype=dtype))
            )
        self.register_buffer(
            "mask",
            torch.triu(torch.full((p.T, p.T), -torch.inf, dtype=dtype), diagonal=1),
        )

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Logits ``(n, N)`` at the last position, and its attention ``(n, T)``."""
        one_hot = torch.nn.functional.one_hot(tokens, self.p.N).to(self.W_O.dtype)
        first = torch.softmax(self.W_1 + self.mask, dim=-1)
        features = torch.cat([one_hot, first @ one_hot], dim=-1)
        scores = (features @ self.W_2).gather(
            2, tokens[:, -1, None, None].expand(-1, self.p.T, 1)
        )[..., 0]
        second = torch.softmax(scores, dim=-1)
        return (second[:, None] @ features)[:, 0] @ self.W_O.T, second


@dataclass
class Outcome:
    """Measurements before and after every step."""

    probes: dict[str, float] = field(default_factory=dict)
    accuracy: list[float] = field(default_factory=list)
    attention: list[float] = field(default_factory=list)
    gradients: dict[str, np.ndarray] = field(default_factory=dict)
    weights: dict[str, np.ndarray] = field(default_factory=dict)


def gradient(model: InductionHead, name: str, seed: int, count: int) -> Tensor:
    """Gradient of one matrix over ``count`` fresh sequences."""
    weight = model.get_parameter(name)
    rng = np.random.default_rng(seed)
    done = 0
    total = torch.zeros_like(weight)
    while done < count:
        size = min(CHUNK, count - done)
        tokens, answer, _ = sample(model.p, size, rng)
        logits, _ = model(torch.as_tensor(tokens))
        loss = torch.nn.functional.cross_entropy(
            logits, torch.as_tensor(answer), reduction="sum"
        )
        total += torch.autograd.grad(loss, weight)[0]
        done += size
    return total / count


@torch.no_grad()
def test(model: InductionHead, seed: int) -> tuple[float, float]:
    """Accuracy at the last position, and mean attention of layer 2 on the answer's
    position.
    """
    tokens, answer, place = sample(model.p, 5000, np.random.default_rng(seed))
    logits, attention = model(torch.as_tensor(tokens))
    right = float((logits.argmax(1).numpy() == answer).mean())
    return right, float(
        attention[torch.arange(5000), torch.as_tensor(place + 1)].mean()
    )


def memory_of_run(p: Parameters) -> float:
    """Peak memory of `run` in bytes, estimated from array shapes: one-hot tokens of a
    chunk, or of the 5000 test sequences.
    """
    activations = 5000 * p.T * p.N * (8 + 4 * 5) + CHUNK * p.T * p.N * 4 * 4
    return activations + 8 * 5000 * p.T * 3 + 4 * 6 * (4 * p.N**2 + 2 * p.T**2)


def run(p: Parameters, seed: int = 0) -> Outcome:
    """Three steps: W_O at the given learning rate, W_2 and W_1 scaled to their gains.

    Returns
    -------
    Outcome
        ``probes``: fraction of the desired associations that are strongest in their
        column or row directly after the step (plain tokens to themselves; triggers to
        their remapped selves; positions 2..T-1 to the one before); ``accuracy`` and
        ``attention`` before and after each step; gradients and weights.
    """
    memory.require(memory_of_run, p, "a gradient step")
    model, out = InductionHead(p), Outcome()
    plain, triggers = torch.arange(p.K, p.N), torch.arange(p.K)
    inner = torch.arange(1, p.T - 1)

    def record() -> None:
        accuracy, attention = test(model, seed + 1000)
        out.accuracy.append(accuracy)
        out.attention.append(attention)

    record()
    for number, name in enumerate(("W_O", "W_2", "W_1")):
        slope = gradient(model, name, seed + number, p.samples)
        rows, wanted, gain = {
            "W_O": (lambda w: w[:, plain].T, plain, None),
            "W_2": (lambda w: w[p.N :, triggers].T, triggers, p.second_gain),
            # A position attends to itself and to earlier ones.
            "W_1": (lambda w: w[inner] + model.mask[inner], inner - 1, p.third_gain),
        }[name]
        mean = float(rows(-slope).gather(1, wanted[:, None]).mean())
        scale = p.first_step * p.N * p.T if gain is None else gain / mean
        weight = model.get_parameter(name).detach()
        weight.sub_(scale * slope)
        out.probes[name] = float((rows(weight).argmax(1) == wanted).double().mean())
        out.gradients[name], out.weights[name] = slope.numpy(), weight.numpy().copy()
        record()
    return out
