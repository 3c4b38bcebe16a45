"""Hops, noisy bigrams and gradient steps: every permutation, every sequence, every
count.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.integrate
import sympy as sp
from test_memory_enumeration import R

from theory.associative_memory import gradient_steps, k_hop, noisy_bigram, symbols
from theory.associative_memory.k_hop import overlaps
from theory.associative_memory.symbols import N, T, i, j

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
    """Agreement of two sets of hidden permutations after every hop, counted over all
    inputs.
    """
    eq, rng = k_hop.equations(), np.random.default_rng([size, hops])
    for trial in range(2):
        first = [tuple(rng.permutation(size)) for _ in range(hops)]
        second = [tuple(rng.permutation(size)) for _ in range(hops)]
        if trial:  # no hop alike anywhere
            second = [tuple(h[(x + 1) % size] for x in range(size)) for h in first]
        alike, total = [0] * hops, 0
        for given in itertools.product(group(size), repeat=hops):
            for x in range(size):
                pairs = zip(
                    walked(first, given, x), walked(second, given, x), strict=True
                )
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
    """Mean square of the product over hops, over all relative permutations; one hop of
    a set is as good as all pairs.
    """
    one = sum(
        R(sum(a == b for a, b in enumerate(q)) - 1, size - 1) ** 2 for q in group(size)
    ) / math.factorial(size)
    assert (
        k_hop.equations()["correlation_square"].rhs.subs({N: size, overlaps.k: hops})
        == one**hops
    )


def test_accuracy_of_kernels_by_enumeration():
    """Doubly stochastic kernels with rational entries: mass on the right answer over
    all inputs, N = 3, two hops.
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
        eq["hop_overlap"].rhs.subs(
            {N: size, overlaps.trace: sum(A[h[x]][x] for x in range(size))}
        )
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
    """Along the flow of three hops the ratio keeps its value, which is 1 for equal
    overlaps and grows with the second.
    """
    form = k_hop.equations()["hop_invariant"].rhs
    flow = overlaps.flow(3)
    for a, b in itertools.permutations(flow.state, 2):
        C = form.subs({overlaps.overlap[i]: a, overlaps.overlap[j]: b})
        assert (
            sp.simplify(sum(sp.diff(C, q) * rate for q, rate in flow.rhs.items())) == 0
        )
        assert C.subs(a, b) == 1 and C.subs({a: R(1, 2), b: 0}) == R(3, 4)


def test_equal_overlaps_are_the_flow_at_equal_overlaps():
    """Rates of two, three and four hops where all overlaps are one number."""
    eq, m = k_hop.equations(), symbols.m
    for kind, name in (
        ("sphere", "equal_overlaps"),
        ("softmax", "equal_overlaps_softmax"),
    ):
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
    # On the unit circle: the vector at angle phi ascends f(cos phi) by dphi/dt = -f'
    # sin phi, so m = cos phi by f' sin^2 phi.
    phi = sp.Symbol("phi", positive=True)
    assert (
        sp.simplify(
            eq["equal_overlaps"].rhs.subs({overlaps.k: 3, m: sp.cos(phi)})
            - sp.cos(phi) ** 2 * sp.sin(phi) ** 2
        )
        == 0
    )


def test_direct_time_is_the_integral():
    """k >= 3: time from m_0 by the rate of equal overlaps, whose 1 - m^2 matters at
    order m_0^2 (a logarithm at k = 4) only.
    """
    eq = k_hop.equations()
    for hops in (3, 4, 6):
        rate = sp.lambdify(
            symbols.m, eq["equal_overlaps"].rhs.subs(overlaps.k, hops), "scipy"
        )
        for start in (1e-3, 1e-5):
            time, _ = scipy.integrate.quad(
                lambda s, rate=rate: np.exp(s) / rate(np.exp(s)),
                np.log(start),
                -0.7,
                epsrel=1e-10,
            )
            law = eq["direct_time"].rhs.subs(
                {overlaps.m_0: sp.Float(start), overlaps.k: hops}
            )
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
            exact += math.prod(
                noise if x == size else (1 - noise) / size for x in labels
            )
    p_ = noisy_bigram.Parameters(N=size, n=samples, a=float(noise))
    assert noisy_bigram.feed_forward_success(p_) == pytest.approx(
        float(exact), rel=1e-12
    )


def test_failure_of_the_feed_forward_path():
    """At most one noise label among n, counted; its limit at fixed n a; at a million
    tokens the exact law is that, up to n^2/N.
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
        float(eq[q].lambdify(a_, n_)(1e-6, 2e6))
        for q in ("bigram_fail", "bigram_fail_scaled")
    )
    assert whole == pytest.approx(scaled, rel=1e-5)  # of order a
    p_ = noisy_bigram.Parameters(N=10**6, n=8, a=0.5)
    assert 1 - noisy_bigram.feed_forward_success(p_) == pytest.approx(
        float(eq["bigram_fail"].evaluate(p_.values())), abs=8**2 / 10**6
    )


def binomial(trials: int, chance: Fraction) -> list[Fraction]:
    """Probabilities of 0 .. trials successes."""
    return [
        math.comb(trials, c) * chance**c * (1 - chance) ** (trials - c)
        for c in range(trials + 1)
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
    """Count of a token under its own label against N - 1 independent others, every
    combination, ties drawn evenly.
    """
    own, other = {}, {}
    for labelled, w in enumerate(binomial(samples, (1 - noise) / size)):
        for chance, v in enumerate(
            binomial((length - 1) * labelled, Fraction(1, size))
        ):
            own[labelled + chance] = own.get(labelled + chance, Fraction(0)) + w * v
            other[chance] = other.get(chance, Fraction(0)) + w * v
    exact = Fraction(0)
    for mine, w in own.items():
        for rivals in itertools.product(other, repeat=size - 1):
            if mine >= max(rivals):
                exact += (
                    w * math.prod(other[c] for c in rivals) / (1 + rivals.count(mine))
                )
    p_ = noisy_bigram.Parameters(N=size, T=length, n=samples, a=float(noise))
    assert noisy_bigram.value_recovered(p_) == pytest.approx(float(exact), rel=1e-12)


def test_value_memory_of_many_tokens():
    """The limit at fixed n/N: a Poisson number of own samples, one of them ties with
    chance, two win; finite sizes differ by 1/N.
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
    """Mean of the averaged token block, with and without the answer given, and the
    reach of the answer's position.
    """
    eq, plain = gradient_steps.equations(), range(triggers, size)
    total, given, reach, number = (
        sp.Integer(0),
        {True: sp.Integer(0), False: sp.Integer(0)},
        sp.Integer(0),
        0,
    )
    free = length - 3
    for trigger, place, y in itertools.product(
        range(triggers), range(length - 2), plain
    ):
        weight = (
            sum(R(1, t + 1) for t in range(place + 1, length)) / length
        )  # of position place + 1 in the averaged remap block
        for others in itertools.product(plain, repeat=free):
            rest = list(others)
            tokens = [
                (
                    trigger
                    if s in (place, length - 1)
                    else y
                    if s == place + 1
                    else rest.pop()
                )
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
        next(q for q in eq["token_mean"].rhs.free_symbols if q.name == "n_plain"): len(
            plain
        ),
    }
    delta = next(
        q for q in eq["token_mean_given"].rhs.free_symbols if q.name == "delta_kz"
    )
    assert eq["token_mean"].rhs.subs(at) == total / number
    assert (
        eq["token_mean_given"].rhs.subs(at).subs(delta, 1)
        == given[True] * len(plain) / number
    )
    assert eq["token_mean_given"].rhs.subs(at).subs(delta, 0) == given[False] * len(
        plain
    ) / number / (len(plain) - 1)
    assert (
        sp.simplify(sp.expand_func(eq["answer_reach"].rhs.subs(at)) - reach / number)
        == 0
    )
    for place in range(
        1, length + 1
    ):  # every position's weight, of which the reach is a mean
        weight = sum(R(1, t) for t in range(place, length + 1)) / length
        assert (
            gradient_steps.weight_of_position().subs(
                {T: length, gradient_steps.s: place}
            )
            == weight
        )
