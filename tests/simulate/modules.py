"""Modules as a stranger writes them, with their inputs."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional


class Retrieval(nn.Module):
    """A head that finds a key among pairs, and reads out its value."""

    def __init__(self, N: int, M: int) -> None:
        super().__init__()
        self.K = nn.Parameter(torch.zeros(N, N))
        self.V = nn.Parameter(torch.zeros(M, M))

    def loss(self, keys: Tensor, values: Tensor, place: Tensor) -> Tensor:
        asked = keys.gather(1, place[:, None])
        attention = torch.softmax(self.K[asked, keys], 1)
        out = (attention[..., None] * self.V[values]).sum(1)
        return functional.cross_entropy(out, values.gather(1, place[:, None])[:, 0])


def retrieval(N: int = 4, M: int = 4, P: int = 2):
    """All pairs of distinct keys and distinct values, each pair queried."""
    keys, values = (itertools.permutations(range(n), P) for n in (N, M))
    rows = itertools.product(keys, values, range(P))
    return Retrieval(N, M), tuple(map(torch.tensor, zip(*rows, strict=True)))


class Copy(nn.Module):
    """A causal head with one score per pair of positions copies the token before."""

    def __init__(self, L: int, N: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(L, L))
        self.V = nn.Parameter(torch.zeros(N, N))

    def loss(self, x: Tensor) -> Tensor:
        later = torch.triu(torch.ones(x.shape[1], x.shape[1]), 1) > 0
        attention = torch.softmax(self.scores.masked_fill(later, -torch.inf), -1)
        out = attention @ self.V[x]
        return functional.cross_entropy(out[:, 1:].flatten(0, 1), x[:, :-1].flatten())


def copy(L: int = 3, N: int = 3):
    """All sequences."""
    return Copy(L, N), torch.tensor([*itertools.product(range(N), repeat=L)])


class Table(nn.Module):
    """Logits of the next token, by token."""

    def __init__(self, N: int, start: float = 0.0) -> None:
        super().__init__()
        self.W = nn.Parameter(torch.full((N, N), start))

    def loss(self, x: Tensor) -> Tensor:
        return functional.cross_entropy(self.W[x], (x + 1) % len(self.W))


def cycle(N: int = 5):
    """Every token is followed by the next one, around a circle."""
    return Table(N), torch.arange(N)


class Targets(nn.Module):
    """One weight per one-hot input, with a target each."""

    def __init__(self, *targets: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(len(targets)))
        self.register_buffer("targets", torch.tensor(targets))

    def loss(self, x: Tensor) -> Tensor:
        return (self.w[x] - self.targets[x]).square().mean()


class Product(nn.Module):
    """A deep linear network with one path per input: outputs u v, targets 1."""

    def __init__(self, N: int, u: float, v: float) -> None:
        super().__init__()
        self.u, self.v = (nn.Parameter(torch.full((N,), float(x))) for x in (u, v))

    def loss(self, x: Tensor) -> Tensor:
        return (self.u[x] * self.v[x] - 1).square().mean()


class Tied(nn.Module):
    """Autoencoder with one matrix: inputs are bits."""

    def __init__(self, N: int) -> None:
        super().__init__()
        self.W, self.b = nn.Parameter(0.6 * torch.eye(N)), nn.Parameter(torch.zeros(N))

    def loss(self, x: Tensor) -> Tensor:
        return (torch.relu(x.float() @ self.W.T @ self.W + self.b) - x).square().mean()


class Pooling(nn.Module):
    """A softmax over places, an embedding and a table find the first word."""

    def __init__(self, N: int, L: int) -> None:
        super().__init__()
        self.w, self.U = nn.Parameter(torch.zeros(L)), nn.Parameter(torch.zeros(N, N))
        self.E = nn.Embedding.from_pretrained(0.5 * torch.eye(N), freeze=False)

    def loss(self, x: Tensor) -> Tensor:
        pooled = (self.w.softmax(0)[:, None] * self.E(x)).sum(1)
        return functional.cross_entropy(pooled @ self.U, x[:, 0])


class Recurrent(nn.Module):
    """A recurrent network with equal units remembers its first input."""

    def __init__(self, H: int) -> None:
        super().__init__()
        shapes = {"W": (H, H), "v": (H,), "u": (H,)}
        for k, (name, shape) in enumerate(shapes.items(), 1):
            self.register_parameter(name, nn.Parameter(torch.full(shape, 0.1 * k)))

    def loss(self, x: Tensor) -> Tensor:
        h = torch.zeros(len(x), len(self.v))
        for one in 2.0 * x.T - 1:
            h = torch.tanh(h @ self.W.T + one[:, None] * self.v)
        return (h @ self.u - 2 * x[:, 0] + 1).square().mean()


class Layers(nn.Module):
    """An embedding and layers near the identity, which learn the identity."""

    def __init__(self, *between: nn.Module, N: int = 5) -> None:
        super().__init__()
        square = [nn.Embedding(N, N), nn.Linear(N, N), nn.Linear(N, N)]
        for layer in square:
            nn.init.zeros_(getattr(layer, "bias", torch.zeros(1)))
            layer.weight.data = 0.5 * torch.eye(N)
        self.layers = nn.Sequential(
            square[0], *between, square[1], nn.ReLU(), square[2]
        )

    def loss(self, x: Tensor) -> Tensor:
        return functional.cross_entropy(self.layers(x), x)


class Plain(nn.Module):
    """A layer and its loss, to be damaged in tests of refusals."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def loss(self, x: Tensor) -> Tensor:
        return self.layers(x).square().mean()


DRAW = torch.Generator().manual_seed(5)
X, Y = (torch.randn(24, n, generator=DRAW) for n in (4, 1))
WORDS = torch.randint(6, (16, 5), generator=DRAW)


class Line(nn.Module):
    """Linear regression, of which torch has its operations at once."""

    def __init__(self, width=4):
        super().__init__()
        self.w = nn.Parameter(torch.randn(width, 1))

    def loss(self, x, y):
        return (x @ self.w[:4] - y).square().mean()


class Net(nn.Module):
    """A small network, with random features that are not trained."""

    def __init__(self, width=7):
        super().__init__()
        self.first, self.second = nn.Linear(4, width), nn.Linear(width, 1)
        self.register_buffer("shift", torch.randn(width))
        self.frozen = nn.Parameter(torch.randn(width), requires_grad=False)

    def loss(self, x, y):
        hidden = torch.tanh(self.first(x) + self.shift) * self.frozen
        return (self.second(hidden) - y).square().mean()


class Attention(nn.Module):
    """A transformer layer that reverses a sentence."""

    def __init__(self, width=8):
        super().__init__()
        self.embedding, self.place = (
            nn.Embedding(6, width),
            nn.Parameter(torch.randn(5, width)),
        )
        self.layer = nn.TransformerEncoderLayer(
            width, 2, 16, dropout=0.0, batch_first=True
        )
        self.out = nn.Linear(width, 6)

    def loss(self, words):
        logits = self.out(self.layer(self.embedding(words) + self.place))
        return nn.functional.cross_entropy(
            logits.flatten(0, 1), words.flip(1).flatten()
        )


class Scalar(nn.Module):
    """One weight, no data."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(()))

    def loss(self):
        return (self.w.square() - 1) ** 2


class Gated(nn.Module):
    """A GRU, whose loss is the mean square of its states."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 3, batch_first=True)

    def loss(self, x, y):
        return (self.gru(x[:, None].expand(-1, 4, -1))[0].sum(-1) - y).square().mean()


class Mutating(Net):
    """It writes into what it has computed."""

    def loss(self, x, y):
        hidden = self.first(x)
        hidden.mul_(2.0)
        hidden[:, 1] = 0.5
        hidden[:, 2] += self.shift[0]
        return (self.second(hidden.tanh_()) - y).square().mean()


class Wide(Net):
    """Wide enough for torch to round otherwise in a stack of one."""

    def __init__(self):
        super().__init__(32)


class Normed(Net):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def loss(self, x, y):
        return super().loss(self.norm(x), y)


class Unused(Net):
    def __init__(self):
        super().__init__()
        self.spare = nn.Parameter(torch.zeros(3))


class InPlace(Net):
    def loss(self, x, y):
        out = torch.zeros(7)
        out[0] = self.second.bias[0]
        return super().loss(x, y) + out.sum()


class Hidden(nn.Module):
    """Draws what is no weight; from small starts only slopes tell."""

    def __init__(self, size=1.0):
        super().__init__()
        self.read = nn.Parameter(size * torch.randn(4, 1))
        self.drawn = torch.randn(4, 4)

    def loss(self, x, y):
        return (torch.tanh(x @ self.drawn.to(x)) @ self.read - y).square().mean()


class Counting(Net):
    calls = 0

    def loss(self, x, y):
        self.calls += 1
        return super().loss(x, y) * (1 if self.calls < 50 else 2)


def losing(loss):
    """A network with another loss."""
    return type("Losing", (Net,), {"loss": loss})


READY = Copy(2, 2)  # no function
