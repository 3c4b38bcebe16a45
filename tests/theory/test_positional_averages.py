"""Averages of the output channel against moments known by hand, and numbers derived
from fixed points on another road.
"""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp
from later import Later

from theory.positional_semantic import Parameters, equations, prox, solve
from theory.positional_semantic.channel import student_attention, target
from theory.positional_semantic.errors import baseline
from theory.positional_semantic.errors import test_error as error_of
from theory.positional_semantic.model import definitions
from theory.positional_semantic.model import symbols as s

EQ = Later(equations)
NORMALS = (definitions.xi_1, definitions.xi_2, definitions.eta_1, definitions.eta_2)


def gaussian_mean(expr: sp.Expr) -> sp.Expr:
    """Mean of a polynomial in independent standard normals, moment by moment: 1, 0, 1,
    0, 3, ...
    """
    poly = sp.Poly(sp.expand(expr), *NORMALS)
    return sum(
        c * sp.prod([sp.factorial2(n - 1) if n % 2 == 0 else 0 for n in powers])
        for powers, c in poly.terms()
    )


def mean_of(name: str, meaning: dict) -> sp.Expr:
    """An average of the channel for polynomial fields, its weight checked to be that of
    four standard normals.
    """
    form = EQ[name].rhs
    density = sp.exp(-sum(x**2 for x in NORMALS) / 2) / (2 * sp.pi) ** 2
    assert {q[0] for q in form.limits} == set(NORMALS) and all(
        q[1:] == (-sp.oo, sp.oo) for q in form.limits
    )
    return gaussian_mean(sp.simplify(form.function / density).subs(meaning))


def test_averages_of_linear_fields():
    """g_l = a_l + b_l xi_l + c_l eta_l: the four averages of (7) are sums of its
    coefficients.
    """
    a, b, c = sp.symbols("a_1:3"), sp.symbols("b_1:3"), sp.symbols("c_1:3")
    fields = {
        g: a[k] + b[k] * NORMALS[k] + c[k] * NORMALS[k + 2]
        for k, g in enumerate((definitions.g_1, definitions.g_2))
    }
    assert sp.expand(mean_of("E_gg", fields) - sum(x**2 for x in (*a, *b, *c))) == 0
    assert sp.expand(mean_of("E_g", fields) - (a[0] - a[1])) == 0
    assert sp.expand(mean_of("E_gxi", fields) - sum(b)) == 0
    assert sp.expand(mean_of("E_geta", fields) - sum(c)) == 0
    assert (
        mean_of("E_M", {definitions.envelope: NORMALS[0] ** 2 + 3 * NORMALS[3] ** 4})
        == 10
    )


def test_fields_have_the_law_they_should():
    """w of mean +-m and variance q, teacher field of variance rho, covariance theta:
    moments of the equations' right-hand sides.
    """
    nu = EQ["nu"].rhs
    for k, (w, h, sign) in enumerate((("w_1", "h_1", 1), ("w_2", "h_2", -1))):
        student, teacher = EQ[w].rhs, EQ[h].rhs.subs(definitions.nu, nu)
        assert gaussian_mean(student) == sign * s.m and gaussian_mean(teacher) == 0
        assert sp.simplify(gaussian_mean((student - sign * s.m) ** 2) - s.q) == 0
        assert sp.simplify(gaussian_mean(teacher**2) - s.rho) == 0
        assert sp.simplify(gaussian_mean(teacher * student) - s.theta) == 0
        assert student.has(NORMALS[k]) and teacher.has(NORMALS[k + 2])


def lowest(w: np.ndarray, Y: np.ndarray, V: float, sigma: float) -> np.ndarray:
    """Minimisers of the objective, shape (2, n): the best that three starts lead to."""
    far = prox.target_solution(Y)
    tried = [prox.descend(start, w, Y, V, sigma)[:2] for start in (w, far, -far)]
    best = np.argmin([v for _, v in tried], axis=0)
    return np.take_along_axis(np.array([z for z, _ in tried]), best[None, None], 0)[0]


def test_replicon_by_finite_differences():
    """alpha V^2 E|dg/dw|^2 on 12^4 Gauss-Hermite nodes with g differenced, on the
    semantic branch, where nothing jumps.
    """
    point = solve(Parameters(alpha=2.0, order=12), "semantic")
    p, x = point.p, point.state
    nodes, weights = np.polynomial.hermite_e.hermegauss(12)
    weights = weights / weights.sum()
    grid = np.array(np.meshgrid(nodes, nodes, nodes, nodes, indexing="ij")).reshape(
        4, -1
    )
    total = np.einsum("i,j,k,l->ijkl", weights, weights, weights, weights).ravel()
    h = p.sigma * grid[:2]
    w = x.theta / p.sigma**2 * h + np.sqrt(x.q - x.theta**2 / p.sigma**2) * grid[2:]
    Y = target(p, h)

    def best(w):
        return lowest(w, Y, x.V, p.sigma)

    step, square = 1e-5, np.zeros(w.shape[1])
    for k in range(2):
        by = np.zeros((2, 1))
        by[k] = step
        square += (((best(w + by) - best(w - by)) / (2 * step) - by / step) ** 2).sum(0)
    smooth = (
        square < 1e3
    )  # a node within the difference of the jump line would count its delta function
    assert total[~smooth].sum() < 1e-3
    assert point.replicon == pytest.approx(
        p.complexity * float(total[smooth] @ square[smooth]), rel=0.03
    )  # 12 nodes per axis
    assert point.replicon < 1 and point.jump < 1e-3


@pytest.mark.parametrize("branch", ["semantic", "positional"])
def test_norm_and_test_error_from_their_definitions(branch):
    """|Q|^2/d = q/sigma^2; the error (10) as E tr (T - S)(T - S)^T sigma^2 over draws
    of both fields, whose means are +-m.
    """
    assert EQ["norm"].evaluate({"q": 0.3, "sigma": 0.5}) == pytest.approx(
        1.2, rel=1e-15
    )  # Q of norm^2 d |Q|^2/d, tokens sigma^2
    point = solve(Parameters(alpha=1.3, order=8), branch)
    p, x = point.p, point.state
    assert max(abs(x.m), abs(x.theta)) > 0.1
    rng = np.random.default_rng(0)
    fields = rng.multivariate_normal(
        [0, 0], [[x.q, x.theta], [x.theta, p.sigma**2]], size=(2, 400_000)
    )
    fields[..., 0] += np.array([[x.m], [-x.m]])
    S, T = student_attention(fields[..., 0]), target(p, fields[..., 1])
    gap = np.array([[T[0] - S[0], S[0] - T[0]], [T[1] - S[1], S[1] - T[1]]])
    draws = p.sigma**2 * (gap**2).sum((0, 1))
    z = (draws.mean() - error_of(p, x, "full")) / (draws.std() / np.sqrt(draws.size))
    assert (
        abs(z) < 4 and draws.std() / np.sqrt(draws.size) < 0.005 * draws.mean()
    )  # five per cent are ten standard errors


def test_averages_of_the_error_as_integrals():
    """The two integrals of (10), and the loss of (14), as the equations have them, on
    12^4 nodes, against what the test error and the state evolution add up.
    """
    point = solve(Parameters(alpha=2.0, order=8), "semantic")
    p, x = point.p, point.state
    nodes, weights = np.polynomial.hermite_e.hermegauss(12)
    normals = np.array(np.meshgrid(*[nodes] * 4, indexing="ij")).reshape(4, -1)
    total = np.einsum("i,j,k,l->ijkl", *[weights / weights.sum()] * 4).ravel()
    values = p.values() | {**x._asdict(), "nu": p.sigma**2 - x.theta**2 / x.q}
    values |= {n.name: v for n, v in zip(NORMALS, normals, strict=True)}
    values |= {name: EQ[name].evaluate(values) for name in ("w_1", "w_2", "h_1", "h_2")}
    Y = target(p, np.array([values["h_1"], values["h_2"]]))
    values |= dict(zip(("Y_12", "Y_21"), Y, strict=True))
    density = sp.exp(-sum(n**2 for n in NORMALS) / 2) / (2 * sp.pi) ** 2
    w = np.array([values["w_1"], values["w_2"]])
    values |= dict(
        zip(
            map(str, definitions.best.values()),
            lowest(w, np.array(Y), x.V, p.sigma),
            strict=True,
        )
    )
    found = {}
    for name in ("E_S_12", "E_S_21", "E_loss"):
        inner = EQ[name].rhs.function / density
        inner = inner.xreplace(
            {z: sp.Symbol(str(z)) for z in definitions.best.values()}
        )
        at = {q: values[q.name] for q in inner.free_symbols}
        found[name] = float(total @ sp.lambdify(list(at), inner)(*at.values()))
    error = EQ["test_error"].evaluate({"sigma": p.sigma, **found})
    assert error == pytest.approx(
        error_of(p, x, "full"), rel=1e-4
    )  # 12 nodes, smooth integrands
    # 12 nodes see the jump of the minimiser coarsely; it has little weight on this
    # branch.
    assert found["E_loss"] == pytest.approx(point.averages.numbers["E_loss"], rel=0.01)


@pytest.mark.parametrize("branch", ["positional", "semantic"])
def test_training_loss_is_minus_the_free_entropy(branch):
    """(121): both equations and what the solver reports, at a fixed point."""
    point = solve(Parameters(alpha=1.3, order=8), branch)
    values = point.values() | {"E_M": point.averages.numbers["E_M"]}
    phi, loss = (
        float(EQ[k].evaluate(values)) for k in ("free_entropy", "training_loss")
    )
    assert -phi == pytest.approx(loss, rel=1e-5)  # residual of the fixed point
    assert loss == pytest.approx(point.train_loss, rel=1e-12)


def test_linear_layer_beats_its_neighbours():
    """W of (19) and its error (20) over 200000 draws of the teacher's field: the mean
    target, its value, and no better neighbour.
    """
    p = Parameters()
    rng = np.random.default_rng(1)
    T = target(p, p.sigma * rng.standard_normal((2, 200_000)))
    found = baseline(p)
    for name, k in (("W_12", 0), ("W_21", 1)):
        assert abs(T[k].mean() - found[name]) < 4 * T[k].std() / np.sqrt(T[k].size)

    def draws(W):
        return p.sigma**2 * 2 * ((T - np.reshape(W, (2, 1))) ** 2).sum(0)

    W = np.array([found["W_12"], found["W_21"]])
    own, step = draws(W), 0.005 * np.eye(2)  # thirty standard errors of the mean target
    z = (own.mean() - found["epsilon_lin"]) / (own.std() / np.sqrt(own.size))
    assert abs(z) < 4 and own.std() / np.sqrt(own.size) < 0.005 * own.mean()
    assert all(draws(W + away).mean() > own.mean() for away in [*step, *-step])
