"""The rotary sums: lambda_n, the Dirichlet kernel, c(A) and c_omega, against explicit
sums.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import mpmath
import numpy as np
import pytest
import sympy as sp

from theory import state_tracking
from theory.numbers import numeric
from theory.numbers.numeric import dirichlet_kernel
from theory.state_tracking import Parameters, attention
from theory.state_tracking.model.symbols import W_K2, W_Q2, A, L

N_SYMBOL, X_SYMBOL = (
    sp.Symbol("n", integer=True, positive=True),
    sp.Symbol("x", real=True),
)


@cache
def compiled(modules: str):
    """The kernel as a function of (x, n)."""
    return numeric.function(
        dirichlet_kernel(X_SYMBOL, N_SYMBOL), [X_SYMBOL, N_SYMBOL], modules
    )


def explicit_lambda(omega, length):
    """Mean of cos(omega (i - k)) over all pairs of different positions: the definition
    behind (70).
    """
    total = mpmath.fsum(
        mpmath.cos(omega * (i - k))
        for i in range(length)
        for k in range(length)
        if i != k
    )
    return total / (length * (length - 1))


@pytest.mark.parametrize("length", [2, 3, 7, 10, 20])
@pytest.mark.parametrize(
    "omega", ["0.001", "0.37", "1", "2.9", "3.14159", "5", "6.2", "40.1"]
)
def test_lambda_is_the_double_sum(length, omega):
    """(70) against the sum over positions."""
    with mpmath.workdps(30):
        omega = mpmath.mpf(omega)
        form = state_tracking.equations()["lambda"].lambdify(
            L, attention.w, modules="mpmath"
        )(length, omega)
        # 30 digits carried; the bracket cancels like 1e-6 at omega = 0.001.
        assert abs(form - explicit_lambda(omega, length)) < mpmath.mpf(10) ** -22


@pytest.mark.parametrize("length", [2, 5, 10])
@pytest.mark.parametrize("turns", [0, 1, 3])
def test_lambda_tends_to_one_at_whole_turns(length, turns):
    """Towards omega = 2 pi m the printed form approaches 1 quadratically, which the
    kernel takes on there.
    """
    with mpmath.workdps(60):
        form = state_tracking.equations()["lambda"].lambdify(
            L, attention.w, modules="mpmath"
        )
        gaps = []
        for exponent in (3, 6, 9):
            step = mpmath.mpf(10) ** -exponent
            gaps.append((1 - form(length, 2 * mpmath.pi * turns + step)) / step**2)
        # lambda = 1 - omega^2 <(i-k)^2>/2 + O(omega^4), and <(i-k)^2> = L (L+1)/6 over
        # pairs i != k.
        slope = mpmath.mpf(length * (length + 1)) / 12
        for exponent, gap in zip((3, 6, 9), gaps, strict=True):
            assert abs(gap / slope - 1) < length**2 * mpmath.mpf(10) ** (
                -2 * exponent
            )  # next order
    whole = (L * dirichlet_kernel(2 * sp.pi * turns, L)) ** 2
    assert sp.simplify(((whole / L - 1) / (L - 1)).subs(L, length)) == 1


def explicit_c_omega(p):
    """(14) by explicit plane-wave sums: no kernel, no ratio of sines, 2 pi at full
    precision.
    """
    total = mpmath.mpf(0)
    for n in range(1, p.d_h // 2 + 1):
        omega = mpmath.mpf(p.rope_theta) ** (-mpmath.mpf(2 * (n - 1)) / p.d_h)
        if p.rope == "2pi":
            omega *= 2 * mpmath.pi
        elif p.rope == "linear":
            omega = 2 * mpmath.pi * (1 - mpmath.mpf(2 * (n - 1)) / p.d_h)
        wave = mpmath.fsum(mpmath.expj(omega * k) for k in range(1, p.L + 1))
        total += (1 - abs(wave) ** 2 / p.L**2) ** 2
    return mpmath.mpf(2 * p.d_g * p.N) / (p.L * (p.L - 1)) / 3 * 2 / p.d_h * total


SETTINGS = [
    (Parameters.table_1(), 2.28348746822971),
    (Parameters.table_2(), 0.98982727567),
    (Parameters.demo(), 0.7637831369),
    (Parameters(rope="linear"), None),
    (Parameters(rope="linear", L=7, N=5, d_g=9, d_h=6), None),
    (Parameters(rope="plain", d_h=2, L=3), None),
    (Parameters(L=2, rope_theta=3.0), None),
]


@pytest.mark.parametrize(("p", "known"), SETTINGS, ids=range(len(SETTINGS)))
def test_c_omega(p, known):
    """The number against the explicit sum, and against the values on record."""
    with mpmath.workdps(30):
        expected = float(explicit_c_omega(p))
    # Double precision: 1e-15 per term; frequencies near 2 pi lose nothing, as the
    # kernel is flat there.
    assert state_tracking.c_omega(p) == pytest.approx(expected, rel=1e-13)
    if known is not None:
        assert state_tracking.c_omega(p) == pytest.approx(
            known, rel=1e-10
        )  # ten digits are recorded


def test_c_omega_in_arbitrary_precision():
    """The mpmath road of the same equation."""
    p = Parameters.table_2()
    with mpmath.workdps(30):
        omega = [
            mpmath.mpf(p.rope_theta) ** (-mpmath.mpf(2 * n) / p.d_h)
            for n in range(p.d_h // 2)
        ]
        values = p.values() | {"omega": omega, "sigma2": mpmath.mpf(1) / 3}
        form = state_tracking.equations()["c_omega"].evaluate(values, modules="mpmath")
        assert (
            abs(form / explicit_c_omega(p) - 1) < mpmath.mpf(10) ** -25
        )  # 30 digits, a few lost to 1 - D^2


def test_no_positional_information_no_constant():
    """A block with omega = 2 pi is blind: alone (d_h = 2) it leaves nothing, among
    others it adds nothing.
    """
    assert state_tracking.c_omega(Parameters(d_h=2)) == 0.0
    assert state_tracking.c_omega(Parameters(d_h=2, rope="linear")) == 0.0
    whole = state_tracking.equations()["c_omega"]
    values = Parameters.table_1().values()
    last = sp.Symbol("last")  # the same formula, summed over the other blocks alone
    of_others = whole.rhs.replace(
        lambda e: isinstance(e, sp.Sum),
        lambda e: sp.Sum(e.function, (e.variables[0], 1, last)),
    )
    others = values | {"omega": values["omega"][1:], "last": len(values["omega"]) - 1}
    assert whole.evaluate(values) == pytest.approx(
        replace(whole, rhs=of_others).evaluate(others), rel=1e-14
    )  # same sum, reordered


def test_single_action():
    """L = 1: the constant is 0, and so is the limit of every term of (14)."""
    assert state_tracking.c_omega(Parameters(L=1)) == 0.0
    x, w = sp.Symbol("x", positive=True), sp.Rational(7, 5)
    term = (1 - dirichlet_kernel(w, x).rewrite(sp.sin) ** 2) ** 2 / (x * (x - 1))
    assert sp.limit(term, x, 1) == 0
    assert dirichlet_kernel(X_SYMBOL, 1) == 1


@pytest.mark.parametrize("terms", [2, 3, 4, 9, 10])
@pytest.mark.parametrize("turns", [-2, -1, 0, 1, 2, 5])
def test_kernel_at_whole_turns(terms, turns):
    """Exact value, limit of the ratio of sines, NumPy and mpmath agree at 2 pi m: sign
    (-1)^(m (n-1)).
    """
    expected = (-1) ** abs(turns * (terms - 1))
    assert dirichlet_kernel(2 * sp.pi * turns, sp.Integer(terms)) == expected
    assert (
        sp.limit(
            dirichlet_kernel(X_SYMBOL, terms).rewrite(sp.sin),
            X_SYMBOL,
            2 * sp.pi * turns,
        )
        == expected
    )
    assert compiled("numpy")(2 * np.pi * turns, terms) == expected
    # mpmath: the argument is 2 pi m rounded to 15 digits, where the kernel is flat.
    assert abs(compiled("mpmath")(2 * mpmath.pi * turns, terms) - expected) < 1e-14


def test_kernel_stays_symbolic_elsewhere():
    """No value is made up for a generic argument; it prints as the ratio of sines."""
    kernel = dirichlet_kernel(X_SYMBOL, N_SYMBOL)
    assert kernel.func is dirichlet_kernel
    assert kernel.rewrite(sp.sin) == sp.sin(N_SYMBOL * X_SYMBOL / 2) / (
        N_SYMBOL * sp.sin(X_SYMBOL / 2)
    )
    assert r"\frac{\sin" in sp.latex(kernel) and sp.latex(kernel**2).endswith("^{2}")


def test_kernel_to_any_number_of_digits():
    """SymPy's own evaluation, which must not mistake the kernel for mpmath's function
    of that name.
    """
    with mpmath.workdps(50):
        exact = kernel_by_sum(mpmath.mpf(3) / 5, 7)
        found = dirichlet_kernel(sp.Rational(3, 5), 7).evalf(40)
        assert (
            abs(mpmath.mpf(str(found)) - exact) < mpmath.mpf(10) ** -38
        )  # 40 digits asked for


def kernel_by_sum(x, terms):
    """Mean of the phases e^{i x k} about their centre: no division by a small sine."""
    return (
        mpmath.fsum(
            mpmath.cos(x * (k - mpmath.mpf(terms - 1) / 2)) for k in range(terms)
        )
        / terms
    )


def test_kernel_numpy_against_mpmath():
    """Random points and sizes."""
    draw = np.random.default_rng(1)
    xs, ns = draw.uniform(-20, 20, 300), draw.integers(1, 40, 300)
    found = compiled("numpy")(xs, ns)
    for x, n, value in zip(xs, ns, found, strict=True):
        exact = kernel_by_sum(mpmath.mpf(x), int(n))
        # n x/2 is rounded to 1e-16 * 400 and divided by n sin(x/2): 5e-13 at the
        # closest of these points.
        assert abs(value - exact) < 5e-13
        assert (
            abs(compiled("mpmath")(mpmath.mpf(x), int(n)) - exact) < 5e-13
        )  # as above


@pytest.mark.parametrize("digits", [15, 30])
@pytest.mark.parametrize("distance", ["1e-3", "1.5e-5", "1e-8", "1e-18"])
@pytest.mark.parametrize("terms", [2, 10])
def test_kernel_near_zero_in_arbitrary_precision(digits, distance, terms):
    """Close to x = 0, where nothing cancels,
    mpmath must deliver its working precision.
    """
    with mpmath.workdps(digits):
        x = mpmath.mpf(distance)
        found = compiled("mpmath")(x, terms)
        with mpmath.workdps(60):
            error = abs(found - kernel_by_sum(x, terms))
        assert error < mpmath.mpf(10) ** (2 - digits)  # a few roundings


@pytest.mark.parametrize(
    ("length", "d_h", "seed"), [(2, 2, 0), (4, 6, 1), (7, 8, 2), (10, 4, 3)]
)
@pytest.mark.parametrize("value", [0.05, 0.4, 0.93])
def test_gradient_of_attention(length, d_h, seed, value):
    """(69) against the chain (62)-(68), with random keys and queries and the ansatz for
    the attention.
    """
    draw = np.random.default_rng(seed)
    key, query = draw.uniform(-1, 1, (2, d_h))
    omega = draw.uniform(0.05, 6.2, d_h // 2)

    def turn(offset):
        block = np.zeros((d_h, d_h))
        for n, w in enumerate(omega):
            cos, sin = np.cos(w * offset), np.sin(w * offset)
            block[2 * n : 2 * n + 2, 2 * n : 2 * n + 2] = [[cos, -sin], [sin, cos]]
        return block

    by_query, by_key = np.zeros(d_h), np.zeros(d_h)
    for i in range(1, length + 1):
        for k in range(1, length + 1):
            entry = value if i == k else (1 - value) / (length - 1)
            step = value * ((i == k) - entry) / length  # (65) times (66)
            by_query += step * turn(k - i - length) @ key / np.sqrt(d_h)  # (67)
            by_key += step * turn(i + length - k) @ query / np.sqrt(d_h)  # (68)
    size = 5 * 3  # d_g N
    chain = size * (by_query @ by_query + by_key @ by_key)
    lam = [float(explicit_lambda(w, length)) for w in omega]
    norms = {
        W_Q2: (query.reshape(-1, 2) ** 2).sum(-1),
        W_K2: (key.reshape(-1, 2) ** 2).sum(-1),
    }
    form = state_tracking.equations()["c_ansatz"].evaluate(
        {"d_g": 5, "N": 3, "d_h": d_h, "A": value, attention.lambda_: lam, **norms}
    )
    assert form == pytest.approx(
        chain, rel=1e-12
    )  # rounding of about 100 terms of either sign


@pytest.mark.parametrize("length", [2, 5])
def test_softmax_derivative(length):
    """(66) against the derivative of an explicit softmax row, exactly."""
    entries = sp.symbols(f"l_1:{length + 1}", real=True)
    row = [sp.exp(x) / sum(sp.exp(y) for y in entries) for x in entries]
    form = state_tracking.equations()["softmax_derivative"].rhs
    for i in range(length):
        for k in range(length):
            at = {attention.pi[attention.i]: row[i], attention.pi[attention.k]: row[k]}
            expected = form.subs(
                {sp.KroneckerDelta(attention.i, attention.k): int(i == k)}
            ).subs(at)
            assert sp.simplify(sp.diff(row[i], entries[k]) - expected) == 0


def test_closure_meets_the_ansatz_at_the_start_only():
    """L c_omega A(1-A) equals the averaged (69) at A = 1/L; at A = 1/2 it is smaller by
    L^2/(4(L-1)).
    """
    forms = [state_tracking.equations()[x].rhs for x in ("c_closure", "c_ansatz_mean")]
    assert sp.simplify(forms[0].subs(A, 1 / L) - forms[1].subs(A, 1 / L)) == 0
    ratio = (forms[1] / forms[0]).subs(A, sp.Rational(1, 2))
    assert sp.simplify(ratio - L**2 / (4 * (L - 1))) == 0
