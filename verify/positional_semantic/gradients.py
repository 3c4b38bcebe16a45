"""Derivatives of the positional-semantic theory and its students against autograd,
differences and each other.

Each group of checks takes the table of Equations, so that tests can pass a faulty one
and confirm that it is detected.
"""

from collections.abc import Iterator
from functools import cache

import numpy as np
import torch
from sympy.core.function import AppliedUndef

from simulate.positional_semantic import student
from simulate.positional_semantic.gamp import gamp, risk_gradient
from simulate.positional_semantic.learner import polish
from simulate.positional_semantic.student import Problem
from theory.numbers.numeric import function
from theory.positional_semantic import (
    Parameters,
    equations,
    fixed_point,
    free_entropy,
    prox,
)
from theory.positional_semantic.channel import averages
from theory.positional_semantic.fixed_point import FixedPoint, solve
from theory.positional_semantic.model import symbols
from verify.checks.check import Band, Check, Sides, identity, listed, near, vanishing
from verify.checks.report import Table, derivations

AUTOGRAD = 1e-9, "autograd in float64"
STEP = 1e-2  # in alpha, and relative in order parameters
SEED = 20240204
TINY = Parameters(d=12, alpha=1.5, correlation=0.3)
MESSAGE = Parameters(d=300, alpha=2.0)
WELL_ENDS = (
    "where its well ends the local selection falls, the envelope has a step, and the"
    " state evolution is not its gradient; no order: a jump"
)
# Measured at alpha = 1.3, with a tenth to either side; nothing here is random.
OFF_ITS_WELL = {
    "q": Band(0.024, 0.030, WELL_ENDS),
    "m": Band(-0.027, -0.022, WELL_ENDS),
    "V": Band(-0.036, -0.029, WELL_ENDS),
    "slope": Band(-0.0076, -0.0062, WELL_ENDS),
}


@listed
def students(eq: Table) -> Iterator[Check]:
    """Risk and gradient of the batched engine against the plain module, for every
    architecture.
    """
    for name, p in (
        ("tied", TINY),
        ("rank 2", TINY.replace(rank=2, start="mixed")),
        ("untied", TINY.replace(tied=False)),
        ("value matrix", TINY.replace(value=True)),
    ):
        rng = np.random.default_rng(SEED)
        teacher, data = student.sample(p, 3)
        # A second run with another number of sentences: padding must not matter.
        _, longer = student.sample(p.replace(alpha=2.5), 4)
        weights = {}
        for k, v in student.initial_weights(p, teacher, rng).items():
            moved = v + 0.3 * rng.standard_normal(v.shape)
            weights[k] = torch.as_tensor(moved)
        plain = student.Student(weights)
        risk = plain.objective(data.tokens, data.y, p.lam)
        slopes = torch.autograd.grad(risk, list(plain.weights.values()))
        batch = {k: torch.stack([v, v]).detach() for k, v in plain.weights.items()}
        value, gradient = Problem([data, longer], p.lam).gradient(batch)
        both = risk.detach(), value[0], 1e-12, "both float64"
        yield identity(f"risk, {name}", "(3)", *both)
        for k, slope in zip(batch, slopes, strict=True):
            label = f"gradient of the risk in {k}, {name}"
            yield identity(label, "(3)", slope, gradient[k][0], *AUTOGRAD)


def random_fields(n: int = 500) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Student fields, centres and targets with typical values."""
    z, w, h = 0.6 * np.random.default_rng(SEED).standard_normal((3, 2, n))
    scores = np.stack([h[0] * (h[1] - h[0]), h[1] * (h[0] - h[1])])
    S = 1 / (1 + np.exp(-scores))
    return z, w, 0.7 * S + 0.3 * 0.4


@listed
def envelope(eq: Table) -> Iterator[Check]:
    """Attention, loss and objective of the envelope against autograd; minimisers;
    envelope theorem.
    """
    z, w, Y = random_fields()
    V, sigma = 15.0, 0.5
    leaf = torch.tensor(z, requires_grad=True)
    # Scores of both tokens on both tokens.
    attention = torch.softmax(leaf[:, None] * leaf, dim=1)
    target = torch.tensor(np.array([[1 - Y[0], Y[0]], [Y[1], 1 - Y[1]]]))
    loss = sigma**2 / 2 * (target - attention).square().sum((0, 1))
    value = (leaf - torch.tensor(w)).square().sum(0) / (2 * V) + loss
    named = {
        "z_1": z[0],
        "z_2": z[1],
        "w_1": w[0],
        "w_2": w[1],
        "Y_12": Y[0],
        "Y_21": Y[1],
    }
    sides = Sides(eq, 1e-12, "both float64")
    for name, equation, measured in (
        ("attention of the first token on the second", "S_12", attention[0, 1]),
        ("attention of the second token on the first", "S_21", attention[1, 0]),
        ("loss of a sentence", "sentence_loss", loss),
        ("quadratic term and loss", "objective", value),
    ):
        sides.add(name, equation, named | {"sigma": sigma, "V": V}, measured.detach())
    first = torch.autograd.grad(value.sum(), leaf, create_graph=True)[0]
    second = [torch.autograd.grad(x.sum(), leaf, retain_graph=True)[0] for x in first]
    expected = torch.stack([*first, *second[0], second[1][1]]).detach().numpy()
    f, *slopes = prox.objective(z, w, Y, V, sigma)
    best, _, _ = prox.descend(w, w, Y, V, sigma)
    _, *at_best = prox.objective(best, w, Y, V, sigma)
    step = np.array([[1e-5], [0.0]])
    above, below = (prox.descend(best, w + s * step, Y, V, sigma)[1] for s in (1, -1))
    (minimiser,) = eq["g_1"].rhs.atoms(AppliedUndef)
    g_1 = function(eq["g_1"].rhs, [minimiser, symbols.w_1, symbols.V])(best[0], w[0], V)
    yield from sides.checks()
    what = "objective of the envelope"
    yield identity(what, "objective", f, value.detach(), 1e-12, "both float64")
    what = "its gradient and Hessian"
    yield identity(what, "objective", np.array(slopes), expected, *AUTOGRAD)
    what, why = "gradient at the minimisers", "where Newton steps stop"
    yield vanishing(what, "envelope", at_best[:2], 1e-11, why)
    rounding = 1e-6, "rounding of M over the step 1e-5"
    yield identity("dM/dw = -g", "g_1", -g_1, (above - below) / 2e-5, *rounding)


POINTS = (("semantic", "global"), ("positional", "global"), ("positional", "local"))


@cache
def fixed(branch: str, prox_: str) -> FixedPoint:
    """Fixed point at alpha = 1.3 (cached)."""
    return solve(Parameters(alpha=1.3, prox=prox_), branch)


def training_loss(eq: Table) -> list[Check]:
    """Training loss from the data term against that from the envelope."""
    sides = Sides(eq, 1e-9, "the same averages")
    for branch, prox_ in POINTS:
        point = fixed(branch, prox_)
        name = f"training loss by envelope and by data term, {branch}, {prox_}"
        sides.add(name, "training_loss_data", point.values(), point.train_loss)
    return sides.checks()


@listed
def stationarity(eq: Table) -> Iterator[Check]:
    """The free entropy is stationary at every fixed point: by derived formulas and by
    differences of its value.
    """
    for branch, prox_ in POINTS:
        point = fixed(branch, prox_)
        where = f"{branch}, {prox_}"
        gradient = [*fixed_point.gradient(point).values()]
        name = f"gradient of the free entropy, {where}"
        yield vanishing(
            name, "free_entropy", gradient, 1e-6, "residual of the fixed point"
        )
        bands = OFF_ITS_WELL if prox_ == "local" else {}
        yield from by_differences(point, where, bands)
        above, below = (
            solve(
                point.p.replace(alpha=point.p.complexity + s * STEP), branch, point
            ).train_loss
            for s in (1, -1)
        )
        yield near(
            f"slope of the training loss in alpha, {where}",
            "training_loss_slope",
            point.slope,
            (above - below) / (2 * STEP),
            1e-3,
            "quadrature: 1e-5 of the loss, over the step",
            band=bands.get("slope"),
        )


@listed
def by_differences(
    point: FixedPoint, where: str, bands: dict[str, Band]
) -> Iterator[Check]:
    """Numerical derivative of the free entropy with respect to the order parameters at
    fixed conjugates, in units of one of its terms.
    """
    phi = free_entropy.equations()["free_entropy"]
    hats = point.hats
    terms = {"q": hats["V_hat"] / 2, "V": hats["q_hat"] / 2} | {
        x: hats[f"{x}_hat"] for x in ("m", "theta")
    }

    def entropy(x: str, value: float) -> float:
        state = point.state._replace(**{x: value})
        moved = {**state._asdict(), "E_M": averages(point.p, state).numbers["E_M"]}
        return phi.number(point.values() | moved)

    orders = {"positional": ("q", "m", "V"), "semantic": ("q", "V", "theta")}
    for x in orders[point.branch]:
        here = getattr(point.state, x)
        size = STEP * here
        above, below = entropy(x, here + size), entropy(x, here - size)
        yield near(
            f"derivative of the free entropy in {x} by differences, {where}",
            "free_entropy",
            0.0,
            (above - below) / (2 * size),
            5e-3,
            "quadrature error of the envelope over a step of 1%",
            abs(terms[x]),
            bands.get(x),
        )


@listed
def message_passing(eq: Table) -> Iterator[Check]:
    """At convergence of GAMP the gradient of the risk vanishes; distance to the minimum
    found by L-BFGS.
    """
    p = MESSAGE
    teacher, data = student.sample(p, 1)
    risk = Problem([data.idealised(p.sigma)], p.lam)

    def slope(weights: np.ndarray) -> float:
        _, gradient = risk.gradient({"Q": torch.as_tensor(weights)[None, :, None]})
        return float(torch.linalg.norm(gradient["Q"]) / np.sqrt(p.d))

    message = gamp(p, data, teacher, iterations=400)
    informed = torch.as_tensor(teacher)[None, :, None]
    best = polish(risk, {"Q": informed})["Q"][0, :, 0].numpy()
    away = np.linalg.norm(best - message.weights) / np.sqrt(p.d)
    start = 0.7 * teacher
    ends, of = "where message passing ends", "(75)-(78)"
    yield vanishing(
        "last step of message passing, semantic",
        "Algorithm 1",
        message.steps[-1],
        1e-10,
        "its stopping rule",
    )
    yield vanishing(
        f"gradient of the risk {ends}",
        of,
        slope(message.weights),
        1e-8,
        "last step times the largest curvature, about 1",
    )
    yield vanishing(
        f"distance from the minimum {ends}",
        of,
        away,
        1e-5,
        "L-BFGS stops at a gradient of 1e-7",
    )
    yield identity(
        "gradient of the idealised risk",
        "sentence_loss",
        risk_gradient(p, data, start),
        slope(start),
        *AUTOGRAD,
    )


GRADIENTS = (students, envelope, training_loss, stationarity, message_passing)

checks, report = derivations(GRADIENTS, equations)
