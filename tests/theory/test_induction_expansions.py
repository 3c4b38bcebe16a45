"""Sharp expansions of Theorem 2, the drop of the loss and the uniform query: constants
and high-precision evidence.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import sympy as sp
from later import Later

from theory import induction_heads as ih
from theory.call.refusal import ParameterError
from theory.induction_heads import Parameters, drop, dynamics, emergence, expansions
from theory.induction_heads.symbols import (
    E,
    N,
    beta,
    beta_c,
    gamma,
    kappa,
    s,
    tau,
    w,
    x,
)
from theory.numbers.numeric import function
from theory.symbols.algebra import truncated

eq = Later(ih.equations)


def coefficients(name: str) -> list[float]:
    """Coefficients of N^2, N, 1 and 1/N."""
    expr = sp.expand(eq[name].rhs)
    return [float(expr.coeff(N, k)) for k in (2, 1, 0, -1)]


RECORD = {  # digits on record
    "T_gamma": [0, 0.6931472, 0, -0.0198604],
    "T_beta": [0.9598504, 0.7901496, 0.4628694, 0],
    "T_alpha": [1.7112488, 0.6822206, 1.7100406, 0],
}


@pytest.mark.parametrize("name", RECORD)
def test_constants(name):
    """Seven digits of every coefficient."""
    np.testing.assert_allclose(
        coefficients(name), RECORD[name], atol=5.1e-8
    )  # half a unit of the last digit


def test_closed_forms():
    """The same coefficients as integrals: I(b) of exp(-u^2/2) and,
    at order 1, of c_2.
    """
    b = sp.Symbol("b", positive=True)
    integral = sp.sqrt(sp.pi / 2) * sp.erf(b / sp.sqrt(2))
    I = {v: integral.subs(b, v) for v in (sp.Rational(1, 2), 1)}
    first = coefficients("T_beta")
    assert first[0] == pytest.approx(float(2 * I[sp.Rational(1, 2)]), rel=1e-14)
    assert first[1] == pytest.approx(
        float(sp.Rational(7, 4) - 2 * I[sp.Rational(1, 2)]), rel=1e-14
    )
    second = coefficients("T_alpha")
    assert second[0] == pytest.approx(float(2 * I[1]), rel=1e-14)
    assert second[1] == pytest.approx(
        float(3 - sp.exp(-sp.Rational(1, 2)) - 2 * I[1]), rel=1e-14
    )
    e = sp.exp(b**2 / 2)
    c_2 = 3 * b**2 * e + e / 2 + 2 * b + 2 - 3 / e / 2
    # The boxed c_2: half its integral is what is left of the slow time at order 1.
    found = sp.diff(expansions.slow_time()[2], beta).subs(beta, b)
    assert float((found - c_2 / 2).subs(b, 0.7).evalf(20)) == pytest.approx(
        0, abs=1e-15
    )
    assert sp.simplify(found - c_2 / 2) == 0


def test_slow_manifold_and_layer_along_the_flow():
    """The equations at beta = 1/2 against the flow (B.5): what is left is of order
    N^-3, and the last order kept is seen; so it is of the layer at t = N.
    """
    b, size, step = 0.5, 256, 1e-4
    path = emergence.Path(size)
    early, at, late = (path.of_beta(b + k * step) for k in (-1, 0, 1))
    there = ih.flow().solve(
        Parameters.emergence(N=size, D=None), t=1.01 * float(at), at=[float(at)]
    )
    measured = {
        "alpha_slow": float(there.alpha[0]),
        "gamma_slow": float(there.gamma[0]),
        "slow_rate": 2 * size**2 * 2 * step / (late - early),
        "slow_time": at,
    }
    for name, value in measured.items():
        form = eq[name].rhs.subs({beta: b, x: 1 / sp.Integer(2 * size), N: size})
        assert value == pytest.approx(float(form), rel=size**-3)
    early = ih.flow().solve(
        Parameters.emergence(N=size, D=None), t=float(size), at=[float(size)]
    )
    # beta is of order 1/N itself, and has no term of order 1/N^2.
    for name, value, left in (
        ("beta", early.beta, size**-2),
        ("gamma", early.gamma, size**-3 / 5),
    ):
        layer = eq[f"{name}_layer"].rhs.subs({tau: 1, x: 1 / sp.Integer(2 * size)})
        assert float(value[0]) == pytest.approx(float(layer), rel=left)


def test_slow_manifold():
    """Rate of beta and gamma on the manifold to order x^2, against forms on record."""
    shift, of_gamma, speed = expansions.manifold()
    recorded = E * (
        1
        + x * (2 + 2 * (beta - 1) * E)
        + x**2
        * (
            sp.Rational(11, 2)
            + (6 * beta - 10) * E
            + (beta**2 - 8 * beta + sp.Rational(7, 2)) * E**2
        )
    )
    assert sp.expand(speed - recorded) == 0
    # gamma = gamma_star - x^2 E^2 (1 + beta^2)
    on = sp.symbols("sigma")
    star = (
        eq["gamma_star"]
        .rhs.subs(sp.Symbol("F", positive=True), 1 / x - 1)
        .subs(s, 1 + on)
    )
    of_p = sp.expand(
        truncated(E * sp.exp(shift) * x / (1 - 2 * x + x * E * sp.exp(shift)), 2, x)
    )
    of_s = truncated(sp.exp(beta * of_p) - 1, 2, x)
    difference = truncated(
        star.subs(on, of_s) - x**2 * E**2 * (1 + beta**2) - of_gamma, 2, x
    )
    assert sp.expand(difference) == 0


def test_layer():
    """Gamma in the layer to order x^2, against the form on record."""
    of_beta, of_gamma = expansions.layer()
    recorded = 1 - sp.exp(-tau) + x**2 * (tau - 2 + (2 + tau) * sp.exp(-tau))
    assert sp.expand(of_gamma - recorded) == 0
    assert sp.expand(of_beta.coeff(x, 1) - (tau - 1 + sp.exp(-tau))) == 0


@pytest.mark.parametrize(
    "expr",
    [
        sp.exp(x + x**2) / (1 - x),
        sp.sqrt(1 + 3 * x - x**2),
        sp.erf(1 + x),
        (1 / x + 2) * x**2,
        1 / (1 / x + sp.exp(x)),
        (sp.exp(x) - 1 - x - x**2 / 2) / x**3,
        x**2 / (sp.exp(beta * x) - 1 - beta * x),
        sp.exp((sp.erf(x) - 2 * x / sp.sqrt(sp.pi)) / x**3),
        sp.sin(x + beta) * sp.exp(x),
        (x - sp.sin(x)) / (x**3 * sp.cosh(x)),
        sp.tanh(beta * x) / sp.cos(x),
    ],
    ids=str,
)
def test_truncated_is_a_taylor_polynomial(expr):
    """Own arithmetic against SymPy's series, leading orders cancelled or not."""
    assert sp.simplify(truncated(expr, 3, x) - sp.series(expr, x, 0, 4).removeO()) == 0


@pytest.mark.parametrize(
    "expr",
    [sp.exp(1 / x), sp.log(x), 1 / ((1 + x) ** 2 - 1 - 2 * x - x**2), sp.LambertW(x)],
)
def test_what_has_no_taylor_polynomial_is_refused(expr):
    """Poles in a function's argument, the inverse of zero in disguise."""
    with pytest.raises(
        ValueError, match="no Taylor series|no leading power|not known at x = 0"
    ):
        truncated(expr, 2, x)


def test_thresholds():
    """General thresholds: 0.19967 N^2 and 0.86549 N^2 at the 0.1 of Fig. 5; others by
    the flow.
    """
    path = emergence.Path(10**6)
    for theta in (0.25, 0.8):
        for name, reached in (("beta", path.of_beta), ("alpha", path.of_alpha)):
            leading = eq[f"T_{name}_theta"].evaluate({"N": 1e6, "theta": theta})
            assert reached(theta) == pytest.approx(
                leading, rel=1e-5
            )  # next term of order N
    at = {"N": 1.0, "theta": 0.1}
    assert eq["T_beta_theta"].evaluate(at) == pytest.approx(0.19967, abs=5e-6)
    assert eq["T_alpha_theta"].evaluate(at) == pytest.approx(0.86549, abs=5e-6)
    for N_ in (10**4, 10**6):
        path = emergence.Path(N_)
        # next term of order N
        assert path.of_beta(0.1) / N_**2 == pytest.approx(0.199667, abs=2 / N_ + 1e-6)
        assert path.of_alpha(0.1) / N_**2 == pytest.approx(0.865486, abs=2 / N_ + 1e-6)


def test_inner_problem():
    """Rates against those of (B.5) at N = 10^20, beta = 10^8: what is left is of order
    1/beta. The series solves them.
    """
    of_w, of_gamma, series = (
        eq[f"drop_{n}"].rhs for n in ("dw_dtau", "dgamma_dtau", "gamma_series")
    )
    flow, size, b = ih.flow(), mpmath.mpf(10) ** 20, mpmath.mpf(10) ** 8
    for v, g in ((0.5, 0.7), (2.0, 1.6)):
        with mpmath.workdps(PRECISE):
            share = v / b  # p = e^alpha / (e^alpha + 2N - 2)
            state = (
                mpmath.log((2 * size - 2) * share / (1 - share)),
                b,
                mpmath.mpf(g),
                size,
            )
            a_, b_, g_ = (
                size * function(flow.expanded[x], [*flow.state, N], "mpmath")(*state)
                for x in flow.state
            )
            found = float(share * b_ + b * share * (1 - share) * a_), float(g_)
        expected = [float(form.subs({w: v, gamma: g})) for form in (of_w, of_gamma)]
        assert found == pytest.approx(expected, rel=10 / float(b))
    left = sp.diff(series, w) * of_w.subs(gamma, series) - of_gamma.subs(gamma, series)
    assert (
        sp.series(left, w, 0, 5).removeO() == 0 and series.subs(w, 0) == 1
    )  # known to w^4


def test_kappa():
    """Kappa and gamma at the blow-up, on record."""
    found = drop.blow_up()
    assert found["kappa"] == pytest.approx(0.9811115, abs=5e-8)
    assert found["gamma_blow_up"] == pytest.approx(
        1.9806298, abs=1e-7
    )  # 1.98062975, one unit of the last digit on record


def test_matching():
    """T_drop as on record."""
    recorded = (
        sp.sqrt(2 * sp.pi) * N**2
        - N * (beta_c - 1) ** 2
        + (2 - sp.sqrt(2 * sp.pi) + kappa) * N
    )
    assert sp.expand(eq["T_drop"].rhs - recorded) == 0
    assert float(2 - sp.sqrt(2 * sp.pi)) + drop.blow_up()["kappa"] == pytest.approx(
        0.4744832, abs=5e-8
    )
    b = float(eq["beta_c"].evaluate({"N": 1e6}))
    assert b * np.exp(b**2 / 2) == pytest.approx(2e6, rel=1e-12)  # rounding


def test_tail():
    """L t -> 1/4: no exponential convergence. N = 4 on record: 0.2605, 0.2486, 0.2483,
    0.2488 at t = 1e3..1e6; at other N what is left of the equation keeps falling.
    """
    assert eq["loss_tail"].evaluate({"t": 2.0}) == 0.125
    curve = ih.flow().solve(
        ih.Parameters.emergence(N=4, D=None), at=[1e3, 1e4, 1e5, 1e6], t=1e6
    )
    np.testing.assert_allclose(
        curve.loss * curve.t, [0.2605, 0.2486, 0.2483, 0.2488], atol=5.1e-5
    )
    for size in (2, 16):
        late = ih.flow().solve(
            ih.Parameters.emergence(N=size, D=None), at=[1e6, 1e8, 1e10], t=1e10
        )
        left = 1 - late.loss / [
            eq["loss_tail"].evaluate({"t": float(t)}) for t in late.t
        ]
        assert 0.01 > left[0] > 1.5 * left[1] > 2.25 * left[2] > 0


def test_uniform_query_slope():
    """2 N^2 / gamma times the mean slope on record: 3.21, 5.56, 7.87, 10.17;
    asymptotically ln N +
    0.9635.
    """
    exact = eq["mean_initial_slope"].rhs
    for size, recorded in {10: 3.21, 100: 5.56, 1000: 7.87, 10**4: 10.17}.items():
        odd = float(np.sum(1 / (2 * np.arange(1, size + 1) - 1)))
        scaled = 2 * (odd - (odd + size - odd / 2 - 0.5) / (2 * size))
        assert scaled == pytest.approx(recorded, abs=5.1e-3)
        if size <= 10:
            assert float(
                exact.subs(N, size).doit().subs(gamma, 1)
            ) * 2 * size**2 == pytest.approx(scaled, rel=1e-14)
    large = eq["large_initial_slope"].evaluate(
        {"N": 10**4, "gamma": 1.0, "gamma_E": np.euler_gamma}
    )
    assert 2e8 * large == pytest.approx(scaled, abs=1e-3)  # next term ln N / N
    # One pair queried alone, q = N: exactly 1 where the average gives ln N + 0.96.
    assert (
        sp.simplify(
            eq["initial_slope"]
            .rhs.subs(sp.Symbol("q", integer=True, positive=True), N)
            .doit()
            / gamma
            * 2
            * N**2
        )
        == 1
    )


def test_uniform_query_times():
    """Averaged over q the N^2 law gains a factor ln N: T ln N / N^2 stays of order 1
    while T / N^2 falls.
    """
    times = {n: dynamics.times(n) for n in (16, 64, 256)}
    ratio = [emergence.Path(n).of_beta() / times[n]["T_beta"] for n in times]
    # The slopes at the start are in the ratio ln N + 0.96, from which the ratio of
    # times is not far.
    np.testing.assert_allclose(ratio, np.log(list(times)) + 0.96, rtol=0.15)
    scaled = [times[n]["T_beta"] * np.log(n) / n**2 for n in times]
    assert max(scaled) / min(scaled) < 1.1 < ratio[2] / ratio[0]


PRECISE = 40


@pytest.mark.parametrize("size", [2, 16, 10**6])
@pytest.mark.parametrize(("b", "g"), [(0.01, -0.4), (0.5, 0.003), (3.0, 0.1)])
def test_rearranged_rates(size, b, g):
    """The numbers that are integrated against the symbolic flow at 40 digits."""
    with mpmath.workdps(PRECISE):
        m = mpmath.mpf
        at_b, at_g, n = m(b), m(g), 2 * m(size) - 2
        start = 1 / n + at_b**2 / 2
        a = (
            start - mpmath.lambertw(mpmath.exp(start) / n).real
            if size < 10**5
            else mpmath.findroot(
                lambda v: n * v + mpmath.expm1(v) - (m(size) - 1) * at_b**2, at_b**2 / 2
            )
        )
        flow = ih.flow()
        state = [*flow.state, N]
        rates = [
            function(flow.expanded[v], state, "mpmath")(a, at_b, 1 + at_g, m(size))
            for v in flow.state
        ]
        loss = function(flow._spell(flow.observables["loss"]), state, "mpmath")(
            a, at_b, 1 + at_g, m(size)
        )
        log_rate = mpmath.log(2 * m(size) ** 2 * rates[1]) - at_b**2 / 2
    assert emergence.alpha_of(b, size) == pytest.approx(float(a), rel=1e-15)  # rounding
    found = emergence.rates(b, g, size)
    # Some tens of roundings of terms of order g, b^2 or 1/N.
    assert float(found[0]) == pytest.approx(float(log_rate), rel=2e-14)
    assert float(found[1]) == pytest.approx(float(rates[2]), rel=2e-14)
    assert float(found[2]) == pytest.approx(float(loss), rel=1e-13)


def test_what_the_law_of_the_drop_leaves():
    """Followed through saturation: of either size, 0.3% at N = 10^8, where powers of
    1/N are gone; it grows in size up to there, and is largest near N = 10^22.
    """
    at, kappa = 10**8, drop.blow_up()["kappa"]
    numbers = {"N": float(at), "kappa": kappa}
    numbers["beta_c"] = float(drop.equations()["beta_c"].evaluate(numbers))
    law = float(drop.equations()["T_drop"].evaluate(numbers))
    assert drop.left_over(at) == pytest.approx(
        (emergence.Path(at).of_loss() - law) / at, rel=3e-3
    )
    assert drop.left_over(at) < drop.left_over(10**6) < 0
    with pytest.raises(ParameterError, match="N = 1000: must be >= 1e"):
        drop.left_over(1000)
    sizes = [drop.left_over(10**k) for k in (18, 22, 40)]
    assert sizes[1] == min(sizes) == pytest.approx(-0.012, rel=0.05)
