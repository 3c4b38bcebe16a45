"""The dense linear layer trained on the same data (Eqs. 17-18)."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import numpy as np
import torch

from simulate.positional_semantic import student
from simulate.positional_semantic.learner import TINY
from simulate.training import plan
from simulate.training.learner import Descent, Module, Unstacked
from theory.call.arguments import checked
from theory.call.refusal import Allowed, ParameterError
from theory.positional_semantic import Parameters

RIDGE = 1e-4  # as in the paper's runs; irrelevant for large d
ADAM = {"optimizer": "adam", "eta": 0.5, "steps": 200}  # of the paper
MEANING = {
    "W_11": "weight",
    "W_12": "weight",
    "W_21": "weight",
    "W_22": "weight",
    "half_test": "half of E|y - f|^2/d on fresh sentences",
}


class Learner(Module):
    """Weights of ``f(x) = W x``, trained from the identity by full-batch descent on the
    training sentences of a seed.

    Raises
    ------
    ParameterError
        With low-rank labels, which it is not fitted to.
    """

    p: Parameters
    dtype = torch.float64

    def build(self) -> None:
        """Moments of the sentences, and the identity."""
        p = self.p
        if p.value_rank:
            raise ParameterError(
                f"value_rank = {p.value_rank}: must be 0 for the linear layer"
            )
        self.teacher, data = student.sample(p, self.seed, self.dtype)
        gram = data.gram_tt.numpy()
        self.cross = np.einsum("nab,nbc->ac", data.target.numpy(), gram)
        self.square = gram.sum(0) + RIDGE * np.eye(2, dtype=gram.dtype)
        self.weight = torch.nn.Parameter(torch.eye(2, dtype=self.dtype))
        self.student = torch.nn.ParameterDict({"weight": self.weight})
        kind = {"gd": Descent, "adam": torch.optim.Adam}[p.optimizer]
        self.optimizer = kind([self.weight], lr=p.eta)

    def loss(self, number: int) -> torch.Tensor:
        """Mean loss of all sentences, but for a constant."""
        W, square, cross = (
            self.weight,
            torch.as_tensor(self.square),
            torch.as_tensor(self.cross),
        )
        return ((W @ square * W).sum() / 2 - (W * cross).sum()) / self.p.n

    def solve(self) -> None:
        """The minimum, by the normal equations."""
        with torch.no_grad():
            self.weight.copy_(
                torch.as_tensor(np.linalg.solve(self.square, self.cross.T).T)
            )

    def measure(self) -> dict[str, float]:
        """Quantities in `MEANING`."""
        W = self.weight.detach().numpy()
        rng = student.streams(self.seed)["test"]
        test = student.make(
            self.p,
            student.draw_sentences(self.p, self.p.n_test, rng),
            self.teacher,
            self.dtype,
        )
        gap = test.target.numpy() - W
        error = np.einsum("nab,nbc,nac->n", gap, test.gram_tt.numpy(), gap).mean()
        entries = {f"W_{a + 1}{b + 1}": float(w) for (a, b), w in np.ndenumerate(W)}
        return {**entries, "half_test": float(error / 2)}

    def finish(self) -> dict[str, Any]:
        """Labelled final results."""
        return {
            name: ((), value, {"long_name": MEANING[name]})
            for name, value in self.measure().items()
        }


def memory(p: Parameters, itemsize: int = 8) -> float:
    """Peak memory of one run in bytes, estimated from array shapes: sentences as drawn,
    converted and shifted, and their products.
    """
    return 2 * max(p.n, p.n_test) * p.d * (4 + 2 * itemsize + 8) + 40 * 8 * (
        p.n + p.n_test
    )


SYSTEM = plan.System(
    "positional_semantic.linear",
    Parameters,
    partial(Unstacked, Learner),
    MEANING,
    memory,
    time=None,
    sweep_parameter="alpha",
    default_dtype="float64",
    devices=("cpu",),
    finite="half_test",
    tiny={"": TINY, "adam": dict(TINY, optimizer="adam")},
)


@checked
def fit_linear(
    p: Parameters,
    seed: int,
    method: Annotated[str, Allowed(choices=("exact", "adam"))] = "exact",
) -> dict[str, float]:
    """Weights and half test error of the layer fitted to the training sentences of a
    seed.

    ``exact`` solves the normal equations; ``adam`` descends from the identity as the
    paper does.
    """
    learner = Learner(p.replace(**ADAM), seed)
    if method == "exact":
        learner.solve()
    else:
        for number in range(learner.p.steps):
            learner.step(number)
    return learner.measure()
