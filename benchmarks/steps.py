"""A training step, over the step as anybody writes it: one student of state tracking,
and 64 copies of an ordinary module. One thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap

from benchmarks.timing import least, show
from simulate.ensemble import Copies, Parameters
from simulate.state_tracking.learner import Learner
from theory import state_tracking

COPIES = 64
ETA = 0.01
PRODUCT = 1024  # size of the matrix product that gives the rate of the machine


def state_tracking_steps() -> list[list[str]]:
    """The learner's step against the plain module's, and the least number of operations
    at the rate of a large matrix product.

    Per sequence, position and action one table of N entries is looked up in the forward
    pass and one for each gradient, each with a multiplication and an addition.
    """
    p = state_tracking.Parameters()
    learner = Learner(p, [0], torch.device("cpu"), torch.float32)
    (student,) = learner.students.members
    (data,) = learner.train_data
    optimizer = torch.optim.SGD(student.parameters(), lr=p.eta)
    actions = torch.as_tensor(data.actions)
    states = torch.as_tensor(data.states)

    def plain() -> None:
        optimizer.zero_grad()
        student.loss(actions, states).backward()
        optimizer.step()

    x = torch.randn(PRODUCT, PRODUCT)
    rate = 2 * PRODUCT**3 / least(lambda: x @ x)
    operations = 6 * p.n_train * p.L * p.L * p.N
    times = {
        "plain module, autograd": least(plain),
        "learner": least(lambda: learner.step(0)),
        f"floor, {operations / 1e9:.3g} GFLOP": operations / rate,
    }
    return _rows(times)


class Net(nn.Module):
    """4 - 16 - 1, tanh."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Mean squared error."""
        return (self.net(x) - y).square().mean()

    forward = loss


class Transformer(nn.Module):
    """One layer, two heads, width 16, eight words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(8, 16)
        self.places = nn.Parameter(0.1 * torch.randn(8, 16))
        self.layer = nn.TransformerEncoderLayer(
            16, 2, 32, dropout=0.0, batch_first=True
        )
        self.out = nn.Linear(16, 8)

    def loss(self, words: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Cross-entropy of every place."""
        logits = self.out(self.layer(self.words(words) + self.places))
        return nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())

    forward = loss


def ensemble_steps(kind: type[nn.Module], data: tuple[torch.Tensor, ...]) -> Any:
    """Copies together, against a loop over modules with `torch.optim` and against
    ``vmap(grad)``, which is the least that torch does without compilation.
    """
    p = Parameters(eta=ETA)
    seeds = range(COPIES)
    copies = Copies(
        kind,
        data,
        None,
        {},
        False,
        [p] * COPIES,
        seeds,
        None,
        torch.get_default_dtype(),
    )
    dtype = torch.get_default_dtype()
    modules = [kind().to(dtype) for _ in seeds]
    return _rows(
        {
            "loop with torch.optim": least(_loop(modules, data)),
            "ensemble": least(lambda: copies.step(0)),
            "vmap(grad)": least(_vmapped(modules, data)),
        }
    )


def _loop(modules: list[nn.Module], data: tuple[torch.Tensor, ...]) -> Callable:
    optimizers = [torch.optim.SGD(m.parameters(), lr=ETA) for m in modules]

    def step() -> None:
        for module, optimizer in zip(modules, optimizers, strict=True):
            optimizer.zero_grad()
            module(*data).backward()
            optimizer.step()

    return step


def _vmapped(modules: list[nn.Module], data: tuple[torch.Tensor, ...]) -> Callable:
    weights, buffers = stack_module_state(modules)
    weights = {name: w.detach() for name, w in weights.items()}
    frame = modules[0]

    def loss(own: dict[str, torch.Tensor], held: dict[str, torch.Tensor]) -> Any:
        return functional_call(frame, (own, held), data)

    slopes = vmap(grad(loss))

    def step() -> None:
        for name, slope in slopes(weights, buffers).items():
            weights[name] -= ETA * slope

    return step


def _rows(times: dict[str, float]) -> list[list[str]]:
    baseline = next(iter(times.values()))
    rows = []
    for name, seconds in times.items():
        rows.append([name, f"{1e3 * seconds:.3g}", f"{baseline / seconds:.3g}"])
    return rows


def main() -> None:
    """Print three tables."""
    torch.set_num_threads(1)
    header = ["step", "CPU ms", "times faster than the first"]
    show("One student of state tracking", header, state_tracking_steps())
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 4, generator=generator)
    net = ensemble_steps(Net, (x, x.sum(1, keepdim=True).sin()))
    show(f"{COPIES} copies of a net of 4 - 16 - 1", header, net)
    words = torch.randint(8, (4, 8), generator=generator)
    transformers = ensemble_steps(Transformer, (words, words.flip(1)))
    show(f"{COPIES} copies of a transformer of one layer", header, transformers)


if __name__ == "__main__":
    main()
