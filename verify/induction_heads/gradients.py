"""Every formula of the induction-head theory against autograd of the full architecture.

Each group of checks takes the table of Equations, so that tests can pass a faulty one and confirm
that it is detected. `COVERS` lists the equations that each group tests.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import sympy as sp
import torch

from simulate.induction_heads import task
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
from theory.induction_heads import Parameters, structure
from theory.induction_heads.network import MASKS
from theory.induction_heads.numbers.uniform_query import loss_and_gradient
from theory.induction_heads.symbols import N as N_symbol
from theory.induction_heads.symbols import alpha, beta, d, gamma, k, q
from verify.check import Check, Sides, at_least, identity, vanishing
from verify.induction_heads import all_weights_equations, symmetry
from verify.report import Table, derivations

EXACT, EXACT_WHY = 1e-12, "both sides float64, few operations"
AUTOGRAD, AUTOGRAD_WHY = 1e-10, "autograd in float64"
SIZES = (2, 3, 5, 8)
POINTS = 5
GENERATOR = 20251103  # any fixed seed; the checks hold for all
SHORT = ("alpha", "beta", "gamma")
FLOOR = 1e-3  # smallest part outside required of a control


def _grad(x: torch.Tensor) -> torch.Tensor:
    """Gradient left by ``backward``."""
    if x.grad is None:
        raise ValueError("no gradient: call backward first")
    return x.grad


def both(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Split pairs into predicted and measured values."""
    return [p for p, _ in pairs], [m for _, m in pairs]


class Point:
    """The full network at some alpha, beta, gamma on random orthonormal data."""

    def __init__(self, N: int, pair: int, mask: str, seed: int) -> None:
        random = torch.Generator().manual_seed(GENERATOR + seed)
        self.N, self.pair, self.mask = N, pair, mask
        p = Parameters(N=N, data="orthonormal", query="last", mask=mask)
        items, labels, codes = task.orthonormal(p, 3, random, torch.float64)
        self.batch = task.assemble(items, labels, codes, torch.full((3,), pair - 1))
        low, high = torch.tensor([-0.5, -1.0, 0.2]), torch.tensor([2.0, 3.0, 1.8])
        self.theta = (
            (low + (high - low) * torch.rand(3, generator=random)).double().requires_grad_()
        )
        self.D = p.dimension
        self.weights = assemble(dict(zip(THREE, self.theta, strict=True)), self.D)
        for w in self.weights.values():
            w.retain_grad()
        student = Student(self.D, mask, torch.float64)
        self.z = torch.func.functional_call(student, self.weights, (self.batch.X,))
        self.loss = squared_error(self.z, self.batch.y, "sum")
        self.loss.backward()
        self.gradient: torch.Tensor = _grad(self.theta)

    def values(self) -> dict[str, float]:
        """Numbers by symbol name, abbreviations included."""
        a, b, c = (float(v) for v in self.theta.detach())
        own = np.exp(a) / (2 * self.N - 2 + np.exp(a))
        s, F = np.exp(b * own), 2 * self.N - 1
        return {
            "N": self.N,
            "q": self.pair,
            "alpha": a,
            "beta": b,
            "gamma": c,
            "p": own,
            "G": np.exp(a) / own,
            "s": s,
            "F": F,
            "r": s + F,
        }

    def number(self, expr: sp.Expr) -> float:
        """Value of an expression in alpha, beta, gamma, N and q."""
        v = self.values()
        return float(_compiled(expr)(v["alpha"], v["beta"], v["gamma"], self.N, self.pair))


@cache
def _compiled(expr: sp.Expr) -> Callable[..., float]:
    """Compiled to plain Python, as sums run over few rows."""
    return sp.lambdify((alpha, beta, gamma, N_symbol, q), expr, "math")


def three_parameters(eq: Table) -> list[Check]:
    """Loss (B.3), gradients (B.4.6) and rates (B.5) at q = N against the full network; the factor D
    of full matrices.
    """
    sides = Sides(eq, AUTOGRAD, AUTOGRAD_WHY)
    for N in SIZES:
        for seed in range(POINTS):
            x = Point(N, N, "strict", seed)
            v, gradient = x.values(), x.gradient
            sides.add("loss at q = N", "loss", v, x.loss.detach())
            inside = project({k: _grad(w) for k, w in x.weights.items()})
            for slope, name, full in zip(gradient, SHORT, THREE, strict=True):
                by, whole = f"dloss_d{name}", x.D * inside[NAMES.index(full)]
                sides.add(f"dL/d{name} through the whole network", by, v, slope)
                sides.add(f"rate of {name}", f"d{name}_dt", v, -slope)
                sides.add(f"D times the full gradient along {full}", by, v, whole)
    return sides.checks()


def chain(eq: Table) -> list[Check]:
    """Pieces of the chain rule (B.4.3-B.4.4) against autograd of s(alpha, beta) and L(s, gamma)."""
    sides = Sides(eq, AUTOGRAD, AUTOGRAD_WHY)
    for seed in range(POINTS):
        x = Point(4, 4, "strict", seed)
        v = x.values()
        a, b, c = (t.detach().clone().requires_grad_() for t in x.theta)
        s = torch.exp(b * torch.exp(a) / (2 * x.N - 2 + torch.exp(a)))
        by_a, by_b = torch.autograd.grad(s, [a, b])
        at = s.detach().requires_grad_()
        r = at + v["F"]
        loss = c**2 * (at**2 + v["F"]) / r**2 - 2 * c * at / r + 1
        (by_s,) = torch.autograd.grad(loss, [at])
        for name, value in (("ds_dalpha", by_a), ("ds_dbeta", by_b), ("dloss_ds", by_s)):
            sides.add(name.replace("_", "/"), name, v, value)
    return sides.checks()


def any_query(eq: Table) -> list[Check]:
    """Loss for every queried pair and both masks, and its gradient by SymPy, against the full
    network.
    """
    checks = []
    for mask in MASKS:
        end = "" if mask == "strict" else "_inclusive"
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
        checks += [
            identity(
                f"loss for every q, {mask} mask",
                f"loss_query{end}",
                *both(sides),
                AUTOGRAD,
                AUTOGRAD_WHY,
            ),
            identity(
                f"its gradient for every q, {mask} mask",
                f"loss_query{end}",
                *both(slopes),
                AUTOGRAD,
                AUTOGRAD_WHY,
            ),
        ]
    return checks


def scores(eq: Table) -> list[Check]:
    """Attention of the first layer and scores of the second, entry by entry, against the
    network.
    """
    N, pair, checks = 5, 3, []
    for mask in MASKS:
        end = "" if mask == "strict" else "_inclusive"
        x = Point(N, pair, mask, 1)
        v, X = x.values(), x.batch.X
        raw = (X @ x.weights["W1"] @ X.transpose(1, 2)).detach()[0].numpy()
        first = attention(torch.tensor(raw), mask).numpy()
        U = torch.cat([X, torch.tensor(first) @ X], -1)
        second = (U[:, -1:] @ x.weights["W2"] @ U.transpose(1, 2)).detach()[0, 0]
        weight = attention(second[None], mask)[0].numpy()
        on = eq["score_label_item"].evaluate(
            {**v, sp.KroneckerDelta(k, sp.Symbol("l", integer=True, positive=True)): 1.0}
        )
        if mask == "strict":
            checks.append(
                identity(
                    "score of a label on its item",
                    "score_label_item",
                    on,
                    raw[3, 2],
                    EXACT,
                    EXACT_WHY,
                )
            )
            off = eq["score_item_label"].evaluate(
                {**v, sp.KroneckerDelta(k, sp.Symbol("l", integer=True, positive=True)): 1.0}
            )
            checks.append(
                identity(
                    "score of an item on its label",
                    "score_item_label",
                    off,
                    raw[2, 3],
                    EXACT,
                    EXACT_WHY,
                )
            )
        rows = [
            ("attention_own_item", 2 * 4 - 1, 2 * 4 - 2),
            ("attention_other_label", 2 * 4 - 1, 2 * 2 - 1),
            ("attention_of_item", 2 * 4 - 2, 2 * 2 - 1),
        ]
        checks += [
            identity(
                f"{name.replace('_', ' ')}, {mask} mask",
                name + end,
                eq[name + end].evaluate({**v, "k": 4}),
                first[row, column],
                EXACT,
                EXACT_WHY,
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
        checks.append(
            identity(
                f"scores of the query, {mask} mask",
                f"key_*{end}",
                predicted,
                measured,
                EXACT,
                EXACT_WHY,
            )
        )
        of_Z = eq[f"query_attention{end}"].rhs.subs(
            eq[f"query_normaliser{end}"].lhs, eq[f"query_normaliser{end}"].rhs
        )
        checks.append(
            identity(
                f"attention on the right label, {mask} mask",
                f"query_attention{end}",
                x.number(of_Z),
                weight[2 * pair - 1],
                EXACT,
                EXACT_WHY,
            )
        )
    return checks


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
    at = {"N": 6, "alpha": curve.alpha.values[1:], "beta": curve.beta.values[1:]}
    start = Point(4, 4, "strict", 0)
    zero = {"N": 4.0}
    silent = Student(start.D, "strict", torch.float64)
    with torch.no_grad():
        silent.W3.copy_(assemble({"gamma_3": 1.0}, start.D)["W3"])
        plateau = squared_error(silent(start.batch.X), start.batch.y, "sum")
    drift = "rtol 1e-12 over some hundred steps"
    return [
        vanishing("dC/dt by autograd", "invariant", moved, AUTOGRAD, AUTOGRAD_WHY),
        vanishing("C along the flow", "invariant", eq["invariant"].evaluate(at), 1e-9, drift),
        identity(
            "alpha(beta) along the flow",
            "alpha_of_beta",
            eq["alpha_of_beta"].evaluate(at),
            at["alpha"],
            1e-9,
            drift,
        ),
        identity(
            "beta(alpha) along the flow",
            "beta_of_alpha",
            eq["beta_of_alpha"].evaluate(at),
            at["beta"],
            1e-9,
            drift,
        ),
        vanishing("dL/dgamma at gamma_star", "gamma_star", best, AUTOGRAD, AUTOGRAD_WHY),
        identity("loss at gamma_star", "loss_star", *both(least), AUTOGRAD, AUTOGRAD_WHY),
        identity(
            "plateau: gamma = 1, alpha = beta = 0",
            "plateau",
            eq["plateau"].evaluate(zero),
            float(plateau),
            AUTOGRAD,
            AUTOGRAD_WHY,
        ),
    ]


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
        slopes.append((float(slope.subs(gamma, 0.8)), -float(_grad(start)[1])))
        losses.append(float(x.loss.detach()))
        gradients.append(x.gradient.numpy())
    loss, gradient = loss_and_gradient(x.theta.detach().numpy(), N)
    mean = eq["mean_initial_slope"].rhs.subs(N_symbol, N).doit().subs(gamma, 0.8)
    return [
        identity(
            "slope of beta at the start, every q",
            "initial_slope",
            *both(slopes),
            AUTOGRAD,
            AUTOGRAD_WHY,
        ),
        identity(
            "  mean over q",
            "mean_initial_slope",
            float(mean),
            np.mean([m for _, m in slopes]),
            AUTOGRAD,
            AUTOGRAD_WHY,
        ),
        identity(
            "loss averaged over q", "loss_query", loss, np.mean(losses), AUTOGRAD, AUTOGRAD_WHY
        ),
        identity(
            "  its gradient", "loss_query", gradient, np.mean(gradients, 0), AUTOGRAD, AUTOGRAD_WHY
        ),
    ]


def theorem_1(_: Table) -> list[Check]:
    """Nineteen directions by exact group averages, the four that never become nonzero, and controls
    that must fail.
    """
    checks = [
        identity(
            "invariant directions, by characters",
            "Theorem 1",
            19,
            float(structure.dimension(D)),
            0.0,
            f"integers; D = {D}, {len(structure.group('token', D)) * len(structure.group('position', D))} elements",
        )
        for D in (2, 4)
    ]
    why = "sum over the group in float64"
    for D, mask in ((2, "strict"), (2, "inclusive"), (4, "strict")):
        average = symmetry.Sample(3, D, 1, mask).gradient(symmetry.whole_group(D))
        checks.append(
            vanishing(
                f"gradient outside the 19, D = {D}, {mask} mask",
                "Theorem 1",
                symmetry.outside(average),
                EXACT,
                why,
            )
        )
        values = dict(zip(NAMES, project(average).tolist(), strict=True))
        still = [values[name] for name in NAMES if name not in structure.reachable()]
        checks.append(
            vanishing(
                f"gradient along beta_3..beta_6, D = {D}, {mask} mask",
                "W2_22, W2_24",
                still,
                0.0,
                "exactly zero: the query has no position",
            )
        )
        smallest = min(abs(values[name]) for name in structure.reachable())
        checks.append(
            control(
                f"smallest of the other 15, D = {D}, {mask} mask",
                smallest,
                1e-6,
                "the other 15 do move",
            )
        )
    lone = symmetry.Sample(3, 2, 1)
    checks.append(
        control(
            "single sample", symmetry.outside(lone.gradient(symmetry.whole_group(2)[:1])), FLOOR
        )
    )
    for name, subgroup in symmetry.CONTROLS.items():
        worst = [
            symmetry.outside(symmetry.Sample(3, 2, 1, seed=s).gradient(subgroup(2)))
            for s in range(10)
        ]
        checks.append(control(name, float(np.median(worst)), FLOOR))
    lone.student.W1.data[0, 2] += 0.3
    checks.append(
        control(
            "0.3 in one forbidden entry of W1",
            symmetry.outside(lone.gradient(symmetry.whole_group(2))),
            FLOOR,
        )
    )
    return checks


def control(
    name: str,
    measured: float,
    floor: float,
    why: str = "control: the average must leave the 19 directions",
) -> Check:
    """Check of something that must NOT vanish."""
    return at_least(f"control by {name}", "Theorem 1", floor, measured, why)


COVERS: dict[Callable[[Table], list[Check]], tuple[str, ...]] = {
    scores: (
        "score_label_item",
        "score_item_label",
        *(
            f"{name}{end}"
            for end in ("", "_inclusive")
            for name in (
                "attention_own_item",
                "attention_other_label",
                "attention_of_item",
                "key_own_label",
                "key_later_item",
                "key_later_label",
                "query_attention",
                "query_normaliser",
            )
        ),
        "key_own_item_inclusive",
        "key_query_inclusive",
    ),
    three_parameters: ("loss", *(f"dloss_d{x}" for x in SHORT), *(f"d{x}_dt" for x in SHORT)),
    chain: ("ds_dalpha", "ds_dbeta", "dloss_ds"),
    any_query: ("loss_query", "loss_query_inclusive"),
    conserved: ("alpha_of_beta", "beta_of_alpha", "gamma_star", "loss_star", "plateau"),
    uniform_query: ("initial_slope", "mean_initial_slope"),
    theorem_1: (),
    all_weights_equations.row_by_row: (),  # faults in these are tested with all weights
    all_weights_equations.running_sums: (),
    all_weights_equations.five_numbers: (),
}

checks, report = derivations(COVERS, ih.equations)
