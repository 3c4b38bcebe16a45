"""Derivatives of the positional-semantic theory and its students against autograd, differences and
each other.

Each group of checks takes the table of Equations, so that tests can pass a faulty one and confirm
that it is detected. `COVERS` lists the equations that each group tests.
"""

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import torch
from sympy.core.function import AppliedUndef

from simulate.positional_semantic import student as positional_semantic_student
from simulate.positional_semantic.gamp import gamp, risk_gradient
from simulate.positional_semantic.learner import polish
from simulate.positional_semantic.student import Problem, Student, initial_weights
from theory.numeric import function
from theory.positional_semantic import (
    Parameters,
    equations,
    fixed_point,
    free_entropy,
    prox,
    symbols,
)
from theory.positional_semantic.channel import averages
from theory.positional_semantic.fixed_point import FixedPoint, solve
from theory.positional_semantic.state_evolution import conjugates
from verify.check import Band, Check, identity, listed, near, vanishing
from verify.report import Table, derivations

AUTOGRAD, AUTOGRAD_WHY = 1e-9, "autograd in float64"
SEED = 20240204
TINY = Parameters(d=12, alpha=1.5, correlation=0.3)
MESSAGE = Parameters(d=300, alpha=2.0)
WELL_ENDS = "where its well ends the local selection falls, the envelope has a step, and the state evolution is not its gradient"
# Measured at alpha = 1.3, with a tenth to either side; nothing here is random.
OFF_ITS_WELL = {
    "q": Band(0.024, 0.030, WELL_ENDS),
    "m": Band(-0.027, -0.022, WELL_ENDS),
    "V": Band(-0.036, -0.029, WELL_ENDS),
    "slope": Band(-0.0076, -0.0062, WELL_ENDS),
}
DIFFERENCE, DIFFERENCE_WHY = (
    1e-5,
    "central difference, step 1e-3: its square times the third derivative",
)


@listed
def students(eq: Table) -> Iterator[Check]:
    """Risk and gradient of the batched engine against the plain module, for every architecture."""
    for name, p in (
        ("tied", TINY),
        ("rank 2", TINY.replace(rank=2, start="mixed")),
        ("untied", TINY.replace(tied=False)),
        ("value matrix", TINY.replace(value=True)),
    ):
        rng = np.random.default_rng(SEED)
        teacher, data = positional_semantic_student.sample(p, 3)
        _, longer = positional_semantic_student.sample(
            p.replace(alpha=2.5), 4
        )  # a second run with another number of sentences: padding must not matter
        weights = {
            k: torch.as_tensor(v + 0.3 * rng.standard_normal(v.shape))
            for k, v in initial_weights(p, teacher, rng).items()
        }
        student = Student(weights)
        risk = student.objective(data.tokens, data.y, p.lam)
        slopes = torch.autograd.grad(risk, list(student.weights.values()))
        batch = {k: torch.stack([v, v]) for k, v in weights.items()}
        value, gradient = Problem([data, longer], p.lam).gradient(batch)
        pairs = zip(student.weights, slopes, strict=True)
        yield from [
            identity(
                f"risk, {name}", "(3)", float(risk.detach()), float(value[0]), 1e-12, "both float64"
            ),
            *(
                identity(
                    f"gradient of the risk in {k}, {name}",
                    "(3)",
                    g.numpy(),
                    gradient[k][0].numpy(),
                    AUTOGRAD,
                    AUTOGRAD_WHY,
                )
                for k, g in pairs
            ),
        ]


def random_fields(n: int = 500) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Student fields, centres and targets with typical values."""
    rng = np.random.default_rng(SEED)
    z, w, h = 0.6 * rng.standard_normal((3, 2, n))
    S = 1 / (1 + np.exp(-np.stack([h[0] * (h[1] - h[0]), h[1] * (h[0] - h[1])])))
    return z, w, 0.7 * S + 0.3 * 0.4


def envelope(eq: Table) -> list[Check]:
    """Attention, loss and objective of the envelope against autograd; minimisers; envelope
    theorem.
    """
    z, w, Y = random_fields()
    V, sigma = 15.0, 0.5
    leaf = torch.tensor(z, requires_grad=True)
    P, R = (
        torch.sigmoid(leaf[0] * (leaf[1] - leaf[0])),
        torch.sigmoid(leaf[1] * (leaf[0] - leaf[1])),
    )
    student = torch.stack([torch.stack([1 - P, P]), torch.stack([R, 1 - R])])
    target = torch.tensor(np.array([[1 - Y[0], Y[0]], [Y[1], 1 - Y[1]]]))
    loss = sigma**2 / 2 * (target - student).square().sum((0, 1))
    value = (leaf - torch.tensor(w)).square().sum(0) / (2 * V) + loss
    rows = (
        torch.softmax(leaf[:, None] * leaf[None, :], dim=1).detach().numpy()
    )  # scores of both tokens on both tokens
    values = {
        "z_1": z[0],
        "z_2": z[1],
        "w_1": w[0],
        "w_2": w[1],
        "Y_12": Y[0],
        "Y_21": Y[1],
        "sigma": sigma,
        "V": V,
    }
    pairs = [
        ("attention of the first token on the second", "S_12", rows[0, 1]),
        ("attention of the second token on the first", "S_21", rows[1, 0]),
        ("loss of a sentence", "sentence_loss", loss.detach().numpy()),
        ("quadratic term and loss", "objective", value.detach().numpy()),
    ]
    first = torch.autograd.grad(value.sum(), leaf, create_graph=True)[0]
    second = [torch.autograd.grad(first[k].sum(), leaf, retain_graph=True)[0] for k in (0, 1)]
    f, *slopes = prox.objective(z, w, Y, V, sigma)
    expected = np.stack(
        [first[0].detach(), first[1].detach(), second[0][0], second[0][1], second[1][1]]
    )
    best, least, _ = prox.descend(w, w, Y, V, sigma)
    _, *at_best = prox.objective(best, w, Y, V, sigma)
    step = 1e-5
    shifted = [
        prox.descend(best, w + np.array([[s * step], [0.0]]), Y, V, sigma)[1] for s in (1, -1)
    ]
    slope = (shifted[0] - shifted[1]) / (2 * step)
    (minimiser,) = eq["g_1"].rhs.atoms(AppliedUndef)
    g_1 = function(eq["g_1"].rhs, [minimiser, symbols.w_1, symbols.V])
    return [
        *(
            identity(name, e, eq[e].evaluate(values), measured, 1e-12, "both float64")
            for name, e, measured in pairs
        ),
        identity(
            "objective of the envelope",
            "objective",
            f,
            value.detach().numpy(),
            1e-12,
            "both float64",
        ),
        identity(
            "its gradient and Hessian",
            "objective",
            np.array(slopes),
            expected,
            AUTOGRAD,
            AUTOGRAD_WHY,
        ),
        vanishing(
            "gradient at the minimisers",
            "envelope",
            np.array(at_best[:2]),
            1e-11,
            "where Newton steps stop",
        ),
        identity(
            "dM/dw = -g",
            "g_1",
            -g_1(best[0], w[0], V),
            slope,
            1e-6,
            "rounding of M over the step 1e-5",
        ),
    ]


POINTS = (("semantic", "global"), ("positional", "global"), ("positional", "local"))


@cache
def fixed(branch: str, prox_: str) -> FixedPoint:
    """Fixed point at alpha = 1.3 (cached)."""
    return solve(Parameters(alpha=1.3, prox=prox_), branch)


def training_loss(eq: Table) -> list[Check]:
    """Training loss from the data term against that from the envelope."""
    return [
        identity(
            f"training loss by envelope and by data term, {', '.join(point)}",
            "training_loss_data",
            eq["training_loss_data"].evaluate(fixed(*point).values()),
            fixed(*point).train_loss,
            1e-9,
            "the same averages",
        )
        for point in POINTS
    ]


@listed
def stationarity(eq: Table) -> Iterator[Check]:
    """The free entropy is stationary at every fixed point: by derived formulas and by differences
    of its value.
    """
    for branch, prox_ in POINTS:
        point = fixed(branch, prox_)
        where = f"{branch}, {prox_}"
        yield vanishing(
            f"gradient of the free entropy, {where}",
            "free_entropy",
            list(fixed_point.gradient(point).values()),
            1e-6,
            "residual of the fixed point",
        )
        band = OFF_ITS_WELL if prox_ == "local" else None
        yield from by_differences(point, where, band)
        step = 1e-2
        around = [
            solve(point.p.replace(alpha=point.p.complexity + s * step), branch, point).train_loss
            for s in (1, -1)
        ]
        slope = (around[0] - around[1]) / (2 * step)
        yield near(
            f"slope of the training loss in alpha, {where}",
            "training_loss_slope",
            point.slope,
            slope,
            1e-3,
            "quadrature: 1e-5 of the loss, over the step",
            band=None if band is None else band["slope"],
        )


@listed
def by_differences(point: FixedPoint, where: str, band: dict[str, Band] | None) -> Iterator[Check]:
    """Numerical derivative of the free entropy with respect to the order parameters at fixed
    conjugates, in units of one of its terms.
    """
    phi = free_entropy.equations()["free_entropy"]
    for x in {"positional": ("q", "m", "V"), "semantic": ("q", "V", "theta")}[point.branch]:
        size = 1e-2 * getattr(point.state, x)
        values = []
        for s in (1, -1):
            state = point.state._replace(**{x: getattr(point.state, x) + s * size})
            moved = averages(point.p, state)
            values.append(
                float(
                    phi.evaluate(point.values() | {**state._asdict(), "E_M": moved.numbers["E_M"]})
                )
            )
        derivative = (values[0] - values[1]) / (2 * size)
        conjugate = {
            "q": point.hats["V_hat"] / 2,
            "V": point.hats["q_hat"] / 2,
            "m": point.hats["m_hat"],
            "theta": point.hats["theta_hat"],
        }[x]
        yield near(
            f"derivative of the free entropy in {x} by differences, {where}",
            "free_entropy",
            0.0,
            derivative,
            5e-3,
            "quadrature error of the envelope over a step of 1%",
            abs(conjugate),
            None if band is None else band[x],
        )


def message_passing(eq: Table) -> list[Check]:
    """At convergence of GAMP the gradient of the risk vanishes; distance to the minimum found by
    L-BFGS.
    """
    p = MESSAGE
    teacher, data = positional_semantic_student.sample(p, 1)
    message = gamp(p, data, teacher, iterations=400)
    risk = Problem([data.idealised(p.sigma)], p.lam)
    best = polish(risk, {"Q": torch.as_tensor(teacher)[None, :, None]})["Q"][0, :, 0].numpy()
    away = float(np.linalg.norm(best - message.weights) / np.sqrt(p.d))
    _, gradient = risk.gradient({"Q": torch.as_tensor(message.weights)[None, :, None]})
    by_autograd = float(torch.linalg.norm(gradient["Q"]) / np.sqrt(p.d))
    start = teacher * 0.7
    _, at_start = risk.gradient({"Q": torch.as_tensor(start)[None, :, None]})
    return [
        vanishing(
            "last step of message passing, semantic",
            "Algorithm 1",
            message.steps[-1],
            1e-10,
            "its stopping rule",
        ),
        vanishing(
            "gradient of the risk where message passing ends",
            "(75)-(78)",
            by_autograd,
            1e-8,
            "last step times the largest curvature, about 1",
        ),
        vanishing(
            "distance from the minimum where message passing ends",
            "(75)-(78)",
            away,
            1e-5,
            "L-BFGS stops at a gradient of 1e-7",
        ),
        identity(
            "gradient of the idealised risk",
            "sentence_loss",
            risk_gradient(p, data, start),
            float(torch.linalg.norm(at_start["Q"]) / np.sqrt(p.d)),
            AUTOGRAD,
            AUTOGRAD_WHY,
        ),
    ]


def symmetries(eq: Table) -> list[Check]:
    """Exact symmetries of loss and state evolution."""
    z, _, Y = random_fields()
    V, sigma = 10.0, 0.5
    f = prox.objective(z, 0 * z, Y, V, sigma)[0]
    swapped = prox.objective(-z[::-1], 0 * z, Y[::-1], V, sigma)[0]
    even = prox.objective(-z, 0 * z, Y, V, sigma)[0]
    loss = eq["sentence_loss"].evaluate(
        {"z_1": z[0], "z_2": z[1], "Y_12": Y[0], "Y_21": Y[1], "sigma": sigma}
    )
    point = solve(Parameters(alpha=1.3), "semantic")
    mirrored = point.state._replace(theta=-point.state.theta)
    hats = conjugates(point.p, mirrored, averages(point.p, mirrored))
    return [
        identity("loss is even in the fields", "sentence_loss", even, f, 1e-14, "the same numbers"),
        identity(
            "swapping tokens with a sign swaps the entries",
            "sentence_loss",
            swapped,
            f,
            1e-12,
            "both float64",
        ),
        identity(
            "loss from the objective at w = z",
            "sentence_loss",
            loss,
            prox.objective(z, z, Y, V, sigma)[0],
            1e-12,
            "both float64",
        ),
        identity(
            "theta -> -theta reverses its conjugate alone",
            "theta_hat",
            [hats["q_hat"], -hats["theta_hat"], hats["V_hat"]],
            [point.hats["q_hat"], point.hats["theta_hat"], point.hats["V_hat"]],
            1e-6,
            "nodes are mirrored",
        ),
    ]


COVERS: dict[Callable[[Table], list[Check]], tuple[str, ...]] = {
    students: (),
    envelope: ("S_12", "S_21", "sentence_loss", "objective", "g_1"),
    symmetries: ("sentence_loss",),
    training_loss: ("training_loss_data",),
    stationarity: (),
    message_passing: (),
}

checks, report = derivations(COVERS, equations)
