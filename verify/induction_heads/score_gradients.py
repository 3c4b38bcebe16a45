"""Scores, attention and loss for every query and both masks against the network."""

from collections.abc import Iterator

import numpy as np
import sympy as sp
import torch

from simulate.induction_heads.student import THREE, Student, assemble, attention, squared_error
from theory.induction_heads.network import ENDS
from theory.induction_heads.numbers.uniform_query import loss_and_gradient
from theory.induction_heads.symbols import N as N_symbol
from theory.induction_heads.symbols import alpha, beta, d, gamma, k, l, q
from verify.check import Check, identity, listed
from verify.induction_heads.points import BY_AUTOGRAD, CLOSE, SIZES, Point, both, gradient_of
from verify.report import Table


@listed
def any_query(eq: Table) -> Iterator[Check]:
    """Loss for every queried pair and both masks, and its gradient by SymPy, against the full
    network.
    """
    for mask, end in ENDS.items():
        loss = eq[f"loss_query{end}"].rhs.subs(
            eq[f"query_normaliser{end}"].lhs, eq[f"query_normaliser{end}"].rhs
        )
        sides: list[tuple[float, float]] = []
        slopes: list[tuple[float, float]] = []
        derivatives = [sp.diff(loss, by) for by in (alpha, beta, gamma)]
        for N in SIZES[:3]:
            for pair in range(1, N + 1):
                x = Point(N, pair, mask, pair)
                sides.append((x.number(loss), float(x.loss.detach())))
                slopes += [
                    (x.number(slope), g)
                    for slope, g in zip(derivatives, x.gradient.tolist(), strict=True)
                ]
        yield from [
            identity(
                f"loss for every q, {mask} mask", f"loss_query{end}", *both(sides), *BY_AUTOGRAD
            ),
            identity(
                f"its gradient for every q, {mask} mask",
                f"loss_query{end}",
                *both(slopes),
                *BY_AUTOGRAD,
            ),
        ]


@listed
def scores(eq: Table) -> Iterator[Check]:
    """Attention of the first layer and scores of the second, entry by entry, against the
    network.
    """
    N, pair = 5, 3
    for mask, end in ENDS.items():
        x = Point(N, pair, mask, 1)
        v, X = x.values(), x.batch.X
        raw = (X @ x.weights["W1"] @ X.transpose(1, 2)).detach()[0].numpy()
        first = attention(torch.tensor(raw), mask).numpy()
        U = torch.cat([X, torch.tensor(first) @ X], -1)
        second = (U[:, -1:] @ x.weights["W2"] @ U.transpose(1, 2)).detach()[0, 0]
        weight = attention(second[None], mask)[0].numpy()
        if mask == "strict":
            same = v | {sp.KroneckerDelta(k, l): 1.0}
            yield from [
                identity(f"score of {words}", name, eq[name].evaluate(same), there, *CLOSE)
                for words, name, there in (
                    ("a label on its item", "score_label_item", raw[3, 2]),
                    ("an item on its label", "score_item_label", raw[2, 3]),
                )
            ]
        rows = [
            ("attention_own_item", 2 * 4 - 1, 2 * 4 - 2),
            ("attention_other_label", 2 * 4 - 1, 2 * 2 - 1),
            ("attention_of_item", 2 * 4 - 2, 2 * 2 - 1),
        ]
        yield from [
            identity(
                f"{name.replace('_', ' ')}, {mask} mask",
                name + end,
                eq[name + end].evaluate(v | {"k": 4}),
                first[row, column],
                *CLOSE,
            )
            for name, row, column in rows
        ]
        places = {
            "earlier_item": 2 * (pair - 1) - 2,
            "earlier_label": 2 * (pair - 1) - 1,
            "own_item": 2 * pair - 2,
            "own_label": 2 * pair - 1,
            "later_item": 2 * (pair + 2) - 2,
            "later_label": 2 * (pair + 2) - 1,
        }
        predicted = [
            x.number(eq[f"key_{name}{end}"].rhs.subs(d, 2 if "later" in name else 1))
            for name in places
        ]
        measured = [float(second[row]) for row in places.values()]
        if mask == "inclusive":
            predicted.append(x.number(eq[f"key_query{end}"].rhs))
            measured.append(float(second[-1]))
        yield identity(
            f"scores of the query, {mask} mask", f"key_*{end}", predicted, measured, *CLOSE
        )
        of_Z = eq[f"query_attention{end}"].rhs.subs(
            eq[f"query_normaliser{end}"].lhs, eq[f"query_normaliser{end}"].rhs
        )
        yield identity(
            f"attention on the right label, {mask} mask",
            f"query_attention{end}",
            x.number(of_Z),
            weight[2 * pair - 1],
            *CLOSE,
        )


def uniform_query(eq: Table) -> list[Check]:
    """Initial slope of beta for every q, its mean, and the O(N) code of the averaged flow, against
    the network.
    """
    N, slopes, losses, gradients = 5, [], [], []
    for pair in range(1, N + 1):
        x = Point(N, pair, "strict", 0)  # the same parameters for all q
        start = torch.tensor([0.0, 0.0, 0.8], dtype=torch.float64, requires_grad=True)
        student = Student(x.D, "strict", torch.float64)
        weights = assemble(dict(zip(THREE, start, strict=True)), x.D)
        z = torch.func.functional_call(student, weights, (x.batch.X,))
        squared_error(z, x.batch.y, "sum").backward()
        slope = eq["initial_slope"].rhs.subs({N_symbol: N, q: pair}).doit()
        slopes.append((float(slope.subs(gamma, 0.8)), -float(gradient_of(start)[1])))
        losses.append(float(x.loss.detach()))
        gradients.append(x.gradient.numpy())
    loss, gradient = loss_and_gradient(x.theta.detach().numpy(), N)
    mean = eq["mean_initial_slope"].rhs.subs(N_symbol, N).doit().subs(gamma, 0.8)
    return [
        identity(
            "slope of beta at the start, every q", "initial_slope", *both(slopes), *BY_AUTOGRAD
        ),
        identity(
            "  mean over q",
            "mean_initial_slope",
            float(mean),
            np.mean([m for _, m in slopes]),
            *BY_AUTOGRAD,
        ),
        identity("loss averaged over q", "loss_query", loss, np.mean(losses), *BY_AUTOGRAD),
        identity("  its gradient", "loss_query", gradient, np.mean(gradients, 0), *BY_AUTOGRAD),
    ]
