"""Dressed theory by independent methods: enumeration in rational arithmetic, Gaussian
averages and derivatives at high precision, autograd.
"""

from __future__ import annotations

import itertools
import random

import mpmath
import pytest
import sympy as sp
from later import Later

from theory.state_tracking import Parameters
from theory.state_tracking.model.definitions import pi
from theory.state_tracking.model.mean_field import participation
from theory.state_tracking.model.symbols import N, R, S, d_g, g, z_k, zeta
from theory.state_tracking.model.symbols import m as margin
from theory.state_tracking.single_students import dressed

EQUATIONS = Later(dressed.equations)
TINY = [(1, 2), (2, 1), (2, 3), (3, 2), (3, 4), (4, 3)]  # (actions, length)
P = Parameters(N=3, L=3, d_g=2, d_h=4, rope_theta=10.0, rope="plain")


def attention_row(length: int, seed: int) -> list[sp.Rational]:
    """Random rational attention."""
    weights = [random.Random(f"{seed} {k}").randint(1, 9) for k in range(length)]
    return [sp.Rational(w, sum(weights)) for w in weights]


def weight_of(action: int, row: list, actions: tuple) -> sp.Expr:
    """Attention on an action, wherever it stands."""
    return sum((w for w, x in zip(row, actions, strict=True) if x == action), sp.S.Zero)


@pytest.mark.parametrize(("actions", "length"), TINY)
def test_noise_by_enumeration(actions, length):
    """Variance of a logit over independent entries of M, every sequence of actions
    counted once.
    """
    row = attention_row(length, 1)
    every = list(itertools.product(range(actions), repeat=length))
    exact = sum(
        weight_of(a, row, seq) ** 2 for seq in every for a in range(actions)
    ) / sp.Integer(len(every))
    values = {participation: sum(w**2 for w in row), d_g: actions}
    assert EQUATIONS["noise"].rhs.subs(values) == exact * dressed.V
    assert EQUATIONS["spread"].rhs.subs(values) == exact


@pytest.mark.parametrize(
    ("actions", "length", "size"), [(2, 2, 2), (3, 2, 2), (2, 2, 3), (1, 2, 3)]
)
def test_response_is_the_curvature_of_the_true_loss(actions, length, size):
    """dV/dalpha = -2 eta <q s^2> V: second derivative of the loss over all inputs by
    one entry at M = 0, for every column.
    """
    draw = random.Random(actions + 10 * size)
    perms = [draw.sample(range(size), size) for _ in range(actions)]
    rows = [attention_row(length, k) for k in range(length)]
    x = sp.Symbol("x")
    values = [
        {
            participation: sum(w**2 for w in row),
            d_g: actions,
            g: sp.Rational(size - 1, size),
            N: size,
        }
        for row in rows
    ]
    form = (
        sum(
            (EQUATIONS["curvature"].rhs * EQUATIONS["spread"].rhs).subs(v)
            for v in values
        )
        / length
    )
    cost = {}  # second derivative of ln(sum_r e^z_r) - z_y by x, where one logit is w x
    for action, state in itertools.product(range(actions), range(size)):
        entry, total, count = (
            0,
            0,
            0,
        )  # the entry (row `entry`, column `state`) of one matrix
        for seq in itertools.product(range(actions), repeat=length):
            for at in range(size):
                count += 1
                for t in range(length):
                    w = weight_of(action, rows[t], seq) if at == state else sp.S.Zero
                    at = perms[seq[t]][at]
                    if (w, at == entry) not in cost:
                        loss = sp.log(sp.exp(w * x) + size - 1) - (
                            w * x if at == entry else 0
                        )
                        cost[w, at == entry] = sp.diff(loss, x, 2).subs(x, 0)
                    total += cost[w, at == entry]
        # Time alpha is epochs / (d_g N).
        assert sp.nsimplify(total / (count * length) * actions * size) == form
    rate = EQUATIONS["dV_dalpha"].evaluate(
        {
            "eta": 0.7,
            "L": length,
            "V_M": 0.2,
            "curvature": [(1 - 1 / size) / size] * length,
            "spread": [float(EQUATIONS["spread"].rhs.subs(v)) for v in values],
        }
    )
    assert rate == pytest.approx(-2 * 0.7 * float(form) * 0.2, rel=1e-14)  # rounding


def gaussian_average(f, size: int, variance, order: int):
    """Mean of f over `size` independent Gaussians, by a product of Gauss-Hermite rules
    at working precision.
    """
    he = sp.Poly(sp.hermite_prob(order, sp.Symbol("x")))
    nodes = [
        mpmath.mpf(x)
        for x in mpmath.polyroots(
            [int(c) for c in he.all_coeffs()], maxsteps=200, extraprec=200
        )
    ]
    below = sp.lambdify(
        sp.Symbol("x"), sp.hermite_prob(order - 1, sp.Symbol("x")), "mpmath"
    )
    weights = [mpmath.factorial(order - 1) / (order * below(x) ** 2) for x in nodes]
    rule = list(zip(nodes, weights, strict=True))
    scale = mpmath.sqrt(variance)
    return mpmath.fsum(
        mpmath.fprod(w for _, w in point) * f([scale * x for x, _ in point])
        for point in itertools.product(rule, repeat=size)
    )


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("gap", [-0.7, 0.0, 2.3])
def test_cost_of_noise_by_gaussian_average(size, gap):
    """h is the coefficient of v/2 in <ln Z>: what is left falls as v^2, and
    extrapolation removes it.
    """
    with mpmath.workdps(30):
        base = [mpmath.mpf(gap)] + [mpmath.mpf(0)] * (size - 1)

        def log_Z(x):
            return mpmath.log(
                mpmath.fsum(mpmath.exp(b + y) for b, y in zip(base, x, strict=True))
            )

        left = 1 / (1 + mpmath.exp(base[0]) / (size - 1))
        form = EQUATIONS["noise_cost"].lambdify(g, N, modules="mpmath")(left, size)
        level = [
            2
            * (
                gaussian_average(log_Z, size, mpmath.mpf(v) / 100, 8)
                - log_Z([0] * size)
            )
            / (mpmath.mpf(v) / 100)
            for v in (4, 2, 1)
        ]
        errors = [x - form for x in level]
        assert errors[0] / errors[1] == pytest.approx(
            2, abs=0.1
        )  # linear in v; the next order is v = 2% of it
        first = [2 * level[1] - level[0], 2 * level[2] - level[1]]
        # Third order is left: v^3/8 = 8e-6 at v = 0.04, times a cumulant of order one
        # or less.
        assert abs((4 * first[1] - first[0]) / 3 - form) < 8e-6


@pytest.mark.parametrize("size", [2, 3])
def test_annealed_cost_is_exact(size):
    """ln <Z> = ln Z + v/2 whatever the size of v, when all logits have the same
    variance.
    """
    with mpmath.workdps(30):
        base, variance = (
            [mpmath.mpf("1.3")] + [mpmath.mpf(0)] * (size - 1),
            mpmath.mpf("0.3"),
        )

        def Z(x):
            return mpmath.fsum(mpmath.exp(b + y) for b, y in zip(base, x, strict=True))

        gain = mpmath.log(gaussian_average(Z, size, variance, 12) / Z([0] * size))
        # Remainder of the rule: v^12 12!/24! = 4e-22.
        assert (
            abs(gain - variance / 2 * int(EQUATIONS["noise_cost_annealed"].rhs))
            < mpmath.mpf(10) ** -20
        )


NUMBERS = [
    (3, 2, 1.1, 0.2, 0.3, 0.25),
    (5, 4, -0.3, 0.1, -0.2, 0.1),
    (2, 3, 4.0, 0.5, 0.0, 0.4),
]


@pytest.mark.parametrize(("size", "actions", "R_", "S_", "zeta_", "V_"), NUMBERS)
def test_force_on_attention_by_differentiation(size, actions, R_, S_, zeta_, V_):
    """Derivatives of the dressed loss by every entry of a row, the loss built anew from
    a softmax.
    """
    row = [0.5, 0.3, 0.2]

    def vector(weights):
        right = (weights[0] + (1 - weights[0]) / mpmath.mpf(actions)) * (
            mpmath.mpf(R_) - S_
        ) + S_
        other = (zeta_ - right) / (size - 1)
        return [right] + [other] * int(size - 1)

    def loss(*weights):
        z = vector(weights)
        Z = mpmath.fsum(map(mpmath.exp, z))
        q = 1 / mpmath.mpf(actions)
        noise = V_ * ((1 - q) * mpmath.fsum(w**2 for w in weights) + q)
        return (
            mpmath.log(Z)
            - z[0]
            + noise / 2 * (1 - mpmath.fsum((mpmath.exp(x) / Z) ** 2 for x in z))
        )

    with mpmath.workdps(40):
        row, (R_, S_, zeta_, V_) = (
            [mpmath.mpf(w) for w in row],
            map(mpmath.mpf, (R_, S_, zeta_, V_)),
        )
        size, actions = mpmath.mpf(size), mpmath.mpf(actions)
        z = vector(row)
        left = 1 - mpmath.exp(z[0]) / mpmath.fsum(map(mpmath.exp, z))
        at = {
            N: size,
            d_g: actions,
            R: R_,
            S: S_,
            zeta: zeta_,
            dressed.V: V_,
            g: left,
            dressed.pi_i: row[0],
            z_k: z[0],
            participation: mpmath.fsum(w**2 for w in row),
            margin: z[0] - z[1],
        }
        at |= {
            x.lhs: x.evaluate(at, "mpmath")
            for x in (EQUATIONS["noise"], EQUATIONS["noise_cost"])
        }
        # Central differences at 40 digits are good to about half of them.
        assert (
            abs(EQUATIONS["margin_position"].evaluate(at, "mpmath") - at[margin])
            < mpmath.mpf(10) ** -30
        )
        assert (
            abs(EQUATIONS["loss_dressed"].evaluate(at, "mpmath") - loss(*row))
            < mpmath.mpf(10) ** -30
        )
        for k, w in enumerate(row):
            order = tuple(int(k == x) for x in range(3))
            form = EQUATIONS["dloss_dpi_noise"].evaluate(
                at | {pi[dressed.i, dressed.j]: w}, "mpmath"
            )
            if k == 0:
                form += EQUATIONS["dloss_dpi_margin"].evaluate(at, "mpmath")
            assert (
                abs(mpmath.diff(loss, tuple(row), order) - form) < mpmath.mpf(10) ** -18
            )
