"""Empirical risk minimisation: full-batch descent of a stack of students, then L-BFGS
to the minimum for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.optimize
import torch

from simulate.positional_semantic import student as task
from simulate.positional_semantic.student import Problem, Weights, initial_weights
from simulate.training import learner, plan
from theory.positional_semantic import Parameters

# Measurements of a trained student, with the theory's names and units

MEANING = {
    "q": "sigma^2 |Q|^2/d",
    "m": (
        "overlap with the positional encoding, |p_1.Q|/sqrt(d), root sum of squares"
        " over columns"
    ),
    "theta": (
        "overlap with the teacher, sigma^2 |Q.Q*|/d, root sum of squares over columns"
    ),
    "train_loss": "empirical risk (3) divided by d",
    "test_mse_half": (
        "half of E|y - f|^2/d on fresh sentences (of low-rank labels E|y - f|^2)"
    ),
    "gradient": "norm of the gradient of the risk divided by sqrt(d)",
}
TEST_BLOCK = 4000  # sentences at a time


def measure(
    p: Parameters,
    weights: Weights,
    teacher: np.ndarray,
    objective: float,
    gradient: float,
) -> dict[str, float]:
    """Overlaps and losses of one run; ``weights`` without the run axis."""
    Q = weights["Q"].double().cpu().numpy()
    q = p.sigma**2 * (Q**2).sum() / p.d
    m = np.linalg.norm(Q.sum(0)) / p.d
    theta = p.sigma**2 * np.linalg.norm(teacher @ Q) / p.d
    return {
        "q": q,
        "m": m,
        "theta": theta,
        "train_loss": objective / p.d,
        "gradient": gradient / np.sqrt(p.d),
    }


def test_error(
    p: Parameters, weights: Weights, teacher: np.ndarray, rng: np.random.Generator
) -> float:
    """Half of the mean squared error per dimension on ``n_test`` fresh sentences."""
    total, left = 0.0, p.n_test
    like = weights["Q"]
    while left:
        n = min(left, TEST_BLOCK)
        data = task.make(p, task.draw_sentences(p, n, rng), teacher, like.dtype)
        problem = Problem([data.to(like.device)], p.lam, p.heads)
        with torch.no_grad():
            total += float(problem.errors({k: v[None] for k, v in weights.items()})[0])
        left -= n
    return total / p.n_test


AVERAGED = 5  # last steps over which the paper averages
GPU_STACK = 24  # runs trained at once on a GPU
POLISH = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-15, "gtol": 1e-7, "maxcor": 30}


def memory(p: Parameters, itemsize: int = 4) -> float:
    """Peak memory of one run in bytes, estimated from array shapes; ``itemsize`` bytes
    per number during descent.
    """
    tokens = 2 * p.n * p.d
    # Sentences as drawn and shifted, Gram matrices via double precision, and a copy in
    # double precision for the L-BFGS phase.
    sentences = tokens * (8 + itemsize + 16 + (8 if p.polish else 0)) + 40 * 8 * p.n
    tested = 2 * min(p.n_test, TEST_BLOCK) * p.d * 40
    weights = ((2 if not p.tied else 1) * p.rank + p.value_rank) * p.d
    if p.value:  # outputs and their gradient, and a matrix
        sentences += tokens * 8 * (8 if p.polish else itemsize)
        weights += p.d**2
    kept = 6 * itemsize + (
        8 * (2 * POLISH["maxcor"] + 12) if p.polish else 0
    )  # L-BFGS remembers pairs of vectors
    return sentences + tested + weights * kept


class Learner(learner.Learner):
    """A stack of attention layers with their sentences and optimiser.

    Parameters
    ----------
    p : Parameters
        Task, student and training settings.
    seeds : sequence of int
        Seeds; each fixes teacher, data and initial weights through separate streams.
    device : torch.device
        Device.
    dtype : torch.dtype
        Precision of the descent; L-BFGS runs in float64.
    """

    def __init__(
        self,
        p: Parameters,
        seeds: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.p, self.seeds = p, seeds
        drawn = [task.sample(p, seed, dtype) for seed in seeds]
        self.teachers = [teacher for teacher, _ in drawn]
        self.problem = Problem([data.to(device) for _, data in drawn], p.lam, p.heads)
        starts = [
            initial_weights(p, teacher, task.streams(seed)["initialisation"])
            for seed, teacher in zip(seeds, self.teachers, strict=True)
        ]
        self.weights = {}
        for k in starts[0]:
            stacked = torch.stack([torch.as_tensor(start[k]) for start in starts])
            self.weights[k] = stacked.to(device, dtype)
        self.adam = (
            torch.optim.Adam(list(self.weights.values()), lr=p.eta)
            if p.optimizer == "adam"
            else None
        )
        self.done = 0
        self.tail: list[Weights] = []
        self.ended: Weights = {}

    def step(self, number: int) -> None:
        """One step on all sentences."""
        _, gradient = self.problem.gradient(self.weights)
        if self.adam is not None:
            for name, value in self.weights.items():
                value.grad = gradient[name]
            self.adam.step()
        else:
            with torch.no_grad():
                for name, value in self.weights.items():
                    value -= self.p.eta * gradient[name]
        self.done = number + 1
        if self.p.steps - self.done < AVERAGED:
            self.tail.append({k: v.clone() for k, v in self.weights.items()})

    def state(self, b: int) -> learner.State:
        """Weights, now and averaged over the last steps, and optimiser state."""
        weights = {n: w[b].clone() for n, w in self.weights.items()}
        tail = []
        for earlier in self.tail:
            tail.append({n: w[b] for n, w in earlier.items()})
        state: learner.State = {"step": self.done, "weights": weights, "tail": tail}
        if self.adam is not None:
            state["adam"] = []
            for w in self.weights.values():
                moments = self.adam.state[w].items()
                of_run = {n: v[b].clone() for n, v in moments if v.ndim}
                state["adam"].append(of_run)
        return state

    def load(self, states: Sequence[learner.State]) -> None:
        """Restore the states of all students."""
        self.done = states[0]["step"]
        for name, value in self.weights.items():
            value.copy_(torch.stack([s["weights"][name] for s in states]))
        self.tail = []
        for earlier in zip(*(s["tail"] for s in states), strict=True):
            weights = {}
            for name, value in self.weights.items():
                weights[name] = torch.stack([run[name] for run in earlier]).to(value)
            self.tail.append(weights)
        if self.adam is not None:
            for j, value in enumerate(self.weights.values()):
                moments = {"step": torch.tensor(float(self.done))}
                for n in states[0]["adam"][j]:
                    of_runs = torch.stack([s["adam"][j][n] for s in states])
                    moments[n] = of_runs.to(value)
                self.adam.state[value] = moments

    def finish(self, b: int) -> dict[str, Any]:
        """Overlaps and losses, either of the weights after L-BFGS or averaged over the
        last steps; each run separately. The weights are left in ``ended``.
        """
        p, teacher, stack = self.p, self.teachers[b], self.problem
        parts = stack.tokens, stack.target, stack.tt, stack.ts, stack.ss, stack.labels
        data = task.Data(*(v[b] for v in parts))
        exact = Problem([data.to(torch.float64) if p.polish else data], p.lam, p.heads)
        last = [] if p.polish else self.tail
        rows = []
        for weights in last or [self.weights]:
            state = {name: w[b : b + 1] for name, w in weights.items()}
            if p.polish:
                state = polish(exact, {name: w.double() for name, w in state.items()})
            value, gradient = exact.gradient(state)
            size = float(sum(float(g.square().sum()) for g in gradient.values())) ** 0.5
            self.ended = {name: w[0] for name, w in state.items()}
            rows.append(measure(p, self.ended, teacher, float(value), size))
        means = {}
        for name in rows[0]:
            means[name] = float(np.mean([row[name] for row in rows]))
        rng = task.streams(self.seeds[b])["test"]
        means["test_mse_half"] = test_error(p, self.ended, teacher, rng)
        return {
            name: ((), means[name], {"long_name": text})
            for name, text in MEANING.items()
        }


def polish(problem: Problem, weights: Weights) -> Weights:
    """Local minimum reached from the weights by L-BFGS in float64, for one run."""
    like = next(iter(weights.values()))

    def pack(parts: Weights) -> np.ndarray:
        return torch.cat([v.reshape(-1) for v in parts.values()]).cpu().numpy()

    def unpack(x: np.ndarray) -> Weights:
        parts = torch.as_tensor(x).to(like).split([v.numel() for v in weights.values()])
        return {
            k: v.reshape(weights[k].shape) for k, v in zip(weights, parts, strict=True)
        }

    def value(x: np.ndarray) -> tuple[float, np.ndarray]:
        f, g = problem.gradient(unpack(x))
        return float(f[0]), pack(g)

    found = scipy.optimize.minimize(
        value, pack(weights), jac=True, method="L-BFGS-B", options=POLISH
    )
    return unpack(found.x)


TINY = dict(d=20, alpha=2.0, steps=24, n_test=50)
SYSTEM = plan.System(
    "positional_semantic",
    Parameters,
    Learner,
    MEANING,
    memory,
    time=None,
    sweep_parameter="alpha",
    stack=GPU_STACK,
    finite="train_loss",
    displayed=("q", "m", "theta", "train_loss", "test_mse_half", "gradient"),
    tiny={
        "": TINY,
        "adam": dict(TINY, optimizer="adam", polish=False),
        "value": dict(TINY, value=True, tied=False),
    },
)
