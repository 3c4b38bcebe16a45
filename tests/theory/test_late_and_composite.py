"""Late time, rest of S, sharp onset and the composite: records, limits by Richardson,
stated errors.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import scipy.integrate
import sympy as sp
from later import Later

from theory import state_tracking
from theory.call.refusal import ParameterError
from theory.numbers import numeric
from theory.numbers.numeric import wright_omega
from theory.state_tracking import Parameters, composite, exact, inversion, late_time
from theory.state_tracking import composite as in_numbers
from theory.state_tracking.composite import lock_function
from theory.state_tracking.late_time import late_constant
from theory.state_tracking.model.symbols import N, alpha, d_g, eta, tau
from theory.state_tracking.onset import equations as onset_equations
from theory.state_tracking.quadrature import emergence_time

TABLE_1 = Parameters()
LATE, LARGE = (Later(m.equations) for m in (late_time, composite))
ONSET = Later(onset_equations)
HALF = composite.H(
    sp.sqrt(2) * sp.sqrt(-sp.log(1 - exact.level))
)  # as it stands in alpha_level_large_L


def sized(length, ratio=1.0, **changes):
    """Numbers of a system of any size: N = d_g = ratio L, c_omega = 2."""
    v = {
        "N": ratio * length,
        "d_g": ratio * length,
        "L": length,
        "eta": 0.5,
        "c_omega": 2.0,
        "zeta": 0.0,
        "tau": 1 / (ratio * length),
        "A_0": 1 / length,
        "R_0": 0.0,
        "S_0": 0.0,
    }
    return v | changes


def kappa(v):
    """Steepness."""
    return exact.equations()["kappa"].evaluate(v)


def richardson(values, powers, factor):
    """Eliminate the given powers of a variable that falls by ``factor`` from value to
    value.
    """
    for power in powers:
        weight = factor**power
        values = [
            (weight * b - a) / (weight - 1)
            for a, b in zip(values, values[1:], strict=False)
        ]
    return values[-1]


def test_special_functions():
    """W_0(e^x): its equation, derivative, mpmath and huge arguments; the polylogarithm
    over arrays.
    """
    z = sp.Symbol("z", real=True)
    omega = wright_omega(z)
    f = numeric.function([omega, omega.diff(z)], [z])
    value, slope = f(np.array([-50.0, 0.0, 1.0, 1e4]))
    np.testing.assert_allclose(
        value + np.log(value), [-50, 0, 1, 1e4], rtol=1e-14, atol=1e-15
    )  # rounding
    np.testing.assert_allclose(slope, value / (1 + value), rtol=1e-15)
    with mpmath.workdps(30):
        high = numeric.function(omega, [z], "mpmath")(mpmath.mpf(2))
        assert abs(high + mpmath.log(high) - 2) < mpmath.mpf("1e-28")
    assert float(omega.subs(z, 1).evalf()) == pytest.approx(1, rel=1e-15)
    assert r"W_{0}^{2}\left(e^{z}\right)" in sp.latex(omega**2)
    order = sp.polylog(2, z)
    np.testing.assert_allclose(
        numeric.function(order, [z])(np.array([0.0, 1.0])),
        [0, np.pi**2 / 6],
        rtol=1e-14,
    )


def test_margin_at_constant_attention():
    """Solves dm/dalpha = N/(N-1) lift eta g, from m_0; at A = 1 the logit is R and the
    lift 1.
    """
    m = LATE["coasting_margin"].rhs.subs(late_time.X, LATE["coasting_clock"].rhs)
    steady = {late_time.lift: 0.7, late_time.m_0: 0.3, N: 6, eta: 0.5}
    for time in (0.0, 1.0, 50.0):
        at = {**steady, alpha: time}
        rate = 6 / 5 * 0.7 * 0.5 / (1 + np.exp(float(m.subs(at).evalf())) / 5)
        assert float(m.diff(alpha).subs(at).evalf()) == pytest.approx(
            rate, rel=1e-12
        )  # rounding
    assert float(m.subs({**steady, alpha: 0}).evalf()) == pytest.approx(0.3, rel=1e-12)


def test_plateau_contains_the_early_time():
    """At A = A_0 and to first order in alpha, the constant-attention form is (78)."""
    early = state_tracking.equations()
    lift = LATE["coasting_lift"].rhs.subs({exact.pace: 1, exact.drift: 0})
    c_R = early["c_R"].rhs
    by_early = c_R * early["early_R"].rhs + (1 - c_R) * early["early_S"].rhs
    start = {sp.Symbol("A", real=True): sp.Symbol("A_0", positive=True)}
    by_lift = (lift * eta * alpha * (N - 1) / N).subs(start)  # g = (N-1)/N where m = 0
    assert sp.simplify(by_early.subs(start) - by_lift) == 0


def test_late_time_of_table_1():
    """C on record; from it R to rounding at any late time, also where e^x overflows."""
    v = TABLE_1.values()
    v |= {"C": late_constant(v)}
    assert v["C"] == pytest.approx(-1.023958350, abs=5e-10)  # on record to ten digits
    times = np.array([10.0, 1e3, 1e6, 1e12])
    curve = inversion.solve(TABLE_1, times)
    np.testing.assert_allclose(
        LATE["late_R"].evaluate(v | {"alpha": times}), curve.R, rtol=1e-11
    )  # 1e-11 at alpha = 10
    np.testing.assert_allclose(
        LATE["late_loss"].evaluate(v | {"alpha": times}),
        curve.loss,
        rtol=1e-10,
        atol=1e-15,
    )  # ln(1 + 1/W) rounds
    left = (
        LATE["late_integral"]
        .lhs.subs({"N": 32})
        .subs(
            {s: 0 for s in LATE["late_integral"].lhs.free_symbols if "zeta" in s.name}
        )
    )
    assert left.free_symbols  # R and N only
    clock = curve.R.values + np.exp(curve.R.values * 32 / 31) / 32
    np.testing.assert_allclose(clock, 0.5 * times + v["C"], rtol=1e-9)


@pytest.mark.parametrize("zeta", [0.4, -1.5])
def test_late_time_at_another_sum_of_logits(zeta):
    """R and the loss against the inverted solution; the sum of logits is conserved, and
    not 0.
    """
    p, times = TABLE_1.replace(zeta=zeta), np.array([10.0, 1e3, 1e6])
    v = p.values() | {"C": late_constant(p.values()), "alpha": times}
    curve = inversion.solve(p, times)
    # As at zeta = 0: 1e-11 and 1e-10 of what is left at alpha = 10.
    np.testing.assert_allclose(LATE["late_R"].evaluate(v), curve.R, rtol=1e-11)
    np.testing.assert_allclose(
        LATE["late_loss"].evaluate(v), curve.loss, rtol=1e-10, atol=1e-15
    )


def test_late_constant_is_its_integral():
    """The stated integral over D, with the solution put in, by nested adaptive
    quadrature.
    """
    p = Parameters(N=7, d_g=5, L=6, eta=0.8, zeta=0.4, A_0=0.3, R_0=0.2, S_0=-0.1)
    n, actions, k, start = p.N, p.d_g, kappa(p.values()), p.R_0 - p.S_0

    def along(d):
        attention = -np.expm1(-k / 2 * (d**2 - start**2) + np.log1p(-p.A_0))
        off = (
            scipy.integrate.quad(
                lambda u: (
                    1 / (-np.expm1(-k / 2 * (u**2 - start**2) + np.log1p(-p.A_0))) - 1
                ),
                start,
                d,
                epsabs=1e-13,
                epsrel=1e-13,
            )[0]
            / actions
            + p.S_0
        )
        return attention, (
            n * (off + (attention + (1 - attention) / actions) * d) - p.zeta
        ) / (n - 1)

    (integral,) = LATE["late_constant"].rhs.atoms(sp.Integral)
    functions = sorted(
        integral.function.atoms(sp.core.function.AppliedUndef),
        key=lambda f: f.func.__name__,
    )
    assert [f.func.__name__ for f in functions] == ["A", "m"]
    d = integral.variables[0]
    integrand = sp.lambdify(
        [*functions, d], integral.function.subs({N: n, d_g: actions, exact.kappa: k})
    )
    total = scipy.integrate.quad(
        lambda d: integrand(*along(d), d),
        start,
        30,
        epsabs=1e-11,
        epsrel=1e-11,
        limit=200,
    )[0]
    expected = p.R_0 + np.exp(along(start)[1]) / n + total
    assert late_constant(p.values()) == pytest.approx(
        expected, rel=1e-9, abs=1e-9
    )  # the quadratures


def test_logarithmic_growth():
    """R/ln(alpha) -> (N-1)/N and alpha loss -> (N-1)/(N eta); the stated forms hold to
    O(ln(alpha)/alpha).
    """
    v = TABLE_1.values() | {
        "C": late_constant(TABLE_1.values()),
        "alpha": np.array([1e6, 1e9]),
    }
    R, grown = (LATE[q].evaluate(v) for q in ("late_R", "late_growth"))
    assert (
        np.abs(R / grown - 1) < 40 / (0.5 * v["alpha"])
    ).all()  # dropped: R itself beside eta alpha
    assert (R[1] - R[0]) / np.log(1e3) == pytest.approx(
        31 / 32, rel=1e-5
    )  # R/alpha at 1e6
    loss, decay = (LATE[q].evaluate(v) for q in ("late_loss", "late_decay"))
    assert (
        np.abs(loss / decay - 1) < 40 / (0.5 * v["alpha"]) + 3e-16 * v["alpha"]
    ).all()  # ln(1 + 1/W) rounds


def test_off_target_rest():
    """Table 1 on record; polylogarithm, series of erfc, and the quadrature agree, also
    for D_0 of either sign.
    """
    v = TABLE_1.values()
    centred = LATE["off_target_limit_centred"].evaluate(v | {"kappa": kappa(v)})
    assert centred == pytest.approx(0.0329645656, abs=5e-11)
    assert float(inversion.solve(TABLE_1, [50.0]).S[0]) == pytest.approx(
        centred, rel=1e-12
    )  # rounding
    with mpmath.workdps(30):  # the definition of the polylogarithm, summed
        y, whole = (
            mpmath.mpf("0.9"),
            mpmath.nsum(
                lambda n: mpmath.mpf("0.9") ** n / mpmath.sqrt(n), [1, mpmath.inf]
            ),
        )
        assert abs(mpmath.polylog(mpmath.mpf(1) / 2, y) - whole) < mpmath.mpf("1e-25")
    (series,) = LATE["off_target_limit"].rhs.atoms(sp.Sum)
    for start in (-0.05, 0.08):
        p = TABLE_1.replace(R_0=start)
        named = {"kappa": kappa(p.values()), "A_0": 0.1, "D_0": start}
        term = sp.lambdify(
            series.variables[0],
            series.function.subs(
                {
                    q: named[q.name]
                    for q in series.function.free_symbols
                    if q.name in named
                }
            ),
            "mpmath",
        )
        total = sum(term(n) for n in range(1, 2000))  # ratio below 0.95: e^-100 is left
        assert float(inversion.solve(p, [80.0]).S[0]) == pytest.approx(
            float(total) / p.d_g, rel=1e-12
        )


def test_rest_of_the_composite(monkeypatch):
    """S at rest, as the composite puts it into its margin: the polylogarithm of the
    exact limit, up to the next order, 1/L.
    """
    for length in (100.0, 10_000.0):
        v, put = sized(length), {}
        table = composite.equations()

        class Watched:
            """The equation of alpha, which keeps what it is given."""

            def __init__(self, equation, kept):
                self.equation, self.kept = equation, kept

            def evaluate(self, numbers):
                self.kept |= {str(q): x for q, x in numbers.items()}
                return self.equation.evaluate(numbers)

        watched = Watched(table["alpha_composite"], put)
        with monkeypatch.context() as patch:
            patch.setattr(
                in_numbers,
                "equations",
                lambda table=table, watched=watched: {
                    **table,
                    "alpha_composite": watched,
                },
            )
            in_numbers.composite(v, [0.0, 0.1])
        measured = put["S_inf"] * v["d_g"] * np.sqrt(2 * kappa(v) / np.pi)
        exact_value = float(
            mpmath.polylog(mpmath.mpf(1) / 2, 1 - mpmath.mpf(1) / length)
        )
        # Li_1/2(e^-x) = sqrt(pi/x) + zeta(1/2) - zeta(-1/2) x: the last term is 0.2 x,
        # x = 1/L.
        assert abs(measured - exact_value) < 0.3 / length


def test_lock_function():
    """Against mpmath; odd; at infinity z + sqrt(pi/2) zeta(1/2) + 2/z."""
    for z in (1e-3, 0.7, 3.0, 8.99, 9.01):
        with mpmath.workdps(40):  # the bracket cancels near 0
            exact_value = mpmath.quad(
                lambda t: 1 / (-mpmath.expm1(-(t**2) / 2)) - 2 / t**2, [0, z / 2, z]
            )
        assert lock_function(z) == pytest.approx(float(exact_value), rel=1e-13)
        assert lock_function(-z) == -lock_function(z)
    far = lock_function(1e4) - 1e4 - 2e-4
    assert far == pytest.approx(
        float(mpmath.sqrt(mpmath.pi / 2) * mpmath.zeta(0.5)), abs=1e-11
    )  # 1e4 to 1e-16


@pytest.mark.parametrize("ratio", [1.0, 3.0])
def test_composite_error(ratio):
    """At all times: A to O(1/L), R to O(L^-3/2), as stated; constants as measured, and
    the powers by L -> 100 L.
    """
    errors = {}
    for length in (10, 1_000, 100_000):
        v = sized(float(length), ratio)
        knee = 8 / np.sqrt(kappa(v))
        path = np.concatenate(
            [np.linspace(0, knee, 300), np.linspace(knee, 6 + np.log(length), 150)[1:]]
        )
        curve = in_numbers.composite(v, path)
        truth = inversion.states(v, curve["alpha"])
        assert (
            curve["alpha"][0] == 0
            and (np.diff(curve["alpha"]) > 0).all()
            and curve["A"][-1] > 0.999
        )
        errors[length] = [np.abs(curve[q] - truth[q]).max() for q in "ARS"]
        assert (
            errors[length][0] < 0.13 / length and errors[length][1] < 0.31 / length**1.5
        )
    powers = -np.log(np.array(errors[100_000]) / np.array(errors[1_000])) / np.log(100)
    assert powers[0] == pytest.approx(1, abs=0.1) and powers[1] == pytest.approx(
        1.5, abs=0.1
    )
    assert powers[2] > 1.4  # S itself is of order 1/L


@pytest.mark.parametrize(
    "wrong",
    [{"R_0": -1.0}, {"R_0": 1.0}, {"c_omega": 0.0}, {"tau": 0.0}, {"eta": np.ones(2)}],
)
def test_composite_refuses(wrong):
    """One line where it does not hold."""
    with pytest.raises(ParameterError, match="composite: must be one point"):
        in_numbers.composite({**sized(10.0), **wrong}, [0.0, 1.0])


def test_large_L_expansion_of_the_onset():
    """eta sqrt(kappa/L) alpha_half over L^-1/2: limit and two corrections by
    Richardson, at N = d_g = 1e15.
    """
    lengths = 4.0 ** np.arange(6, 15)
    ratio = [1e15 / q for q in lengths]
    scaled = np.array(
        [
            float(emergence_time(sized(q, r))) * 0.5 * np.sqrt(2.0)
            for q, r in zip(lengths, ratio, strict=True)
        ]
    )
    small = lengths**-0.5
    limit = np.pi / np.sqrt(2)
    first = lock_function(np.sqrt(2 * np.log(2))) - np.sqrt(2 / np.log(2))
    second = -np.pi / (4 * np.sqrt(2))
    assert richardson(scaled, (1, 2, 3, 4, 5), 2) == pytest.approx(limit, abs=1e-10)
    assert richardson((scaled - limit) / small, (1, 2, 3, 4), 2) == pytest.approx(
        first, abs=1e-7
    )
    # Two divisions by 5e-4: 1e-15 becomes 4e-9, and Richardson multiplies it by some
    # ten.
    assert richardson(
        (((scaled - limit) / small - first) / small)[:6], (1, 2, 3, 4), 2
    ) == pytest.approx(second, abs=1e-6)
    for q, r in zip(lengths[:3], ratio, strict=False):
        v = {
            **sized(q, r),
            "a": 0.5,
            "kappa_L": kappa(sized(q, r)) / q,
            HALF: lock_function(np.sqrt(2 * np.log(2))),
        }
        assert (
            abs(LARGE["alpha_level_large_L"].evaluate(v) - emergence_time(sized(q, r)))
            < 2 * q**-1.5
        )


def test_sharp_onset_is_the_limit_of_large_sizes():
    """alpha_half -> alpha_star with N = d_g = L; N -> infinity at fixed L by Richardson
    in 1/N.
    """
    star = float(ONSET["alpha_star"].evaluate(sized(10.0)))
    assert star == pytest.approx(np.pi / (0.5 * np.sqrt(4.0)), rel=1e-15)
    halves = [float(emergence_time(sized(q))) for q in 4.0 ** np.arange(5, 14)]
    assert richardson(halves, (1, 2, 3, 4, 5), 2) == pytest.approx(star, abs=1e-8)
    wide = [float(emergence_time(sized(10.0, q))) for q in 2.0 ** np.arange(8, 14)]
    endless = float(emergence_time(sized(10.0, 1e13)))
    assert richardson(wide, (1, 2, 3), 2) == pytest.approx(endless, rel=1e-11)


def test_sharp_onset_at_large_size():
    """On record: N = d_g = 1e5, L = 3e4, alpha = 2: A L is 3.425 by the flow, 3.4255 by
    sec^2,
    2.718 by (81).
    """
    v = sized(3e4, 1e5 / 3e4, alpha=2.0)
    found = [
        inversion.states(v, [2.0])["A"][0],
        ONSET["onset_sharp"].evaluate(v),
        ONSET["onset_A"].evaluate(v),
    ]
    assert np.array(found) * 3e4 == pytest.approx([3.425, 3.4255, 2.718], abs=5e-4)


def test_onset_secant_from_any_start():
    """With D_0 and finite sizes kept: relative error O(A) while A is small."""
    v = sized(1e6, R_0=4e-7, S_0=0.0)
    points = v | {"kappa": kappa(v), "D_0": 4e-7}
    points["epsilon"] = exact.equations()["epsilon"].evaluate(points)
    times = np.array([0.5, 1.5, 2.2])
    truth = inversion.states(v, times)
    proper = (
        (truth["S"] - v["S_0"]) * v["d_g"] + truth["R"] - truth["S"] - 4e-7
    )  # S = (T - D + D_0)/d_g
    found = ONSET["onset_secant"].evaluate(points | {"T": proper})
    np.testing.assert_allclose(found, truth["A"], rtol=10 * truth["A"].max())
    assert (
        sp.simplify(
            exact.equations()["kappa"].rhs.subs(tau, 1 / N).subs({N: 3, d_g: 2})
        )
        != 0
    )
