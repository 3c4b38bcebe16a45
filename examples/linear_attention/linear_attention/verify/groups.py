"""Checks of both systems against the attention on tokens, averaged over all prompts; each takes the
table of Equations, so that a faulty one can be handed in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from linear_attention.simulate import student
from linear_attention.theory.parameters import Parameters
from linear_attention.theory.task import at
from linear_attention.verify.prompts import SEED, every, numbers, rates
from theory.equation import Equation
from verify.check import IDENTITY, Check, at_least, identity, near, sampled, vanishing

Table = Mapping[str, Equation]
EXACT = 1e-10, "sum over all prompts of the rule, float64"
SMALL = (("1.3", 3), ("1.4,0.6", 2), ("1.2,0.9,0.4", 1))  # spectrum, N: up to 20,000 prompts
SIZE = 0.4  # of the weights
DRAWN = Parameters(spectrum="1.4,0.6", N=4, H=2, batch_size=2**15)
BATCHES = 80  # of drawn prompts: their loss to 1%


def law(table: Table, name: str, label: str, known: Any, measured: float, *within: Any) -> Check:
    """A number against its Equation: an identity where the tolerance is that of one."""
    kind = identity if within[0] <= IDENTITY else near
    return kind(label, name, float(table[name].evaluate(known)), float(measured), *within)


class Found:
    """Predicted and measured numbers by equation."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def add(self, name: str, known: Mapping[str, Any], measured: Any) -> None:
        """One number."""
        self.pairs[name].append((at(self.table[name].rhs, known), float(measured)))

    def checks(self, **labels: str) -> list[Check]:
        """A row per equation."""
        sides = {name: np.transpose(pairs) for name, pairs in self.pairs.items()}
        return [identity(labels[name], name, x[0], x[1], *EXACT) for name, x in sides.items()]


class Point:
    """An attention with weights of order one: the numbers of its equations, and its rates."""

    def __init__(self, p: Parameters, weights: student.Weights | None = None) -> None:
        begun = student.start(p, SEED)
        self.p, self.weights = p, weights or {n: SIZE * w / w.std() for n, w in begun.items()}
        self.known = numbers(p, self.weights)
        whole = student.embedded(self.weights, p.eigenvalues.size)
        self.loss, self.all_rates = rates(p, whole)
        self.rates = student.extracted(self.all_rates)


def points(**more: Any) -> list[Point]:
    """Two heads at small sizes."""
    return [Point(Parameters(spectrum=x, N=N, H=2, **more)) for x, N in SMALL]


def moments(table: Table) -> list[Check]:
    """E beta beta^T, at any Lambda and at the identity."""
    found = Found(table)
    for spectrum, N in SMALL:
        for name, text in (("a", spectrum), ("c", ",".join("1" for _ in spectrum.split(",")))):
            X, _, share = every(text, N)
            beta = (X[:, :-1, :-1] * X[:, -1:, :-1]).mean(2)
            known = Parameters(spectrum=text, N=N).values()
            for x, second in zip(known["lambda"], share @ beta**2, strict=True):
                found.add(name, known | {"lambda_d": x}, second)
    return found.checks(a="second moment of beta", c="second moment of beta at the identity")


def descend(p: Parameters, W: Tensor) -> tuple[float, Tensor]:
    """Loss of beta^T W x_q over all prompts and its slope -(1/2) dL/dW."""
    X, answers, share = every(p.spectrum, p.N)
    W = W.detach().requires_grad_()
    one = {"v": torch.ones(1, dtype=W.dtype), "U": W[None]}
    total = (share * (answers - student.reduced(one, X)).square()).sum()
    return float(total.detach()), -torch.autograd.grad(total, W)[0] / 2


def losses(table: Table) -> list[Check]:
    """Loss of the attention, its slope in W, its minimum, what is left after some directions."""
    found = Found(table)
    for x in points():
        p, known, D = x.p, x.known, x.p.eigenvalues.size
        eye = torch.eye(D, dtype=torch.float64)
        found.add("loss", known, x.loss)
        _, slope = descend(p, torch.as_tensor(known["W"]))
        for k, l in np.ndindex(D, D):
            found.add("force", known | {"k": k + 1, "l": l + 1}, slope[k, l])
        zero, one = (descend(p, W)[1].diagonal() for W in (0 * eye, eye))
        best = zero / (zero - one)  # the slope is linear in W
        for m in range(D + 1):
            left, _ = descend(p, (torch.arange(D) < m) * best * eye)
            found.add("plateau", known | {"m": m}, left)
            if m:
                found.add("w_best", known | {"d": m}, best[m - 1])
        found.add("loss_least", known, left)
    return found.checks(
        loss="loss of the attention",
        force="slope of the loss in W",
        plateau="loss with the first directions learned",
        w_best="weight at the minimum",
        loss_least="least loss",
    )


def drawn(table: Table) -> list[Check]:
    """The loss on drawn prompts: seen to 1%."""
    x, found = {n: SIZE * w / w.std() for n, w in student.start(DRAWN, SEED).items()}, []
    for k in range(BATCHES):
        X, answers = student.draw(DRAWN, SEED, k, torch.float64)
        found.append(float((answers - student.reduced(x, X)).square().mean()))
    predicted = at(table["loss"].rhs, numbers(DRAWN, x))
    return [sampled("loss on drawn prompts", "loss", predicted, found, see=0.01)]


def entries(table: Table, attention: str, names: Mapping[str, str], **more: Any) -> list[Check]:
    """Rates of all weights that may move, entry by entry, against autograd of the attention."""
    found = Found(table)
    for x in points(attention=attention, **more):
        for name, equation in names.items():
            letters = {"v": "g", "U": "gkl", "K": "gsi", "Q": "gsj"}[name]
            for place in np.ndindex(*x.rates[name].shape):
                index = {letter: y + 1 for letter, y in zip(letters, place, strict=True)}
                found.add(equation, x.known | index, x.rates[name][place])
    return found.checks(**{e: f"{attention} rate of {n}" for n, e in names.items()})


def invariant(table: Table, name: str, letters: str, part: slice, **more: Any) -> list[Check]:
    """As measured along training, and without change under the rates of autograd."""
    found, drift = Found(table), []
    for x in points(**more):
        sizes = {"g": x.p.H, "h": x.p.H, "r": x.p.R, "s": x.p.R}
        here = student.invariants(x.weights)[part]
        for place, y in zip(np.ndindex(*(sizes[z] for z in letters)), here, strict=True):
            found.add(name, x.known | {z: k + 1 for z, k in zip(letters, place, strict=True)}, y)
        there = [{n: w + sign * x.rates[n] for n, w in x.weights.items()} for sign in (1, -1)]
        ahead, behind = (student.invariants(w)[part] for w in there)
        drift += (ahead - behind).div(2).tolist()  # they are quadratic
    rate = vanishing(f"{name}, its rate", name, drift, *EXACT)
    return [*found.checks(**{name: f"{name} as measured"}), rate]


def zeros(attention: str, **more: Any) -> list[Check]:
    """Weights that start at zero stay there under the population gradient, and only those."""
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
