"""Cavity equations by independent methods: enumeration in rational arithmetic, random
matrices, explicit descent, fine quadrature.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import sympy as sp
import torch
from later import Later

from theory.state_tracking import Parameters
from theory.state_tracking.model import mean_field
from theory.state_tracking.model.symbols import N, R, S, d_g, eta
from theory.state_tracking.single_students import cavity, dressed, per_seed
from theory.state_tracking.single_students.cavity import Cavity, V_all, V_k, V_w, mean_w
from theory.state_tracking.single_students.realisation import Start

EQUATIONS = Later(cavity.equations)
ROWS = [
    [Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)],
    [Fraction(1, 7), Fraction(4, 7), Fraction(2, 7)],
    [Fraction(2, 9), Fraction(3, 9), Fraction(0), Fraction(4, 9)],
    [Fraction(1)],
]


def rational(x: Fraction) -> sp.Rational:
    """SymPy number of a fraction."""
    return sp.Rational(x.numerator, x.denominator)


def counted(row: list[Fraction], actions: int) -> tuple[Fraction, Fraction, Fraction]:
    """Mean and variance of the attention on the own action, standing first, and mean of
    the squared ones on others, summed.
    """
    own, others = [], []
    for rest in itertools.product(range(actions), repeat=len(row) - 1):
        weight = [Fraction(0)] * actions
        for w, action in zip(row, (0, *rest), strict=True):
            weight[action] += w
        own.append(weight[0])
        others.append(sum((w**2 for w in weight[1:]), Fraction(0)))
    mean = sum(own, Fraction(0)) / len(own)
    return (
        mean,
        sum((w**2 for w in own), Fraction(0)) / len(own) - mean**2,
        sum(others, Fraction(0)) / len(others),
    )


@pytest.mark.parametrize("actions", [1, 2, 3, 4])
@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_weight_and_noise_by_enumeration(row, actions):
    """Law of total variance over all sequences whose
    right action is the column's own.
    """
    mean, own, others = (rational(x) for x in counted(row, actions))
    at = {
        cavity.pi_i: rational(row[0]),
        cavity.T: sum(rational(w) ** 2 for w in row[1:]),
        d_g: actions,
    }
    assert EQUATIONS["own_weight"].rhs.subs(at) == mean
    exact = others * V_all + own * (
        V_k + (R - S) ** 2
    )  # entries of other columns average S in the right logit
    assert sp.expand(EQUATIONS["noise_right"].rhs.subs(at) - exact) == 0
    # In a wrong logit they average (zeta - S)/(N - 1), the own ones (zeta - R)/(N - 1).
    exact = others * V_all + own * (V_w + ((R - S) / (N - 1)) ** 2)
    assert sp.expand(EQUATIONS["noise_wrong"].rhs.subs(at) - exact) == 0


def test_noise_and_signal_add_up():
    """Own weight squared and the two coefficients of noise make up the spread of a
    logit over M.
    """
    others, own = (
        sp.expand(EQUATIONS["noise_right"].rhs).coeff(x) for x in (V_all, V_k)
    )
    weight = EQUATIONS["own_weight"].rhs
    whole = dressed.equations()["spread"].rhs.subs(
        mean_field.participation, cavity.pi_i**2 + cavity.T
    )
    assert sp.expand(weight**2 + others + own - whole) == 0
    # What a column feels of its own deviation elsewhere is the rest of the spread.
    pull = (
        -sp.diff(EQUATIONS["rate_wrong"].rhs, cavity.v_w).subs(dressed.L, 1).doit()
        / eta
    )
    share = cavity.left[1] / (N - 1)
    elsewhere = sp.cancel(pull / (share * (1 - share)))
    assert sp.expand(elsewhere - (dressed.spread[1] - cavity.beta[1] ** 2)) == 0


def test_entry_variance_by_enumeration():
    """Variance over a whole column of N entries of which one, equally likely any, is
    the right one.
    """
    right, wrong, size = (
        [Fraction(3), Fraction(5, 2), Fraction(1, 3)],
        [Fraction(-1), Fraction(1, 2), Fraction(0), Fraction(2)],
        5,
    )

    def moments(x):
        mean = sum(x, Fraction(0)) / len(x)
        return mean, sum((y**2 for y in x), Fraction(0)) / len(x) - mean**2

    entries = []  # every right value as often as it should be, against N - 1 wrong ones
    for k, v in itertools.product(range(size), itertools.product(right, wrong)):
        entries += [v[0] if r == k else v[1] for r in range(size)]
    (R_, V_right), (mean, V_wrong) = moments(right), moments(wrong)
    values = {
        N: size,
        R: rational(R_),
        V_k: rational(V_right),
        mean_w: rational(mean),
        V_w: rational(V_wrong),
    }
    assert EQUATIONS["entry_variance"].rhs.subs(values) == rational(moments(entries)[1])


def student(
    p: Parameters, rng: np.random.Generator, n: int | None
) -> tuple[Start, np.ndarray, np.ndarray]:
    """A random student's start, and its right and all logits on n sequences or on all
    inputs: (n, L), (n, L, N).
    """
    perms = rng.permuted(np.broadcast_to(np.arange(p.N), (p.d_g, p.N)), axis=1)
    M = rng.uniform(-1, 1, (p.d_g, p.N, p.N))
    W = rng.uniform(-1, 1, (2, 1, p.d_h))
    if n is None:
        every = np.array(list(itertools.product(*[range(p.d_g)] * p.L, range(p.N))))
        g, s = every[:, :-1], every[:, -1]
    else:
        g, s = rng.integers(p.d_g, size=(n, p.L)), rng.integers(p.N, size=n)
    at = per_seed.Attention(p).forward(*W)[0]
    right, logits = [], []
    for t in range(p.L):
        z = sum(at[t, j] * M[g[:, j], :, s] for j in range(p.L))
        s = perms[g[:, t], s]
        right.append(z[np.arange(len(s)), s])
        logits.append(z)
    teachers = (perms[:, None, :] == np.arange(p.N)[:, None]).astype(bool)
    trace = np.einsum("ars,brs->ab", teachers, M) / p.N
    R_, S_ = (
        np.trace(trace) / p.d_g,
        (trace.sum() - np.trace(trace)) / (p.d_g * (p.d_g - 1)),
    )
    numbers = (R_, S_, M.sum() / (p.d_g * p.N), M[teachers].var(), M[~teachers].var())
    return (
        Start(*W, *(np.array([x]) for x in numbers)),
        np.stack(right, 1),
        np.stack(logits, 1),
    )


@pytest.mark.parametrize("size", [(3, 2, 3), (4, 3, 2), (2, 4, 3)], ids=str)
def test_mean_logits_at_the_start_are_exact(size):
    """Over all inputs of one random student, whatever its matrices."""
    p = Parameters(
        N=size[0], d_g=size[1], L=size[2], d_h=4, rope="plain", rope_theta=10.0
    )
    start, right, every = student(p, np.random.default_rng(size), None)
    found = Cavity(p, start).observe()
    other = (every.sum(2) - right) / (p.N - 1)
    assert found["logit_correct"][0] == pytest.approx(
        right.mean(), abs=1e-13
    )  # rounding
    assert found["logit_other"][0] == pytest.approx(other.mean(), abs=1e-13)
    assert [found[x][0] for x in "RS"] == pytest.approx(
        [start.R[0], start.S[0]], abs=1e-13
    )


def test_logits_at_the_start_against_random_students():
    """Variances and loss of sampled logits, seed by seed: z-scores of the mean
    difference over 80 students.
    """
    p, rng = (
        Parameters(N=16, d_g=16, L=4, d_h=16, rope_theta=10.0),
        np.random.default_rng(21),
    )
    gaps = {"variance_correct": [], "variance_other": [], "loss": []}
    scale = {}
    for _ in range(80):
        start, right, every = student(p, rng, 1000)
        theory = Cavity(p, start).observe()
        others = (every**2).sum(2) - right**2, every.sum(2) - right
        mean = others[1].mean() / (p.N - 1)
        loss = np.log(np.exp(every).sum(2)) - right
        measured = {
            "variance_correct": right.var(),
            "variance_other": others[0].mean() / (p.N - 1) - mean**2,
            "loss": loss.mean(),
        }
        for name, x in measured.items():
            gaps[name].append(x - theory[name][0])
            scale[name] = x
    for name, x in gaps.items():
        error = np.std(x, ddof=1) / len(x) ** 0.5
        assert (
            error < 0.0125 * scale[name]
        )  # a mistake of 5% would show at 4 standard errors
        # Sampling a student's logits leaves out the scatter of its mean, a share 1/(d_g
        # N) = 0.4% of the variance. The mean over wrong entries in place of their sum
        # prices noise v at v (N-1)/(2 N^2) too much when all logits are alike.
        known = (
            -scale["variance_other"] * (p.N - 1) / (2 * p.N**2)
            if name == "loss"
            else 0.0
        )
        assert abs(np.mean(x) - known) <= 4 * error, name


def test_rates_at_the_start_against_fine_quadrature():
    """Softmax weights by adaptive integrals of the Equations, entry by entry; attention
    by autograd at given forces.
    """
    p = Parameters(N=8, L=3, d_g=5, d_h=4, rope="plain", rope_theta=10.0, n_train=300)
    start = Start.drawn(p, 1, np.random.default_rng(3))
    start.S[:], start.R[:] = 0.15, 0.7
    system = Cavity(p, start)
    R_, S_, zeta_, V_ = (
        float(x[0]) for x in (start.R, start.S, start.zeta, start.variance_right)
    )
    W_Q, W_K = (torch.tensor(w, requires_grad=True) for w in (start.W_Q, start.W_K))
    place, omega = (
        torch.arange(1, 2 * p.L + 1, dtype=torch.float64),
        torch.tensor(p.frequencies),
    )
    turn = torch.exp(1j * place[:, None] * omega)
    q, k = (torch.view_as_complex(w.reshape(-1, 2)) * turn for w in (W_Q, W_K))
    at = torch.softmax(
        (q[p.L :, None] * k[None, : p.L].conj()).real.sum(2) / p.d_h**0.5, 1
    )
    pi = at.detach().numpy()
    mean = (zeta_ - R_) / (p.N - 1)
    size, edge = (
        {
            "N": p.N,
            "d_g": p.d_g,
            "R": R_,
            "S": S_,
            "zeta": zeta_,
            "V_k": V_,
            "V_w": V_,
            "mean_w": mean,
        },
        np.sqrt(3 * V_),
    )
    right, wrong, left = (
        np.zeros((p.L, len(system.v_0))),
        np.zeros((p.L, len(system.v_0))),
        np.zeros(p.L),
    )
    size["V_all"] = EQUATIONS["entry_variance"].evaluate(size)
    weights = []
    for i in range(p.L):
        x = {**size, "pi_i": pi[i, i], "T_i": (pi[i] ** 2).sum() - pi[i, i] ** 2}
        x["b_i"] = EQUATIONS["own_weight"].evaluate(x)
        u_k, u_w = (
            EQUATIONS[f"noise_{name}"].evaluate(x) for name in ("right", "wrong")
        )
        z_k, z_w = (
            EQUATIONS[f"column_{name}"].evaluate(
                {**x, "v_k": R_ + edge * system.v_0, "v_w": mean + edge * system.v_0}
            )
            for name in ("right", "wrong")
        )
        centre = EQUATIONS["column_wrong"].evaluate({**x, "v_w": mean})
        half = x["b_i"] * edge
        W = np.exp(centre + u_w / 2) * np.sinh(half) / half  # wrong_mean in closed form

        def integral(f, z, u=u_k, W=W):
            def integrand(xi):
                e = np.exp(z + np.sqrt(u) * xi)
                return (
                    np.exp(-(xi**2) / 2)
                    / np.sqrt(2 * np.pi)
                    * f(e)
                    / (e + (p.N - 1) * W)
                )

            return scipy.integrate.quad(integrand, -12, 12, epsabs=1e-12)[0]

        right[i] = [integral(lambda e: e, z) for z in z_k]
        middle = np.polynomial.legendre.leggauss(20)
        of_k = EQUATIONS["column_right"].evaluate({**x, "v_k": R_ + edge * middle[0]})
        inverse = sum(
            w / 2 * integral(lambda e: 1, z)
            for z, w in zip(of_k, middle[1], strict=True)
        )
        left[i] = 1 - sum(
            w / 2 * integral(lambda e: e, z)
            for z, w in zip(of_k, middle[1], strict=True)
        )
        wrong[i] = np.exp(z_w + u_w / 2) * inverse
        weights.append(x)
    b = np.array([x["b_i"] for x in weights])
    spread = dressed.equations()["spread"].evaluate(
        {"participation": (pi**2).sum(1), "d_g": p.d_g}
    )
    found = system.rates()
    for k, name, mass, v, v_mean in (
        (2, "rate_right", right, R_ + edge * system.v_0, R_),
        (3, "rate_wrong", wrong, mean + edge * system.v_0, mean),
    ):
        for s, share in enumerate(system.share):
            for node in range(len(system.v_0)):
                form = EQUATIONS[name].evaluate(
                    {
                        "eta": p.eta,
                        "L": p.L,
                        "share": share - 1,
                        "column_weight": b,
                        "p_k": mass[:, node],
                        "p_w": mass[:, node],
                        "d_g": p.d_g,
                        "N": p.N,
                        "spread": spread,
                        "g": left,
                        "v_k": v[node],
                        "v_w": v[node],
                        "R": R_,
                        "mean_w": v_mean,
                    }
                )
                # Five nodes in xi leave u^5 5!/10! = 3e-10 (u = 0.1) times a tenth
                # derivative of a softmax weight, of order ten.
                assert found[k][0, s, node] * p.d_g * p.N == pytest.approx(
                    form, abs=1e-8
                )
    form = EQUATIONS["rate_S"].evaluate(
        {"eta": p.eta, "L": p.L, "d_g": p.d_g, "column_weight": b, "g": left}
    )
    assert found[4][0] * p.d_g * p.N == pytest.approx(form, abs=1e-8)  # as above
    values = {"g": left[:, None], "V_M": V_, "N": p.N, "d_g": p.d_g, "R": R_, "S": S_}
    eq = dressed.equations()
    values["h_i"] = eq["noise_cost"].evaluate(values)
    values["v_i"] = eq["noise"].evaluate(
        values | {mean_field.participation: (pi**2).sum(1)[:, None]}
    )
    force = eq["dloss_dpi_noise"].evaluate(
        values | {dressed.pi[dressed.i, dressed.j]: pi}
    )
    force = force + np.diag(eq["dloss_dpi_margin"].evaluate(values)[:, 0])
    for mine, slope in zip(
        found[:2],
        torch.autograd.grad((torch.tensor(force) * at).sum() / p.L, [W_Q, W_K]),
        strict=True,
    ):
        np.testing.assert_allclose(
            mine, -p.eta * slope, rtol=1e-6
        )  # as above, through g
    assert system.share @ system.of_share == pytest.approx(1, rel=1e-14)
    spread = EQUATIONS["share_variance"].evaluate(p.values() | {"n_train": p.n_train})
    assert (system.share - 1) ** 2 @ system.of_share == pytest.approx(spread, rel=1e-12)
