"""Flows of one's own: explicit time, events in every form, symbols by name, functions,
pulses.
"""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp

from theory.call.refusal import ParameterError
from theory.dynamics.flow import Flow
from theory.explorer import script
from theory.statement.overlaps import Overlaps
from theory.symbols.notation import symbol

t, x, y, k = (symbol(name) for name in "txyk")
PLAIN, PI = sp.Symbol, np.pi
LOSS = {"observables": {"loss": x**2 / 2}}


def own(rhs, initial, **more):
    """A flow as a stranger writes it."""
    return Flow("own", t, rhs, initial, "own notes", "exact", **more)


DECAY = own({x: -x}, {x: 1}, **LOSS, where={symbol("q"): 2 * x})
AGED = own({x: -x / (1 + t)}, {x: 1})


def crossing(flow, event, until=5.0, **numbers):
    """Time of an event."""
    return flow.solve(numbers, until=until, events={"event": event}).event.item()


def test_explicit_time_in_symbolic_methods():
    """Series with the derivative in time, fixed points at all times, only true
    invariants.
    """
    assert sp.expand(AGED.series(2)[x] - (1 - t + t**2)) == 0
    assert own({x: t - x}, {x: 1}).fixed_points() == []
    assert AGED.fixed_points() == [{x: 0}]
    assert own({x: 0}, {x: 1}).fixed_points() == [{}]
    assert own({x: (x - 1) * (x - t)}, {x: 0}).fixed_points() == [{x: 1}]
    assert own({x: x + t * y, y: y}, {x: 1, y: 1}).fixed_points() == [{x: 0, y: 0}]
    assert own({x: t * y, y: -x}, {x: 1, y: 2}).conserved() == []
    assert own({x: -x + t, y: -y}, {x: 1, y: 2}).conserved() == []
    (norm,) = own({x: t * y, y: -t * x}, {x: 1, y: 2}).conserved()
    assert sp.expand(norm.rhs - norm.rhs.coeff(x**2) * (x**2 + y**2)) == 0
    assert AGED.jacobian() == sp.Matrix([[-1 / (1 + t)]])
    with pytest.raises(ParameterError, match="depend on t"):
        AGED.linearised()


def test_conserved_quantities_of_rates_with_decimals():
    """Sums of rounded numbers do not vanish: those of 1.95 were not proved, so not
    there.
    """
    for w, coefficient in (
        (2.0, 0.25),
        (1.95, 1 / 1.95**2),
        (0.3 * k, 1 / (0.09 * k**2)),
    ):
        (found,) = own({x: y, y: -(w**2) * x}, {x: 1, y: 0}).conserved()
        assert found.rhs.coeff(x**2) == 1
        assert float(sp.N(found.rhs.coeff(y**2) / coefficient)) == pytest.approx(1)
    prey = {x: 0.3 * x - 0.7 * x * y, y: -0.21 * y + 0.13 * x * y}
    (found,) = own(prey, {x: 1, y: 0.5}).conserved()
    moved = sum(sp.diff(found.rhs, z) * rate for z, rate in prey.items())
    assert abs(float(moved.subs({x: 0.37, y: 1.9}))) < 1e-14


@pytest.mark.parametrize(
    ("rate", "points"),
    [
        (
            x**5 - x + sp.Rational(1, 10),
            [-1.0235771, 0.1000100, 0.9732595],
        ),  # SymPy gives none
        (x**3 - x + 1, [-1.3247180]),  # of three, two are complex
        (x**1.5 - 0.8 * x, [0, 0.64]),
        (
            0.695 * sp.log(x**2 + 1) - 0.862,
            [-1.5673570, 1.5673570],
        ),  # 24 GB as fractions
        (x * sp.exp(-0.31 * x) - 0.2, [0.2136980, 13.6148311]),
        (sp.tanh(2 * x) - x, [-0.9575040, 0, 0.9575040]),
        (sp.exp(-x), []),  # vanishes at infinity alone
        (sp.exp(-100 * x), []),
        (sp.tanh(x) - 2, []),
    ],
    ids=str,
)
def test_fixed_points_are_real_and_all_there(rate, points):
    found = sorted(float(p[x]) for p in own({x: rate}, {x: 1}).fixed_points())
    assert found == pytest.approx(points, abs=1e-6)


def test_fixed_points_of_two_order_parameters_and_of_parameters():
    lotka = {x: 0.3 * x * (1 - x - 0.4 * y), y: 0.7 * y * (1 - y - 0.21 * x)}
    points = [
        tuple(round(float(v), 9) for v in p.values())
        for p in own(lotka, {x: 1, y: 1}).fixed_points()
    ]
    inside = (0.6 / 0.916, 1 - 0.21 * 0.6 / 0.916)
    assert sorted(points) == [
        pytest.approx(p) for p in [(0, 0), (0, 1), inside, (1, 0)]
    ]
    assert own({x: x * y, y: x * y}, {x: 1, y: 1}).fixed_points() == [
        {x: 0},
        {y: 0},
    ]  # families
    third = sp.Rational(1, 3)  # of six solutions; as they are written, not as numbers
    exact = own(
        {x: x * (1 - x) * (x - third), y: y * (1 - y)}, {x: 1, y: 1}
    ).fixed_points()
    assert len(exact) == 6 and {x: third, y: 1} in exact
    for scale in (1, 1e6):
        z = x / scale  # twice at 0.3
        cubics = {x: x * (z - 0.3) ** 2 * (z + 0.9), y: y * (1.1 - (y / scale) ** 2)}
        with pytest.warns(UserWarning, match="there may be more"):
            found = own(cubics, {x: 1, y: 1}).fixed_points()
        assert {round(float(p[x]) / scale, 6) for p in found} == {0, 0.3, -0.9} and len(
            found
        ) == 9
    (zero, *others) = own({x: k * x - x**3}, {x: 1}).fixed_points()
    assert zero == {x: 0} and {p[x] for p in others} == {sp.sqrt(k), -sp.sqrt(k)}
    for rate in (
        x * sp.exp(-k * x) - sp.Rational(1, 4),
        x**5 - k * x + 1,
    ):  # another branch; none
        with pytest.raises(
            ParameterError, match="misses that at .*x = .*; with numbers for"
        ):
            own({x: rate}, {x: 1}).fixed_points()


def test_a_rate_that_never_vanishes_leaves_no_fixed_point():
    """Nor one that does for other parameters, or at late times."""
    for rate in (k, sp.exp(-t), 1 / (1 + t), sp.Integer(2)):
        assert own({x: -x, y: rate}, {x: 1, y: 0}).fixed_points() == []
    assert own({x: -x, y: sp.S.Zero}, {x: 1, y: 0}).fixed_points() == [{x: 0}]


def test_explicit_time_along_solutions():
    """Observables and events hold time; descent takes rates at the time of each step; a
    page, which has none, is refused.
    """
    assert crossing(DECAY, x - t) == pytest.approx(0.567143290409784, rel=1e-10)
    with_time = own({x: -x}, {x: 1}, observables={"late": x + t}).solve({}, t=2)
    np.testing.assert_allclose(
        with_time.late, np.exp(-with_time.t) + with_time.t, rtol=1e-10
    )
    steps = AGED.descend({}, 0.1, 3).x.values
    factors = [1 - 0.1 / (1 + 0.1 * n) for n in range(3)]
    np.testing.assert_allclose(steps, np.cumprod([1, *factors]), rtol=1e-14)
    with pytest.raises(ParameterError, match="own: depends on t"):
        script(AGED, [])


def test_a_point_of_a_small_sweep_is_named():
    """Where it cannot be solved."""
    flow = own({x: -k * sp.sqrt(x)}, {x: 1})
    with pytest.raises(
        ParameterError, match="^at k = 1.0: own: there is no solution after t = 2,"
    ):
        flow.solve({}, t=3, k=[0.25, 1.0])
    assert flow.solve({}, t=2, k=[0.25, 0.25, 0.1]).x[1, -1] == pytest.approx(0.5625)


def test_series_refuses_what_it_cannot_do(monkeypatch):
    """An order without end, a kink, an unknown symbol."""
    monkeypatch.setattr("theory.dynamics.flow.MOST_OPERATIONS", 500)
    with pytest.raises(ParameterError, match=r"order = 200: .*must be at most \d+"):
        own({x: sp.sin(x) + sp.exp(-x)}, {x: 1}).series(200)
    with pytest.raises(ParameterError, match="no Taylor series"):
        own({x: sp.log(x)}, {x: 0}).series(3)
    with pytest.raises(ParameterError, match="z is no symbol"):
        DECAY.series(1, {"z": 1})


def test_overlaps_by_index():
    """Names do not run together, indices have a range, plain symbols count."""
    many = Overlaps(11, 11)
    assert many.R(1, 11) != many.R(11, 1) and many.R(1, 11).name == "R_1_11"
    few = Overlaps(3, 3)
    start = {q: 0 for q in few.state} | {few.Q(n, n): 1 for n in range(1, 4)}
    start[few.R(1, 3)] = 0.3
    flow = few.flow("linear", few.squared_loss("linear"), start)
    teachers = {
        few.T(n, m).name: float(n == m) for n in range(1, 4) for m in range(n, 4)
    }
    loss = flow.solve(teachers, t=0.1).loss
    assert loss[0] == 2.7 and loss[-1] == pytest.approx(2.7 * np.exp(-0.6), rel=1e-9)
    two = Overlaps(2, 2)
    for index in (0, 3):
        with pytest.raises(ParameterError, match=f"unit {index}: must be from 1 to 2"):
            two.R(index, 1)
    plain = two.rates((PLAIN("Q_21") - PLAIN("R_11")) ** 2)
    assert (
        plain == two.rates((two.Q(1, 2) - two.R(1, 1)) ** 2) and plain[two.R(1, 1)] != 0
    )


def test_descent_of_overlaps_is_that_of_vectors():
    """Against the vectors, and a number by hand."""
    one = Overlaps(1, 1)
    flow = one.flow("one", one.squared_loss("linear"), {one.R(1, 1): 0, one.Q(1, 1): 1})
    loss = flow.descend({"T_11": 0}, 0.5, 3).loss.values
    np.testing.assert_allclose(loss, [0.5, 0.125, 0.03125, 0.0078125], rtol=1e-15)
    two, rng = Overlaps(2, 2), np.random.default_rng(0)
    w, b = rng.normal(size=(2, 2, 7)) / 2

    def grams():
        made = {
            two.R(i + 1, j + 1).name: w[i] @ b[j] for i in range(2) for j in range(2)
        }
        return made | {
            two.Q(i + 1, j + 1).name: w[i] @ w[j] for i in range(2) for j in range(i, 2)
        }

    flow = two.flow("two", two.squared_loss("quadratic"), grams())
    teachers = {"T_11": b[0] @ b[0], "T_12": b[0] @ b[1], "T_22": b[1] @ b[1]}
    curve = flow.descend(teachers, 0.01, 20)
    for _ in range(20):  # mean of (sum (w.x)^2 - sum (b.x)^2) (w.x) x over Gaussian x
        form = w.T @ w - b.T @ b
        w = w - 0.01 * 2 * (2 * w @ form + np.trace(form) * w)
    for name, value in grams().items():
        assert curve[name][-1].item() == pytest.approx(value, rel=1e-12)


def test_terms_of_an_invariant_see_names_time_and_abbreviations():
    """None of them is a constant: what only looks conserved is not."""
    for term in (sp.Symbol("x", real=True), t, symbol("q")):
        assert DECAY.invariant({term: 1}) is None
    assert sp.simplify(DECAY.invariant({sp.log(x): 1, t: 1}) - sp.log(x) - t) == 0


def test_fixed_points_that_sympy_misses_are_named():
    """A number of SymPy could not be printed."""
    z, r = PLAIN("z", positive=True), PLAIN("r", positive=True)
    with pytest.raises(
        ParameterError, match="^own: fixed points: SymPy misses that at r = "
    ):
        own({z: z * (r - z)}, {z: 1}).fixed_points()
