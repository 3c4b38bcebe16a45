"""Conserved quantities of flows, linearisation at the start, and flows with a clamped
order parameter.
"""

import numpy as np
import pytest
import sympy as sp
from later import Later

from theory.associative_memory.factual_recall import Parameters, dynamics, timescales
from theory.associative_memory.k_hop import overlaps
from theory.call.refusal import ParameterError
from theory.dynamics import conserved
from theory.dynamics.flow import Flow
from theory.induction_heads import dynamics as induction
from theory.state_tracking import exact
from theory.state_tracking.dynamics import flow as tracking
from theory.symbols.algebra import vanishes

x, y, z = sp.symbols("x y z", real=True)
m_1, m_2 = overlaps.flow(2).state
T, RATE, N = sp.Symbol("t"), sp.Symbol("r", positive=True), sp.Symbol("N", integer=True)
RECALL = Later(lambda: {0: dynamics.flow()})


def toy(*rates, **more):
    """Flow of x, y, z from (0.5, 0.4, 0.3)."""
    state = (x, y, z)[: len(rates)]
    start = dict(zip(state, (sp.Rational(k, 10) for k in (5, 4, 3)), strict=False))
    return Flow(
        "toy",
        T,
        dict(zip(state, rates, strict=True)),
        start,
        "textbook",
        "exact",
        **more,
    )


COMMON = 1 / (1 + sp.exp(x * y))
# flow, and what is known of it: typed, or derived by the model on a road of its own
KNOWN = {
    "pendulum": (lambda: toy(-RATE * y, x), lambda: [x**2 + RATE * y**2]),
    "softmax": (
        lambda: toy(COMMON * (N - 1) / N, -COMMON / N),
        lambda: [x + (N - 1) * y],
    ),
    "frozen": (
        lambda: toy(y * COMMON, x * COMMON, sp.S.Zero),
        lambda: [z, x**2 - y**2],
    ),
    "nothing moves": (lambda: toy(sp.S.Zero, sp.S.Zero), lambda: [x, y]),
    "predator and prey": (
        lambda: toy(x - x * y, RATE * (x * y - y)),
        lambda: [RATE * (sp.log(x) - x) + sp.log(y) - y],
    ),
    "none": (lambda: toy(x + y**3, y), lambda: []),
    "almost": (lambda: toy(y, -x + sp.Rational(1, 10**13) * x * y), lambda: []),
    "factual recall": (
        dynamics.flow,
        lambda: [dynamics.conserved(part) for part in dynamics.PARTS],
    ),
    "induction heads": (
        induction.flow,
        lambda: [induction.equations()["invariant"].rhs],
    ),
    "state tracking": (
        lambda: tracking("tau"),
        lambda: [exact.first_integral().subs(exact.kappa, exact.steepness())],
    ),
    "hops mixed": (
        lambda: overlaps.mixture(2),
        lambda: [sp.log(1 - m_1**2) - 2 * sp.log(1 - m_2)],
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known_is_found_and_nothing_else(name):
    """As many quantities as are known; each of these is a function of those that are
    found: its gradient adds nothing to theirs.
    """
    flow, expected = KNOWN[name][0](), KNOWN[name][1]()
    found = [e.rhs for e in flow.conserved()]
    assert len(found) == len(expected)
    at = dict(zip(flow.state, sp.symbols("a b c d"), strict=False))
    for one in expected:
        slopes = sp.Matrix([f.xreplace(at) for f in (*found, one)]).jacobian(
            [*at.values()]
        )
        numbers = {
            s: 0.3 + 0.07 * k
            for k, s in enumerate(sorted(slopes.free_symbols, key=str))
        }
        values = np.array(slopes.subs(numbers), float)
        assert np.linalg.matrix_rank(values, tol=1e-9 * np.abs(values).max()) == len(
            found
        )


def test_nothing_unproved(monkeypatch):
    """What random points allow, and a proof does not."""
    almost = KNOWN["almost"][0]()
    assert len(
        conserved._null_space(
            almost, conserved.ansatz((x, y)), np.random.default_rng(0)
        )[1]
    )
    monkeypatch.setattr(conserved, "vanishing_sum", lambda *_: None)
    assert not toy(-y, x).conserved()


def test_provenance():
    """Value at the start; status and assumptions of the flow; a start at infinity."""
    flow = RECALL[0]
    for found in flow.conserved():
        assert found.lhs == dynamics.epsilon**2 and found.status == flow.status
        assert (found.reference, found.assumptions) == (
            flow.reference,
            flow.assumptions,
        )
    (one,) = toy(x * z, y * z, z * z).conserved()[:1]
    assert one.rhs.free_symbols <= {x, y, z}
    singular = Flow(
        "singular",
        T,
        {x: x * y, y: y**2},
        {x: sp.S.Zero, y: sp.S.One},
        "textbook",
        "exact",
    )
    assert [e.lhs for e in singular.conserved()] == [sp.Symbol("C_1")]


def test_growth_rates():
    """Symbols at the saddle of factual recall, as derived by hand;
    the same in numbers.
    """
    flow, p = RECALL[0], Parameters()
    saddle = dict.fromkeys(flow.state, 0)
    modes = flow.linearised(saddle)
    assert len(modes) == 4
    jacobian = flow.jacobian().subs(saddle)
    for rate, direction in modes:
        v = sp.Matrix([direction.get(q, 0) for q in flow.state])
        assert all(vanishes(entry) for entry in jacobian * v - rate * v)
    for part in dynamics.PARTS:
        squares = {m.rate**2 for m in modes if part.w in m.direction}
        assert len(squares) == 1 and vanishes(
            squares.pop() - timescales.growth_rate(part) ** 2
        )
    numbers = flow.linearised({q.name: 0 for q in flow.state}, p)
    expected = sorted(
        (
            float(m.rate.subs({s: p.values()[s.name] for s in m.rate.free_symbols}))
            for m in modes
        ),
        reverse=True,
    )
    assert [m.rate for m in numbers] == pytest.approx(expected, rel=1e-12)


def test_about_any_point():
    """Initial values need not be fixed; blocks of more than two need numbers;
    rotations.
    """
    (mode, other) = toy(-RATE * y, x).linearised()
    assert {mode.rate, other.rate} == {sp.I * sp.sqrt(RATE), -sp.I * sp.sqrt(RATE)}
    (mode, other) = toy(-x - y, x).linearised()
    assert vanishes(mode.rate**2 + mode.rate + 1) and vanishes(
        other.rate + mode.rate + 1
    )
    cubic = toy(y, z, x + y)
    with pytest.raises(
        ParameterError, match="solves an equation of degree 3; give parameters"
    ):
        cubic.linearised()
    rates = [m.rate for m in cubic.linearised(parameters={})]
    assert rates[0].real == pytest.approx(1.324717957244746) and rates[1].imag != 0
    twice = toy(x, x + y).linearised()  # one direction only
    assert [(m.rate, set(m.direction)) for m in twice] == [(1, {y})]


@pytest.mark.parametrize(
    ("at", "parameters", "message"),
    [
        ({x: 1, y: 0}, None, r"at = .*: no fixed point, the rate of x is 1"),
        ({x: 1, y: 0}, {}, r"at = .*: no fixed point, x moves at the rate 1"),
        ({x: 0}, None, "at: y is missing or unknown; a point has x, y"),
        ({x: 0, y: 0, "q": 1}, None, "at: q is missing or unknown"),
        ({x: 0, y: -1}, None, "rates have no derivative there"),
        ({x: 0, y: -1}, {}, "rates have no derivative there"),
    ],
    ids=str,
)
def test_points_that_are_refused(at, parameters, message):
    """In one line."""
    flow = toy(x, x - sp.sqrt(1 + y))
    with pytest.raises(ParameterError, match=message) as caught:
        flow.linearised(at, parameters)
    assert "\n" not in str(caught.value)


def test_held():
    """An order parameter stays; the rest follows it; the flow says so."""
    pair = toy(RATE * (1 - x), x - y, observables={"sum": x + y})
    held = pair.held(x=0.25)
    curve = held.solve({"r": 1.7}, t=3.0)
    assert (curve.x == 0.25).all()
    decay = np.exp(-curve.t.values)
    np.testing.assert_allclose(curve.y, 0.25 + 0.15 * decay, rtol=1e-9)
    np.testing.assert_allclose(curve["sum"], curve.x + curve.y)
    assert "held" in held.name and held.assumptions[-1] == "x is held at 0.25"
    assert (pair.held(x=RATE).solve({"r": 0.5}, t=1.0).x == 0.5).all()
    assert x in [e.rhs for e in held.conserved()]
    with pytest.raises(ParameterError, match="X: no order parameter; .*there are x, y"):
        pair.held(X=1)
