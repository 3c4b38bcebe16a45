"""Speed of ensembles against a loop over modules, in one run: CPU times of one thread,
recorded with ``pytest -m slow --benchmark-enable`` and not asserted.
"""

import functools
import time

import pytest
import torch
from torch import nn

from simulate.ensemble import Copies, Parameters

pytestmark = pytest.mark.slow
COPIES, STEPS = 64, 40


class Perceptron(nn.Module):
    """8 - 32 - 1."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))

    def loss(self, x, y):
        return (self.net(x) - y).square().mean()


class Transformer(nn.Module):
    """One layer, two heads, width 16, sequences of eight words."""

    def __init__(self):
        super().__init__()
        self.embedding, self.place = (
            nn.Embedding(8, 16),
            nn.Parameter(0.1 * torch.randn(8, 16)),
        )
        self.layer = nn.TransformerEncoderLayer(
            16, 2, 32, dropout=0.0, batch_first=True
        )
        self.out = nn.Linear(16, 8)

    def loss(self, words):
        logits = self.out(self.layer(self.embedding(words) + self.place))
        return nn.functional.cross_entropy(
            logits.flatten(0, 1), words.flip(1).flatten()
        )


DATA = {
    "perceptron, 64 inputs": (Perceptron, (torch.randn(64, 8), torch.randn(64, 1)), 0),
    "perceptron, batches of 16": (
        Perceptron,
        (torch.randn(64, 8), torch.randn(64, 1)),
        16,
    ),
    "transformer, 32 sequences": (Transformer, (torch.randint(8, (32, 8)),), 0),
    "transformer, 4 sequences": (Transformer, (torch.randint(8, (4, 8)),), 0),
}
KINDS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


def seconds(step):
    """CPU time of a step of all copies: the least of four rounds."""
    step(0)
    rounds = []
    for _ in range(4):
        began = time.process_time()
        for number in range(STEPS // 4):
            step(number)
        rounds.append((time.process_time() - began) / (STEPS // 4))
    return min(rounds)


def loop(kind, data, batch, dtype, optimizer):
    """Modules one after the other, as anybody writes it."""
    modules = [kind().to(dtype) for _ in range(COPIES)]
    steps = [KINDS[optimizer](m.parameters(), lr=0.01) for m in modules]

    def step(number):
        for module, one in zip(modules, steps, strict=True):
            places = torch.randint(len(data[0]), (batch,)) if batch else slice(None)
            one.zero_grad()
            module.loss(*(x[places] for x in data)).backward()
            one.step()

    return step


@pytest.mark.parametrize("optimizer", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", DATA)
def test_steps_over_a_loop(name, dtype, optimizer, benchmark):
    """64 copies."""
    kind, data, batch = DATA[name]
    p = Parameters(eta=0.01, batch_size=batch, optimizer=optimizer)
    cast = tuple(x.to(dtype) if x.is_floating_point() else x for x in data)
    own = data if len(data) > 1 else data[0]
    copies = Copies(
        kind, own, None, {}, False, [p] * COPIES, range(COPIES), None, dtype
    )
    together = benchmark.pedantic(functools.partial(seconds, copies.step), rounds=1)
    apart = seconds(loop(kind, cast, batch, dtype, optimizer))
    benchmark.extra_info.update(together=together, apart=apart, ratio=apart / together)
    print(
        f"{name} {dtype} {optimizer}: {1e3 * together:.2f} ms, loop"
        f" {1e3 * apart:.1f} ms, {apart / together:.1f} times"
    )
