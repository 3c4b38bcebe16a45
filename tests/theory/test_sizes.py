"""Sizes from 1 to 10^18, integer or float: formulas agree with mpmath, or give a
one-line error.

Could see: an integer that overflows on its way (c_omega was negative at N d_g = 10^19),
a formula that takes whole and floating-point sizes differently, and one that ends in a
traceback.
"""

import random
import re
import warnings

import mpmath
import numpy as np
import pytest
import sympy as sp
from test_generic import MODELS, fraction, wrong

from theory.call.refusal import ParameterError
from theory.dynamics import flow as flow_module
from theory.dynamics.onset import Onset
from theory.equations.equation import Equation
from theory.numbers import numeric
from theory.state_tracking import Parameters, flow
from theory.state_tracking.quadrature import emergence_time

SIZES = (1, 2, 3, 7, 1000, 10**6, 10**7, 3 * 10**9, 10**12, 10**15, 10**18)
MIXED = 6  # further points, at which every size is drawn by itself
# of sums that are added up term by term: refusal is tested here, speed elsewhere
TERMS = 2000
DIGITS = 60  # of the reference: 18 may cancel, twice
# Those that overflowed, and two whose sums have ends that must be whole.
QUICK = {
    "c_omega",
    "c_ansatz_mean",
    "delta_S_mean",
    "dA_dalpha",
    "dloss_dA",
    "early_R",
    "early_S",
    "onset_difference",
    "classes_right",
    "token_mean",
    "first_gain",
    "equal_overlaps_softmax",
    "mean_initial_slope",
    "loss_query_inclusive",
}

CANCELLING = {"margin_flow"}  # y - W_0(e^y / (K - 1)), of order t/N


def symbols_of(expr):
    """Sizes, other symbols and single entries, and arrays of an expression."""
    bound = {v for s in expr.atoms(sp.Sum) for v in s.variables}
    entries = {x for x in expr.atoms(sp.Indexed) if not bound & x.free_symbols}
    free = {
        q
        for q in expr.xreplace({x: sp.S.One for x in entries}).free_symbols
        if q.is_Symbol
    } - bound
    free -= {base.label for base in expr.atoms(sp.IndexedBase)}
    sizes = sorted((q for q in free if q.is_integer), key=str)
    others = [*sorted(free - set(sizes), key=str), *sorted(entries, key=str)]
    arrays = sorted(
        {x.base for s in expr.atoms(sp.Sum) for x in s.function.atoms(sp.Indexed)},
        key=str,
    )
    return sizes, others, arrays


def has_sizes(equation):
    """Whether an equation is a formula of sizes, without integrals or unknown
    functions.
    """
    unknown = equation.rhs.has(sp.Integral, sp.Product) or equation.rhs.atoms(
        sp.core.function.AppliedUndef
    )
    return not unknown and bool(symbols_of(equation.rhs)[0])


def outcome(call):
    """A number; "refused" where one line says why, "undefined" where the formula itself
    divides by zero.
    """
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return complex(call())
    except ParameterError as error:
        assert "\n" not in str(error)
        return "refused"
    except (ZeroDivisionError, ValueError):  # a pole
        return "undefined"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_formulas_at_any_size(model, every, monkeypatch):
    """Every formula with sizes, all equal and each drawn by itself; arrays under a sum
    have three entries.
    """
    monkeypatch.setattr(numeric, "MOST_TERMS", TERMS)
    assert (
        wrong(model, lambda e: any_size(e) if every or e.name in QUICK else None) == {}
    )


def any_size(equation):
    """The assertion above for one equation."""
    if not has_sizes(equation):
        return
    draw = random.Random(equation.name)
    sizes, others, arrays = symbols_of(equation.rhs)
    values = {q: fraction(draw) for q in others}
    entries = {base: [fraction(draw) for _ in range(3)] for base in arrays}
    points = [[size] * len(sizes) for size in SIZES] + [
        [draw.choice(SIZES) for _ in sizes] for _ in range(MIXED)
    ]
    exactly, compiled = (
        outcome_of_compiling(equation, [*sizes, *others, *arrays], modules)
        for modules in ("mpmath", "numpy")
    )
    if isinstance(exactly, str):
        assert exactly == compiled == "refused"
        return
    with mpmath.workdps(DIGITS):
        exact = [mpmath.mpf(v.p) / v.q for v in values.values()]
        rows = [[mpmath.mpf(v.p) / v.q for v in row] for row in entries.values()]
    for point in points:
        with mpmath.workdps(DIGITS):
            expected = outcome(lambda p=point: exactly(*p, *exact, *rows))
        for kind in (int, float):
            found = outcome(
                lambda p=point, k=kind: compiled(
                    *map(k, p),
                    *map(float, values.values()),
                    *(np.array(row, float) for row in entries.values()),
                )
            )
            if expected == "undefined":
                assert 1 in point or not np.isfinite(found), (
                    point,
                    kind,
                )  # the parameters exclude 1 where it is a pole
            elif expected == "refused" or not np.isfinite(expected):
                assert found == "refused" or not np.isfinite(found), (point, kind)
            else:
                # Of 16 digits, 7 may be lost where terms cancel. At a size of 1 a
                # quantity may vanish: rounding of O(1).
                near = 1e-15 if 1 in point else 0
                if (
                    equation.name in CANCELLING
                ):  # two numbers of O(1): what is left has their rounding
                    near = 4e-16
                assert found == pytest.approx(expected, rel=1e-9, abs=near), (
                    point,
                    kind,
                )


def outcome_of_compiling(equation, arguments, modules):
    """A callable, or "refused"."""
    try:
        return equation.lambdify(*arguments, modules=modules)
    except ParameterError as error:
        assert "\n" not in str(error)
        return "refused"


def test_whole_numbers_do_not_overflow():
    """The fault itself: three billion squared in 64-bit integers is -9.4e18, and as
    arrays it has no other sign.
    """
    N, d_g = sp.symbols("N d_g", integer=True)
    product = Equation("product", N, N * d_g, "test, 1", "exact")
    for value in (3 * 10**9, np.int64(3 * 10**9), np.full(2, 3 * 10**9), 3e9):
        assert np.all(product.evaluate({"N": value, "d_g": value}) == 9e18)
    assert product.evaluate({"N": 2**70, "d_g": 1}) == 2.0**70  # beyond 64 bits


@pytest.mark.parametrize(
    ("N", "named"),
    [
        (2.5, "N = 2.5"),
        (10**18, "1e+18 terms"),
        (np.inf, "N = inf"),
        (np.arange(3), "N = "),
    ],
)
def test_ends_of_sums_are_whole_and_near(N, named):
    """A loop of 10^18 terms would never end."""
    N_, k = sp.symbols("N k", integer=True)
    harmonic = Equation("harmonic", N_, sp.Sum(1 / k, (k, 1, N_)), "test, 1", "exact")
    assert harmonic.evaluate({"N": 4.0}) == pytest.approx(
        25 / 12, rel=1e-15
    )  # one rounding per term
    with pytest.raises(ParameterError, match=named.replace("+", r"\+")):
        harmonic.evaluate({"N": N})


@pytest.mark.slow
def test_most_formulas_are_held_against_mpmath():
    """Few have entries of arrays that nothing sums over,
    which is why they are refused.
    """
    models = (m.values[0] for m in MODELS)
    held = [
        e for m in models for e in m.wing("theory").equations().values() if has_sizes(e)
    ]
    assert {e.name for e in held} >= QUICK
    open_ = [
        e
        for e in held
        if any(
            x.base in symbols_of(e.rhs)[2]
            for x in symbols_of(e.rhs)[1]
            if isinstance(x, sp.Indexed)
        )
    ]
    assert len(held) > 400 and len(open_) <= 23


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"R_0": 1e300}, "R_0 - S_0 = 1e+300"),
        ({"S_0": -1e300}, "R_0 - S_0 = 1e+300"),
        ({"A_0": 5e-324}, "A_0 = 4.94066e-324"),
    ],
    ids=str,
)
def test_an_emergence_time_beyond_double_precision_is_refused_by_name(change, named):
    """NaN means that attention dies; where a square overflows it does not."""
    with pytest.raises(ParameterError, match=re.escape(named)):
        emergence_time(Parameters(**change).values())


@pytest.mark.parametrize(
    "change",
    [
        {"eta": 5e-324},
        {"eta": 1e300},
        {"S_0": 1e300},
        {"R_0": 1e300},
        {"zeta": 1e300},
        {"N": 10**18},
    ],
    ids=str,
)
@pytest.mark.parametrize("alpha", [5e-324, 1e300])
def test_a_flow_at_legal_extremes_is_finite_or_refused_by_name(
    change, alpha, monkeypatch
):
    """Also one that would never end: with fewer evaluations allowed than by default, to
    be quick.
    """
    monkeypatch.setattr(flow_module.Flow._functions, "__defaults__", (3000,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            curve = flow().solve(Parameters(**change), alpha=alpha)
        except ParameterError as error:
            assert "\n" not in str(error) and re.match(
                r"\w+ = \S+( \(.* steps\))?: "
                r"(state_tracking (leaves|needs more than 3e\+03 evaluations)|must be)",
                str(error),
            )
        else:
            assert all(np.isfinite(curve[x]).all() for x in "ARS")


def test_an_onset_says_what_is_not_finite():
    """A number that overflowed is refused, one that is absent for a reason is not."""
    parts = dict(labels={"T": "a time"}, notes=[], curves={}, equations=[], plot=print)
    assert (
        Onset(numbers={"T": np.inf}, absent={"T": "never"}, **parts).table().split()[-3]
        == "never"
    )
    with pytest.raises(ParameterError, match="T = inf"):
        Onset(numbers={"T": np.inf}, absent={}, **parts)
