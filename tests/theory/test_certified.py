"""Certified numbers: closed forms lie inside, first crossings are the first, double
results agree, what cannot be proved is refused.
"""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import sympy as sp

from theory import onset as command
from theory import state_tracking as st
from theory.call.refusal import ParameterError
from theory.dynamics import certified, onset
from theory.dynamics.flow import Flow
from theory.equations.equation import Equation
from theory.models.registry import find
from theory.numbers import balls
from theory.symbols.notation import symbol

t, x, y, k = (symbol(name) for name in "txyk")
HALF = sp.Rational(1, 2)


def own(rhs, initial, **more):
    """A flow of one's own."""
    return Flow("own", t, rhs, initial, "own notes", "exact", **more)


def inside(interval, exact):
    """Whether an interval holds an exact value, and is narrower than 1e-15 of it."""
    value = Decimal(str(sp.N(exact, 60)))
    return value in interval and interval.high - interval.low <= abs(value) * Decimal(
        "1e-14"
    )


LOGISTIC = own(
    {x: x * (1 - x)}, {x: sp.Rational(1, 10)}, observables={"odds": x / (1 - x)}
)
CIRCLE = own({x: y, y: -x}, {x: 0, y: 1})
DECAY = own({x: -x}, {x: 1})


def test_closed_forms():
    """States and first crossings of flows that have a solution."""
    assert inside(LOGISTIC.certify({}, event=x - HALF, until=10), sp.log(9))
    assert inside(LOGISTIC.certify({}, event=symbol("odds") - 1, t=9), sp.log(9))
    end = LOGISTIC.certify({}, t=3)
    assert inside(end["x"], 1 / (1 + 9 * sp.exp(-3)))
    assert inside(end["odds"], sp.exp(3) / 9)
    first = CIRCLE.certify({}, event=x - 0.99999, until=10)
    assert inside(first, sp.asin(sp.Rational(0.99999)))
    assert inside(DECAY.certify({}, event=x - t, until=2), sp.LambertW(1))
    driven = own({x: sp.cos(t) * x}, {x: 1})
    assert inside(driven.certify({}, t=7)["x"], sp.exp(sp.sin(7)))
    root = own({x: sp.sqrt(x)}, {x: k}).certify({"k": 0.1}, t=2)["x"]
    assert inside(root, (sp.sqrt(sp.Rational(0.1)) + 1) ** 2)


@pytest.mark.parametrize(
    "of",
    (
        sp.sin,
        sp.cos,
        sp.tan,
        sp.exp,
        sp.log,
        sp.sqrt,
        sp.sinh,
        sp.cosh,
        sp.tanh,
        sp.atan,
        sp.asinh,
        sp.erf,
        sp.gamma,
        sp.loggamma,
        sp.LambertW,
        sp.cot,
        lambda v: v ** sp.Rational(-7, 3),
        lambda v: sp.polylog(2, v / 9),
        lambda v: sp.uppergamma(HALF, v),
        lambda v: 2**v,
        lambda v: v**k,
    ),
)
def test_functions(of):
    """The printer's rule for every function, as a rate, whose integral mpmath knows,
    and as a closed form.
    """
    expr = of(symbol("v"))
    rate = expr.subs("v", t + HALF).subs(k, 3)
    found = own({x: rate}, {x: 0}).certify({}, until=0.5)["x"]
    with mpmath.workdps(60):
        integral = mpmath.quad(sp.lambdify(t, rate, "mpmath"), [0, 0.25, 0.5])
    assert inside(found, sp.Float(integral, 60))
    form = Equation("form", x, expr, "own", "exact")
    assert inside(
        form.certify({"v": 0.7, "k": 3}), expr.subs({"v": sp.Rational(0.7), k: 3})
    )
    assert float(form.certify({"v": 0.7, "k": 3})) == pytest.approx(
        float(form.evaluate({"v": 0.7, "k": 3})), rel=1e-12
    )


def test_never_is_proved():
    """No crossing before the end of a run, also where the event comes close."""
    never = DECAY.certify({}, event=x - 2, until=100)
    assert never.never and str(never) == "later than 100"
    assert CIRCLE.certify({}, event=x - 1.00001, until=20).never
    assert json.dumps(never.as_json()) == '{"low": "100", "high": "Infinity"}'
    assert DECAY.certify({}, event=x - 1, until=5) == balls.Interval(
        Decimal(0), Decimal(0)
    )


def test_what_cannot_be_proved_is_refused():
    """A line that names the reason."""
    for event, words in ((x - 1, "touches zero"), (sp.Abs(x) - HALF, "Abs has no")):
        with pytest.raises(ParameterError, match=words):
            CIRCLE.certify({}, event=event, until=3, digits=5)
    with pytest.raises(ParameterError, match="no enclosure.* near t = 1;"):
        own({x: x**2}, {x: 1}).certify({}, until=1.5, digits=5)
    with pytest.raises(ParameterError, match="Piecewise"):
        own({x: sp.Piecewise((1, t < 1), (2, True))}, {x: 0}).certify({}, until=2)
    with pytest.raises(ParameterError, match="no enclosure"):  # complex from the start
        own({x: sp.sqrt(x - 2)}, {x: 1}).certify({}, until=1, digits=5)
    with pytest.raises(ParameterError, match="k = .*one finite number"):
        own({x: k}, {x: 0}).certify({"k": [1.0, 2.0]}, until=1)
    with pytest.raises(ParameterError, match="run length"):
        DECAY.certify({})
    with pytest.raises(ParameterError, match="Sum has no"):
        Equation("s", x, sp.Sum(1 / k, (k, 1, 5)), "own", "exact").certify({})
    with pytest.raises(ParameterError, match="may be 0"):
        Equation("z", x, sp.sin(k) ** 2 + sp.cos(k) ** 2 - 1, "own", "exact").certify(
            {"k": 2}
        )
    with pytest.raises(ParameterError, match="may be 0"):
        Equation("z", x, sp.sqrt(k), "own", "exact").certify({"k": -2})


def test_without_the_library(monkeypatch):
    """The error says how to install it."""
    monkeypatch.setitem(sys.modules, "flint", None)
    with pytest.raises(ParameterError, match="pip install python-flint"):
        DECAY.certify({}, until=1)


def test_state_tracking():
    """A = 1/2 of the demo: the number of another program, with 31 digits."""
    found = st.flow().certify(
        st.Parameters.demo(), event=next(iter(st.flow().rhs)) - HALF, alpha=5
    )
    assert Decimal("4.242030323551876490752061885472") in found
    assert found.high - found.low < Decimal("1e-14")


TIMES = (
    "state_tracking",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("associative_memory.factual_recall", "induction_heads.bursty")
    ),
)


@pytest.mark.parametrize("name", TIMES)
def test_double_results_of_the_models(name):
    """Times of the models, from quadratures and integrators, agree with their
    intervals.
    """
    theory = find(name).wing("theory")
    result = find(name).wing("theory", "onset").onset(theory.Parameters())
    found = result.certified()
    assert {*found} == {*result.crossings}
    for label, interval in found.items():
        assert not interval.never
        assert abs(Decimal(result.numbers[label]) / interval.mid - 1) < Decimal("1e-10")


def test_command(capsys, monkeypatch):
    """Intervals beside other numbers, valid JSON, and a refusal where no time is along
    a flow.
    """
    assert (
        command.main(["state_tracking", "--preset", "demo", "--certify", "--json"]) == 0
    )
    ends = json.loads(capsys.readouterr().out)["certified"]["alpha_half"]
    interval = balls.Interval(Decimal(ends["low"]), Decimal(ends["high"]))
    assert Decimal("4.2420303235518764907520") in interval
    monkeypatch.setattr(onset.Onset, "certified", lambda self: {"alpha_half": interval})
    assert (
        command.main(["state_tracking", "--preset", "demo", "--certify", "--quiet"])
        == 0
    )
    assert "4.242030323551876490" in capsys.readouterr().out
    monkeypatch.undo()


def random_flow(rng):
    """A flow of two or three order parameters: polynomials, exponentials, rates in
    time.
    """
    state = [x, y, symbol("z")][: rng.integers(2, 4)]

    def term():
        factor = sp.Rational(int(rng.integers(-9, 10)), 10)
        power = sp.Mul(*(q ** int(rng.integers(0, 3)) for q in state))
        shape = (
            sp.S.One,
            sp.exp(-(state[0] ** 2)),
            sp.cos(3 * t),
            sp.exp(-t),
            sp.tanh(state[-1]),
        )
        return factor * power * shape[rng.integers(0, 5)]

    rates = {q: sum((term() for _ in range(3)), -q / 2 - q**3) for q in state}
    starts = {q: sp.Rational(int(rng.integers(-10, 11)), 10) for q in state}
    event = (
        state[0]
        + sp.Rational(int(rng.integers(-9, 10)), 10) * state[1]
        - sp.Rational(int(rng.integers(1, 9)), 10)
    )
    return own(rates, starts), event


def judged(seed):
    """Largest error of `solve` at the end of a run, and in the time of an event."""
    flow, event = random_flow(np.random.default_rng(seed))
    path = flow.solve({}, t=6.0, at=[6.0], events={"event": event})
    proved, time = (
        flow.certify({}, t=6.0, digits=12),
        flow.certify({}, t=6.0, event=event, digits=12),
    )
    errors = [
        abs(Fraction(path[q.name].item()) - Fraction(proved[q.name].mid))
        for q in flow.state
    ]
    if time.high != 0:  # zero at the start but for rounding
        assert time.never == bool(np.isnan(path.event)), (
            seed,
            str(time),
            path.event.item(),
        )
        if not time.never:
            errors.append(abs(Fraction(path.event.item()) - Fraction(time.mid)))
    return max(map(float, errors))


@pytest.mark.parametrize(
    "seeds", (range(8), pytest.param(range(8, 200), marks=pytest.mark.slow)), ids=len
)
def test_random_flows(seeds):
    """`solve` misses no event, and no value, of random flows."""
    assert max(map(judged, seeds)) < 1e-9


def test_every_part_of_the_bound_is_needed(monkeypatch):
    """The defect holds what lies beyond the order of the series; errors of the start
    grow as slopes of all rates say; without the defect an interval misses the solution.
    """
    flint = balls.library()
    with flint.ctx.workprec(100):
        path = certified.Path(own({x: t**40}, {x: 0}), {}, 60, [])
        (missed,) = path.defect(flint.arb(0), [flint.arb_poly([0])], flint.arb(0, 0.5))
        assert missed >= flint.arb(0.5) ** 40
        path = certified.Path(
            own({x: t * y + sp.exp(x), y: 0 * x}, {x: 0, y: 0}), {}, 60, []
        )
        room = [flint.arb(0.01), flint.arb(0)]
        (of_x, of_y), still = path.slopes(
            flint.arb(2), [flint.arb_poly([0, 1])] * 2, flint.arb(0, 0.5), room
        )
        for s in (-0.5, 0.1, 0.5):
            assert all(
                of_x(flint.arb(s)).contains(flint.arb(s + e).exp())
                for e in (-0.01, 0.01)
            )
            assert of_x(flint.arb(s)).rad() < 0.03 and of_y(flint.arb(s)).contains(
                2 + s
            )
        assert all(of(flint.arb(s)) == 0 for of in still)
        path = certified.Path(CIRCLE, {}, 60, [])
        path.y = [flint.arb(0, 0.001), flint.arb(1, 0.001)]
        ends, _ = path.last(1.0)
        for a, b in ((-1, -1), (-1, 1), (1, -1), (1, 1)):
            start = np.array([0.0009 * a, 1 + 0.0009 * b])
            turned = [[np.cos(1), np.sin(1)], [-np.sin(1), np.cos(1)]] @ start
            assert all(
                e.contains(flint.arb(v)) for e, v in zip(ends, turned, strict=True)
            )
    exact = Decimal(str(sp.N(1 / (1 + 9 * sp.exp(-3)), 60)))
    monkeypatch.setattr(certified.Path, "defect", lambda self, *_: [self.flint.arb(0)])
    assert exact not in LOGISTIC.certify({}, t=3)["x"]


@pytest.mark.parametrize(
    ("system", "values", "words"),
    [
        (
            own({x: -x}, {x: k}),
            {"k": float("nan")},
            "k = nan: must be one finite number",
        ),
        (
            own({x: -x}, {x: 1}, observables={"z": sp.sqrt(x - 2)}),
            {},
            "is no real number",
        ),
        (own({x: -x / t}, {x: 1}), {}, "a rate or event has no value"),
    ],
)
def test_what_is_no_number_is_not_certified(system, values, words):
    """In place of 0."""
    with pytest.raises(ParameterError, match=words):
        system.certify(values, until=1)


def test_series_that_end():
    """Solutions that are polynomials in time; a time is given once."""
    assert (
        Decimal("0.0625") in own({x: -sp.sqrt(x)}, {x: 1}).certify({}, until=1.5)["x"]
    )
    assert Decimal(4) in own({x: 2 * x / (1 + t)}, {x: 1}).certify({}, until=1)["x"]
    with pytest.raises(ParameterError, match="t = 2: is the same as until"):
        own({x: -x}, {x: 1}).certify({}, until=1, t=2)
