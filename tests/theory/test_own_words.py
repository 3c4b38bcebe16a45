"""Names and kinds of what strangers give to flows and equations: no name is taken for a
function or constant of generated code, and what is of another kind is refused in one
line.
"""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp

from theory.call.refusal import ParameterError
from theory.dynamics.flow import Flow
from theory.equations.equation import Equation
from theory.symbols.notation import symbol

t, x = symbol("t"), symbol("x")
DECAY = Flow("own", t, {x: -x}, {x: 1}, "own", "exact")
WORDS = {  # names that generated code has for something else
    "pi": lambda s: -sp.pi * s * x,
    "e": lambda s: -sp.E * s * x,
    "euler_gamma": lambda s: -sp.EulerGamma * s * x,
    "exp": lambda s: -s * sp.exp(-x),
    "sqrt": lambda s: -s * sp.sqrt(x + 2),
    "abs": lambda s: -s * sp.Abs(x),
    "maximum": lambda s: -sp.Max(s * x, 0.1),
    "select": lambda s: sp.Piecewise((-s * x, x > 0), (0, True)),
    "beta": lambda s: -s * sp.beta(x + 1, 2),
    "special0": lambda s: -s * sp.polylog(2, x / 4),
}


@pytest.mark.parametrize("name", WORDS)
def test_names_of_parameters_are_names(name):
    """As numbers, they were taken for pi, for exp."""
    ends = []
    for word in (name, "rate"):
        rate = WORDS[name](symbol(word))
        flow = Flow(
            "own", t, {x: rate}, {x: 1}, "own", "exact", observables={"o": rate}
        )
        found = flow.solve({word: 0.7}, t=0.5, events={"event": rate + 0.3})
        many = flow.solve({}, t=0.5, **{word: [0.6, 0.7]}).x[1, -1]
        jacobian = flow.linearised(parameters={word: 0.7})[0].rate
        value = Equation("o", x, rate, "own", "exact").evaluate({word: 0.7, "x": 0.5})
        ends.append([found.x[-1], found.o[-1], found.event, many, jacobian, value])
    np.testing.assert_allclose(*ends, rtol=1e-9)


def test_names_of_order_parameters_are_names():
    """In solutions, Jacobians, conserved quantities."""
    name = symbol("exp")
    flow = Flow("own", t, {name: 1 - sp.exp(name)}, {name: 1}, "own", "exact")
    plain = Flow("own", t, {x: 1 - sp.exp(x)}, {x: 1}, "own", "exact")
    assert flow.solve(t=1)["exp"][-1] == plain.solve(t=1).x[-1]
    assert flow.fixed_points() == [{name: 0}]
    (circle,) = Flow(
        "own", t, {name: x, x: -name}, {name: 1, x: 0}, "own", "exact"
    ).conserved()
    assert circle.rhs == name**2 + x**2


OWN = Equation("own", x, 2 * x, "own", "exact")
WRONG = {
    "subs": (lambda: OWN.subs(3), "subs: 3: must be a mapping"),
    "rename": (lambda: OWN.rename([("x", "y")]), "rename: .*must be a mapping"),
    "modules": (
        lambda: OWN.evaluate({"x": 1}, modules="junk"),
        "modules = 'junk': must be one",
    ),
    "no word": (
        lambda: OWN.lambdify(x, modules=["numpy"]),
        "modules = .*: must be one of numpy",
    ),
    "status": (
        lambda: Equation("own", x, x, "own", []),
        "status = .*must be one of exact",
    ),
    "assumptions": (
        lambda: Flow("o", t, {x: 1}, {x: 1}, "own", "exact", 3),
        "assumptions = 3",
    ),
    "a text": (
        lambda: Equation("o", x, x, "own", "exact", "N large"),
        "assumptions = 'N large'",
    ),
    "reference": (
        lambda: Flow("own", t, {x: 1}, {x: 1}, 3, "exact"),
        "reference = 3, .*must be texts",
    ),
    "name": (
        lambda: Flow(None, t, {x: 1}, {x: 1}, "own", "exact"),
        "name = None, .*must be texts",
    ),
    "where": (
        lambda: Flow("o", t, {x: 1}, {x: 1}, "o", "exact", where=3),
        "where: 3: must be a map",
    ),
    "order": (
        lambda: DECAY.series(10**9),
        "order = 1000000000: must be >= 0 and <= 200",
    ),
    "steps": (
        lambda: DECAY.descend({}, 0.1, 10**13),
        "steps = .* of memory; take fewer",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_of_another_kind_is_refused_in_one_line(case):
    call, message = WRONG[case]
    with pytest.raises(ParameterError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_flow_without_parameters_needs_none():
    assert DECAY.solve(t=1).x[-1] == DECAY.solve({}, t=1).x[-1]
    with pytest.raises(ParameterError, match="gives no value for k"):
        Flow("own", t, {x: -symbol("k") * x}, {x: 1}, "own", "exact").solve(t=1)
