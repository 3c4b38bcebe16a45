"""Every formula of the induction-head theory against autograd of the full architecture.

Each group of checks takes the table of Equations, so that tests can pass a faulty one and confirm
that it is detected.
"""

from collections.abc import Iterator

import numpy as np
import sympy as sp
import torch

from simulate.induction_heads.student import (
    NAMES,
    THREE,
    Student,
    assemble,
    attention,
    project,
    squared_error,
)
from theory import induction_heads as ih
from theory.induction_heads import Parameters
from theory.induction_heads.dynamics import loss_and_gradient
from theory.induction_heads.network import ENDS
from theory.induction_heads.structure import HEAD
from theory.induction_heads.symbols import N as N_symbol
from theory.induction_heads.symbols import alpha, beta, d, gamma, k, l, q
from verify.check import Check, Sides, identity, listed, vanishing
from verify.induction_heads import all_weights_equations
from verify.induction_heads.all_weights_equations import (
    BY_AUTOGRAD,
    CLOSE,
    Point,
    both,
    gradient_of,
)
from verify.induction_heads.all_weights_equations import POINT_SIZES as SIZES
from verify.induction_heads.symmetry import theorem_1
from verify.report import Table, derivations

# Scores, attention and loss for every query and both masks against the network


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


POINTS = 5


def three_parameters(eq: Table) -> list[Check]:
    """Loss (B.3), gradients (B.4.6) and rates (B.5) at q = N against the full network; the factor D
    of full matrices.
    """
    sides = Sides(eq, *BY_AUTOGRAD)
    for N in SIZES:
        for seed in range(POINTS):
            x = Point(N, N, "strict", seed)
            v, gradient = x.values(), x.gradient
            sides.add("loss at q = N", "loss", v, x.loss.detach())
            inside = project({k: gradient_of(w) for k, w in x.weights.items()})
            for slope, (name, full) in zip(gradient, HEAD.items(), strict=True):
                by = f"dloss_d{name}"
                whole = x.D * inside[NAMES.index(full)]
                sides.add(f"dL/d{name} through the whole network", by, v, slope)
                sides.add(f"rate of {name}", f"d{name}_dt", v, -slope)
                sides.add(f"D times the full gradient along {full}", by, v, whole)
    return sides.checks()


def chain(eq: Table) -> list[Check]:
    """Pieces of the chain rule (B.4.3-B.4.4) against autograd of s(alpha, beta) and L(s, gamma)."""
    sides = Sides(eq, *BY_AUTOGRAD)
    for seed in range(POINTS):
        x = Point(4, 4, "strict", seed)
        v = x.values()
        a, b, c = (t.detach().clone().requires_grad_() for t in x.theta)
        s = torch.exp(b * torch.exp(a) / (2 * x.N - 2 + torch.exp(a)))
        by_a, by_b = torch.autograd.grad(s, [a, b])
        variable = s.detach().requires_grad_()
        r = variable + v["F"]
        loss = c**2 * (variable**2 + v["F"]) / r**2 - 2 * c * variable / r + 1
        (by_s,) = torch.autograd.grad(loss, [variable])
        for name, value in (("ds_dalpha", by_a), ("ds_dbeta", by_b), ("dloss_ds", by_s)):
            sides.add(name.replace("_", "/"), name, v, value)
    return sides.checks()


def conserved(eq: Table) -> list[Check]:
    """The invariant, its two solutions, and the optimal gamma, against autograd and the integrated
    flow.
    """
    moved, best, least = [], [], []
    for seed in range(POINTS):
        x = Point(6, 6, "strict", seed)
        v = x.values()
        C = eq["invariant"].rhs.subs(N_symbol, 6)
        by = [
            float(sp.diff(C, s).subs({alpha: v["alpha"], beta: v["beta"]})) for s in (alpha, beta)
        ]
        moved.append(by[0] * float(x.gradient[0]) + by[1] * float(x.gradient[1]))
        c = torch.tensor(
            float(eq["gamma_star"].evaluate(v)), dtype=torch.float64, requires_grad=True
        )
        loss = c**2 * (v["s"] ** 2 + v["F"]) / v["r"] ** 2 - 2 * c * v["s"] / v["r"] + 1
        best.append(float(torch.autograd.grad(loss, c)[0]))
        least.append((float(eq["loss_star"].evaluate(v)), float(loss.detach())))
    p = Parameters.emergence(N=6, D=None)
    curve = ih.flow().solve(p, t=120.0)
    along = {"N": 6, "alpha": curve.alpha.values[1:], "beta": curve.beta.values[1:]}
    start = Point(4, 4, "strict", 0)
    zero = {"N": 4.0}
    silent = Student(start.D, "strict", torch.float64)
    with torch.no_grad():
        silent.W3.copy_(assemble({"gamma_3": 1.0}, start.D)["W3"])
        plateau = squared_error(silent(start.batch.X), start.batch.y, "sum")
    drift = "rtol 1e-12 over some hundred steps"
    return [
        vanishing("dC/dt by autograd", "invariant", moved, *BY_AUTOGRAD),
        vanishing("C along the flow", "invariant", eq["invariant"].evaluate(along), 1e-9, drift),
        *(
            identity(
                f"{x}({y}) along the flow",
                f"{x}_of_{y}",
                eq[f"{x}_of_{y}"].evaluate(along),
                along[x],
                1e-9,
                drift,
            )
            for x, y in (("alpha", "beta"), ("beta", "alpha"))
        ),
        vanishing("dL/dgamma at gamma_star", "gamma_star", best, *BY_AUTOGRAD),
        identity("loss at gamma_star", "loss_star", *both(least), *BY_AUTOGRAD),
        identity(
            "plateau: gamma = 1, alpha = beta = 0",
            "plateau",
            eq["plateau"].evaluate(zero),
            float(plateau),
            *BY_AUTOGRAD,
        ),
    ]


GRADIENTS = (
    scores,
    three_parameters,
    chain,
    any_query,
    conserved,
    uniform_query,
    theorem_1,
    all_weights_equations.row_by_row,
    all_weights_equations.running_sums,
    all_weights_equations.five_numbers,
)

checks, report = derivations(GRADIENTS, ih.equations)
