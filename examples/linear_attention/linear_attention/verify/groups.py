"""Checks of both systems against the attention on tokens, averaged over ALL prompts. Each takes the
table of Equations, so that tests can pass a faulty one.

No Gaussian variable enters the squared error of linear attention with a power above four, and
Gauss-Hermite quadrature with three nodes is exact up to five. The sum over nodes is therefore the
exact average, and the attention is compared with the theory without sampling noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from linear_attention.simulate import student
from linear_attention.simulate.student import Weights
from linear_attention.theory.parameters import Parameters
from simulate.gradient_flow import rates
from theory.special import gauss_hermite
from verify.check import Check, Sides, at_least, sampled, vanishing
from verify.report import Table

SEED = 20250127  # any fixed seed; the checks hold for all
EXACT = 1e-10, "sum over all prompts of the rule, float64"
SMALL = (("1.3", 3), ("1.4,0.6", 2), ("1.2,0.9,0.4", 1))  # spectrum, N: up to 20,000 prompts
SIZE = 0.4  # size of the weights
DRAWN = Parameters(spectrum="1.4,0.6", N=4, H=2, batch_size=2**15)
BATCHES = 80  # number of drawn prompts: their loss to 1%


@cache
def every(spectrum: str, N: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens (prompts, D+1, N+1), answers and weights of all prompts of the rule."""
    x, (nodes, shares) = np.array([float(v) for v in spectrum.split(",")]), gauss_hermite(3)
    at = np.indices((3,) * (x.size * (N + 2))).reshape(x.size, N + 2, -1).transpose(2, 0, 1)
    inputs, teacher = nodes[at[..., 1:]] * x[:, None] ** 0.5, nodes[at[..., :1]]
    return *student.tokens(inputs, teacher), torch.as_tensor(shares[at].prod((1, 2)))


def half_loss(p: Parameters, predict: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Half the loss of a prediction over all prompts, as a function of its weights."""
    X, answers, share = every(p.spectrum, p.N)
    return lambda weights: (share * (answers - predict(weights, X)).square()).sum() / 2


def descend(p: Parameters, W: Tensor) -> tuple[float, Tensor]:
    """Loss of beta^T W x_q over all prompts and its slope -(1/2) dL/dW."""
    one = {"v": torch.ones(1, dtype=W.dtype), "U": W[None]}
    half, moved = rates(half_loss(p, student.reduced), one)
    return 2 * float(half), moved["U"][0]


class Point:
    """An attention with weights of order one: the numbers of its equations, and its rates."""

    def __init__(self, p: Parameters, weights: Weights | None = None) -> None:
        begun = student.start(p, SEED)
        self.p, self.weights = p, weights or {n: SIZE * w / w.std() for n, w in begun.items()}
        W = student.matrix(self.weights)
        self.known = p.values() | {n: w.numpy() for n, w in self.weights.items()}
        self.known |= {"W": W.numpy(), "G": descend(p, W)[1].numpy()}
        whole = student.embedded(self.weights, p.eigenvalues.size)
        half, self.all_rates = rates(half_loss(p, student.attention), whole)
        self.loss, self.rates = 2 * float(half), student.extracted(self.all_rates)


def points(**more: Any) -> list[Point]:
    """Test points: two heads at small sizes."""
    return [Point(Parameters(spectrum=x, N=N, H=2, **more)) for x, N in SMALL]


def moments(table: Table) -> list[Check]:
    """E beta beta^T, at any Lambda and at the identity."""
    sides, label = Sides(table, *EXACT), "second moment of beta"
    for spectrum, N in SMALL:
        white = ",".join("1" for _ in spectrum.split(","))
        for name, text, where in (("a", spectrum, ""), ("c", white, " at the identity")):
            X, _, share = every(text, N)
            beta, known = (X[:, :-1, :-1] * X[:, -1:, :-1]).mean(2), Parameters(spectrum=text, N=N)
            for d, second in enumerate(share @ beta**2, 1):
                sides.add(label + where, name, known.values() | {"d": d}, second)
    return sides.checks()


def losses(table: Table) -> list[Check]:
    """Loss of the attention, its slope in W, its minimum, what is left after some directions."""
    sides = Sides(table, *EXACT)
    for x in points():
        p, known, D = x.p, x.known, x.p.eigenvalues.size
        sides.add("loss of the attention", "loss", known, x.loss)
        for k, l in np.ndindex(D, D):
            at = known | {"k": k + 1, "l": l + 1}
            sides.add("slope of the loss in W", "force", at, known["G"][k, l])
        eye = torch.eye(D, dtype=torch.float64)
        zero, one = (descend(p, W)[1].diagonal() for W in (0 * eye, eye))
        best = zero / (zero - one)  # the slope is linear in W
        for d in range(1, D + 1):
            sides.add("weight at the minimum", "w_best", known | {"d": d}, best[d - 1])
        for m in range(D + 1):
            left, _ = descend(p, (torch.arange(D) < m) * best * eye)
            sides.add("loss with the first directions learned", "plateau", p.learned(m), left)
        sides.add("least loss", "loss_least", known, left)
    return sides.checks()


def drawn(table: Table) -> list[Check]:
    """The loss on drawn prompts, to 1%."""
    weights = {n: SIZE * w / w.std() for n, w in student.start(DRAWN, SEED).items()}
    known, found = DRAWN.values() | {"W": student.matrix(weights).numpy()}, []
    for k in range(BATCHES):
        X, answers = student.sample(DRAWN, SEED, k)
        found.append(float((answers - student.reduced(weights, X)).square().mean()))
    return [
        sampled(
            "loss on drawn prompts", "loss", table["loss"].evaluate(known), found, required=0.01
        )
    ]


def entries(table: Table, names: Mapping[str, str], **more: Any) -> list[Check]:
    """Rates of all weights that may move, entry by entry, against autograd of the attention."""
    sides = Sides(table, *EXACT)
    for x in points(**more):
        for name, equation in names.items():
            letters = {"v": "g", "U": "gkl", "K": "gsi", "Q": "gsj"}[name]
            for place, rate in np.ndenumerate(x.rates[name].numpy()):
                at = {letter: y + 1 for letter, y in zip(letters, place, strict=True)}
                sides.add(f"{x.p.attention} rate of {name}", equation, x.known | at, rate)
    return sides.checks()


def invariant(table: Table, name: str, letters: str, part: slice, **more: Any) -> list[Check]:
    """The invariants as measured along training, and constant under the rates of autograd."""
    sides, drift = Sides(table, *EXACT), []
    for x in points(**more):
        sizes = {"g": x.p.H, "h": x.p.H, "r": x.p.R, "s": x.p.R}
        here, ahead, behind = (
            student.invariants({n: w + sign * x.rates[n] for n, w in x.weights.items()})
            for sign in (0, 1, -1)
        )
        for place, y in zip(np.ndindex(*(sizes[z] for z in letters)), here[part], strict=True):
            at = {letter: k + 1 for letter, k in zip(letters, place, strict=True)}
            sides.add(f"{name} as measured", name, x.known | at, y)
        drift += (ahead - behind)[part].div(2).tolist()  # they are quadratic
    return [*sides.checks(), vanishing(f"{name}, its rate", name, drift, *EXACT)]


def zeros(attention: str, **more: Any) -> list[Check]:
    """Weights that start at zero stay zero under the population gradient, and only those."""
    outside, inside = [], []
    for x in points(attention=attention, **more):
        small = student.embedded(x.rates, x.p.eigenvalues.size)
        outside += [float((x.all_rates[n] - w).abs().max()) for n, w in small.items()]
        inside += [float(w.abs().max()) for w in small.values()]
    label, why = f"{attention} rate of", "the same attention does move"
    return [
        vanishing(f"{label} weights that start at zero", "loss", outside, *EXACT),
        at_least(f"{label} the others", "loss", 1e-2, min(inside), why),
    ]
