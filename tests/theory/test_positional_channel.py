"""Prox, quadrature and averages of the positional-semantic
model against brute force.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import sympy as sp
from later import Later

from theory.positional_semantic import Parameters, State, channel, equations, prox
from theory.positional_semantic.channel import averages, target, teacher_nodes

SIGMA, EQ = 0.5, Later(equations)
SEMANTIC, POSITIONAL = State(0.115, 0.0, 12.7, 0.158), State(0.063, 0.171, 21.4, 0.0)


def fields(n, omega=0.3, target_name="standard"):
    rng = np.random.default_rng(7)
    h, w = 0.5 * rng.standard_normal((2, n)), 0.3 * rng.standard_normal((2, n))
    return target(Parameters(omega=omega, target=target_name), h), w


@pytest.mark.parametrize("name", ["standard", "alternative"])
def test_global_minimum_is_found(name):
    """Best of the wells that the two exact solutions lead to, against a grid search
    with polishing.
    """
    Y, w = fields(25, target_name=name)
    far = prox.target_solution(Y)
    both = [prox.descend(sign * far, w, Y, 15.0, SIGMA)[1] for sign in (1, -1)]
    grid = np.array(np.meshgrid(*[np.linspace(-1.6, 1.6, 81)] * 2)).reshape(2, -1)
    for k in range(25):
        many = [np.repeat(v[:, [k]], grid.shape[1], 1) for v in (w, Y)]
        start = grid[:, prox.objective(grid, *many, 15.0, SIGMA)[0].argmin()]
        best = scipy.optimize.minimize(
            lambda z, k=k: prox.objective(z, w[:, k], Y[:, k], 15.0, SIGMA)[0],
            start,
            method="Nelder-Mead",
            options={"xatol": 1e-9, "fatol": 1e-15},
        )
        assert min(v[k] for v in both) <= best.fun + 1e-12


def test_g_is_minus_the_slope_of_the_envelope():
    """(103): the equations for the envelope, g_1 and g_2 at the minimiser, against the
    least value and its differences over w.
    """
    Y, w = fields(25)
    V, step = 15.0, 1e-5
    least, value, *_ = prox.descend(w, w, Y, V, SIGMA)
    known = {
        "V": V,
        "sigma": SIGMA,
        "w_1": w[0],
        "w_2": w[1],
        "Y_12": Y[0],
        "Y_21": Y[1],
    }
    for k in (1, 2):
        known[f"z^{{\\ast}}_{k}"] = least[k - 1]

    def at_minimiser(name):
        form = EQ[name].rhs
        form = form.subs(
            {
                z: sp.Symbol(z.func.__name__)
                for z in form.atoms(sp.core.function.AppliedUndef)
            }
        )
        symbols = list(form.free_symbols)
        return sp.lambdify(symbols, form)(*(known[s.name] for s in symbols))

    np.testing.assert_allclose(at_minimiser("envelope"), value, rtol=1e-12)  # rounding
    for k, name in enumerate(("g_1", "g_2")):
        by = step * np.eye(2)[:, [k]]
        up, down = (prox.descend(least, w + s * by, Y, V, SIGMA)[1] for s in (1, -1))
        np.testing.assert_allclose(
            at_minimiser(name), -(up - down) / (2 * step), atol=1e-7
        )  # rounding over step


def test_finite_temperature_tends_to_the_envelope():
    """(98), (102): -(1/beta) ln of the integral over both fields, on a grid, with the
    attention's own loss: less its term of order 1/beta it is the least value of the
    objective.
    """
    Y, w = fields(8)
    V, w, line = 5.0, 3 * w, np.linspace(-4, 4, 801)
    z = np.array(np.meshgrid(line, line))
    least = prox.descend(prox.target_solution(Y), w, Y, V, SIGMA)[1]
    S = [1 / (1 + np.exp(-a * (b - a))) for a, b in (z, z[::-1])]
    for k, expected in enumerate(least):
        loss = SIGMA**2 * ((Y[0, k] - S[0]) ** 2 + (Y[1, k] - S[1]) ** 2)
        cost = ((z - w[:, k, None, None]) ** 2).sum(0) / (2 * V) + loss
        found = []
        for beta in (1e3, 2e3):
            weights = np.exp(-beta * (cost - cost.min()))
            integral = beta / (2 * np.pi * V) * weights.sum() * (line[1] - line[0]) ** 2
            found.append(cost.min() - np.log(integral) / beta)
        assert 2 * found[1] - found[0] == pytest.approx(
            expected, abs=5e-6
        )  # beta^-2 is left
    assert least.mean() > 2e-3  # of which 5% are twenty times that


def test_descent_stays_in_its_well():
    """Two wells, mirror images at w = 0: each start keeps its own."""
    Y = np.array([[0.15], [0.15]])
    zero = np.zeros((2, 1))
    far = prox.target_solution(Y)
    up, down = (prox.descend(s * far, zero, Y, 15.0, SIGMA)[0] for s in (1, -1))
    assert np.allclose(up, -down, atol=1e-10) and np.hypot(*up) > 0.3


def test_target_solution_solves():
    """S(z_0) = Y wherever the entries add up to less than one."""
    from theory.positional_semantic.channel import student_attention

    Y, _ = fields(200)
    assert (Y.sum(0) < 1).all()
    assert np.abs(student_attention(prox.target_solution(Y)) - Y).max() < 1e-12


def monte_carlo(p, state, n):
    """Averages by independent sampling, best of three starts, with standard errors."""
    rng = np.random.default_rng(11)
    xi, eta = rng.standard_normal((2, 2, n))
    w = np.array([[state.m], [-state.m]]) + np.sqrt(state.q) * xi
    h = (
        state.theta / np.sqrt(state.q) * xi
        + np.sqrt(p.sigma**2 - state.theta**2 / state.q) * eta
    )
    Y = target(p, h)
    far = prox.target_solution(Y)
    found = [prox.descend(s, w, Y, state.V, p.sigma) for s in (w, far, -far)]
    best = np.argmin([f[1] for f in found], axis=0)
    z = np.stack([f[0] for f in found])[best, :, np.arange(n)].T
    g = (z - w) / state.V
    rows = {
        "E_gg": (g * g).sum(0),
        "E_g": g[0] - g[1],
        "E_gxi": (g * xi).sum(0),
        "E_geta": (g * eta).sum(0),
        "E_M": np.min([f[1] for f in found], axis=0),
    }
    return {k: (v.mean(), v.std(ddof=1) / np.sqrt(n)) for k, v in rows.items()}


@pytest.mark.parametrize(
    ("state", "omega"),
    [(SEMANTIC, 0.3), (POSITIONAL, 0.1), (State(0.08, 0.1, 18.0, 0.06), 0.2)],
)
def test_averages_against_sampling(state, omega):
    """Split quadrature of both branches, and of a state on neither, against 60 000
    samples: |z| <=
    4.
    """
    p = Parameters(omega=omega)
    found = averages(p, state)
    for name, (mean, error) in monte_carlo(p, state, 60_000).items():
        assert abs(found.numbers[name] - mean) <= 4 * error, name


@pytest.mark.parametrize(("state", "omega"), [(SEMANTIC, 0.3), (POSITIONAL, 0.1)])
def test_quadrature_converges(state, omega):
    """16 nodes agree with 28 to 2e-3 in every average and 1e-4 in the envelope; 16 are
    better than
    8.
    """
    p = Parameters(omega=omega)
    fine = averages(p.replace(order=28), state).numbers
    gaps = {
        n: {
            k: abs(v / fine[k] - 1)
            for k, v in averages(p.replace(order=n), state).numbers.items()
            if fine[k]
        }
        for n in (8, 16)
    }
    assert max(gaps[16].values()) < 2e-3 and gaps[16]["E_M"] < 1e-4
    assert sum(gaps[16].values()) < sum(gaps[8].values())


def test_the_end_of_a_well_is_extrapolated(monkeypatch):
    """Ten bisections, to 2e-3 of where thirty put it, and the last step: ten times as
    close.
    """
    asked = []
    plain = channel.Lines.end_of_plus_well

    def noted(self, *given):
        asked.append((self, given))
        return plain(self, *(x.copy() for x in given))

    monkeypatch.setattr(channel.Lines, "end_of_plus_well", noted)
    p = Parameters(alpha=0.57, prox="local", order=8)
    averages(p, State(q=0.04355, m=0.0, V=24.41, theta=0.06135))
    (lines, given), ends = asked[0], {}
    for often in (channel.BISECTIONS, 30):
        monkeypatch.setattr(channel, "BISECTIONS", often)
        ends[often] = plain(lines, *(x.copy() for x in given))
    found, exact = ends.values()
    assert (exact != given[0]).sum() > 20  # lines with two wells, of which one ends
    assert np.abs(found - exact).max() < 2e-4


def test_nodes_are_shared_between_solver_settings():
    """Targets depend on the task alone."""
    a = teacher_nodes(Parameters(), 8, False)
    assert a[1].sum() == pytest.approx(1, abs=1e-14) and (a[0][0] > 0).all()
