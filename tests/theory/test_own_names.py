"""Names, numbers and functions of a user's own flow: read in one way, or refused in one
line.
"""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp
from test_own_flows import DECAY, PI, PLAIN, crossing, k, own, t, x, y

from theory.call.refusal import ParameterError
from theory.dynamics.flow import Flow
from theory.equations.equation import Equation
from theory.numbers import numeric
from theory.numbers.numeric import wright_omega
from theory.symbols.notation import symbol

N = symbol("N", integer=True)


def test_symbols_are_matched_by_name():
    """One letter with two sets of assumptions is one quantity, in every method."""
    real, plain = symbol("x", real=True), PLAIN("x")
    flow = Flow(
        "m", PLAIN("t"), {real: plain * (1 - plain)}, {plain: 0.1}, "own", "exact"
    )
    assert flow.jacobian() == sp.Matrix([[1 - 2 * real]])
    assert flow.fixed_points() == [{real: 0}, {real: 1}]
    assert flow.solve({}, t=1).x[-1].item() == pytest.approx(
        0.231969316685865, rel=1e-9
    )
    for zero in (0, 0.0):
        assert [m.rate for m in flow.linearised({"x": zero})] == [1]
    assert flow.series(1, {plain: 0.5})[real] == 0.25 * PLAIN("t") + 0.5
    assert (
        own({x: -PLAIN("k", positive=True) * x}, {x: k}).solve({"k": 1}, t=1).x[0] == 1
    )


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
        (sp.polylog(sp.CRootOf(y**3 - y - 1, 0), x), 0.5, 0.645125846024199),
        (sp.Piecewise((sp.sin(x) / x, sp.Ne(x, 0)), (1, True)), 0, 1.0),
    ],
    ids=str,
)
def test_what_an_equation_evaluates_a_flow_does_too(expr, at, value, recwarn):
    """Values, on arrays, and as rates."""
    equation = Equation("e", x, expr, "own", "exact")
    assert equation.evaluate({"x": at}) == pytest.approx(value, rel=1e-13)
    assert equation.evaluate({"x": np.array([at, at])}) == pytest.approx(
        [value] * 2, rel=1e-13
    )
    assert equation.evaluate({"x": at}, modules="mpmath") == pytest.approx(
        value, rel=1e-13
    )
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
    """In double precision, on arrays, in mpmath, whose function of this name may be
    another.
    """
    equation = Equation("e", x, expr, "own", "exact")
    for given in (at, np.array([at, at])):
        assert equation.evaluate({"x": given}) == pytest.approx(value, rel=1e-13)
    assert equation.evaluate({"x": at}, modules="mpmath") == pytest.approx(
        value, rel=1e-13
    )


def test_what_is_not_real_or_has_no_value():
    """An imaginary part is not dropped;
    poles and arrays that do not fit are one line.
    """
    branch = Equation("e", x, sp.LambertW(x, -1), "own", "exact")
    assert (
        np.isnan(branch.evaluate({"x": -0.4})) and branch.evaluate({"x": -0.2}) < -2.5
    )
    with pytest.raises(ParameterError, match="e: has no value there .*pole"):
        Equation("e", x, sp.gamma(x), "own", "exact").evaluate(
            {"x": 0}, modules="mpmath"
        )
    with pytest.raises(ParameterError, match="e: has no value there .*shape"):
        Equation("e", x, x * y, "own", "exact").evaluate({"x": [1, 2], "y": [1, 2, 3]})


def test_functions_without_numbers_are_refused():
    """An undefined function and imaginary rates."""
    for expr, message in (
        (sp.Function("f")(x), "f: has no num"),
        (sp.I * x, "is complex"),
    ):
        with pytest.raises(ParameterError, match=message):
            own({x: expr}, {x: 1}).solve({}, t=1)
        with pytest.raises(ParameterError, match=message):
            Equation("e", x, expr, "own", "exact").evaluate({"x": 1})


def test_a_name_is_one_function():
    """Of functions with code of their own, neither is taken for the other."""
    one, two = (
        type("f", (sp.Function,), {"_imp_": staticmethod(lambda v, k=k: v + k)})
        for k in (1, 2)
    )
    assert (
        Equation("e", x, one(x) + one(2 * x), "own", "exact").evaluate({"x": 1.0}) == 5
    )
    with pytest.raises(ParameterError, match="^one name for two functions, of f$"):
        Equation("e", x, one(x) + two(x), "own", "exact").evaluate({"x": 1.0})


def test_what_is_no_expression_is_refused_in_one_line():
    """A plain number is one; text, nothing,
    lists and functions that give such are not.
    """
    assert Equation("e", x, 3, "own", "exact").evaluate({"x": 1.0}) == 3
    for rhs in ("x + 1", None, [1], np.arange(2), lambda: "x"):
        with pytest.raises(
            ParameterError, match="^e = .*: must be a number or a SymPy expr"
        ):
            Equation("e", x, rhs, "own", "exact").evaluate({"x": 1.0})
    for terms in ("junk", None, 3, {}, {"x": 1}, {None: 1}):
        with pytest.raises(ParameterError, match="^terms = .*: must be"):
            DECAY.invariant(terms)


def test_slow_functions_say_so(monkeypatch):
    """That neither NumPy nor SciPy has, where many numbers are asked for."""
    monkeypatch.setattr(numeric, "QUICK", 50)
    with pytest.warns(UserWarning, match="polylog: is slow"):
        assert crossing(DECAY, sp.polylog(2, x) - 0.5, 1.0) == pytest.approx(
            0.822997235
        )


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
    flow = own(
        {x: -k * x}, {x: 1}, where={symbol("q"): 2 * x * y}, observables={"o": N * x}
    )
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
            ParameterError,
            match=f"^p: {named} is no parameter of the flow; .*there are",
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
    """SymPy prints some as sums and products, whose first part alone got a sign or a
    power.
    """
    at = (1.75, 0.5)
    for expr in (-3 * head, head**2, 1 / head, 2 - head):
        value = complex(numeric.function(expr, [x, y], modules)(*at))
        assert value == pytest.approx(
            complex(expr.subs({x: at[0], y: at[1]}).evalf()), rel=1e-12
        )


def test_a_flow_of_harmonic_numbers():
    """H(0.1) = 0.153: x falls; it rose to 0.70 by t = 1."""
    end = own({x: -sp.harmonic(x)}, {x: 0.1}).solve(until=1).x[-1].item()
    assert end == pytest.approx(0.0204461769825896, rel=1e-9)  # by mpmath


def test_functions_without_a_value_are_not_a_number():
    """In place of SymPy's TypeError."""
    assert np.isnan(numeric.function(sp.fibonacci(x, y), [x, y])(0.5, 0.7))
