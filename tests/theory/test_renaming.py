"""Symbols under other names: there and back, in everything that is printed, and
refusals.
"""

from __future__ import annotations

import re

import pytest
import sympy as sp

from theory import latex
from theory.call.refusal import ParameterError
from theory.equations import printing
from theory.equations.equation import Equation
from theory.equations.renaming import Renaming, _named
from theory.models import registry

x, y = sp.Symbol("x", positive=True), sp.Symbol("y", real=True)


def printed(*arguments, capsys):
    """What the command prints."""
    assert latex.main([*arguments]) == 0
    return capsys.readouterr().out


LARGE = (
    "induction_heads",
    "associative_memory",
)  # seconds; the smaller ones have every kind


@pytest.mark.parametrize(
    "model",
    [pytest.param(m, marks=[pytest.mark.slow] * (m in LARGE)) for m in registry.MODELS],
)
def test_there_and_back(model):
    """All names of every equation at once: none is left, and back again it is the
    equation.
    """
    equations = registry.find(model).wing("theory").equations().values()
    names = {str(s) for e in equations for side in (e.lhs, e.rhs) for s in _named(side)}
    there, back = {n: f"{n}xq" for n in names}, {f"{n}xq": n for n in names}
    for equation in equations:
        moved = Renaming(there).equation(equation)
        found = {str(s) for side in (moved.lhs, moved.rhs) for s in _named(side)}
        assert all(n.endswith("xq") for n in found), equation.name
        again = Renaming(back).equation(moved)
        assert again.lhs == equation.lhs and again.rhs == equation.rhs, equation.name
        assert again.latex() == equation.latex(), equation.name


def test_numbers_follow_their_names():
    """Values under the new names give the same number."""
    equation = registry.find("state_tracking").wing("theory").equations()["loss"]
    values = {"N": 7.0, "z_k": 0.3, "z_kbar": -0.1}
    moved = Renaming({"N": "T"}).equation(equation)
    assert moved.evaluate(values | {"N": 1.0, "T": 7.0}) == equation.evaluate(values)


def test_everything_printed_is_renamed(capsys):
    """Formulas, rates, table of symbols and assumptions; names of equations stay."""
    asked = (
        "--equation",
        "15",
        "--rename",
        "N=T",
        "--rename",
        "alpha=t",
        "--rename",
        "A=a",
    )
    out = printed(*asked, capsys=capsys)
    assert r"\frac{d}{d t} a = " in out and r"\alpha" not in out and "N" not in out
    out = printed(*asked, "--symbols", capsys=capsys)
    assert r"$T$ & states & " in out and r"first in dA\_dalpha" in out
    assert "epochs / (d\\_g T)" in out
    out = printed("--rename", "d_g=K", capsys=capsys)
    assert (
        r"d_{g}" not in out
        and r"K \textgreater{}= 3" in out
        and "d\\_g \\textgreater" not in out
    )


def test_two_symbols_change_places():
    """All at once, so that names can be swapped."""
    moved = Renaming({"x": "y", "y": "x"}).expression(x - y**2)
    assert moved == sp.Symbol("y", positive=True) - sp.Symbol("x", real=True) ** 2


def test_functions_arrays_and_bound_symbols():
    """Whatever is printed as a name: f(x), W[i], and the index of a sum."""
    f, W, i = (
        sp.Function("f"),
        sp.IndexedBase("W", real=True),
        sp.Symbol("i", integer=True),
    )
    expr = f(f(x)) + sp.Sum(W[i], (i, 1, y))
    moved = Renaming({"f": "h", "W": "V", "i": "j", "y": "n"}).expression(expr)
    assert (
        printing.expression(moved)
        == r"h{\left(h{\left(x \right)} \right)} + \sum_{j=1}^{n} {V}_{j}"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a plateau at ln a", "a plateau at ln b"),
        ("1/a at fixed n a: O(1/a)", "1/b at fixed n b: O(1/b)"),
        ("a = 1; a_0, A and sum_a", "b = 1; a_0, A and sum_a"),
    ],
)
def test_symbols_in_words(text, shown):
    """Whole names only, and not the article."""
    assert Renaming({"a": "b"}).words(text) == shown


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["x"], "--rename x: must be OLD=NEW, as in N=T"),
        (["x=2"], "--rename x=2: '2' is not a name, as T, tau or d_k"),
        (["x="], "--rename x=: '' is not a name, as T, tau or d_k"),
        (["x=u", "x=v"], "--rename x=v: x is renamed twice"),
        (["xx=u"], "--rename xx=u: no symbol xx; nearest are x, y, lambda"),
        (["x=y"], "--rename x=y: y is another symbol there, to be renamed, too"),
        (["x=u", "y=u"], "--rename y=u: x is another symbol there, to be renamed, too"),
        (["x=pi"], "--rename x=pi: pi is a constant"),
        (["x=e"], "--rename x=e: e is a constant"),
    ],
)
def test_refused(typed, message):
    """In one line that says why."""
    equation = Equation("f", y, x + sp.Symbol("lambda"), "here", "exact")
    with pytest.raises(ParameterError, match=f"^{re.escape(message)}$"):
        Renaming.read(typed, [equation])


def test_an_equation_is_renamed():
    """By a call: both sides and the assumptions; what it evaluates to follows; errors
    name it.
    """
    equation = Equation("f", y, x**2, "here", "exact", ("x > 0",))
    renamed = equation.rename({"x": "tau"})
    assert renamed.latex() == r"y = \tau^{2}" and renamed.assumptions == ("tau > 0",)
    assert renamed.evaluate({"tau": 3.0}) == equation.evaluate({"x": 3.0}) == 9
    assert renamed.rename({"tau": "x"}) == equation
    assert equation.rename({"x": "y", "y": "x"}).latex() == "x = y^{2}"
    for names, message in (
        ({"xx": "u"}, "rename xx=u: no symbol xx; nearest are x, y"),
        ({"x": "y"}, "rename x=y: y is another symbol there, to be renamed, too"),
        ({"x": "2"}, "rename x=2: '2' is not a name, as T, tau or d_k"),
        ({"x": 2}, "rename x=2: 2 is not a name, as T, tau or d_k"),
    ):
        with pytest.raises(ParameterError, match=f"^{re.escape(message)}$"):
            equation.rename(names)


def test_names_that_look_alike_are_refused():
    """`lamda` is SymPy's other spelling of lambda: two symbols would print as one."""
    equation = Equation("f", y, x + sp.Symbol("lambda"), "here", "exact")
    with pytest.raises(ParameterError, match="lambda is another symbol"):
        Renaming.read(["x=lamda"], [equation])


def test_refused_by_the_command():
    """In the whole document, T is taken."""
    with pytest.raises(ParameterError, match="--rename N=T: T is another symbol"):
        latex.main(["--rename", "N=T"])
