"""Required interface of every model of the registry,
and allowed imports between wings.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import math
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sympy as sp

from theory.call.parameters import BaseParameters
from theory.call.refusal import ParameterError
from theory.equations.equation import STATUSES
from theory.models import registry
from theory.runtime import output

ROOT = Path(__file__).parents[2]
MODELS = [pytest.param(m, id=m.name) for m in registry.MODELS.values()]


def wrong(model, right):
    """Names of the equations of a model of which something does not hold, and what was
    raised.
    """
    found = {}
    for name, equation in model.wing("theory").equations().items():
        try:
            right(equation)
        except Exception as error:
            found[name] = repr(error)
    return found


@pytest.mark.parametrize("model", MODELS)
def test_model_is_complete(model):
    """Parameters with presets, equations in sections, a table of flows (empty without a
    training time), an onset, a paper.
    """
    wing = model.wing("theory")
    folder = f"{model.package}.papers" if model.package else f"papers.{model.paper}"
    assert model.title and importlib.util.find_spec(folder)
    assert issubclass(wing.Parameters, BaseParameters)
    presets = wing.Parameters.presets()
    assert presets and all(
        isinstance(make(), wing.Parameters) for make in presets.values()
    )
    assert callable(model.wing("theory", "onset").onset) and isinstance(
        wing.flows(), dict
    )
    assert registry.find(model.name) is model


@pytest.mark.parametrize("model", MODELS)
def test_names_are_unique(model):
    """No equation hides another one of its name, and the sections hold exactly the
    equations.
    """
    wing = model.wing("theory")
    names = [e.name for section in wing.sections().values() for e in section]
    assert names and len(set(names)) == len(names)
    assert set(names) == set(wing.equations())
    assert all(key == e.name for key, e in wing.equations().items())


@pytest.mark.parametrize("model", MODELS)
def test_equations_say_where_they_come_from(model):
    """Reference into the model's paper, a status of the vocabulary, assumptions as
    one-line texts.
    """

    def right(equation):
        key, _, place = equation.reference.partition(", ")
        assert key == model.paper and len(place) > 2
        assert equation.status in STATUSES
        assert all(text and "\n" not in text for text in equation.assumptions)
        assert equation.latex().strip("= ")
        if equation.status == "closure":
            assert equation.assumptions  # a closure is one

    assert wrong(model, right) == {}


def is_number(expr):
    """Whether an expression has a number: no integral, product or unknown function,
    sums over arrays only.
    """
    if expr.has(sp.Integral, sp.Product) or expr.atoms(sp.core.function.AppliedUndef):
        return False
    return all(
        len(s.variables) == 1
        and all(x.indices == tuple(s.variables) for x in s.function.atoms(sp.Indexed))
        and s.function.has(sp.Indexed)
        for s in expr.atoms(sp.Sum)
    )


def sample(expr, draw):
    """Random rationals for everything in an expression: symbols, single entries, whole
    arrays under a sum.
    """
    sums = expr.atoms(sp.Sum)
    bound = {s.variables[0] for s in sums}
    entries = {x for x in expr.atoms(sp.Indexed) if not bound & x.free_symbols}
    apart = {
        x: sp.Integer(sp.prime(9 + n)) for n, x in enumerate(sorted(entries, key=str))
    }
    symbols = {q for q in expr.xreplace(apart).free_symbols if q.is_Symbol} - bound
    symbols -= {base.label for base in expr.atoms(sp.IndexedBase)}
    ends = {q for s in sums for q in s.limits[0][2].free_symbols}
    values = {
        q: (
            sp.Integer(4 if q in ends else draw.randint(3, 6))
            if q.is_integer
            else fraction(draw)
        )
        for q in sorted(symbols, key=str)
    }
    arrays = {}
    for s in sorted(sums, key=str):
        for x in sorted(s.function.atoms(sp.Indexed), key=str):
            arrays[x.base] = [
                fraction(draw) for _ in range(s.limits[0][2].subs(values))
            ]
    return values, {x: fraction(draw) for x in sorted(entries, key=str)}, arrays


def fraction(draw):
    """Rational between 0 and 1."""
    return sp.Rational(draw.randint(1, 19), 20)


@pytest.mark.parametrize("model", MODELS)
def test_equations_compile_to_their_values(model):
    """NumPy numbers against SymPy's own evaluation to 30 digits at a random rational
    point, where it has one.
    """
    assert wrong(model, compiles) == {}


def compiles(equation):
    """The assertion above for one equation."""
    if not is_number(equation.rhs):  # how many, the test below bounds
        return
    draw = random.Random(equation.name)
    values, entries, arrays = sample(equation.rhs, draw)
    numbers = {q: float(x) for q, x in (values | entries).items()}
    found = equation.evaluate(
        numbers | {base: np.array(x, float) for base, x in arrays.items()}
    )
    exact = equation.rhs.xreplace(entries).xreplace(values).doit()
    exact = exact.xreplace(
        {base[q + 1]: x for base, xs in arrays.items() for q, x in enumerate(xs)}
    )
    # Rounding of at most some tens of operations, absolute where terms cancel.
    assert float(found) == pytest.approx(float(exact.evalf(30)), rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("model", MODELS)
def test_most_equations_compile(model):
    """The criterion above exempts few of a model's equations, and those for what they
    contain.
    """
    equations = model.wing("theory").equations().values()
    open_ = [e for e in equations if not is_number(e.rhs)]
    assert len(open_) < len(equations) / 3
    for e in open_:
        unknown = e.rhs.atoms(sp.core.function.AppliedUndef)
        assert unknown or e.rhs.has(sp.Integral, sp.Product, sp.Sum), e.name


def described(model, flow):
    """Presets of a model that one of its flows describes."""
    presets = [make() for make in model.wing("theory").Parameters.presets().values()]
    return [p for p in presets if not flow.scope.applies(p)]


@pytest.mark.parametrize("model", MODELS)
def test_flows_solve(model):
    """At presets that it describes: finite, starting at the initial values, with
    provenance.
    """
    wing = model.wing("theory")
    for name, flow in wing.flows().items():
        assert flow.name == name
        settings = described(model, flow)
        assert settings or name.startswith(
            "separate"
        )  # which follows one direction of a spectrum
        for p in settings:
            curve = flow.solve(p, **{flow.time.name: 2.0})
            assert all(np.isfinite(curve[q]).all() for q in curve.data_vars)
            for q in flow.state:
                start = sp.sympify(flow.initial[q])
                start = start.subs({s: p.values()[s.name] for s in start.free_symbols})
                assert curve[q.name][0] == pytest.approx(
                    float(start), abs=1e-15
                )  # one rounding
            assert json.loads(curve.attrs["parameters"]) == p.stored()
            assert (
                curve.attrs["reference"].startswith(model.paper)
                and curve.attrs["status"] in STATUSES
            )


@pytest.mark.parametrize("model", MODELS)
def test_what_follows_from_flows(model):
    """In a setting that it describes: conserved quantities are constant along
    solutions, as many growth rates as order parameters, and one that is held stays.
    """
    for flow in model.wing("theory").flows().values():
        p = next(iter(described(model, flow)), None)
        if p is None:
            continue
        until = {flow.time.name: 2.0}
        curve = flow.solve(p, **until)
        along = {q.name: curve[q.name].values for q in flow.state}
        for kept in flow.conserved():
            values = kept.evaluate(p.values() | along)
            # The integrator's 1e-12 per step, some hundred steps.
            assert np.ptp(values) <= 1e-9 * max(1.0, np.abs(values).max())
        rates = [mode.rate for mode in flow.linearised(parameters=p)]
        assert len(rates) == len(flow.state) and np.isfinite(rates).all()
        first = flow.state[0].name
        assert (flow.held(**{first: 0.25}).solve(p, **until)[first] == 0.25).all()


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(
            m, id=m.name, marks=[pytest.mark.slow] * (m.name == "positional_semantic")
        )
        for m in registry.MODELS.values()
    ],
)
def test_onset_answers(model):
    """Numbers with a meaning at the defaults, finite or said to be none, curves, and a
    table for people.
    """
    result = model.wing("theory", "onset").onset(model.wing("theory").Parameters())
    assert result.numbers and all(isinstance(v, float) for v in result.numbers.values())
    assert all(
        math.isfinite(v) or k in result.absent for k, v in result.numbers.items()
    )
    assert set(result.labels) == set(result.numbers) and set(result.absent) <= set(
        result.numbers
    )
    assert all(name in result.table() for name in result.numbers)
    finite = {k: v if math.isfinite(v) else None for k, v in result.numbers.items()}
    assert json.loads(output.to_json(result.numbers)) == finite


def test_unknown_model_names_the_nearest():
    """One line."""
    with pytest.raises(ParameterError) as caught:
        registry.find("state_trakcing")
    message = str(caught.value)
    assert "no model named 'state_trakcing'" in message and "\n" not in message
    assert message.endswith("did you mean 'state_tracking'?")


def test_what_a_model_lacks_names_those_that_have_it():
    """Commands and optional modules."""
    tracking, attention = map(registry.find, ("state_tracking", "positional_semantic"))
    others = (
        "^verify.thresholds: not for state_tracking, but for positional_semantic;"
        " state_tracking has verify.gradients, "
    )
    with pytest.raises(ParameterError, match=others):
        registry.require_command(tracking, "thresholds")
    registry.require_command(attention, "thresholds")
    others = "^theory.late_time: not for positional_semantic, but for state_tracking$"
    with pytest.raises(ParameterError, match=others):
        registry.optional_module(attention, "theory", "late_time")
    assert registry.optional_module(tracking, "theory", "late_time")


@pytest.mark.slow
def test_theory_does_not_load_torch():
    """Every module of the theory wing imports without torch and without the other
    wings.
    """
    code = (
        "import importlib, pkgutil, sys, theory\nnames = [m.name for m in"
        " pkgutil.walk_packages(theory.__path__, 'theory.')]\nassert"
        " 'theory.state_tracking.dynamics' in names\n[importlib.import_module(n) for n"
        " in names]\nprint(sorted({n.split('.')[0] for n in sys.modules} & {'torch',"
        " 'simulate', 'verify', 'papers'}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


FORBIDDEN = {
    "theory": {"torch", "simulate", "verify", "papers", "tests"},
    "simulate": {"verify", "papers", "tests"},
    "verify": {"papers", "tests"},
    "papers": {"tests"},
}


def imported(path):
    """Top-level packages a file imports, wherever in the file, relative imports
    resolved.
    """
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (
                path.relative_to(ROOT).parts[0]
                if node.level
                else node.module.split(".")[0]
            )


@pytest.mark.parametrize("wing", FORBIDDEN)
def test_imports_point_one_way(wing):
    """Theory <- simulate <- verify <- papers, never back."""
    files = list((ROOT / wing).rglob("*.py"))
    assert files
    wrong = {
        str(f.relative_to(ROOT)): names
        for f in files
        if (names := FORBIDDEN[wing] & set(imported(f)))
    }
    assert not wrong


def test_derivations_do_not_import_plumbing():
    """Modules with equations, and the engine below them, know nothing of commands,
    files or figures at import; how much memory there is they may ask.
    """
    below = (
        "symbols/algebra",
        "equations/equation",
        "dynamics/flow",
        "numbers/numeric",
        "symbols/special",
        "call/sweep",
        "numbers/lowered",
    )
    derived = [
        f for f in (ROOT / "theory").rglob("*.py") if "def equations()" in f.read_text()
    ]
    assert len(derived) > 30
    for file in (*derived, *(ROOT / "theory" / f"{name}.py" for name in below)):
        imports = (
            n for n in ast.parse(file.read_text()).body if isinstance(n, ast.ImportFrom)
        )
        names = {
            x.name
            for n in imports
            for x in n.names
            if n.module.startswith("theory.runtime")
        }
        assert names <= {"memory"}, file
