"""Flows of one's own: explicit time, events in every form, symbols by name, functions, pulses."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp

from theory import numeric
from theory.equation import Equation
from theory.explorer import script
from theory.flow import Flow
from theory.notation import symbol
from theory.numeric import wright_omega
from theory.parameters import ParameterError
from theory.statement.overlaps import Overlaps

t, x, y, k = (symbol(name) for name in "txyk")
N = symbol("N", integer=True)
PLAIN, PI = sp.Symbol, np.pi
LOSS = {"observables": {"loss": x**2 / 2}}


def own(rhs, initial, **more):
    """A flow as a stranger writes it."""
    return Flow("own", t, rhs, initial, "own notes", "exact", **more)


DECAY = own({x: -x}, {x: 1}, **LOSS, where={symbol("q"): 2 * x})
AGED = own({x: -x / (1 + t)}, {x: 1})
CIRCLE = own({x: y, y: -x}, {x: 0, y: 1})


@pytest.fixture
def impatient(monkeypatch):
    """Solutions without a way on are given up three times as soon."""
    monkeypatch.setattr(Flow._functions, "__defaults__", (100_000,))


def crossing(flow, event, until=5.0, **numbers):
    """Time of an event."""
    return flow.solve(numbers, until=until, events={"event": event}).event.item()


def test_explicit_time_in_symbolic_methods():
    """Series with the derivative in time, fixed points at all times, only true invariants."""
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
    """Sums of rounded numbers do not vanish: those of 1.95 were not proved, so not there."""
    for w, coefficient in ((2.0, 0.25), (1.95, 1 / 1.95**2), (0.3 * k, 1 / (0.09 * k**2))):
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
        (x**5 - x + sp.Rational(1, 10), [-1.0235771, 0.1000100, 0.9732595]),  # SymPy gives none
        (x**3 - x + 1, [-1.3247180]),  # of three, two are complex
        (x**1.5 - 0.8 * x, [0, 0.64]),
        (0.695 * sp.log(x**2 + 1) - 0.862, [-1.5673570, 1.5673570]),  # 24 GB as fractions
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
    assert sorted(points) == [pytest.approx(p) for p in [(0, 0), (0, 1), inside, (1, 0)]]
    assert own({x: x * y, y: x * y}, {x: 1, y: 1}).fixed_points() == [{x: 0}, {y: 0}]  # families
    third = sp.Rational(1, 3)  # of six solutions; as they are written, not as numbers
    exact = own({x: x * (1 - x) * (x - third), y: y * (1 - y)}, {x: 1, y: 1}).fixed_points()
    assert len(exact) == 6 and {x: third, y: 1} in exact
    for scale in (1, 1e6):
        z = x / scale  # twice at 0.3
        cubics = {x: x * (z - 0.3) ** 2 * (z + 0.9), y: y * (1.1 - (y / scale) ** 2)}
        with pytest.warns(UserWarning, match="there may be more"):
            found = own(cubics, {x: 1, y: 1}).fixed_points()
        assert {round(float(p[x]) / scale, 6) for p in found} == {0, 0.3, -0.9} and len(found) == 9
    (zero, *others) = own({x: k * x - x**3}, {x: 1}).fixed_points()
    assert zero == {x: 0} and {p[x] for p in others} == {sp.sqrt(k), -sp.sqrt(k)}
    for rate in (x * sp.exp(-k * x) - sp.Rational(1, 4), x**5 - k * x + 1):  # another branch; none
        with pytest.raises(ParameterError, match="misses that at .*x = .*; with numbers for"):
            own({x: rate}, {x: 1}).fixed_points()


def test_a_rate_that_never_vanishes_leaves_no_fixed_point():
    """Nor one that does for other parameters, or at late times."""
    for rate in (k, sp.exp(-t), 1 / (1 + t), sp.Integer(2)):
        assert own({x: -x, y: rate}, {x: 1, y: 0}).fixed_points() == []
    assert own({x: -x, y: sp.S.Zero}, {x: 1, y: 0}).fixed_points() == [{x: 0}]


def test_explicit_time_along_solutions():
    """Observables and events hold time; descent takes rates at the time of each step; a page, which
    has none, is refused.
    """
    assert crossing(DECAY, x - t) == pytest.approx(0.567143290409784, rel=1e-10)
    with_time = own({x: -x}, {x: 1}, observables={"late": x + t}).solve({}, t=2)
    np.testing.assert_allclose(with_time.late, np.exp(-with_time.t) + with_time.t, rtol=1e-10)
    steps = AGED.descend({}, 0.1, 3).x.values
    factors = [1 - 0.1 / (1 + 0.1 * n) for n in range(3)]
    np.testing.assert_allclose(steps, np.cumprod([1, *factors]), rtol=1e-14)
    with pytest.raises(ParameterError, match="own: depends on t"):
        script(AGED, [])


@pytest.mark.parametrize(
    ("event", "time"),
    [
        (symbol("loss") - sp.Rational(1, 10), np.log(5) / 2),
        (PLAIN("loss", real=True) < 0.1, np.log(5) / 2),
        (symbol("q") - 1, np.log(2)),
        (PLAIN("x", positive=True) - 0.5, np.log(2)),
        (sp.log(x) + 1, 1.0),
        ("loss", np.nan),
        (sp.Heaviside(t - 3) - 0.5, 3.0),
        (sp.exp(-((t - 4) ** 2) * 10**8) - 0.5, 4 - np.sqrt(np.log(2)) * 1e-4),
        (sp.exp(-((x - 0.3) ** 2) * 10**8) - 0.5, None),
        (x - k, -np.log(0.25)),
    ],
    ids=str,
)
def test_events_in_every_form(event, time):
    """Observables, abbreviations, relations, other assumptions, names, times, parameters."""
    if time is None:
        time = -np.log(0.3 + np.sqrt(np.log(2)) * 1e-4)
    numbers = {"k": 0.25} if event == x - k else {}
    assert crossing(DECAY, event, **numbers) == pytest.approx(time, rel=1e-9, nan_ok=True)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ("los", "event = 'los': must be a number or a SymPy"),
        (3, "event = 3: never changes"),
        (None, "event = None: must be"),
        (sp.log(x - 2), "log.*is no real number"),
        (PLAIN("z") - 1, "no value for z"),
        (sp.I * x - 1, "is complex"),
        (sp.Function("f")(x), "f: has no numerical value"),
    ],
    ids=str,
)
def test_events_that_are_refused(event, message):
    """In one line each."""
    with pytest.raises(ParameterError, match=message) as error:
        crossing(DECAY, event)
    assert "\n" not in str(error.value)
    with pytest.raises(ParameterError, match="events = .*must be a mapping"):
        DECAY.solve({}, t=1, events=[x])


def test_a_point_of_a_small_sweep_is_named():
    """Where it cannot be solved."""
    flow = own({x: -k * sp.sqrt(x)}, {x: 1})
    with pytest.raises(ParameterError, match="^at k = 1.0: own: there is no solution after t = 2,"):
        flow.solve({}, t=3, k=[0.25, 1.0])
    assert flow.solve({}, t=2, k=[0.25, 0.25, 0.1]).x[1, -1] == pytest.approx(0.5625)


def test_symbols_are_matched_by_name():
    """One letter with two sets of assumptions is one quantity, in every method."""
    real, plain = symbol("x", real=True), PLAIN("x")
    flow = Flow("m", PLAIN("t"), {real: plain * (1 - plain)}, {plain: 0.1}, "own", "exact")
    assert flow.jacobian() == sp.Matrix([[1 - 2 * real]])
    assert flow.fixed_points() == [{real: 0}, {real: 1}]
    assert flow.solve({}, t=1).x[-1].item() == pytest.approx(0.231969316685865, rel=1e-9)
    for zero in (0, 0.0):
        assert [m.rate for m in flow.linearised({"x": zero})] == [1]
    assert flow.series(1, {plain: 0.5})[real] == 0.25 * PLAIN("t") + 0.5
    assert own({x: -PLAIN("k", positive=True) * x}, {x: k}).solve({"k": 1}, t=1).x[0] == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rhs": {"x": -x}}, "'x' must be a symbol"),
        ({"rhs": {x: "-x"}}, "own: x = '-x': must be a number or a SymPy expression"),
        ({"rhs": {x: sp.IndexedBase("G")[1]}}, "plain symbols"),
        ({"rhs": {x: sp.Matrix([x])}}, "plain symbols"),
        ({"initial": {}}, "x has no start"),
        ({"initial": {x: 1, y: 2}}, "initial: y is no order parameter"),
        ({"initial": {x: t}}, "x has no start"),
        ({"initial": {x: sp.oo}}, "must be a number"),
        ({"observables": {"x": x**2}}, "'x' is used twice"),
        ({"where": {x: y}}, "'x' is used twice"),
    ],
    ids=str,
)
def test_a_flow_is_checked_when_it_is_made(change, message):
    """What is no symbol, no expression, or has two meanings."""
    with pytest.raises(ParameterError, match=message):
        own(**{"rhs": {x: -x}, "initial": {x: 1}} | change)


def test_numbers_of_parameters():
    """By symbol or by name, one each."""
    flow = own({x: -k * x}, {x: 1})
    assert flow.solve({k: sp.Rational(1, 2)}, t=2).equals(flow.solve({"k": 0.5}, t=2))
    with pytest.raises(ParameterError, match="k = .1 2.: must be one number"):
        flow.solve({"k": [1, 2]}, t=2)
    with pytest.raises(ParameterError, match="several by keyword: k=") as error:
        flow.solve({"k": np.linspace(1, 2, 500)}, t=2)
    assert len(str(error.value)) < 150


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (x**2, "x diverges near t = 1;"),
        (-k * sp.sqrt(x), "no solution after t = 2, where x = "),
        (-1 / x, "at t = 0.5; take a shorter run"),
        (-(x**-2), "no solution after t = 0.333333"),  # LSODA's last steps have no length
        (sp.log(1 - t), "no solution after t = 1, where x = "),
        (sp.Piecewise((1, t < 1)), "no solution after t = 1, where x = 2"),
        (sp.log(-k * x), "^own: there is no solution after t = 0, where x = 1; take other numbers"),
        ((k - 1) ** -0.5, "diverges near t = 0; take other numbers"),  # Python's 1/0 is an error
        (sp.Limit(sp.sin(y) / y, y, x), "^Limit: has no numerical value"),
        (sp.Derivative(sp.sin(t), t), "^Derivative: has no numerical value"),
        (sp.exp(sp.I * (t + 1)), r"^own: is complex, \("),
    ],
    ids=str,
)
def test_solutions_that_end(rate, message, impatient):
    """A divergence and a zero are found at their times, parameters are not blamed."""
    with pytest.raises(ParameterError, match=message):
        own({x: rate}, {x: 1}).solve({"k": 1} if rate.has(k) else {}, t=5)


@pytest.mark.parametrize(
    ("expr", "at", "value"),
    [
        (sp.uppergamma(0, x), 1, 0.219383934395520),
        (sp.uppergamma(2, x, evaluate=False), 1, 0.735758882342885),
        (sp.expint(2, x), 1, 0.148495506775922),
        (sp.elliptic_k(x), 0.5, 1.85407467730137),
        (sp.hyper((1, 2), (3,), x), 0.5, 1.54517744447956),
        (sp.polylog(2, x), 0.5, 0.582240526465012),
        (wright_omega(x), 1, 1.0),
        (-sp.Abs(x), -2, -2.0),
        (sp.zeta(x), 2, PI**2 / 6),
        (sp.erfi(x), 0.5, 0.614952094696511),
        (sp.factorial(x), -0.5, np.sqrt(PI)),
        (sp.re(x) + sp.Max(x, 2) + sp.floor(x), 1.5, 4.5),
        (sp.Product(x + N, (N, 1, 3)), 1, 24.0),
        (x * sp.CRootOf(y**5 - y + 3, 0), 2, -2.68258706338140),
        (sp.Piecewise((sp.sin(x) / x, sp.Ne(x, 0)), (1, True)), 0, 1.0),
    ],
    ids=str,
)
def test_what_an_equation_evaluates_a_flow_does_too(expr, at, value, recwarn):
    """Values, on arrays, and as rates."""
    equation = Equation("e", x, expr, "own", "exact")
    assert equation.evaluate({"x": at}) == pytest.approx(value, rel=1e-13)
    assert equation.evaluate({"x": np.array([at, at])}) == pytest.approx([value] * 2, rel=1e-13)
    assert equation.evaluate({"x": at}, modules="mpmath") == pytest.approx(value, rel=1e-13)
    moved = own({x: 0, y: expr}, {x: at, y: 0}).solve({}, t=1)
    assert moved.y[-1].item() == pytest.approx(value, rel=1e-9)
    assert not [w for w in recwarn if w.category is RuntimeWarning]


@pytest.mark.parametrize(
    ("expr", "at", "value"),
    [
        (sp.bernoulli(x), 0.3, 0.833516533666109),
        (sp.euler(x), 0.0, 1.0),  # mpmath.euler is a constant
        (sp.airyaiprime(x), 1, -0.159147441296793),
        (sp.harmonic(x, 3), 1.6, 1.09441138921749),
        (sp.RisingFactorial(x, sp.Rational(3, 10)), -1, 0.0),
        (sp.FallingFactorial(x, x - 1), 0.5, 0.886226925452758),
        (sp.KroneckerDelta(3, x), 3, 1.0),
        (sp.coth(x), 800, 1.0),
        (sp.csch(x**2 + sp.Rational(1, 2)), -1.3, 0.226672653509455),
        (sp.lucas(x), 3, 4.0),
    ],
    ids=str,
)
def test_functions_have_one_value_in_every_arithmetic(expr, at, value):
    """In double precision, on arrays, in mpmath, whose function of this name may be another."""
    equation = Equation("e", x, expr, "own", "exact")
    for given in (at, np.array([at, at])):
        assert equation.evaluate({"x": given}) == pytest.approx(value, rel=1e-13)
    assert equation.evaluate({"x": at}, modules="mpmath") == pytest.approx(value, rel=1e-13)


def test_what_is_not_real_or_has_no_value():
    """An imaginary part is not dropped; poles and arrays that do not fit are one line."""
    branch = Equation("e", x, sp.LambertW(x, -1), "own", "exact")
    assert np.isnan(branch.evaluate({"x": -0.4})) and branch.evaluate({"x": -0.2}) < -2.5
    with pytest.raises(ParameterError, match="e: has no value there .*pole"):
        Equation("e", x, sp.gamma(x), "own", "exact").evaluate({"x": 0}, modules="mpmath")
    with pytest.raises(ParameterError, match="e: has no value there .*shape"):
        Equation("e", x, x * y, "own", "exact").evaluate({"x": [1, 2], "y": [1, 2, 3]})


def test_functions_without_numbers_are_refused():
    """An undefined function and imaginary rates."""
    for expr, message in ((sp.Function("f")(x), "f: has no num"), (sp.I * x, "is complex")):
        with pytest.raises(ParameterError, match=message):
            own({x: expr}, {x: 1}).solve({}, t=1)
        with pytest.raises(ParameterError, match=message):
            Equation("e", x, expr, "own", "exact").evaluate({"x": 1})


@pytest.mark.parametrize("below", [1e-5, 1e-7, 1e-9])
def test_two_crossings_inside_a_step(below):
    """The first one, however close they are; none where the top is not reached."""
    time = crossing(CIRCLE, x - (1 - below), until=20)
    assert time == pytest.approx(np.arcsin(1 - below), abs=1e-10 / np.sqrt(below))
    assert np.isnan(crossing(CIRCLE, x - (1 + below), until=20))


@pytest.mark.parametrize(
    "jump",
    [
        sp.Piecewise((1, x >= 1), (-1, True)),
        sp.Piecewise((-1, t <= 0), (1, True)),
        sp.floor(x) - 0.5,
        sp.sign(1 - x) - 0.5,
    ],
    ids=str,
)
def test_a_jump_at_the_start_is_a_crossing(jump, recwarn):
    """Whatever rounding makes of states beside the start; pieces are evaluated as arrays."""
    rates = np.random.default_rng(0).uniform(0.1, 3, 10)
    found = own({x: -k * x}, {x: 1}).solve({}, t=5, k=rates, events={"event": jump})
    assert (found.event < 1e-10).all() and not recwarn  # NaN, too, is a failure
    assert np.isnan(crossing(DECAY, sp.Piecewise((1, t <= 0), (1 + t, True))))


def test_pieces_of_several_shapes():
    """Conditions on a parameter and on the time, at many points."""
    piece = sp.Piecewise((1, sp.And(k > 1, x > sp.Rational(1, 2))), (0, True))
    rates = np.linspace(0.1, 3, 40)
    found = own({x: -k * x}, {x: 1}, observables={"o": piece}).solve({}, t=2, k=rates, at=[0, 1, 2])
    np.testing.assert_array_equal(found.o, (found.k > 1) & (found.x > 0.5))


def test_an_event_within_rounding_is_none():
    """A limit that is approached is never crossed, a start on an event is."""
    assert np.isnan(crossing(own({x: 1 - x}, {x: 0}), x - 1, until=60))
    assert crossing(DECAY, x - 1) == 0


WIDTH = sp.Rational(1, 1000)
PULSES = {
    "piecewise": (sp.Piecewise((1, (t > 700) & (t < 700 + WIDTH)), (0, True)), 1e-3),
    "switches": (sp.Heaviside(t - 700) - sp.Heaviside(t - 700 - WIDTH), 1e-3),
    "gaussian": (sp.exp(-(((t - 700) / WIDTH) ** 2)), 1e-3 * np.sqrt(PI)),
    "sech": (sp.sech((t - 700) / WIDTH), 1e-3 * PI),
    "tent": (sp.Max(0, 1 - sp.Abs(t - 700) / WIDTH), 1e-3),
    "parameter": (sp.exp(-(((t - k) / WIDTH) ** 2)), 1e-3 * np.sqrt(PI)),
    "periodic": (sp.exp((sp.cos(2 * sp.pi * t / 400) - 1) * 10**8), None),
}


@pytest.mark.parametrize("name", PULSES)
def test_pulses_late_in_a_long_run(name):
    """Neither a pulse nor the event that it sets off is stepped over."""
    pulse, area = PULSES[name]
    if area is None:  # half a peak at 0, two whole ones
        area = 2.5 * 400 / (2 * PI) * np.sqrt(2 * PI * 1e-8)
    flow = own({x: pulse}, {x: 0})
    numbers = {"k": 700} if pulse.has(k) else {}
    result = flow.solve(numbers, t=1000, events={"after": x - 0.3 * area})
    assert result.x[-1].item() == pytest.approx(area, rel=1e-8)
    expected = 400 if name == "periodic" else 700
    assert result.after.item() == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    ("name", "values"),
    [*((name, [1.0]) for name in ("sech", "tent", "parameter")), ("gaussian", [0.9, *[1.1] * 31])],
)
def test_pulses_in_the_state(name, values):
    """As above, of one run and of many at once, where time is an order parameter."""
    pulse, area = PULSES[name]
    flow = own({y: symbol("a"), x: pulse.subs(t, y)}, {y: 0, x: 0})
    after = {"after": x - 0.3 * area}
    numbers = {"k": 700} if pulse.has(k) else {}
    result = flow.solve(numbers, t=1000, events=after, at=[1000.0], a=values)
    values = np.array(values)
    np.testing.assert_allclose(result.x[:, 0] * values, area, rtol=1e-7)
    np.testing.assert_allclose(result.after * values, 700, atol=0.02)


@pytest.mark.parametrize(
    ("rates", "start", "jump"),
    [
        ({x: -2 * sp.sign(t + x)}, {x: 1}, r"t \+ x"),
        ({x: -sp.sign(x)}, {x: 1}, "x"),
        ({x: y, y: -sp.sign(x) - sp.sign(y) / 2}, {x: 1, y: 0}, "x"),
    ],
)
def test_a_solution_that_slides_along_a_jump(rates, start, jump, impatient):
    """The message names the jump."""
    with pytest.raises(ParameterError, match=f"rates jump at {jump} = 0, and there is no way"):
        own(rates, start).solve({}, t=8)
    crossed = own({x: 1 + sp.Heaviside(x - 1)}, {x: 0}).solve({}, t=5, events={"late": x - 2})
    np.testing.assert_allclose([crossed.x[-1], crossed.late], [9, 1.5], rtol=1e-10)


def test_jumps_in_time_are_ends_of_steps():
    """A switch against the exact solution."""
    flow = own({x: -x + sp.Heaviside(t - 3)}, {x: 1})
    result = flow.solve({}, t=6, events={"up": x - 0.5}, at=[2.0, 5.0, 6.0])
    late = 1 + (np.exp(-3) - 1) * np.exp(-(np.array([5, 6]) - 3.0))
    np.testing.assert_allclose(result.x, [np.exp(-2), *late], rtol=1e-9)
    up = own({x: sp.Heaviside(t - 3)}, {x: 0})
    assert crossing(up, x - 0.5) == pytest.approx(3.5, rel=1e-10)
    with pytest.raises(ParameterError, match="take a shorter run"):
        own({x: sp.floor(1000 * t)}, {x: 0}).solve({}, t=100)


def test_series_refuses_what_it_cannot_do(monkeypatch):
    """An order without end, a kink, an unknown symbol."""
    monkeypatch.setattr("theory.flow.MOST_OPERATIONS", 500)
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
    teachers = {few.T(n, m).name: float(n == m) for n in range(1, 4) for m in range(n, 4)}
    loss = flow.solve(teachers, t=0.1).loss
    assert loss[0] == 2.7 and loss[-1] == pytest.approx(2.7 * np.exp(-0.6), rel=1e-9)
    two = Overlaps(2, 2)
    for index in (0, 3):
        with pytest.raises(ParameterError, match=f"unit {index}: must be from 1 to 2"):
            two.R(index, 1)
    plain = two.rates((PLAIN("Q_21") - PLAIN("R_11")) ** 2)
    assert plain == two.rates((two.Q(1, 2) - two.R(1, 1)) ** 2) and plain[two.R(1, 1)] != 0


def test_descent_of_overlaps_is_that_of_vectors():
    """Against the vectors, and a number by hand."""
    one = Overlaps(1, 1)
    flow = one.flow("one", one.squared_loss("linear"), {one.R(1, 1): 0, one.Q(1, 1): 1})
    loss = flow.descend({"T_11": 0}, 0.5, 3).loss.values
    np.testing.assert_allclose(loss, [0.5, 0.125, 0.03125, 0.0078125], rtol=1e-15)
    two, rng = Overlaps(2, 2), np.random.default_rng(0)
    w, b = rng.normal(size=(2, 2, 7)) / 2

    def grams():
        made = {two.R(i + 1, j + 1).name: w[i] @ b[j] for i in range(2) for j in range(2)}
        return made | {two.Q(i + 1, j + 1).name: w[i] @ w[j] for i in range(2) for j in range(i, 2)}

    flow = two.flow("two", two.squared_loss("quadratic"), grams())
    teachers = {"T_11": b[0] @ b[0], "T_12": b[0] @ b[1], "T_22": b[1] @ b[1]}
    curve = flow.descend(teachers, 0.01, 20)
    for _ in range(20):  # mean of (sum (w.x)^2 - sum (b.x)^2) (w.x) x over Gaussian x
        form = w.T @ w - b.T @ b
        w = w - 0.01 * 2 * (2 * w @ form + np.trace(form) * w)
    for name, value in grams().items():
        assert curve[name][-1].item() == pytest.approx(value, rel=1e-12)


def test_what_is_no_expression_is_refused_in_one_line():
    """A plain number is one; text, nothing, lists and functions that give such are not."""
    assert Equation("e", x, 3, "own", "exact").evaluate({"x": 1.0}) == 3
    for rhs in ("x + 1", None, [1], np.arange(2), lambda: "x"):
        with pytest.raises(ParameterError, match="^e = .*: must be a number or a SymPy expr"):
            Equation("e", x, rhs, "own", "exact").evaluate({"x": 1.0})
    for terms in ("junk", None, 3, {}, {"x": 1}, {None: 1}):
        with pytest.raises(ParameterError, match="^terms = .*: must be"):
            DECAY.invariant(terms)


def test_terms_of_an_invariant_see_names_time_and_abbreviations():
    """None of them is a constant: what only looks conserved is not."""
    for term in (sp.Symbol("x", real=True), t, symbol("q")):
        assert DECAY.invariant({term: 1}) is None
    assert sp.simplify(DECAY.invariant({sp.log(x): 1, t: 1}) - sp.log(x) - t) == 0


def test_slow_functions_say_so(monkeypatch):
    """That neither NumPy nor SciPy has, where many numbers are asked for."""
    monkeypatch.setattr(numeric, "QUICK", 50)
    with pytest.warns(UserWarning, match="polylog: is slow"):
        assert crossing(DECAY, sp.polylog(2, x) - 0.5, 1.0) == pytest.approx(0.822997235)


@pytest.mark.parametrize(
    ("numbers", "named"),
    [
        ({"k": 2, "b": 3}, "b"),
        ({"k": 2, "NN": 3}, "NN"),
        ({"k": 2, "x": 3}, "x"),
        ({"k": 2, "t": 3}, "t"),
        ({"k": 2, 1: 3}, "1"),
        ({"k": 2, k: 3}, "k"),
        ({"k": 2, PLAIN("k", real=True): 3}, "k"),
    ],
    ids=str,
)
def test_names_that_a_flow_does_not_have(numbers, named):
    """They were ignored, and of a parameter given twice the last was taken."""
    flow = own({x: -k * x}, {x: 1}, where={symbol("q"): 2 * x * y}, observables={"o": N * x})
    known = {"y": 1, "N": 2}
    calls = {
        "solve": lambda p: flow.solve(p, until=1, events={"half": x - symbol("a")}),
        "descend": lambda p: flow.descend(p, 0.1, 3),
        "certify": lambda p: flow.certify(p, until=1),
        "linearised": lambda p: flow.linearised({x: 0}, p),
    }
    for name, call in calls.items():
        more = known | ({"a": 0.5} if name == "solve" else {})
        call({"k": 2} | more)
        with pytest.raises(
            ParameterError, match=f"^p: {named} is no parameter of the flow; .*there are"
        ) as why:
            call(numbers | more)
        assert "\n" not in str(why.value)
    assert flow.held(x=0.5).solve({"k": 2} | known, until=1).x[-1] == 0.5


def test_time_is_the_second_argument():
    assert DECAY.solve({}, 2).equals(DECAY.solve(until=2))
    assert str(DECAY.certify({}, 2)) == str(DECAY.certify({}, until=2))
    with pytest.raises(ParameterError, match="^until: unknown keyword"):
        DECAY.solve({}, 2, t=2)


@pytest.mark.parametrize("modules", ["numpy", "mpmath"])
@pytest.mark.parametrize(
    "head",
    [
        sp.harmonic(x),
        sp.lowergamma(y, x),
        sp.betainc(x, y, 0, sp.Rational(1, 3)),
        sp.betainc_regularized(x, y, sp.Rational(1, 5), sp.Rational(1, 3)),
        sp.Mod(x, y),
        sp.besselj(1, x),
        sp.Max(x, y),
        sp.coth(x),
    ],
    ids=str,
)
def test_code_of_functions_has_brackets(head, modules):
    """SymPy prints some as sums and products, whose first part alone got a sign or a power."""
    at = (1.75, 0.5)
    for expr in (-3 * head, head**2, 1 / head, 2 - head):
        value = complex(numeric.function(expr, [x, y], modules)(*at))
        assert value == pytest.approx(complex(expr.subs({x: at[0], y: at[1]}).evalf()), rel=1e-12)


def test_a_flow_of_harmonic_numbers():
    """H(0.1) = 0.153: x falls; it rose to 0.70 by t = 1."""
    end = own({x: -sp.harmonic(x)}, {x: 0.1}).solve(until=1).x[-1].item()
    assert end == pytest.approx(0.0204461769825896, rel=1e-9)  # by mpmath


def test_what_diverges_is_not_said_to_jump():
    """|y| has a kink at 0, from which y runs away."""
    rates = {x: -x + (x + 0.8) * sp.Abs(y), y: 2 * y**3 * (x + 0.3)}
    with pytest.raises(ParameterError, match="^own: y diverges near t = 0.683"):
        own(rates, {x: 0, y: 0.8}).solve(until=2)


def test_functions_without_a_value_are_not_a_number():
    """In place of SymPy's TypeError."""
    assert np.isnan(numeric.function(sp.fibonacci(x, y), [x, y])(0.5, 0.7))


def test_fixed_points_that_sympy_misses_are_named():
    """A number of SymPy could not be printed."""
    z, r = PLAIN("z", positive=True), PLAIN("r", positive=True)
    with pytest.raises(ParameterError, match="^own: fixed points: SymPy misses that at r = "):
        own({z: z * (r - z)}, {z: 1}).fixed_points()


def test_a_descent_that_diverges_is_no_warning(recwarn):
    assert np.isnan(own({x: x**3 - y, y: x}, {x: 9, y: 9}).descend({}, 9.0, 50).x[-1])
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]
