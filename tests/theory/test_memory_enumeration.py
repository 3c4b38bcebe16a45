"""Equations of the associative-memory systems against enumeration in rational arithmetic."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import scipy.integrate
import sympy as sp

from theory.associative_memory import (
    gradient_steps,
    k_hop,
    noisy_bigram,
    superposition,
    symbols,
    trigger_task,
)
from theory.associative_memory.k_hop import overlaps
from theory.associative_memory.symbols import K, N, T, d, e, i, j, p, u
from theory.special import gaussian_accuracy

R = sp.Rational


# ---- Superposition: unit vectors +-e_1 .. +-e_d have the second moments of the sphere, and are
# finite in number


def enumerated(keys: int, answers: tuple[int, ...], dimension: int) -> dict[str, sp.Rational]:
    """Exact mean and variance of the right and of one wrong score of key 0, over all signed unit
    vectors; weights 1.
    """
    frame = np.concatenate([np.eye(dimension, dtype=int), -np.eye(dimension, dtype=int)])
    overlap = frame @ frame.T
    outputs = max(answers) + 1
    draws = np.array(list(itertools.product(range(2 * dimension), repeat=keys + outputs)))
    e_, u_ = draws[:, :keys], draws[:, keys:]
    found = {}
    for name, output in (
        ("right", answers[0]),
        ("wrong", next(q for q in answers if q != answers[0])),
    ):
        score = sum(
            overlap[u_[:, output], u_[:, answers[x]]] * overlap[e_[:, 0], e_[:, x]]
            for x in range(keys)
        )
        mean = R(int(score.sum()), len(draws))
        found |= {f"mean_{name}": mean, name: R(int((score * score).sum()), len(draws)) - mean**2}
    return found


@pytest.mark.parametrize(
    ("dimension", "size", "classes"), [(2, 4, 2), (3, 2, 2), (2, 3, 3), (3, 4, 2)]
)
def test_interference_by_enumeration(dimension, size, classes):
    """Means and variances of scores with N keys on M outputs, one output per key included, as
    rational numbers.
    """
    found = enumerated(size, tuple(x % classes for x in range(size)), dimension)
    eq, at = superposition.equations(), {N: size, d: dimension, superposition.M: classes}
    assert (
        found["mean_right"] == eq["score_mean_right"].rhs.subs(superposition.q_x, 1)
        and found["mean_wrong"] == eq["score_mean_wrong"].rhs
    )
    assert found["right"] == eq["classes_right"].rhs.subs(at)
    assert found["wrong"] == eq["classes_wrong"].rhs.subs(at)
    if size == classes:
        assert found["right"] == eq["interference_right"].rhs.subs(at)
        assert found["wrong"] == eq["interference_wrong"].rhs.subs(at)


def test_hebbian_score_as_a_sum():
    """The score of the definition, put together from its overlaps, for every assignment of two
    outputs to two keys.
    """
    form = superposition.equations()["hebbian_score"].rhs.subs(N, 2).doit()
    uu, ee = (
        {(1, 1): 1, (1, 2): R(1, 3), (2, 1): R(1, 3), (2, 2): 1},
        {(1, 1): 1, (1, 2): R(2, 5), (2, 1): R(2, 5), (2, 2): 1},
    )
    for answers in itertools.product((1, 2), repeat=2):
        for asked, output in itertools.product((1, 2), repeat=2):
            spelled = form.subs({symbols.k: output, symbols.x: asked}).subs(
                {superposition.answer[x]: answers[x - 1] for x in (1, 2)}
            )
            value = spelled.subs(
                {superposition.q[1]: 3, superposition.q[2]: 5}
                | {superposition.output_overlap[q]: v for q, v in uu.items()}
                | {superposition.key_overlap[q]: v for q, v in ee.items()}
            )
            assert value == sum(
                w * uu[output, answers[x - 1]] * ee[asked, x] for x, w in ((1, 3), (2, 5))
            )


def test_capacity_laws_solve_their_condition():
    """2 ln(outputs) times the exact variance of a wrong score is 1 at capacity, as N and d grow."""
    eq = superposition.equations()
    for power in (60, 120):  # corrections: 2/d of the leak over 1/(2 ln N), and 2/N
        size = sp.Integer(10) ** power
        variance = eq["interference_wrong"].rhs.subs(d, sp.sqrt(eq["capacity"].rhs)).subs(N, size)
        assert abs(sp.N(2 * sp.log(size) * variance - 1, 50)) < 10 ** (-power // 2 + 4)
    outputs = sp.Integer(10) ** 3
    for power in (20, 40):  # at fixed M the rest is of order M/d
        at = {superposition.M: outputs, d: sp.Integer(10) ** power}
        variance = eq["classes_wrong"].rhs.subs(N, eq["capacity_classes"].rhs).subs(at)
        assert abs(sp.N(2 * sp.log(outputs) * variance - 1, 50)) < 10 ** (-power + 5)


def test_half_of_the_keys_of_few_outputs():
    """Gaussian scores with the exact variances: the load N ln M / (M d) at half recall tends to the
    law's as M grows.
    """
    eq, gaps = superposition.equations(), []
    for outputs in (10.0**3, 10.0**9, 10.0**27):
        dimension = outputs**3
        law = float(eq["capacity_classes"].lambdify(superposition.M, d)(outputs, dimension))

        def recalled(size, outputs=outputs, dimension=dimension):
            s_0, s_1 = (
                math.sqrt(
                    eq[f"classes_{q}"].lambdify(N, superposition.M, d)(size, outputs, dimension)
                )
                for q in ("right", "wrong")
            )
            return gaussian_accuracy(1.0, s_0, s_1, outputs)

        low, high = 0.2 * law, 5 * law
        for _ in range(40):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if recalled(middle) > 0.5 else (low, middle)
        gaps.append(abs(low / law - 1))
    assert gaps[0] > gaps[1] > gaps[2] and gaps[2] < 0.06  # ln(4 pi ln M) / (2 ln M)


def test_densities_of_the_recall_integrals():
    """Without wrong scores both integrals are that of a normal density; the leak has the law of one
    coordinate on the sphere.
    """
    eq = superposition.equations()
    for name in ("recall_gaussian", "recall_sphere"):
        alone = eq[name].rhs.function.subs(N, 1)
        moment = [
            sp.integrate(alone * superposition.z**n, (superposition.z, -sp.oo, sp.oo))
            for n in (0, 2, 4)
        ]
        assert moment == [1, 1, 3]
    (inner,) = eq["recall_sphere"].rhs.function.atoms(sp.Integral)
    (marginal,) = (q for q in inner.function.atoms(sp.Function) if q.func.__name__ == "F_d")
    density = inner.function / marginal
    for dimension in (3, 5, 7):
        at = density.subs(d, dimension)
        assert [
            sp.integrate(at * superposition.c_leak**n, (superposition.c_leak, -1, 1))
            for n in (0, 2)
        ] == [1, R(1, dimension)]


def test_recall_integrals_are_what_the_numbers_integrate():
    """The equations' own integrands by mpmath, at N = 3: Gaussian scores at d = 4, sphere tails at
    d = 3 (F uniform).
    """
    eq, size = superposition.equations(), 3
    with mpmath.workdps(15):
        s = {
            q: float(eq[f"sigma_{n}"].evaluate({"N": size, "d": 4}))
            for q, n in ((superposition.sigma_0, "right"), (superposition.sigma_1, "wrong"))
        }
        integrand = sp.lambdify(
            superposition.z, eq["recall_gaussian"].rhs.function.subs(s | {N: size}), "mpmath"
        )
        assert superposition.gaussian_recall(size, 4) == pytest.approx(
            float(mpmath.quad(integrand, mpmath.linspace(-8, 8, 5))), abs=1e-10
        )
    s_0 = float(eq["sigma_right"].evaluate({"N": size, "d": 3}))
    (inner,) = eq["recall_sphere"].rhs.function.atoms(sp.Integral)
    (marginal,) = (q for q in inner.function.atoms(sp.Function) if q.func.__name__ == "F_d")
    below = inner.function.subs(marginal, sp.Symbol("F")).subs(d, 3)
    argument = sp.lambdify(
        (superposition.z, superposition.c_leak),
        marginal.args[0]
        .subs(superposition.rho2, eq["recalled_length"].rhs)
        .subs({superposition.sigma_0: s_0, N: size, d: 3}),
    )
    weight = sp.lambdify((superposition.c_leak, sp.Symbol("F")), below)
    points, weights = np.polynomial.legendre.leggauss(400)
    normal = sp.lambdify(superposition.z, eq["recall_sphere"].rhs.function.subs(N, 1))
    total = 0.0
    for x, w in zip(8 * points, 8 * weights, strict=True):
        chance = np.clip((1 + argument(x, points)) / 2, 0, 1)
        total += (
            w
            * normal(x)
            * float(weights @ (weight(points, chance) * np.ones_like(points))) ** (size - 1)
        )
    # Kinks of the clipped distribution: 400 nodes leave 1e-5.
    assert superposition.sphere_recall(size, 3) == pytest.approx(total, abs=1e-4)


# ---- Trigger task: laws and memories, entry by entry


def test_transition_law_entry_by_entry():
    """Two triggers among four tokens: their rows are certain, all others are the bigram table's,
    and every row sums to 1.
    """
    form = trigger_task.equations()["trigger_transition"].rhs.subs(K, 2).doit()
    table = {
        (a, b): R(a + 2 * b, 20 + 4 * 2 * (b - 0)) for a in range(1, 5) for b in range(1, 5)
    }  # [next, now]
    for b in range(1, 5):
        total = sum(table[a, b] for a in range(1, 5))
        table |= {(a, b): table[a, b] / total for a in range(1, 5)}
    for (q_1, q_2), (o_1, o_2) in itertools.product(
        itertools.permutations(range(1, 5), 2), itertools.product(range(1, 5), repeat=2)
    ):
        follows = {q_1: o_1, q_2: o_2}
        given = form.subs(
            {
                trigger_task.trigger[1]: q_1,
                trigger_task.trigger[2]: q_2,
                trigger_task.output[1]: o_1,
                trigger_task.output[2]: o_2,
            }
        )
        for now, following in itertools.product(range(1, 5), repeat=2):
            value = given.subs({trigger_task.first: now, trigger_task.last: following}).replace(
                trigger_task.bigram, lambda a, b: table[int(a), int(b)]
            )
            assert value == (
                int(following == follows[now]) if now in follows else table[following, now]
            )


def entries(form: sp.Expr, arrays: dict, size: int) -> sp.Matrix:
    """Matrix of an equation in i, j with arrays spelled out."""
    spelled = form.doit()
    return sp.Matrix(
        size,
        size,
        lambda a, b: spelled.subs({i: a + 1, j: b + 1}).subs(
            {
                base[x + 1, y + 1]: row[y]
                for base, rows in arrays.items()
                for x, row in enumerate(rows)
                for y in range(size)
            }
        ),
    )


def unit(size: int, shift: int = 0) -> list[list[int]]:
    """Unit vectors, in an order turned by ``shift``."""
    return [[int((x + shift) % size == y) for y in range(size)] for x in range(size)]


def test_target_memories_do_their_work():
    """With unit vectors: W_K1 scores each position's predecessor alone, W_K2 a trigger's own
    remapped token, W_O2 copies.
    """
    eq, size = trigger_task.equations(), 4
    positions = unit(size)
    W = entries(eq["target_W_K1"].rhs.subs(T, size), {p: positions}, size)
    for t, s in itertools.product(range(size), repeat=2):
        assert (sp.Matrix([positions[t]]) * W * sp.Matrix([positions[s]]).T)[0] == int(s == t - 1)
    tokens, moved, triggers = unit(size), unit(size, 1), (3, 1)
    form = (
        eq["target_W_K2"]
        .rhs.subs(K, 2)
        .doit()
        .subs({trigger_task.trigger[x + 1]: q for x, q in enumerate(triggers)})
    )
    W = entries(form, {e: tokens, trigger_task.remapped: moved}, size)
    for a, b in itertools.product(range(size), repeat=2):
        score = (sp.Matrix([tokens[a]]) * W * sp.Matrix([moved[b]]).T)[0]
        assert score == int(a == b and a + 1 in triggers)
    W = entries(eq["target_W_O2"].rhs.subs(N, size), {u: tokens, trigger_task.value: moved}, size)
    for a, b in itertools.product(range(size), repeat=2):
        assert (sp.Matrix([tokens[a]]) * W * sp.Matrix([moved[b]]).T)[0] == int(a == b)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_probe_and_its_chance(size):
    """All M^M winners of M candidates, equally likely: the mean of the probe is its value at
    random.
    """
    eq = trigger_task.equations()
    form = eq["probe"].rhs.subs(trigger_task.size, size).doit()
    values = [
        form.subs({trigger_task.hit[x + 1]: int(w == x) for x, w in enumerate(winners)})
        for winners in itertools.product(range(size), repeat=size)
    ]
    assert max(values) == 1 and min(values) == 0
    assert sum(values) / len(values) == eq["probe_chance"].rhs.subs(trigger_task.size, size)


# ---- k hops: every permutation, every starting point


def group(size: int) -> list[tuple[int, ...]]:
    """All permutations."""
    return list(itertools.permutations(range(size)))


def walked(hidden, given, x):
    """Where a point ends: hidden permutation, then given one, hop by hop."""
    path = []
    for h, g in zip(hidden, given, strict=True):
        x = g[h[x]]
        path.append(x)
    return path


@pytest.mark.parametrize(("size", "hops"), [(3, 2), (3, 3), (4, 2)])
def test_agreement_by_enumeration(size, hops):
    """Agreement of two sets of hidden permutations after every hop, counted over all inputs."""
    eq, rng = k_hop.equations(), np.random.default_rng([size, hops])
    for trial in range(2):
        first = [tuple(rng.permutation(size)) for _ in range(hops)]
        second = [tuple(rng.permutation(size)) for _ in range(hops)]
        if trial:  # no hop alike anywhere
            second = [tuple(h[(x + 1) % size] for x in range(size)) for h in first]
        alike, total = [0] * hops, 0
        for given in itertools.product(group(size), repeat=hops):
            for x in range(size):
                pairs = zip(walked(first, given, x), walked(second, given, x), strict=True)
                alike = [n + (a == b) for n, (a, b) in zip(alike, pairs, strict=True)]
                total += 1
        fixed = [
            sum(a == b for a, b in zip(f, s, strict=True))
            for f, s in zip(first, second, strict=True)
        ]
        at = {N: size, overlaps.k: hops}
        form = (
            eq["agreement"]
            .rhs.subs(at)
            .doit()
            .subs({overlaps.phi[q + 1]: v for q, v in enumerate(fixed)})
        )
        assert form == R(alike[-1], total)
        before = sp.Integer(1)
        for q in range(hops):
            before = eq["agreement_hop"].rhs.subs(
                {N: size, overlaps.before: before, overlaps.fixed: fixed[q]}
            )
            assert before == R(alike[q], total)
        if trial:
            assert eq["agreement_derangements"].rhs.subs(at) == R(alike[-1], total)


@pytest.mark.parametrize(("size", "hops"), [(2, 1), (3, 1), (3, 2), (4, 2), (5, 1)])
def test_mean_square_correlation_by_enumeration(size, hops):
    """Mean square of the product over hops, over all relative permutations; one hop of a set is as
    good as all pairs.
    """
    one = sum(
        R(sum(a == b for a, b in enumerate(q)) - 1, size - 1) ** 2 for q in group(size)
    ) / math.factorial(size)
    assert (
        k_hop.equations()["correlation_square"].rhs.subs({N: size, overlaps.k: hops}) == one**hops
    )


def test_accuracy_of_kernels_by_enumeration():
    """Doubly stochastic kernels with rational entries: mass on the right answer over all inputs, N
    = 3, two hops.
    """
    size, hops, eq = 3, 2, k_hop.equations()
    hidden = [(1, 2, 0), (0, 2, 1)]
    weights = [
        [R(5, 12), R(1, 6), R(1, 12), R(1, 12), R(1, 12), R(1, 6)],
        [R(1, 10), R(3, 10), R(1, 5), R(1, 10), R(1, 5), R(1, 10)],
    ]
    kernel = [
        [
            [
                sum(w for w, g in zip(row, group(size), strict=True) if g[x] == y)
                for x in range(size)
            ]
            for y in range(size)
        ]
        for row in weights
    ]
    mass, total = sp.Integer(0), 0
    for given in itertools.product(group(size), repeat=hops):
        for x in range(size):
            v = [int(q == x) for q in range(size)]
            for A, g in zip(kernel, given, strict=True):
                moved = [sp.Integer(0)] * size
                for y in range(size):
                    moved[g[y]] = sum(A[y][q] * v[q] for q in range(size))
                v = moved
            mass += v[walked(hidden, given, x)[-1]]
            total += 1
    m = [
        eq["hop_overlap"].rhs.subs({N: size, overlaps.trace: sum(A[h[x]][x] for x in range(size))})
        for A, h in zip(kernel, hidden, strict=True)
    ]
    assert all(m)  # a zero would hide the others
    form = (
        eq["hop_accuracy"]
        .rhs.subs({N: size, overlaps.k: hops})
        .doit()
        .subs({overlaps.overlap[q + 1]: v for q, v in enumerate(m)})
    )
    assert form == mass / total


def test_conserved_ratio_of_hops():
    """Along the flow of three hops the ratio keeps its value, which is 1 for equal overlaps and
    grows with the second.
    """
    form = k_hop.equations()["hop_invariant"].rhs
    flow = overlaps.flow(3)
    for a, b in itertools.permutations(flow.state, 2):
        C = form.subs({overlaps.overlap[i]: a, overlaps.overlap[j]: b})
        assert sp.simplify(sum(sp.diff(C, q) * rate for q, rate in flow.rhs.items())) == 0
        assert C.subs(a, b) == 1 and C.subs({a: R(1, 2), b: 0}) == R(3, 4)


def test_equal_overlaps_are_the_flow_at_equal_overlaps():
    """Rates of two, three and four hops where all overlaps are one number."""
    eq, m = k_hop.equations(), symbols.m
    for kind, name in (("sphere", "equal_overlaps"), ("softmax", "equal_overlaps_softmax")):
        for hops in (2, 3, 4):
            system = overlaps.flow(hops, kind)
            for rate in system.rhs.values():
                assert (
                    sp.simplify(
                        rate.subs(dict.fromkeys(system.state, m))
                        - eq[name].rhs.subs(overlaps.k, hops)
                    )
                    == 0
                )
    # On the unit circle: the vector at angle phi ascends f(cos phi) by dphi/dt = -f' sin phi, so m
    # = cos phi by f' sin^2 phi.
    phi = sp.Symbol("phi", positive=True)
    assert (
        sp.simplify(
            eq["equal_overlaps"].rhs.subs({overlaps.k: 3, m: sp.cos(phi)})
            - sp.cos(phi) ** 2 * sp.sin(phi) ** 2
        )
        == 0
    )


def test_direct_time_is_the_integral():
    """k >= 3: time from m_0 by the rate of equal overlaps, whose 1 - m^2 matters at order m_0^2 (a
    logarithm at k = 4) only.
    """
    eq = k_hop.equations()
    for hops in (3, 4, 6):
        rate = sp.lambdify(symbols.m, eq["equal_overlaps"].rhs.subs(overlaps.k, hops), "scipy")
        for start in (1e-3, 1e-5):
            time, _ = scipy.integrate.quad(
                lambda s, rate=rate: np.exp(s) / rate(np.exp(s)), np.log(start), -0.7, epsrel=1e-10
            )
            law = eq["direct_time"].rhs.subs({overlaps.m_0: sp.Float(start), overlaps.k: hops})
            assert abs(float(law) / time - 1) < 3 * start  # pi/4 m_0 at k = 3


# ---- Noisy bigrams: all label sequences; all counts


@pytest.mark.parametrize(
    ("size", "samples", "noise"),
    [
        (2, 3, Fraction(1, 3)),
        (3, 4, Fraction(1, 2)),
        (4, 4, Fraction(1, 5)),
        (3, 5, Fraction(2, 5)),
    ],
)
def test_feed_forward_success_by_enumeration(size, samples, noise):
    """Every sequence of labels: the noise token has strictly the largest count."""
    exact = Fraction(0)
    for labels in itertools.product(
        range(size + 1), repeat=samples
    ):  # label ``size`` is the noise token
        counts = [labels.count(x) for x in range(size + 1)]
        if counts[-1] > max(counts[:-1]):
            exact += math.prod(noise if x == size else (1 - noise) / size for x in labels)
    p_ = noisy_bigram.Parameters(N=size, n=samples, a=float(noise))
    assert noisy_bigram.feed_forward_success(p_) == pytest.approx(float(exact), rel=1e-12)


def test_failure_of_the_feed_forward_path():
    """At most one noise label among n, counted; its limit at fixed n a; at a million tokens the
    exact law is that, up to n^2/N.
    """
    eq = noisy_bigram.equations()
    a_, n_ = (
        next(q for q in eq["bigram_fail"].rhs.free_symbols if q.name == name)
        for name in ("a_noise", "n_samples")
    )
    for samples, noise in itertools.product((1, 3, 5), (R(1, 3), R(1, 2))):
        counted = sum(
            math.prod(noise if x else 1 - noise for x in labels)
            for labels in itertools.product((0, 1), repeat=samples)
            if sum(labels) <= 1
        )
        assert eq["bigram_fail"].rhs.subs({n_: samples, a_: noise}) == counted
    whole, scaled = (
        float(eq[q].lambdify(a_, n_)(1e-6, 2e6)) for q in ("bigram_fail", "bigram_fail_scaled")
    )
    assert whole == pytest.approx(scaled, rel=1e-5)  # of order a
    p_ = noisy_bigram.Parameters(N=10**6, n=8, a=0.5)
    assert 1 - noisy_bigram.feed_forward_success(p_) == pytest.approx(
        float(eq["bigram_fail"].evaluate(p_.values())), abs=8**2 / 10**6
    )


def binomial(trials: int, chance: Fraction) -> list[Fraction]:
    """Probabilities of 0 .. trials successes."""
    return [
        math.comb(trials, c) * chance**c * (1 - chance) ** (trials - c) for c in range(trials + 1)
    ]


@pytest.mark.parametrize(
    ("size", "length", "samples", "noise"),
    [
        (2, 2, 2, Fraction(1, 2)),
        (3, 3, 2, Fraction(1, 3)),
        (3, 2, 3, Fraction(1, 4)),
        (4, 3, 2, Fraction(1, 2)),
    ],
)
def test_value_memory_by_enumeration(size, length, samples, noise):
    """Count of a token under its own label against N - 1 independent others, every combination,
    ties drawn evenly.
    """
    own, other = {}, {}
    for labelled, w in enumerate(binomial(samples, (1 - noise) / size)):
        for chance, v in enumerate(binomial((length - 1) * labelled, Fraction(1, size))):
            own[labelled + chance] = own.get(labelled + chance, Fraction(0)) + w * v
            other[chance] = other.get(chance, Fraction(0)) + w * v
    exact = Fraction(0)
    for mine, w in own.items():
        for rivals in itertools.product(other, repeat=size - 1):
            if mine >= max(rivals):
                exact += w * math.prod(other[c] for c in rivals) / (1 + rivals.count(mine))
    p_ = noisy_bigram.Parameters(N=size, T=length, n=samples, a=float(noise))
    assert noisy_bigram.value_recovered(p_) == pytest.approx(float(exact), rel=1e-12)


def test_value_memory_of_many_tokens():
    """The limit at fixed n/N: a Poisson number of own samples, one of them ties with chance, two
    win; finite sizes differ by 1/N.
    """
    eq, finite = noisy_bigram.equations(), []
    for size in (10**4, 10**5):
        p_ = noisy_bigram.Parameters(N=size, n=4 * size)
        v = p_.values()
        rate = float(eq["labels_per_answer"].evaluate(v))
        assert rate == pytest.approx(4 * (1 - p_.a), rel=1e-13)
        limit = float(eq["value_recovered"].evaluate(v | {"lambda_labels": rate}))
        finite.append(noisy_bigram.value_recovered(p_))
    # Extrapolated from both sizes; what is left is of order 1/N^2.
    assert (
        finite[1] + (finite[1] - finite[0]) / 9 == pytest.approx(limit, abs=2e-5)
        and abs(finite[0] - limit) > 1e-3
    )


# ---- Gradient steps: every sequence of a tiny task


@pytest.mark.parametrize(("size", "triggers", "length"), [(4, 1, 5), (5, 2, 5)])
def test_mean_inputs_by_enumeration(size, triggers, length):
    """Mean of the averaged token block, with and without the answer given, and the reach of the
    answer's position.
    """
    eq, plain = gradient_steps.equations(), range(triggers, size)
    total, given, reach, number = (
        sp.Integer(0),
        {True: sp.Integer(0), False: sp.Integer(0)},
        sp.Integer(0),
        0,
    )
    free = length - 3
    for trigger, place, y in itertools.product(range(triggers), range(length - 2), plain):
        weight = (
            sum(R(1, t + 1) for t in range(place + 1, length)) / length
        )  # of position place + 1 in the averaged remap block
        for others in itertools.product(plain, repeat=free):
            rest = list(others)
            tokens = [
                trigger if s in (place, length - 1) else y if s == place + 1 else rest.pop()
                for s in range(length)
            ]
            z = triggers  # a plain token
            total += R(tokens.count(z), length)
            given[y == z] += R(tokens.count(z), length)
            reach += weight
            number += 1
    at = {
        N: size,
        T: length,
        next(q for q in eq["token_mean"].rhs.free_symbols if q.name == "n_plain"): len(plain),
    }
    delta = next(q for q in eq["token_mean_given"].rhs.free_symbols if q.name == "delta_kz")
    assert eq["token_mean"].rhs.subs(at) == total / number
    assert eq["token_mean_given"].rhs.subs(at).subs(delta, 1) == given[True] * len(plain) / number
    assert eq["token_mean_given"].rhs.subs(at).subs(delta, 0) == given[False] * len(
        plain
    ) / number / (len(plain) - 1)
    assert sp.simplify(sp.expand_func(eq["answer_reach"].rhs.subs(at)) - reach / number) == 0
    for place in range(1, length + 1):  # every position's weight, of which the reach is a mean
        weight = sum(R(1, t) for t in range(place, length + 1)) / length
        assert (
            gradient_steps.weight_of_position().subs({T: length, gradient_steps.s: place}) == weight
        )
