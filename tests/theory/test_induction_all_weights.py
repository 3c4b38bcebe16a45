"""All weights: redundant pseudo-parameters, the law against the flow, its limit of
large N, and invalid input.
"""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
import scipy.integrate
import sympy as sp
from later import Later

from theory.call.refusal import ParameterError
from theory.induction_heads import dynamics, emergence, network, structure
from theory.induction_heads.all_weights import descent as times
from theory.induction_heads.all_weights import law, plateau, running, scores
from theory.induction_heads.symbols import alpha, beta, gamma
from theory.symbols.algebra import vanishes

NAMES = running.NAMES
# With gamma_3, a second induction head: match first, then shift by one position.
TWIN = ("alpha_1", "beta_10")


def test_what_the_strict_mask_freezes():
    """alpha_2 has no gradient, two pairs have equal ones: twelve numbers; the inclusive
    mask moves fifteen.
    """
    assert scores.redundant("strict") == (
        ("alpha_2",),
        (("beta_7", "beta_9"), ("beta_8", "beta_11")),
    )
    assert scores.redundant("inclusive") == ((), ())
    assert len(times.moving("strict")) - 2 == 12 and len(
        times.moving("inclusive")
    ) == 15 == len(structure.reachable())


@pytest.mark.parametrize("mask", ["strict", "inclusive"])
@pytest.mark.parametrize("query", [1, 3, 5, "uniform"])
def test_gradient_is_the_slope_of_the_loss(mask, query):
    """Central differences; exact zeros and equalities where they are claimed, and no
    other zeros.
    """
    theta = 0.5 * np.random.default_rng(1).standard_normal(19)
    gradient = running.loss_and_gradient(theta, 5, query, mask)[1]
    step = 1e-5
    slopes = [
        (
            running.loss_and_gradient(theta + step * x, 5, query, mask)[0]
            - running.loss_and_gradient(theta - step * x, 5, query, mask)[0]
        )
        / (2 * step)
        for x in np.eye(19)
    ]
    np.testing.assert_allclose(
        gradient, slopes, atol=1e-9
    )  # step^2, and rounding over the step
    still = [n for n in NAMES if n not in times.moving(mask)]
    assert [n for n, v in zip(NAMES, gradient, strict=True) if v == 0] == still
    for a, b in scores.redundant(mask)[1]:
        assert gradient[NAMES.index(a)] == pytest.approx(
            gradient[NAMES.index(b)], rel=1e-12
        )  # rounding


def test_cost_is_proportional_to_the_pairs():
    """Memory per pair does not grow (of an N x N array it would, tenfold; 10^10 steps
    of a loop would not end); the loss of three numbers is (B.3).
    """
    at = {"alpha": 0.4, "beta": 9.0, "gamma": 0.8}
    point = dict(zip(("alpha_3", "beta_2", "gamma_3"), at.values(), strict=True))
    theta = np.array([point.get(n, 0.0) for n in NAMES])
    loss = dynamics.spelled(dynamics.equations()["loss"].rhs)
    per_pair: dict[str, list[float]] = {"last": [], "uniform": []}
    running.loss_and_gradient(theta, 2, 2)  # what it takes to compile is not counted
    for N in (10**4, 10**5):
        for name, query in (("last", N), ("uniform", "uniform")):
            tracemalloc.start()
            found = running.loss_and_gradient(theta, N, query)[0]
            per_pair[name].append(tracemalloc.get_traced_memory()[1] / N)
            tracemalloc.stop()
            if query == N:
                put_in = {x: (at | {"N": N})[x.name] for x in loss.free_symbols}
                exact = float(loss.subs(put_in).evalf(30))
                assert 1 - found == pytest.approx(
                    1 - exact, rel=1e-9
                )  # rounding of 1, over 1/N
    assert all(large < 2 * small for small, large in per_pair.values())


def test_flow_of_five_is_descent_on_its_loss():
    """The Flow, the O(1) code and the flow of all weights: the same at the start, close
    to the drop.
    """
    N, at = 16, np.array([40.0, 150.0])
    curve = plateau.flow().solve(
        type("Point", (), {"values": lambda self: {"N": N}})(), at=at, t=200.0
    )
    run = times.descend(
        lambda x: law.loss_and_gradient(x, N), N, plateau.FIVE, horizon=200 / N**2
    )
    for name in plateau.FIVE:
        np.testing.assert_allclose(
            curve[name], [run.sol(t / N)[NAMES.index(name)] for t in at], atol=1e-7
        )  # two integrators


@pytest.mark.parametrize(
    "query", ["uniform", pytest.param("last", marks=pytest.mark.slow)]
)
def test_law_without_a_fit(query):
    """Drop within 2 ln N / N of the flow of all weights, and closer at the larger N;
    Theorem 2's order only for uniform q.
    """
    error, enough = {}, 1e-6  # the law is off by percents
    for N in (8, 64):
        flow = times.times(N, query, rtol=enough)
        predicted = law.predicted(N, query, rtol=enough)
        error[N] = {n: abs(predicted[n] / flow[n] - 1) for n in flow}
        assert max(error[N].values()) < 2 * np.log(N) / N
    assert all(error[64][n] < error[8][n] for n in error[8])
    assert (flow["T_beta"] < flow["T_alpha"]) == (query == "uniform")


def test_means_over_pairs():
    """Quadrature beyond the explicit pairs: sums of p and p^2 against all pairs, at two
    values of e^alpha.
    """
    N = 10**5
    pairs, weights = law.nodes(N)
    q = np.arange(1.0, N + 1)
    for e in (3.0, 5e4):
        for power in (1, 2):
            whole = np.mean((e / (e + 2 * q - 2)) ** power)
            # An integral for a sum from pair 2049 on: 1/(24 q^2) of its terms.
            assert float(weights @ (e / (e + 2 * pairs - 2)) ** power) == pytest.approx(
                whole, rel=1e-8
            )


def test_large_sizes_for_the_last_pair():
    """4 N^2 / (ln N + c1 + c2 / ln N) is right to (ln N)^-3; with c2 wrong by 20% it
    would not be.
    """
    eq, c = law.equations(), law.constants()
    gap = {}
    for L in (40.0, 400.0):
        exact = law.slow_drop(L)
        form = eq["T_drop_all_last"].rhs.subs(sp.log(law.N), L) / law.N**2
        gap[L] = (
            float(
                form.subs(
                    {law.mean_phi: c["mean_phi"], law.variance_phi: c["variance_phi"]}
                )
            )
            / exact
            - 1
        )
    assert (
        5 < gap[40.0] * 40**3 < 25 and 5 < gap[400.0] * 400**3 < 25
    )  # a constant over three decades, near 12
    wrong = (
        4
        / (400 + c["mean_phi"] + 1.2 * (4 - c["variance_phi"]) / 400)
        / law.slow_drop(400.0)
        - 1
    )
    assert abs(wrong) * 400**3 > 100


def test_drop_of_the_last_pair_grows_slower_than_that_of_three_numbers():
    """T ln N / N^2 tends to 4 from above, far out."""
    scaled = [law.slow_drop(L) * L for L in (10.0, 20.0, 100.0, 400.0)]
    assert scaled == sorted(scaled, reverse=True) and 4 < scaled[-1] < 4.02


EQ = Later(lambda: plateau.equations() | law.equations())
BETA = law.beta_2
LEFT = 1e-4  # relative: some e^alpha / N at the smaller of two sizes


def rates(size, query, **theta):
    """N^2 times the rates of alpha_3, beta_2 and half of gamma_3 - gamma_2 by the loss
    of five numbers; gamma_2 + gamma_3 is held by a gradient of order N.
    """
    point = np.array([theta.get(n, 0.0) for n in NAMES])
    down = -(size**2) * law.loss_and_gradient(point, size, query)[1]
    found = dict(zip(NAMES, down, strict=True))
    return np.array(
        [found["alpha_3"], found["beta_2"], (found["gamma_3"] - found["gamma_2"]) / 2]
    )


def per_logarithm(query, **theta):
    """What ln N multiplies in these rates; what is left out is of order e^alpha / N."""
    few, many = (rates(size, query, **theta) for size in (10**6, 10**8))
    return (many - few) / np.log(100)


@pytest.mark.parametrize("b", [0.6, 1.7])
def test_law_of_the_uniform_query(b):
    """alpha_3 and gamma_3 over beta_2 are where the flow goes, from 0 and 1/2 on;
    T_drop is the integral of one over the rate of beta_2 along them.
    """
    a, third = EQ["all_alpha_uniform"].rhs, EQ["all_gamma_uniform"].rhs
    at = {
        "beta_2": b,
        "alpha_3": float(a.subs(BETA, b)),
        "gamma_3": float(third.subs(BETA, b)),
    }
    found = per_logarithm("uniform", **at, gamma_2=1 - at["gamma_3"])
    slopes = [float(sp.diff(form, BETA).subs(BETA, b)) for form in (a, third)]
    assert [found[0] / found[1], found[2] / found[1]] == pytest.approx(slopes, rel=LEFT)
    assert (a.subs(BETA, 0), third.subs(BETA, 0)) == (0, sp.Rational(1, 2))
    pace = third * sp.exp(a) / 2
    assert found[1] == pytest.approx(float(pace.subs(BETA, b)), rel=LEFT)
    time = scipy.integrate.quad(sp.lambdify(BETA, 1 / pace), 0, 30)[0]
    drop = EQ["T_drop_all_uniform"].evaluate({"N": np.e}) / np.e**2
    assert drop == pytest.approx(time, rel=1e-9)  # quadrature


def test_law_of_the_last_pair():
    """gamma_3 over beta_2 is where the flow goes from 1 on, at gamma_2 + gamma_3 = 2,
    gamma_4 = -1; T_alpha is the integral of one over the rate of alpha_3.
    """
    third = EQ["all_gamma_last"].rhs
    assert third.subs(BETA, 0) == 1
    for b, a in ((0.3, 0.2), (0.9, 1.3)):
        at = {
            "beta_2": b,
            "alpha_3": a,
            "gamma_3": float(third.subs(BETA, b)),
            "gamma_4": -1.0,
        }
        at["gamma_2"] = 2 - at["gamma_3"]
        _, of_beta, of_gamma = rates(10**8, "last", **at)
        assert of_gamma / of_beta == pytest.approx(
            float(sp.diff(third, BETA).subs(BETA, b)), rel=LEFT
        )
        assert per_logarithm("last", **at)[0] == pytest.approx(np.exp(a) / 4, rel=LEFT)
    spent = scipy.integrate.quad(lambda a: 4 * np.exp(-a), 0, 0.5)[0]
    found = EQ["T_alpha_all_last"].evaluate({"N": np.e}) / np.e**2
    assert found == pytest.approx(spent, rel=1e-12)  # quadrature


def test_first_layer_solves_the_loss():
    """Gamma and gamma_4 of the last pair in time:
    their rates at tau = 0.9 by the loss.
    """
    size, (tau,) = 10**8, EQ["plateau_Gamma"].rhs.free_symbols
    forms = [EQ[f"plateau_{n}"].rhs for n in ("Gamma", "gamma_4")]
    together, fourth = (float(f.subs(tau, 0.9)) for f in forms)
    theta = {"gamma_2": together / 2, "gamma_3": together / 2, "gamma_4": fourth}
    point = np.array([theta.get(n, 0.0) for n in NAMES])
    down = -size * law.loss_and_gradient(point, size)[1]
    found = down[[NAMES.index(n) for n in theta]]
    expected = [float(sp.diff(f, tau).subs(tau, 0.9)) for f in forms]
    assert [found[0] + found[1], found[2]] == pytest.approx(
        expected, rel=20 / size
    )  # 1/N
    assert [f.subs(tau, 0) for f in forms] == [0, 0]


def test_time_of_gamma_for_the_uniform_query():
    """gamma_3 is half of Gamma, which comes within 1/N of one at the pace of its
    slowest rate.
    """
    (time,) = EQ["plateau_Gamma_uniform"].rhs.free_symbols
    gap = [
        float((1 - EQ["plateau_Gamma_uniform"].rhs).subs(time, v).evalf(30))
        for v in (20, 40)
    ]
    pace = np.log(gap[0] / gap[1]) / 20
    found = EQ["T_gamma_all_uniform"].evaluate({"N": np.e}) / np.e
    assert found == pytest.approx(1 / pace, rel=1e-12)  # faster rates are gone by e^-50


def test_sharing_the_output_costs_time():
    """All weights over three numbers, gamma_3 = 1 and alpha_3 as before: sqrt(2) and a
    little less.
    """
    b = 1.3
    alone = per_logarithm("uniform", beta_2=b, alpha_3=b**2 / 2, gamma_3=1.0)[1]
    assert alone == pytest.approx(np.exp(b**2 / 2) / 2, rel=LEFT)
    three = scipy.integrate.quad(lambda b: 2 * np.exp(-(b**2) / 2), 0, 30)[0]
    found = EQ["T_drop_all_uniform"].evaluate({"N": np.e}) / np.e**2
    assert found / three == pytest.approx(1.4115, abs=5e-5)


def test_time_of_gamma_for_the_last_pair():
    """gamma_3 = 1/2 after 0.93372 N: the closed form of the first layer against the
    flow of all.
    """
    found = law.constants()["T_gamma_over_N"]
    run = times.flow_of(
        256, until=lambda loss, theta: theta[NAMES.index("gamma_3")] > 0.6
    )  # long before the drop
    assert times.crossings(run, 256)["T_gamma"] / 256 == pytest.approx(
        found, rel=2 * np.log(256) / 256
    )
    assert found == pytest.approx(0.9337154855655, abs=1e-12)


def test_flow_of_some_pseudo_parameters():
    """Of the paper's three the times of their own solver, at the tolerance of an
    integrator; of none, or of others than there are, one line.
    """
    three = times.times(8, names=[*structure.HEAD.values()])
    assert three == pytest.approx(emergence.times(8), rel=1e-6)
    for names, said in (([], "nothing"), (["delta_1"], "delta_1")):
        with pytest.raises(
            ParameterError, match=f"^names: must be some of .*, not {said}$"
        ):
            times.flow_of(8, names=names)


def test_every_setting_has_its_own_flow():
    """Asked one after the other, each is descent on its own loss, to the order of a
    step.
    """
    step, end, ends = 0.02, 2.0, []
    settings = [*itertools.product(times.QUERIES, ("strict", "inclusive"), (1,))]
    for query, mask, right in [*settings, ("last", "strict", 2)]:
        path = times.euler(4, query, mask, step, round(end / step), right)
        ends.append(times.flow_of(4, query, mask, right=right).sol(end / 4))
        np.testing.assert_allclose(ends[-1], path[-1], rtol=0, atol=step)
    assert (
        min(np.abs(x - y).max() for x, y in itertools.combinations(ends, 2)) > 2 * step
    )


@pytest.mark.slow
def test_twin_head_of_the_inclusive_mask():
    """For q = N and the inclusive mask the head forms through alpha_1 and beta_10 from
    N = 64 on, not through the paper's three.
    """
    run = times.flow_of(64, "last", "inclusive")
    end = dict(zip(NAMES, run.y[:, -1], strict=True))
    assert min(end[n] for n in TWIN) > 4 and max(end["alpha_3"], end["beta_2"]) < 1
    without = times.times(
        64, "last", "inclusive", [n for n in times.moving("inclusive") if n not in TWIN]
    )
    assert without["T_drop"] > 1.2 * 64 * run.t_events[0][0]


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: running.loss_and_gradient(np.zeros(19), 4, 5), "query = 5"),
        (lambda: times.times(4, "first"), "query = .first."),
    ],
)
def test_wrong_input(call, field):
    """One line that names the field."""
    with pytest.raises(ParameterError, match=field):
        call()


@pytest.mark.parametrize("mask", network.MASKS)
def test_scores_of_three_numbers_are_a_special_case(mask):
    """The thirteen scores of `attention`, derived alone: sixteen of nineteen numbers
    are zero.
    """
    short = {"alpha_3": alpha, "beta_2": beta, "gamma_3": gamma}
    put_in = {x: short.get(name, 0) for name, x in scores.THETA.items()}
    whole = scores.key_scores(mask)
    for name, score in network.key_scores(mask).items():
        of_all = scores.spelled(whole[name], mask).subs(put_in)
        assert vanishes(of_all - beta * score), name
    assert len(put_in) == 19 and list(put_in.values()).count(0) == 16
