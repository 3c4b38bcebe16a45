"""Equations of the associative-memory systems against enumeration in rational
arithmetic.
"""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
import sympy as sp

from theory.associative_memory import superposition, symbols, trigger_task
from theory.associative_memory.symbols import K, N, T, d, e, i, j, p, u
from theory.symbols.special import gaussian_accuracy

R = sp.Rational


# ---- Superposition: unit vectors +-e_1 .. +-e_d have the second moments of the sphere,
# and are finite in number


def enumerated(
    keys: int, answers: tuple[int, ...], dimension: int
) -> dict[str, sp.Rational]:
    """Exact mean and variance of the right and of one wrong score of key 0, over all
    signed unit vectors; weights 1.
    """
    frame = np.concatenate(
        [np.eye(dimension, dtype=int), -np.eye(dimension, dtype=int)]
    )
    overlap = frame @ frame.T
    outputs = max(answers) + 1
    draws = np.array(
        list(itertools.product(range(2 * dimension), repeat=keys + outputs))
    )
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
        found |= {
            f"mean_{name}": mean,
            name: R(int((score * score).sum()), len(draws)) - mean**2,
        }
    return found


@pytest.mark.parametrize(
    ("dimension", "size", "classes"), [(2, 4, 2), (3, 2, 2), (2, 3, 3), (3, 4, 2)]
)
def test_interference_by_enumeration(dimension, size, classes):
    """Means and variances of scores with N keys on M outputs, one output per key
    included, as rational numbers.
    """
    found = enumerated(size, tuple(x % classes for x in range(size)), dimension)
    eq, at = (
        superposition.equations(),
        {N: size, d: dimension, superposition.M: classes},
    )
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
    """The score of the definition, put together from its overlaps, for every assignment
    of two outputs to two keys.
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
                w * uu[output, answers[x - 1]] * ee[asked, x]
                for x, w in ((1, 3), (2, 5))
            )


def test_capacity_laws_solve_their_condition():
    """2 ln(outputs) times the exact variance of a wrong score is 1 at capacity, as N
    and d grow.
    """
    eq = superposition.equations()
    for power in (60, 120):  # corrections: 2/d of the leak over 1/(2 ln N), and 2/N
        size = sp.Integer(10) ** power
        variance = (
            eq["interference_wrong"]
            .rhs.subs(d, sp.sqrt(eq["capacity"].rhs))
            .subs(N, size)
        )
        assert abs(sp.N(2 * sp.log(size) * variance - 1, 50)) < 10 ** (-power // 2 + 4)
    outputs = sp.Integer(10) ** 3
    for power in (20, 40):  # at fixed M the rest is of order M/d
        at = {superposition.M: outputs, d: sp.Integer(10) ** power}
        variance = eq["classes_wrong"].rhs.subs(N, eq["capacity_classes"].rhs).subs(at)
        assert abs(sp.N(2 * sp.log(outputs) * variance - 1, 50)) < 10 ** (-power + 5)


def test_half_of_the_keys_of_few_outputs():
    """Gaussian scores with the exact variances: the load N ln M / (M d) at half recall
    tends to the law's as M grows.
    """
    eq, gaps = superposition.equations(), []
    for outputs in (10.0**3, 10.0**9, 10.0**27):
        dimension = outputs**3
        law = float(
            eq["capacity_classes"].lambdify(superposition.M, d)(outputs, dimension)
        )

        def recalled(size, outputs=outputs, dimension=dimension):
            s_0, s_1 = (
                math.sqrt(
                    eq[f"classes_{q}"].lambdify(N, superposition.M, d)(
                        size, outputs, dimension
                    )
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
    """Without wrong scores both integrals are that of a normal density; the leak has
    the law of one coordinate on the sphere.
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
    (marginal,) = (
        q for q in inner.function.atoms(sp.Function) if q.func.__name__ == "F_d"
    )
    density = inner.function / marginal
    for dimension in (3, 5, 7):
        at = density.subs(d, dimension)
        assert [
            sp.integrate(at * superposition.c_leak**n, (superposition.c_leak, -1, 1))
            for n in (0, 2)
        ] == [1, R(1, dimension)]


def test_recall_integrals_are_what_the_numbers_integrate():
    """The equations' own integrands by mpmath, at N = 3: Gaussian scores at d = 4,
    sphere tails at d = 3 (F uniform).
    """
    eq, size = superposition.equations(), 3
    with mpmath.workdps(15):
        s = {
            q: float(eq[f"sigma_{n}"].evaluate({"N": size, "d": 4}))
            for q, n in (
                (superposition.sigma_0, "right"),
                (superposition.sigma_1, "wrong"),
            )
        }
        integrand = sp.lambdify(
            superposition.z,
            eq["recall_gaussian"].rhs.function.subs(s | {N: size}),
            "mpmath",
        )
        assert superposition.gaussian_recall(size, 4) == pytest.approx(
            float(mpmath.quad(integrand, mpmath.linspace(-8, 8, 5))), abs=1e-10
        )
    s_0 = float(eq["sigma_right"].evaluate({"N": size, "d": 3}))
    (inner,) = eq["recall_sphere"].rhs.function.atoms(sp.Integral)
    (marginal,) = (
        q for q in inner.function.atoms(sp.Function) if q.func.__name__ == "F_d"
    )
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
            * float(weights @ (weight(points, chance) * np.ones_like(points)))
            ** (size - 1)
        )
    # Kinks of the clipped distribution: 400 nodes leave 1e-5.
    assert superposition.sphere_recall(size, 3) == pytest.approx(total, abs=1e-4)


# ---- Trigger task: laws and memories, entry by entry


def test_transition_law_entry_by_entry():
    """Two triggers among four tokens: their rows are certain, all others are the bigram
    table's, and every row sums to 1.
    """
    form = trigger_task.equations()["trigger_transition"].rhs.subs(K, 2).doit()
    table = {
        (a, b): R(a + 2 * b, 20 + 4 * 2 * (b - 0))
        for a in range(1, 5)
        for b in range(1, 5)
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
            value = given.subs(
                {trigger_task.first: now, trigger_task.last: following}
            ).replace(trigger_task.bigram, lambda a, b: table[int(a), int(b)])
            assert value == (
                int(following == follows[now])
                if now in follows
                else table[following, now]
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
    """With unit vectors: W_K1 scores each position's predecessor alone, W_K2 a
    trigger's own remapped token, W_O2 copies.
    """
    eq, size = trigger_task.equations(), 4
    positions = unit(size)
    W = entries(eq["target_W_K1"].rhs.subs(T, size), {p: positions}, size)
    for t, s in itertools.product(range(size), repeat=2):
        assert (sp.Matrix([positions[t]]) * W * sp.Matrix([positions[s]]).T)[0] == int(
            s == t - 1
        )
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
    W = entries(
        eq["target_W_O2"].rhs.subs(N, size),
        {u: tokens, trigger_task.value: moved},
        size,
    )
    for a, b in itertools.product(range(size), repeat=2):
        assert (sp.Matrix([tokens[a]]) * W * sp.Matrix([moved[b]]).T)[0] == int(a == b)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_probe_and_its_chance(size):
    """All M^M winners of M candidates, equally likely: the mean of the probe is its
    value at random.
    """
    eq = trigger_task.equations()
    form = eq["probe"].rhs.subs(trigger_task.size, size).doit()
    values = [
        form.subs({trigger_task.hit[x + 1]: int(w == x) for x, w in enumerate(winners)})
        for winners in itertools.product(range(size), repeat=size)
    ]
    assert max(values) == 1 and min(values) == 0
    assert sum(values) / len(values) == eq["probe_chance"].rhs.subs(
        trigger_task.size, size
    )
