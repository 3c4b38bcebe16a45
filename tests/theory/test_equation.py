"""Equation, the compiler to numbers behind it,
and the algebra that derivations share.
"""

from __future__ import annotations

import pickle

import mpmath
import numpy as np
import pytest
import sympy as sp

from theory.call.refusal import ParameterError
from theory.equations.equation import STATUSES, Equation, table
from theory.numbers import numeric
from theory.symbols.algebra import (
    delta_gradient,
    delta_sum,
    gaussian_moment,
    linear_root,
    proved,
    vanishes,
    written_as,
)

x, y, size = sp.symbols("x y size", positive=True)
n, i, j, k = sp.symbols("n i j k", integer=True, positive=True)
v, w, M = sp.IndexedBase("v"), sp.IndexedBase("w"), sp.IndexedBase("M")
TOTAL = Equation(
    "total",
    x,
    y * sp.Sum(sp.exp(v[n]) * w[n], (n, 1, size)) + 1,
    "nowhere, Eq. (1)",
    "exact",
)


def test_status_outside_the_vocabulary_is_refused():
    """Four words, no others."""
    for status in STATUSES:
        assert Equation("e", x, y, "nowhere", status).status == status
    with pytest.raises(ValueError, match="status = 'nearly'.*exact"):
        Equation("e", x, y, "nowhere", "nearly")


def test_a_table_shares_what_its_equations_share():
    """Origin, status and assumptions of all; what one assumes besides; sides derived
    when read.
    """
    rows = table(
        "nowhere", "all", status="closure", one=(x, y), two=(x, lambda: y**2, "besides")
    )
    assert rows["one"] == Equation("one", x, y, "nowhere", "closure", ("all",))
    assert rows["two"].assumptions == ("all", "besides") and rows["two"].rhs == y**2


def test_a_row_gives_its_own_place_and_status():
    """The place comes third; a status after it holds for this row; what follows is
    assumed.
    """
    rows = table(
        "paper, {}".format,
        "all",
        status="exact",
        one=(x, y, "Eq. (1)", "besides"),
        two=(x, y, "Eq. (2)", "closure", "besides"),
        three=(x, y, "Eq. (3)"),
    )
    assert rows["one"] == Equation(
        "one", x, y, "paper, Eq. (1)", "exact", ("all", "besides")
    )
    assert rows["two"] == Equation(
        "two", x, y, "paper, Eq. (2)", "closure", ("all", "besides")
    )
    assert rows["three"] == Equation("three", x, y, "paper, Eq. (3)", "exact", ("all",))


def test_evaluate_by_name_symbol_and_entry():
    """Names the equation does not use are ignored; a missing one is named."""
    form = Equation("form", x, y**2 + M[i, j], "nowhere", "exact")
    assert form.evaluate({"y": 3, "unused": 0, M[i, j]: 2}) == 11
    assert form.evaluate({y: 3, M[i, j]: 2}) == 11
    with pytest.raises(ParameterError, match="form: no value for y"):
        form.evaluate({"unused": 0, M[i, j]: 2})


def test_evaluate_sums_over_arrays():
    """An indexed array takes the last axis of what it is given; everything else
    broadcasts.
    """
    values, weights = np.array([0.1, 0.2, 0.3]), np.array([1.0, -1.0, 2.0])
    expected = (np.exp(values) * weights).sum()
    given = {"y": np.array([[1.0], [2.0]]), "size": 3}
    found = TOTAL.evaluate({**given, "v": values, "w": weights})
    np.testing.assert_array_equal(
        TOTAL.evaluate({**given, v: values, w: weights}), found
    )
    np.testing.assert_allclose(
        found, 1 + np.array([[1.0], [2.0]]) * expected, rtol=1e-14
    )  # rounding of a short sum
    rows = TOTAL.evaluate(
        {"y": 1.0, "v": np.stack([values, values + 1]), "w": weights, "size": 3}
    )
    np.testing.assert_allclose(
        rows, 1 + expected * np.array([1.0, np.e]), rtol=1e-14
    )  # as above
    with mpmath.workdps(40):
        third = mpmath.mpf(1) / 3
        exact = TOTAL.evaluate(
            {"y": 1, "v": [third, third], "w": [1, 1], "size": 2}, modules="mpmath"
        )
        assert (
            abs(exact - 1 - 2 * mpmath.exp(third)) < mpmath.mpf(10) ** -38
        )  # rounding at 40 digits


def test_entries_at_places_and_sums_over_several_indices():
    """Places and ends of sums are numbers among the others; what lies outside is
    refused.
    """
    square = np.arange(1.0, 7).reshape(2, 3)
    every = Equation(
        "all", x, sp.Sum(M[i, j], (i, 1, size), (j, 1, size + 1)), "nowhere", "exact"
    )
    assert (
        every.evaluate({"M": square, "size": 2}) == square.sum()
    )  # indices in their order, too
    total = sp.Sum(M[i, j] * v[i], (i, 1, size), (j, 1, size + 1))
    form = Equation(
        "form", x, total + y * M[k, k + 1] * sp.KroneckerDelta(k, 2), "nowhere", "exact"
    )
    given = {"M": square, "v": [1, 10], "size": 2, "y": 0.5}
    assert form.evaluate(given | {"k": 1}) == 6 + 150
    assert form.evaluate(given | {"k": 2}) == 6 + 150 + 0.5 * 6
    with pytest.raises(
        ParameterError, match=r"M\[1, 3\]: not a place of an array of shape"
    ):
        form.evaluate(given | {"k": 2, "M": square[:, :2]})
    with pytest.raises(ParameterError, match=r"v\[0\]: not a place"):
        Equation("first", x, v[k], "nowhere", "exact").evaluate({"v": [1.0], "k": 0})
    with pytest.raises(ParameterError, match="k = 1.5: must be one whole number"):
        form.evaluate(given | {"k": 1.5})


def test_moments_of_gaussians():
    """Powers of one variable have double factorials; odd ones vanish; pairs by their
    covariance.
    """
    assert [gaussian_moment("x" * n, lambda p, q: y) for n in range(7)] == [
        1,
        0,
        y,
        0,
        3 * y**2,
        0,
        15 * y**3,
    ]
    c = {
        frozenset(pair): sp.Symbol("".join(pair))
        for pair in ("ab", "ac", "ad", "bc", "bd", "cd")
    }
    found = gaussian_moment("abcd", lambda p, q: c[frozenset((p, q))])
    ab, ac, ad, bc, bd, cd = c.values()
    assert sp.expand(found - ab * cd - ac * bd - ad * bc) == 0


def test_constants_are_broadcast():
    """A result that does not depend on an argument still has its shape."""
    constant, product = numeric.function([sp.Integer(2), x * y], [x, y])(
        np.ones(3), np.ones((2, 1))
    )
    assert constant.shape == product.shape == (2, 3) and (constant == 2).all()


def test_latex_and_substitution():
    """Both sides follow; lhs and rhs stay apart even when they are equal."""
    same = Equation("same", x, x + 0 * y, "nowhere", "exact")
    assert same.latex() == "x = x" and same.latex(align=True) == "x &= x"
    moved = Equation("e", x, y, "nowhere", "closure", ("assumed",)).subs(
        {x: 2 * y, y: sp.Integer(3)}
    )
    assert (moved.lhs, moved.rhs, moved.status, moved.assumptions) == (
        6,
        3,
        "closure",
        ("assumed",),
    )


def test_written_as_proves_what_it_prints():
    """The form asked for is returned, but only if it equals the derived one."""
    assert written_as((x + y) ** 2, x**2 + 2 * x * y + y**2) == (x + y) ** 2
    with pytest.raises(ArithmeticError, match="is not the derived"):
        written_as((x + y) ** 2, x**2 + y**2)


def test_a_step_that_does_not_hold_ends_a_derivation():
    """In words of the step."""
    proved(True, "the sides differ")
    with pytest.raises(ArithmeticError, match="^the sides differ$"):
        proved(False, "the sides differ")


def test_delta_sum():
    """Free indices lie in range; two limits resolve one after the other."""
    delta = sp.KroneckerDelta
    assert delta_sum(delta(i, j) * v[j] + 1, (j, 1, size)) == v[i] + size
    pairs = delta_sum((1 - delta(i, j)) * x, (i, 1, size), (j, 1, size))
    assert sp.expand(pairs - x * size * (size - 1)) == 0


def test_delta_gradient():
    """Derivative of a quadratic form with respect to one entry, against the unrolled
    sum.
    """
    form = 3 * sp.Sum(M[i, j] * v[i] * w[j], (i, 1, size), (j, 1, size)) / size
    a, b = sp.symbols("a b", integer=True, positive=True)
    assert delta_gradient(form, M[a, b]) == 3 * v[a] * w[b] / size
    unrolled = form.subs(size, 3).doit()
    assert sp.diff(unrolled, M[2, 3]) == delta_gradient(form, M[a, b]).subs(
        {size: 3, a: 2, b: 3}
    )
    with pytest.raises(TypeError, match="one sum"):
        delta_gradient(x, M[a, b])


def test_right_hand_side_is_derived_when_read():
    """Once, by whoever reads first; what is sent to another process is the result."""
    derived = []
    form = Equation("form", x, lambda: derived.append(1) or y**2, "nowhere", "exact")
    assert not derived and form.name == "form"
    assert form.rhs == form.rhs == y**2 and derived == [1]
    assert (
        pickle.loads(pickle.dumps(Equation("form", x, y**2, "nowhere", "exact")))
        == form
    )


@pytest.mark.parametrize(
    "zero",
    [
        1 / (x * (x + 1)) - 1 / x + 1 / (x + 1),
        (sp.exp(x) + 1) * sp.exp(-x) - 1 - sp.exp(-x),
        sp.sin(2 * x) - 2 * sp.sin(x) * sp.cos(x),
        sp.sec(x) ** 2 - 1 / sp.cos(x) ** 2,
        (1 - sp.exp(-x)) / (1 - sp.exp(x)) + sp.exp(-x),
    ],
    ids=str,
)
def test_what_vanishes(zero):
    """Identities on every road; five per cent, or a sign, off and they do not."""
    assert vanishes(zero)
    first = sp.Add.make_args(zero)[0]
    assert not vanishes(zero + first / 20) and not vanishes(zero - 2 * first)


def test_root_of_what_is_linear():
    """And of nothing else."""
    assert linear_root(2 * x * y - 6, y) == 3 / x
    for wrong in (y**2 - 1, x):
        with pytest.raises(ArithmeticError, match="is not linear in y"):
            linear_root(wrong, y)


def test_an_integrand_with_a_part_twice():
    """What occurs twice in it holds the variable of integration, and stays inside."""
    a, v = sp.symbols("a v", positive=True)
    part = sp.exp(-a * v)
    twice = sp.Integral(part / (1 + part), (v, 0, sp.oo))
    assert numeric.function(twice, [a])(2.0) == pytest.approx(np.log(2) / 2, rel=1e-9)
