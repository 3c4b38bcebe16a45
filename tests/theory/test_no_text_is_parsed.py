"""No text reaches SymPy's parser, which runs it as code.

Every public door is called with texts in containers in each of its places, while the
parser itself is watched. Could see: a door that hands a container to SymPy, which
parses texts inside of it even where it is told to be strict.
"""

import ast
import contextlib
import inspect
from pathlib import Path

import numpy as np
import pytest
import sympy as sp
import sympy.parsing.sympy_parser

import theory
from tests.theory.statement import systems
from theory import Equation, Flow, statement
from theory import state_tracking as st
from theory.call.refusal import ParameterError
from theory.models import registry
from theory.numbers import lowered, numeric
from theory.statement.derivation import remedies
from theory.statement.overlaps import Overlaps, mean_product
from theory.symbols import reading

ROOT = Path(__file__).parents[2]
WINGS = ("theory", "simulate", "verify", "papers")
CODE = "1 + 1"
x, y, t, a = sp.symbols("x y t a")


def in_an_array():
    held = np.empty((), object)
    held[()] = (CODE,)
    return held


HOSTILE = {
    "text": CODE,
    "NumPy text": np.str_(CODE),
    "tuple": (CODE,),
    "nested tuple": ((CODE,), 1),
    "list": [CODE],
    "set": {CODE},
    "frozen set": frozenset([CODE]),
    "value": {0: CODE},
    "key": {CODE: 0},
    "array": np.array([CODE]),
    "array of objects": np.array([CODE, (CODE,)], object),
    "array without axes": in_an_array(),
    "in a list": [(CODE,)],
    "by symbol": {x: (CODE,)},
    "by name": {"x": (CODE,)},
}


@pytest.fixture
def parsed(monkeypatch):
    """Texts that reached the parser."""
    found, usual = [], sympy.parsing.sympy_parser.parse_expr

    def parser(text, *more, **named):
        if text != CODE:  # SymPy's own
            return usual(text, *more, **named)
        found.append(text)
        raise AssertionError(f"{text!r} was parsed")

    monkeypatch.setattr(sympy.parsing.sympy_parser, "parse_expr", parser)
    return found


def flow(**changes):
    parts = {"rhs": {x: -a * x}, "initial": {x: 1}} | changes
    return Flow("f", t, reference="here", status="exact", **parts)


def law(rhs=x + a, lhs=y):
    return Equation("law", lhs, rhs, "here", "exact")


def sort():
    return statement.sort("s", 3)


def entry():
    weight = statement.weight("w", s := sort())
    return weight[statement.draw(s)]


OVERLAPS = Overlaps(1, 1)

# What takes expressions or numbers, by the place that the text is put in.
DOORS = {
    "rate": lambda v: flow(rhs={x: v}),
    "rates": lambda v: flow(rhs=v),
    "start": lambda v: flow(initial={x: v}),
    "starts": lambda v: flow(initial=v),
    "abbreviation": lambda v: flow(where={y: v}),
    "observable": lambda v: flow(observables={"o": v}),
    "second order": lambda v: flow(second_order={x: v}),
    "others": lambda v: flow(others=v).solve({"a": 1}, t=1),
    "held": lambda v: flow().held(x=v),
    "event": lambda v: flow().solve({"a": 1}, t=1, events={"e": v}),
    "events": lambda v: flow().solve({"a": 1}, t=1, events=v),
    "value": lambda v: flow().solve({"a": v}, t=1),
    "values": lambda v: flow().solve(v, t=1),
    "swept": lambda v: flow().solve({}, t=1, a=v),
    "end": lambda v: flow().solve({"a": 1}, t=v),
    "times": lambda v: flow().solve({"a": 1}, t=1, at=v),
    "tolerance": lambda v: flow().solve({"a": 1}, t=1, rtol=v),
    "certified": lambda v: flow().certify({"a": v}, t=1),
    "certified end": lambda v: flow().certify({"a": 1}, t=v),
    "descent": lambda v: flow().descend({"a": v}, 0.1, 2),
    "step": lambda v: flow().descend({"a": 1}, v, 2),
    "steps": lambda v: flow().descend({"a": 1}, 0.1, v),
    "series start": lambda v: flow().series(1, start={x: v}),
    "series parameter": lambda v: flow().series(1, start={a: v}),
    "series starts": lambda v: flow().series(1, start=v),
    "order": lambda v: flow().series(v),
    "point": lambda v: flow().linearised(at={x: v}),
    "points": lambda v: flow().linearised(at=v),
    "point's values": lambda v: flow().linearised({x: 0}, {"a": v}),
    "term": lambda v: flow().invariant({v: 1}),
    "weight of a term": lambda v: flow().invariant({x: v}),
    "terms": lambda v: flow().invariant(v),
    "right side": lambda v: law(v).rhs,
    "right side later": lambda v: law(lambda: v).rhs,
    "left side": lambda v: theory.models.write_up.occurring(law(lhs=v)),
    "left side printed": lambda v: law(lhs=v).latex(),
    "evaluated": lambda v: law().evaluate({"x": v, "a": 1}),
    "evaluated by symbol": lambda v: law().evaluate({x: v, "a": 1}),
    "all evaluated": lambda v: law().evaluate(v),
    "evaluated at": lambda v: law().evaluate({"x": 1}, a=v),
    "evaluated in a sum": lambda v: law(
        sp.Sum(sp.IndexedBase("u")[y], (y, 1, a))
    ).evaluate({"u": [1.0], "a": v}),
    "entries": lambda v: law(sp.IndexedBase("u")[1]).evaluate({"u": v}),
    "argument": lambda v: law().lambdify(x, v),
    "function": lambda v: numeric.function(v, [x]),
    "compiled": lambda v: numeric.compiled([x], v),
    "compiled list": lambda v: numeric.compiled([x], [v]),
    "compiled argument": lambda v: numeric.function(x, [v]),
    "vanishes": lambda v: theory.vanishes(v),
    "gradient": lambda v: theory.delta_gradient(v, x),
    "sum": lambda v: theory.delta_sum(v, (x, 1, 2)),
    "root": lambda v: theory.linear_root(v, x),
    "written": lambda v: theory.written_as(v, x),
    "written from": lambda v: theory.written_as(x, v),
    "size": lambda v: statement.sort("s", v),
    "weight": lambda v: statement.weight("w", sort(), start=v),
    "gaussian": lambda v: statement.gaussian(v),
    "uniform": lambda v: statement.uniform(v),
    "orthogonal": lambda v: statement.orthogonal(v),
    "variance": lambda v: statement.gauss(
        "g", statement.sort("d", 3, vector=True), var=v
    ),
    "place": lambda v: statement.fixed(sort(), v),
    "added": lambda v: entry() + v,
    "added before": lambda v: v + entry(),
    "product": lambda v: entry() * v,
    "quotient": lambda v: v / entry(),
    "power": lambda v: entry() ** v,
    "exp": lambda v: statement.exp(v),
    "log": lambda v: statement.log(v),
    "loss": lambda v: statement.statement(v),
    "named loss": lambda v: statement.statement(entry() ** 2, observables={"o": v}),
    "statement's value": lambda v: statement.statement(entry() ** 2, values=v),
    "mean": lambda v: mean_product("linear", v, v, v),
    "mean of quadratic": lambda v: mean_product("quadratic", v, 1, 1),
    "mean of erf": lambda v: mean_product("erf", 1, 1, v),
    "mean of relu": lambda v: mean_product("relu", v, v, v),
    "student": lambda v: OVERLAPS.squared_loss("erf", student={1: v}),
    "teacher": lambda v: OVERLAPS.squared_loss("erf", teacher={1: v}),
    "overlaps' loss": lambda v: OVERLAPS.rates(v),
    "overlaps' flow": lambda v: OVERLAPS.flow("f", v, {}),
    "overlaps' start": lambda v: OVERLAPS.flow("f", OVERLAPS.Q(1, 1), v),
    "checked": lambda v: theory.Equations({"law": v}),
    "derived at": lambda v: remedies.derived(systems.bigram()).at(N=v),
    "lowered": lambda v: lowered.number(sp.IndexedBase("u")[1] + a, {"u": [1], "a": v}),
}


@pytest.mark.parametrize("door", DOORS)
def test_no_door_parses(door, parsed):
    for kind, value in HOSTILE.items():
        with contextlib.suppress(Exception):
            DOORS[door](value)
        assert not parsed, kind


def public():
    """Public functions of every theory, and the names that models are written with."""
    names = {n for text in theory.MODULES.values() for n in text.split()}
    yield from ((n, getattr(theory, n)) for n in sorted(names))
    yield from ((f"statement.{n}", vars(statement)[n]) for n in statement.__all__)
    for model in registry.TABLE.values():
        wing = model.wing("theory")
        for n in sorted({*getattr(wing, "__all__", ()), "onset", "predict"}):
            if n in vars(wing):
                yield f"{model.name}.{n}", vars(wing)[n]


def accepted(kind):
    """Parameters of a model, where it has some without being asked for sizes."""
    with contextlib.suppress(Exception):
        return kind()
    return st.Parameters()


@pytest.mark.parametrize(
    "function", [pytest.param(f, id=n) for n, f in public() if inspect.isfunction(f)]
)
def test_no_public_function_parses(function, parsed):
    """Text in every place, beside defaults and Parameters, or in all at once."""
    places = [
        q
        for q in inspect.signature(function).parameters.values()
        if q.kind not in (q.VAR_POSITIONAL, q.VAR_KEYWORD)
    ]
    kind = getattr(inspect.getmodule(function), "Parameters", st.Parameters)
    for place in places:
        for name, value in HOSTILE.items():
            given = {q.name: value for q in places if q.default is q.empty}
            if "p" in given:
                given["p"] = accepted(kind)
            given[place.name] = value
            by_place = [
                given.pop(q.name) for q in places if q.kind is q.POSITIONAL_ONLY
            ]
            with contextlib.suppress(Exception):
                function(*by_place, **given)
            assert not parsed, (place.name, name)


def calls(file):
    """Calls of sympify, by line."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ("sympify", "_sympify"):
                yield f"{file.relative_to(ROOT)}:{node.lineno}"


def test_sympify_is_called_in_one_place():
    found = [
        place
        for wing in WINGS
        for file in sorted((ROOT / wing).rglob("*.py"))
        for place in calls(file)
    ]
    assert [place.partition(":")[0] for place in found] == ["theory/symbols/reading.py"]


@pytest.mark.parametrize("kind", HOSTILE)
def test_the_one_place_takes_numbers_and_expressions_alone(kind, parsed):
    with pytest.raises(ParameterError):
        reading.sympified(HOSTILE[kind])
    assert not parsed
    assert reading.sympified(np.float64(0.5)) == reading.sympified(np.array(0.5)) == 0.5
    assert reading.sympified(x) is x and reading.sympified(3) == sp.Integer(3)
