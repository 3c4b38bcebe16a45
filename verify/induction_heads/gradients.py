"""Every formula of the induction-head theory against autograd of the full architecture.

Each group of checks takes the table of Equations, so that tests can pass a faulty one
and confirm that it is detected.
"""

from collections.abc import Iterator

import numpy as np
import sympy as sp
import torch
from torch import Tensor

from simulate.induction_heads.student import NAMES, attention, project
from theory import induction_heads as ih
from theory.induction_heads import Parameters
from theory.induction_heads.dynamics import loss_and_gradient
from theory.induction_heads.network import ENDS
from theory.induction_heads.structure import HEAD
from theory.induction_heads.symbols import N as N_symbol
from theory.induction_heads.symbols import alpha, beta, d, gamma, k, l, q
from verify.checks.check import Check, Sides, identity, listed, vanishing
from verify.checks.report import Table, derivations
from verify.induction_heads.all_weights import all_weights_equations
from verify.induction_heads.all_weights.all_weights_equations import (
    BY_AUTOGRAD,
    CLOSE,
    Network,
    Point,
    gradient_of,
    pseudo,
)
from verify.induction_heads.all_weights.all_weights_equations import (
    POINT_SIZES as SIZES,
)
from verify.induction_heads.symmetry import theorem_1

# Scores, attention and loss for every query and both masks against the network


def spelled(eq: Table, name: str, end: str) -> sp.Expr:
    """An equation of a query in which the normaliser is spelled out."""
    normaliser = eq[f"query_normaliser{end}"]
    return eq[name + end].rhs.subs(normaliser.lhs, normaliser.rhs)


@listed
def any_query(eq: Table) -> Iterator[Check]:
    """Loss for every queried pair and both masks, and its gradient by SymPy, against
    the full network.
    """
    for mask, end in ENDS.items():
        loss = spelled(eq, "loss_query", end)
        derivatives = [sp.diff(loss, by) for by in (alpha, beta, gamma)]
        points = []
        for N in SIZES[:3]:
            points += [Point(N, pair, mask, pair) for pair in range(1, N + 1)]
        yield identity(
            f"loss for every q, {mask} mask",
            f"loss_query{end}",
            [x.number(loss) for x in points],
            [x.loss for x in points],
            *BY_AUTOGRAD,
        )
        slopes = []
        for x in points:
            slopes.append([x.number(derivative) for derivative in derivatives])
        yield identity(
            f"its gradient for every q, {mask} mask",
            f"loss_query{end}",
            slopes,
            [x.gradient for x in points],
            *BY_AUTOGRAD,
        )


@listed
def scores(eq: Table) -> Iterator[Check]:
    """Attention of the first layer and scores of the second, entry by entry, against
    the network.
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
        sides = Sides(eq, *CLOSE)
        if mask == "strict":
            same = v | {sp.KroneckerDelta(k, l): 1.0}
            sides.add(
                "score of a label on its item", "score_label_item", same, raw[3, 2]
            )
            sides.add(
                "score of an item on its label", "score_item_label", same, raw[2, 3]
            )
        for name, row, column in (
            ("attention_own_item", 7, 6),
            ("attention_other_label", 7, 3),
            ("attention_of_item", 6, 3),
        ):
            label = f"{name.replace('_', ' ')}, {mask} mask"
            sides.add(label, name + end, v | {"k": 4}, first[row, column])
        yield from sides.checks()
        predicted, measured = [], []
        for place, apart in (("earlier", -1), ("own", 0), ("later", 2)):
            for kind, back in (("item", 2), ("label", 1)):
                predicted.append(
                    x.number(eq[f"key_{place}_{kind}{end}"].rhs.subs(d, abs(apart)))
                )
                measured.append(float(second[2 * (pair + apart) - back]))
        if mask == "inclusive":
            predicted.append(x.number(eq[f"key_query{end}"].rhs))
            measured.append(float(second[-1]))
        yield identity(
            f"scores of the query, {mask} mask",
            f"key_*{end}",
            predicted,
            measured,
            *CLOSE,
        )
        right, name = weight[2 * pair - 1], "query_attention"
        label = f"attention on the right label, {mask} mask"
        yield identity(
            label, name + end, x.number(spelled(eq, name, end)), right, *CLOSE
        )


def uniform_query(eq: Table) -> list[Check]:
    """Initial slope of beta for every q, its mean, and the O(N) code of the averaged
    flow, against the network.
    """
    N, start = 5, pseudo(gamma_3=0.8)
    pairs = range(1, N + 1)
    # The same parameters for all q.
    points = [Point(N, pair, "strict", 0) for pair in pairs]
    slope = eq["initial_slope"].rhs
    predicted = [
        slope.subs({N_symbol: N, q: pair}).doit().subs(gamma, 0.8) for pair in pairs
    ]
    measured = [
        -Network(N, pair, "strict")(start)[1][NAMES.index("beta_2")] for pair in pairs
    ]
    mean = eq["mean_initial_slope"].rhs.subs(N_symbol, N).doit().subs(gamma, 0.8)
    loss, gradient = loss_and_gradient(points[0].theta.detach().numpy(), N)
    mean_loss = np.mean([x.loss for x in points], 0)
    mean_gradient = np.mean([x.gradient for x in points], 0)
    rows = (
        ("slope of beta at the start, every q", "initial_slope", predicted, measured),
        ("  mean over q", "mean_initial_slope", mean, np.mean(measured)),
        ("loss averaged over q", "loss_query", loss, mean_loss),
        ("  its gradient", "loss_query", gradient, mean_gradient),
    )
    return [
        identity(name, of, one, other, *BY_AUTOGRAD) for name, of, one, other in rows
    ]


POINTS = 5


def three_parameters(eq: Table) -> list[Check]:
    """Loss (B.3), gradients (B.4.6) and rates (B.5) at q = N against the full network;
    the factor D of full matrices.
    """
    sides = Sides(eq, *BY_AUTOGRAD)
    for N in SIZES:
        for seed in range(POINTS):
            x = Point(N, N, "strict", seed)
            v = x.values()
            sides.add("loss at q = N", "loss", v, x.loss)
            inside = project({k: gradient_of(w) for k, w in x.weights.items()})
            for slope, (name, full) in zip(x.gradient, HEAD.items(), strict=True):
                by = f"dloss_d{name}"
                whole = x.D * inside[NAMES.index(full)]
                sides.add(f"dL/d{name} through the whole network", by, v, slope)
                sides.add(f"rate of {name}", f"d{name}_dt", v, -slope)
                sides.add(f"D times the full gradient along {full}", by, v, whole)
    return sides.checks()


def output_loss(s: Tensor, c: Tensor, F: float) -> Tensor:
    """Loss of the output by the attention exp(score) = s on the right label, and gamma
    = c.
    """
    return c**2 * (s**2 + F) / (s + F) ** 2 - 2 * c * s / (s + F) + 1


def chain(eq: Table) -> list[Check]:
    """Pieces of the chain rule (B.4.3-B.4.4) against autograd of s(alpha, beta) and
    L(s, gamma).
    """
    sides = Sides(eq, *BY_AUTOGRAD)
    for seed in range(POINTS):
        x = Point(4, 4, "strict", seed)
        v = x.values()
        a, b, c = (t.detach().clone().requires_grad_() for t in x.theta)
        s = torch.exp(b * torch.exp(a) / (2 * x.N - 2 + torch.exp(a)))
        by_a, by_b = torch.autograd.grad(s, [a, b])
        variable = s.detach().requires_grad_()
        (by_s,) = torch.autograd.grad(output_loss(variable, c, v["F"]), [variable])
        for name, value in (
            ("ds_dalpha", by_a),
            ("ds_dbeta", by_b),
            ("dloss_ds", by_s),
        ):
            sides.add(name.replace("_", "/"), name, v, value.detach())
    return sides.checks()


@listed
def conserved(eq: Table) -> Iterator[Check]:
    """The invariant, its two solutions, and the optimal gamma, against autograd of the
    network and the integrated flow.
    """
    moved, best = [], []
    least = Sides(eq, *BY_AUTOGRAD)
    network = Network(6, 6, "strict")
    C = eq["invariant"].rhs
    for seed in range(POINTS):
        x = Point(6, 6, "strict", seed)
        v = x.values()
        slopes = zip((alpha, beta), x.gradient, strict=False)
        moved.append(sum(x.number(sp.diff(C, w)) * slope for w, slope in slopes))
        star = eq["gamma_star"].number(v)
        loss, gradient = network(
            pseudo(alpha_3=v["alpha"], beta_2=v["beta"], gamma_3=star)
        )
        best.append(gradient[NAMES.index("gamma_3")])
        least.add("loss at gamma_star", "loss_star", v, loss)
    curve = ih.flow().solve(Parameters.emergence(N=6, D=None), t=120.0)
    along = {"N": 6, "alpha": curve.alpha.values[1:], "beta": curve.beta.values[1:]}
    solutions = Sides(eq, 1e-9, "rtol 1e-12 over some hundred steps")
    for of, by in (("alpha", "beta"), ("beta", "alpha")):
        solutions.add(f"{of}({by}) along the flow", f"{of}_of_{by}", along, along[of])
    plateau = Sides(eq, *BY_AUTOGRAD)
    silent = Network(4, 4, "strict")(pseudo(gamma_3=1.0))[0]
    plateau.add("plateau: gamma = 1, alpha = beta = 0", "plateau", {"N": 4.0}, silent)
    invariant = eq["invariant"].evaluate(along)
    close = solutions.tolerance, solutions.reason
    yield vanishing("dC/dt by autograd", "invariant", moved, *BY_AUTOGRAD)
    yield vanishing("C along the flow", "invariant", invariant, *close)
    yield from solutions.checks()
    yield vanishing("dL/dgamma at gamma_star", "gamma_star", best, *BY_AUTOGRAD)
    yield from least.checks()
    yield from plateau.checks()


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
