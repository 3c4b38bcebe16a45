"""Enumeration: every input of a tiny task, in exact rational arithmetic, against the
averaged formulas.

Actions and states are enumerated, the attention entries stay symbols (each row sums to
one), the matrices are random rationals and the permutations are drawn with repetition,
so that also equal teachers and accidental overlaps are covered.
"""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import pytest
import sympy as sp
from later import Later

from theory import state_tracking
from theory.state_tracking.model.mean_field import participation, pi_i
from theory.state_tracking.model.symbols import (
    A,
    M,
    M_star,
    N,
    R,
    S,
    a,
    b,
    c_R,
    c_S,
    d_g,
    eta,
    g,
    r,
    s,
    sigma2,
    tau,
    z_k,
    zeta,
)

EQUATIONS = Later(state_tracking.equations)
SIZES = [
    (2, 2, 2),
    (3, 2, 2),
    (2, 3, 2),
    (3, 2, 3),
    (2, 1, 2),
    (2, 2, 1),
    (3, 3, 3),
    (4, 2, 2),
]


def rational(value):
    """SymPy number of a fraction."""
    return sp.Rational(value.numerator, value.denominator)


def fraction(value):
    """Fraction of a SymPy rational."""
    return Fraction(int(value.p), int(value.q))


class Task:
    """Permutations, student matrices and the enumeration of all inputs."""

    def __init__(self, size, actions, length, seed):
        draw = random.Random(seed)
        self.N, self.d_g, self.L = size, actions, length
        self.sigma = [draw.sample(range(size), size) for _ in range(actions)]
        self.M = [
            [
                [Fraction(draw.randint(-9, 9), draw.randint(1, 7)) for _ in range(size)]
                for _ in range(size)
            ]
            for _ in range(actions)
        ]

    def inputs(self):
        """All (actions, states) with the states the teacher gives."""
        for g_ in itertools.product(range(self.d_g), repeat=self.L):
            for start in range(self.N):
                states = [start]
                for action in g_:
                    states.append(self.sigma[action][states[-1]])
                yield g_, states

    def overlap(self, teacher, matrix):
        """Tr[M*_teacher^T matrix]/N: the teacher has a one at (sigma(x), x)."""
        return (
            sum((matrix[self.sigma[teacher][x]][x] for x in range(self.N)), Fraction(0))
            / self.N
        )

    def R(self, matrices):
        """Definition (9a)."""
        return (
            sum((self.overlap(x, matrices[x]) for x in range(self.d_g)), Fraction(0))
            / self.d_g
        )

    def S(self, matrices):
        """Definition (9b)."""
        pairs = [
            self.overlap(x, matrices[y])
            for x in range(self.d_g)
            for y in range(self.d_g)
            if x != y
        ]
        return sum(pairs, Fraction(0)) / len(pairs)

    def zeta(self):
        """Definition (40)."""
        return sum((v for m in self.M for row in m for v in row), Fraction(0)) / (
            self.d_g * self.N
        )

    def teachers(self):
        """Permutation matrices of fractions."""
        size = range(self.N)
        return [
            [[Fraction(int(p[y] == x)) for y in size] for x in size] for p in self.sigma
        ]

    def attention(self):
        """Attention rows as symbols; one entry of each is eliminated, a different one
        from row to row.
        """
        rows = []
        for i in range(self.L):
            row = [sp.Symbol(f"pi_{i}_{j}") for j in range(self.L)]
            free = (i + 1) % self.L
            row[free] = sp.S.One - sum(v for j, v in enumerate(row) if j != free)
            rows.append(row)
        return rows

    def logit_means(self, t):
        """Mean correct logit and mean of the others at step t, as expressions in the
        attention row.
        """
        correct, every, count = [Fraction(0)] * self.L, [Fraction(0)] * self.L, 0
        for g_, states in self.inputs():
            count += 1
            for j in range(self.L):
                correct[j] += self.M[g_[j]][states[t + 1]][states[t]]
                every[j] += sum(
                    (self.M[g_[j]][x][states[t]] for x in range(self.N)), Fraction(0)
                )
        row = self.attention()[t]
        right = sum(w * rational(v / count) for w, v in zip(row, correct, strict=True))
        total = sum(w * rational(v / count) for w, v in zip(row, every, strict=True))
        return sp.expand(right), sp.expand((total - right) / (self.N - 1))


LARGE = SIZES[-2:]  # seconds


@pytest.fixture(
    params=[
        pytest.param((size, seed), marks=[pytest.mark.slow] * (size in LARGE))
        for size in SIZES
        for seed in (0, 1)
    ],
    ids=str,
)
def task(request):
    """A random task of every size."""
    size, seed = request.param
    return Task(*size, seed)


def numbers(task):
    """Sizes and order parameters of the task; S is undefined for one action and must
    then drop out.
    """
    known = {
        N: task.N,
        d_g: task.d_g,
        R: rational(task.R(task.M)),
        zeta: rational(task.zeta()),
    }
    if task.d_g > 1:
        known[S] = rational(task.S(task.M))
    return known


def test_mean_logits_at_every_position(task):
    """(35) and (41) hold for any attention, any matrices and any permutations."""
    for t in range(task.L):
        correct, other = task.logit_means(t)
        at_i = {**numbers(task), pi_i: task.attention()[t][t]}
        form = EQUATIONS["logit_correct_position"].rhs.subs(at_i)
        assert sp.expand(form - correct) == 0
        assert (
            sp.expand(EQUATIONS["logit_other"].rhs.subs(z_k, form).subs(at_i) - other)
            == 0
        )


def test_position_average(task):
    """Averaged over positions, (11) holds with A = mean of pi_{i,i-L} although the
    entries differ.
    """
    means = [task.logit_means(t) for t in range(task.L)]
    attention = sum(task.attention()[t][t] for t in range(task.L)) / task.L
    known = {**numbers(task), A: attention}
    form = EQUATIONS["logit_correct"].rhs.subs(known)
    assert sp.expand(form - sum(x for x, _ in means) / task.L) == 0
    other = EQUATIONS["logit_other"].rhs.subs(z_k, form).subs(known)
    assert sp.expand(other - sum(x for _, x in means) / task.L) == 0


def test_pair_weight(task):
    """(30)-(33): mean of sum_j pi_ij [g_j = b][g_{i-L} = a], for every pair (a, b)."""
    row = task.attention()[0]
    every = list(itertools.product(range(task.d_g), repeat=task.L))
    for x, y in itertools.product(range(task.d_g), repeat=2):
        count = [sum(g_[0] == x and g_[j] == y for g_ in every) for j in range(task.L)]
        mean = sum(
            w * sp.Rational(v, len(every)) for w, v in zip(row, count, strict=True)
        )
        form = EQUATIONS["pair_weight"].rhs.subs(
            {pi_i: row[0], d_g: task.d_g, a: x + 1, b: y + 1}
        )
        assert sp.expand(form - mean) == 0


def test_definitions_of_zeta_and_tau(task):
    """(40) and (57) evaluated entry by entry."""
    size = {N: task.N, d_g: task.d_g}
    entries = {
        M[x + 1, y + 1, z + 1]: rational(task.M[x][y][z])
        for x in range(task.d_g)
        for y in range(task.N)
        for z in range(task.N)
    }
    assert EQUATIONS["zeta"].rhs.subs(size).doit().subs(entries) == rational(
        task.zeta()
    )
    if task.d_g > 1:
        ones = {
            M_star[x + 1, y + 1, z + 1]: rational(v)
            for x, m in enumerate(task.teachers())
            for y, row in enumerate(m)
            for z, v in enumerate(row)
        }
        assert EQUATIONS["tau"].rhs.subs(size).doit().subs(ones) == rational(
            task.S(task.teachers())
        )


@pytest.mark.parametrize(
    "size",
    [
        (3, 3, 1),
        (2, 4, 1),
        *(pytest.param(s, marks=pytest.mark.slow) for s in ((4, 3, 1), (3, 5, 1))),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2))]
)
def test_order_parameter_updates(size, seed):
    """(54), (56): project the entry update (52) onto the teachers by the definitions of
    R and S.
    """
    task = Task(*size, seed)
    ones = {
        M_star[x + 1, y + 1, z + 1]: rational(v)
        for x, m in enumerate(task.teachers())
        for y, row in enumerate(m)
        for z, v in enumerate(row)
    }
    entry = EQUATIONS["update_M"].rhs.subs({N: task.N, d_g: task.d_g})

    def step(x, y, z):
        return entry.subs({b: x + 1, r: y + 1, s: z + 1}).doit().subs(ones)

    # An update is linear in the symbols c_R, c_S and a constant; fractions carry the
    # rest.
    terms = {1: {c_R: 0, c_S: 0}, c_R: {c_R: 1, c_S: 0}, c_S: {c_R: 0, c_S: 1}}
    known = {g: 1, eta: 1}
    values = [
        [
            [sp.expand(step(x, y, z).subs(known)) for z in range(task.N)]
            for y in range(task.N)
        ]
        for x in range(task.d_g)
    ]
    tau_here = rational(task.S(task.teachers()))
    for name, project in (("delta_R", task.R), ("delta_S", task.S)):
        form = EQUATIONS[name].rhs.subs(
            {N: task.N, d_g: task.d_g, tau: tau_here, **known}
        )
        for at in terms.values():
            matrices = [
                [[fraction(v.subs(at)) for v in row] for row in m] for m in values
            ]
            assert rational(project(matrices)) == form.subs(at), name


@pytest.mark.parametrize("size", [2, 3, 4])
def test_mean_teacher_overlap(size):
    """(77) by all ordered pairs of distinct permutations;
    with repetition exactly 1/N.
    """
    group = list(itertools.permutations(range(size)))
    pairs = list(itertools.product(group, repeat=2))
    agree = {pair: sum(x == y for x, y in zip(*pair, strict=True)) for pair in pairs}
    distinct = [v for (x, y), v in agree.items() if x != y]
    assert sp.Rational(sum(distinct), len(distinct) * size) == EQUATIONS[
        "tau_bar_distinct"
    ].rhs.subs(N, size)
    assert sp.Rational(sum(agree.values()), len(agree) * size) == EQUATIONS[
        "tau_bar_iid"
    ].rhs.subs(N, size)


@pytest.mark.parametrize("actions", [3, 4, 6])
@pytest.mark.parametrize("seed", range(4))
def test_sigma_is_tau(actions, seed):
    """(58) summed over triples equals (57) for any set of permutations."""
    task = Task(4, actions, 1, seed)
    teachers = task.teachers()
    triples = [
        task.overlap(x, teachers[z])
        for x, _, z in itertools.permutations(range(actions), 3)
    ]
    assert len(triples) == actions * (actions - 1) * (actions - 2)
    mean = sum(triples, Fraction(0)) / len(triples)
    assert mean == task.S(teachers)
    assert EQUATIONS["sigma_overlap"].rhs == tau


@pytest.mark.parametrize(
    ("actions", "length"), [(1, 2), (2, 1), (2, 3), (3, 2), (3, 4)]
)
def test_logit_variance(actions, length):
    """Variance over independent entries of M at fixed actions, averaged over all
    actions.
    """
    row = [sp.Symbol(f"pi_{j}") for j in range(length - 1)]
    row.append(1 - sum(row))
    every = list(itertools.product(range(actions), repeat=length))
    total = sum(
        sum(w for w, x in zip(row, g_, strict=True) if x == action) ** 2
        for g_ in every
        for action in range(actions)
    )
    form = EQUATIONS["logit_variance"].rhs.subs(
        {participation: sum(w**2 for w in row), d_g: actions}
    )
    assert sp.expand(form - sigma2 * total / len(every)) == 0
