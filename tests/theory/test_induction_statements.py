"""Steps of the proofs of Musat et al. that stand beside the main equations: App. A
definitions, B.6, B.7, Sec. 7.1.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import sympy as sp
from later import Later

from theory import induction_heads as ih
from theory.call.refusal import ParameterError
from theory.induction_heads import Parameters, dynamics, emergence, structure
from theory.induction_heads.symbols import F, G, N, alpha, beta, gamma, r, s

RATES = Later(lambda: ih.flow().expanded)
EQ = Later(ih.equations)


def at(expr: sp.Expr, **values) -> sp.Expr:
    """Put numbers or expressions for alpha, beta, gamma and N."""
    return expr.subs(
        {x: values[x.name] for x in (alpha, beta, gamma, N) if x.name in values}
    )


@pytest.mark.parametrize("D", [2, 4])
def test_block_orthogonal_is_less_than_orthogonal(D):
    """Definitions 4-6, Remark 1: F F^T = I and F is block-diagonal or -antidiagonal;
    fewer elements leave more invariant.
    """
    small = {f.tobytes() for f in structure.group("position", D)}
    large = {e.tobytes() for e in structure.group("token", D)}
    half = D // 2
    for f in structure.group("position", D):
        a, b, c, d = f[:half, :half], f[:half, half:], f[half:, :half], f[half:, half:]
        assert (f @ f.T == np.eye(D)).all()
        assert ((a == d).all() and not b.any() and not c.any()) or (
            (b == c).all() and not a.any() and not d.any()
        )
    assert small < large  # Remark 1: not every orthogonal matrix is block-orthogonal
    assert set(structure.commutant("token", "token", D)) < set(
        structure.commutant("position", "position", D)
    )
    M = structure.swap(D)  # Definition 6
    assert (
        not M[:half, :half].any()
        and not M[half:, half:].any()
        and (M[:half, half:] == np.eye(half)).all()
    )
    assert (M @ M == np.eye(D)).all()


def test_room_for_orthonormal_pairs():
    """D >= 2N: a Gram matrix of 2N tokens has no zero eigenvalue at D = 2N, and always
    one in a dimension less; such sizes are refused.
    """
    for size in (2, 3):
        assert Parameters(N=size, D=2 * size, data="orthonormal").dimension == 2 * size
        tokens = np.random.default_rng(0).normal(size=(2 * size, 2 * size))
        ranks = [np.linalg.matrix_rank(x @ x.T) for x in (tokens, tokens[:, 1:])]
        assert ranks == [2 * size, 2 * size - 1]
        with pytest.raises(ParameterError, match=f"must be >= 2 N = {2 * size}"):
            Parameters(N=size, D=2 * size - 2, data="orthonormal")


def test_last_query_is_a_case_of_any_query():
    """Assumption 8: the loss at q = N is that of a general query, put at the end, at
    rational points.
    """
    general = EQ["loss_query"].rhs.subs(
        next(x for x in EQ["loss_query"].rhs.free_symbols if x.name == "Z_q"),
        EQ["query_normaliser"].rhs,
    )
    last = dynamics.spelled(EQ["loss"].rhs)
    (query,) = (x for x in general.free_symbols if x.name == "q")
    for point in itertools.product(
        (sp.Rational(1, 3), 2), (sp.Rational(1, 2), 3), (sp.Rational(4, 5),), (2, 5)
    ):
        values = dict(zip(("alpha", "beta", "gamma", "N"), point, strict=True))
        assert (
            abs(
                at(general.subs(query, N), **values).doit().evalf(30)
                - at(last, **values).evalf(30)
            )
            < 1e-28
        )
    assert (
        abs(
            at(general.subs(query, 1), **values).doit().evalf(30)
            - at(last, **values).evalf(30)
        )
        > 1e-3
    )


def test_what_the_last_query_needs():
    """After Assumption 8: nothing without gamma, at best 1 - 1/(2N) without beta; but
    alpha = 0 solves it as beta grows.
    """
    loss = dynamics.spelled(EQ["loss"].rhs)
    assert sp.simplify(at(loss, gamma=0)) == 1
    flat = at(loss, beta=0)
    best = sp.solve(sp.diff(flat, gamma), gamma)[0]
    assert sp.simplify(flat.subs(gamma, best) - EQ["plateau"].rhs) == 0
    untrained = at(loss, alpha=0, gamma=1, N=4)
    assert sp.limit(untrained, beta, sp.oo) == 0
    assert float(untrained.subs(beta, 100).evalf()) < 1e-4


def test_gradients_in_the_first_phase():
    """Sec. 7.1, B.6.2: gamma' = 1/N at the start; beta' = O(1/N^2), alpha' = O(1/N^3)
    with beta = O(1/N) until T_gamma.
    """
    assert sp.simplify(at(RATES[gamma], alpha=0, beta=0, gamma=0) - 1 / N) == 0
    loss = dynamics.spelled(EQ["loss"].rhs)
    assert (
        sp.simplify(at(loss, alpha=0, beta=0, gamma=1) - (1 - 1 / (2 * N))) == 0
    )  # better than predicting zero, less so with N
    assert sp.limit(
        N**2 * at(RATES[beta], alpha=0, beta=0, gamma=1), N, sp.oo
    ) == sp.Rational(1, 2)
    sizes, scaled = (16, 64, 256), []
    for size in sizes:
        found = ih.flow().solve(
            Parameters.emergence(N=size, D=None),
            t=float(size),
            at=[0.0],
            events={"half": gamma - sp.Rational(1, 2)},
        )
        end = ih.flow().solve(
            Parameters.emergence(N=size, D=None),
            t=float(found.half),
            at=[float(found.half)],
        )
        scaled.append((size * float(end.beta[0]), size**2 * float(end.alpha[0])))
        early = emergence.Path(size).curve(float(found.half))
        state = [early[x].values for x in ("alpha", "beta", "gamma")]
        for rate, most in (
            (RATES[beta], 0.26 / size**2),
            (RATES[alpha], 0.025 / size**3),
        ):
            along = sp.lambdify((alpha, beta, gamma, N), rate)(*state, size)
            assert (
                along.max() < most
            )  # they tend to 1/4 and (ln 2 - 1/2)/8 = 0.0241 at the end
    scaled = np.array(scaled)
    # Leading law: beta' = gamma/(2 N^2), gamma = 1 - e^-t/N; beta(T_gamma) = (ln 2 -
    # 1/2)/(2N), alpha = beta^2/2.
    expected = (np.log(2) - 0.5) / 2
    assert scaled[-1] == pytest.approx(
        (expected, expected**2 / 2), rel=0.02
    )  # corrections of order 1/N
    assert (
        abs(scaled[-1] - (expected, expected**2 / 2)).max()
        < abs(scaled[0] - (expected, expected**2 / 2)).max()
    )


def test_parameters_grow():
    """B.6.3: all rates are positive for 0 < alpha, beta, gamma <= 1/2, N >= 2, and zero
    only where what drives them is (gamma for beta, both for alpha); gamma turns only
    above its best value.
    """
    inside = dynamics.flow().rhs[beta]
    bracket = sp.simplify(inside / (2 * F * s * dynamics.p * gamma / r**2))
    assert (
        sp.simplify(bracket - (1 - gamma * (s - 1) / r)) == 0
    )  # positive: s - 1 < r = s + F and gamma < 1
    # alpha' is a positive multiple of beta beta' (B.7.3), gamma' a sum of such terms: s
    # >= 1.
    sum_of_two = s**2 * (1 - gamma) + F * (s - gamma)
    left = (dynamics.flow().rhs[gamma] * r**2 / 2 - sum_of_two).subs(r, s + F)
    assert sp.simplify(left) == 0
    grid = [0.0, 0.25, 0.5]
    compiled = [
        sp.lambdify((alpha, beta, gamma, N), RATES[x]) for x in (alpha, beta, gamma)
    ]
    for a, b, g, size in itertools.product(grid, grid, grid, (2, 3, 10, 1000)):
        for rate, grows in zip(compiled, (b * g > 0, g > 0, True), strict=True):
            assert rate(a, b, g, size) > 0 if grows else rate(a, b, g, size) == 0
    best = EQ["gamma_star"].rhs
    assert sp.simplify(dynamics.flow().rhs[gamma].subs({gamma: best, r: s + F})) == 0


def test_beta_outruns_alpha():
    """B.7.3: alpha' = beta (2N - 2)/(e^alpha + 2N - 2) beta', a factor below one while
    beta <= 1/2.
    """
    ratio = sp.simplify(RATES[alpha] / RATES[beta])
    assert sp.simplify(ratio - beta * (2 * N - 2) / (sp.exp(alpha) + 2 * N - 2)) == 0
    for a, b, size in itertools.product(
        (0.0, 0.25, 0.5), (0.01, 0.25, 0.5), (2, 10, 1000)
    ):
        up, over = (
            float(at(RATES[x], alpha=a, beta=b, gamma=0.7, N=size))
            for x in (alpha, beta)
        )
        assert 0 < up < b * over <= over / 2


def test_beta_phase_is_of_order_n_squared():
    """B.7.2: N^2 beta' lies between two constants while 1/2 <= gamma <= 3/2 and 0 <=
    alpha, beta <= 1/2, for all N >= 2: each factor at its worst corner.
    """
    inside = 2 * gamma * F * s * dynamics.p * (1 - gamma * (s - 1) / r) / r**2
    assert sp.simplify((dynamics.flow().rhs[beta] - inside).subs(r, s + F)) == 0
    size = sp.Symbol("size", positive=True)
    odd, most = 2 * size - 1, sp.exp(sp.Rational(1, 2))
    share = 1 / odd, most / (most + 2 * size - 2)  # p rises with alpha
    power = 1, sp.exp(share[1] / 2)  # s rises with beta and p
    low = size**2 * odd * share[0] / (power[1] + odd) ** 2
    low *= 1 - sp.Rational(3, 2) * (power[1] - 1) / (2 * size)
    high = 3 * size**2 * odd * power[1] * share[1] / (1 + odd) ** 2
    assert sp.limit(low, size, sp.oo) == sp.Rational(1, 4)
    assert sp.limit(high, size, sp.oo) == 3 * most / 4
    sizes = np.concatenate([np.arange(2, 2000), np.logspace(4, 8)])
    bounds = [sp.lambdify(size, x)(sizes) for x in (low, high)]
    assert 0.19 < bounds[0].min() and bounds[1].max() < 1.3
    compiled = sp.lambdify((alpha, beta, gamma, N), N**2 * RATES[beta])
    a, b, g = (
        np.random.default_rng(0).uniform([0, 0, 0.5], [0.5, 0.5, 1.5], (1000, 3)).T
    )
    for n, least, largest in zip(sizes, *bounds, strict=True):
        if n in (2, 5, 50):
            rates = compiled(a, b, g, n)
            assert least < rates.min() and rates.max() < largest
    # The time that beta takes from 1/4 to 1/2, over N^2: 2 exp(-beta^2/2) of every
    # step, and 1/N.
    spent = [
        (path.of_beta(0.5) - path.of_beta(0.25)) / size**2
        for size in (64, 512, 4096)
        for path in [emergence.Path(size)]
    ]
    limit = float(sp.integrate(2 * sp.exp(-(beta**2) / 2), (beta, 0.25, 0.5)))
    assert limit == pytest.approx(0.465, abs=5e-4)
    assert spent == pytest.approx([limit] * 3, rel=0.01)
    assert spent[2] == pytest.approx(limit, rel=1e-3)


def test_abbreviations_spelled_out():
    """What the tests above put numbers into has no abbreviation left."""
    assert {x for q in RATES.values() for x in q.free_symbols} == {
        alpha,
        beta,
        gamma,
        N,
    }
    assert not dynamics.spelled(EQ["loss"].rhs).has(G, F, r, s)
