"""Derived equations of the positional-semantic model against their printed forms and
against each other.
"""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp

from theory.positional_semantic import (
    Parameters,
    baseline,
    equations,
    errors,
    free_entropy,
    state_evolution,
)
from theory.positional_semantic.errors import moments
from theory.positional_semantic.errors import test_error as error_of
from theory.positional_semantic.model import definitions
from theory.positional_semantic.model import symbols as s

hats = s.lam + s.sigma**2 * s.V_hat
PRINTED = {
    "q": (
        s.sigma**2
        * (s.sigma**2 * s.q_hat + s.m_hat**2 + s.sigma**2 * s.rho * s.theta_hat**2)
        / hats**2
    ),
    "V": s.sigma**2 / hats,
    "m": s.m_hat / hats,
    "theta": s.sigma**2 * s.rho * s.theta_hat / hats,
    "q_hat": s.alpha * s.E_gg,
    "m_hat": s.alpha * s.E_g,
    "theta_hat": s.alpha * s.E_geta / sp.sqrt(state_evolution.nu),
    "V_hat": s.theta * s.theta_hat / s.q - s.alpha / sp.sqrt(s.q) * s.E_gxi,
    "training_loss": s.alpha * s.E_M - s.q_hat * s.V / 2 + s.lam / 2 * s.q / s.sigma**2,
    "training_loss_data": s.alpha * s.E_loss + s.lam / 2 * s.q / s.sigma**2,
    "training_loss_slope": s.E_M,
}


@pytest.mark.parametrize("name", PRINTED)
def test_printed_form(name):
    """What SymPy derives from the free entropy is what the paper's code iterates."""
    assert sp.simplify(equations()[name].rhs - PRINTED[name]) == 0


def test_a_wrong_form_is_rejected(monkeypatch):
    """The proof by parts can fail: with a wrong law of the teacher field no form is the
    derivative.
    """
    right = state_evolution.FIELDS[state_evolution.h]
    monkeypatch.setitem(
        state_evolution.FIELDS, state_evolution.h, right.subs(s.theta, 2 * s.theta)
    )
    state_evolution.envelope_gradient.cache_clear()
    with pytest.raises(ArithmeticError, match="is not the derivative"):
        state_evolution.envelope_gradient()
    state_evolution.envelope_gradient.cache_clear()
    with pytest.raises(ValueError, match="at most one"):
        state_evolution.stein(state_evolution.xi**2)


def test_softmax_entries_are_checked():
    """The logistic form of the attention is compared with the softmax at every
    construction.
    """
    P, _ = definitions.off_diagonal(s.z_1, s.z_2)
    at = {s.z_1: sp.Rational(1, 3), s.z_2: sp.Rational(-3, 4)}
    S = definitions.tied_attention(sp.Matrix([at[s.z_1], at[s.z_2]]))
    assert float((P.subs(at) - S[0, 1]).evalf(30)) == pytest.approx(0, abs=1e-25)


def matrices(tokens: int, rank: int, teacher: int) -> dict[str, list[sp.Matrix]]:
    """Matrices of symbols for every order parameter and conjugate, one per token."""
    shapes = {
        "q": (rank, rank),
        "V": (rank, rank),
        "m": (rank, 1),
        "theta": (rank, teacher),
    }
    return {
        name + hat: [
            sp.Matrix(
                *shape,
                lambda i, j, n=name + hat, k=k: sp.Symbol(f"{n}_{k}_{i}{j}", real=True),
            )
            for k in range(tokens)
        ]
        for name, shape in shapes.items()
        for hat in ("", "_hat")
    }


def explicit(
    tokens: int, rank: int, teacher: int
) -> tuple[sp.Expr, dict[str, list[sp.Matrix]]]:
    """Free entropy without its energetic part in terms of single entries, for one
    eigendirection with given gamma, pi, tau.

    All entries are independent variables, also of symmetric matrices, so that partial
    derivatives give the stationarity conditions.
    """
    x = matrices(tokens, rank, teacher)
    gammas, pis = (
        sp.symbols(f"gamma:{tokens}", positive=True),
        sp.symbols(f"pi:{tokens}", real=True),
    )
    teacher_row = sp.Matrix(sp.symbols(f"tau:{teacher}", real=True))
    total = sum(
        (
            (x["V_hat"][k] * x["q"][k] - x["q_hat"][k] * x["V"][k]).trace() / 2
            - x["m_hat"][k].dot(x["m"][k])
            - (x["theta_hat"][k].T * x["theta"][k]).trace()
            for k in range(tokens)
        ),
        sp.S.Zero,
    )
    resolvent = s.lam * sp.eye(rank) + sum(
        (gammas[k] * x["V_hat"][k] for k in range(tokens)), sp.zeros(rank)
    )
    b = sum(
        (
            pis[k] * x["m_hat"][k] + gammas[k] * x["theta_hat"][k] * teacher_row
            for k in range(tokens)
        ),
        sp.zeros(rank, 1),
    )
    second = (
        sum((gammas[k] * x["q_hat"][k] for k in range(tokens)), sp.zeros(rank))
        + b * b.T
    )
    return total + (resolvent.inv() * second).trace() / 2, x


@pytest.mark.parametrize(
    ("tokens", "rank", "teacher"),
    [(2, 1, 1), (3, 1, 1), pytest.param(2, 2, 1, marks=pytest.mark.slow), (1, 2, 2)],
)
def test_general_input_channel(tokens, rank, teacher):
    """Stationarity in the conjugates, entry by entry, is (7) in matrix form, at a
    random rational point.
    """
    phi, x = explicit(tokens, rank, teacher)
    rng = np.random.default_rng(3)
    values = {}
    for name, many in x.items():
        for matrix in many:
            draw = [sp.Rational(int(v), 20) for v in rng.integers(1, 9, len(matrix))]
            values |= dict(zip(matrix, draw, strict=True))
            if name in (
                "q_hat",
                "V_hat",
            ):  # symmetric, and V_hat dominated by its diagonal
                for i in range(rank):
                    for j in range(rank):
                        values[matrix[i, j]] = sp.Rational(
                            int(1 + (i == j)) + 2 * min(i, j), 5
                        )
    gamma, pi = (
        sp.symbols(f"gamma:{tokens}", positive=True),
        sp.symbols(f"pi:{tokens}", real=True),
    )
    tau = sp.Matrix(sp.symbols(f"tau:{teacher}", real=True))
    for k in range(tokens):
        values |= {gamma[k]: sp.Rational(1 + k, 3), pi[k]: sp.Rational(2 - k, 5)}
    values |= {v: sp.Rational(1, 2 + k) for k, v in enumerate(tau)} | {
        s.lam: sp.Rational(1, 7)
    }
    at = {name: [m.subs(values) for m in many] for name, many in x.items()}
    g, p_, t = (
        [v.subs(values) for v in gamma],
        [v.subs(values) for v in pi],
        tau.subs(values),
    )
    D = values[s.lam] * sp.eye(rank) + sum(
        (g[k] * at["V_hat"][k] for k in range(tokens)), sp.zeros(rank)
    )
    b = sum(
        (p_[k] * at["m_hat"][k] + g[k] * at["theta_hat"][k] * t for k in range(tokens)),
        sp.zeros(rank, 1),
    )
    spread = (
        D.inv()
        * (
            sum((g[k] * at["q_hat"][k] for k in range(tokens)), sp.zeros(rank))
            + b * b.T
        )
        * D.inv()
    )
    for k in range(tokens):
        expected = {
            "V_hat": g[k] * spread / 2,
            "q_hat": g[k] * D.inv() / 2,
            "m_hat": p_[k] * D.inv() * b,
            "theta_hat": g[k] * D.inv() * b * t.T,
        }
        own = {
            "V_hat": at["q"][k].T / 2,
            "q_hat": -at["V"][k].T / 2,
            "m_hat": -at["m"][k],
            "theta_hat": -at["theta"][k],
        }
        sign = {"V_hat": -1, "q_hat": 1, "m_hat": 1, "theta_hat": 1}
        for name, form in expected.items():
            matrix = x[name][k]
            found = sp.Matrix(
                *matrix.shape, lambda i, j, m=matrix: sp.diff(phi, m[i, j]).subs(values)
            )
            assert found == (own[name] + sign[name] * form).applyfunc(sp.nsimplify), (
                name
            )


def test_rank_one_is_the_general_case():
    """The general free entropy with two tokens of the same law, hats summed, is the
    rank-one one.
    """
    phi, x = explicit(2, 1, 1)
    gamma, pi, tau = (
        sp.symbols("gamma:2", positive=True),
        sp.symbols("pi:2", real=True),
        sp.symbols("tau:1", real=True),
    )
    halves = {x["q"][k][0]: s.q for k in (0, 1)} | {x["V"][k][0]: s.V for k in (0, 1)}
    halves |= {x["theta"][k][0]: s.theta for k in (0, 1)} | {
        x["m"][0][0]: s.m,
        x["m"][1][0]: -s.m,
    }
    for name, whole in (
        ("q_hat", s.q_hat),
        ("V_hat", s.V_hat),
        ("theta_hat", s.theta_hat),
    ):
        halves |= {x[name][k][0]: whole / 2 for k in (0, 1)}
    halves |= {x["m_hat"][0][0]: s.m_hat / 2, x["m_hat"][1][0]: -s.m_hat / 2}
    sign = sp.Symbol("c", real=True)  # the projection of p_1, of mean square one
    reduced = phi.subs(halves).subs(
        {gamma[0]: s.sigma**2, gamma[1]: s.sigma**2, pi[0]: sign, pi[1]: -sign}
    )
    averaged = free_entropy.gaussian_moments(
        sp.expand(reduced), {sign: 1, tau[0]: s.rho / s.sigma**2}
    )
    rank_one = equations()["free_entropy"].rhs.subs(s.E_M, 0)
    assert sp.simplify(averaged - rank_one) == 0


def test_index_form_is_the_explicit_one():
    """The general free entropy spelled out for two tokens and ranks 2 and 3, all
    entries different numbers.
    """
    form = equations()["free_entropy_general"].rhs
    sizes = {"L": 2, "r": 2, "t": 3}
    form = form.subs(
        {x: sizes[x.name] for x in form.free_symbols if str(x) in sizes}
    ).doit()
    phi, x = explicit(2, 2, 3)
    entries = sorted(phi.free_symbols, key=str)
    value = {e: sp.Rational(1 + k, 7 + k % 5) for k, e in enumerate(entries)}
    by_name = {str(e): v for e, v in value.items()}
    gamma, pi = ([by_name[f"{n}{k}"] for k in range(2)] for n in ("gamma", "pi"))
    tau = sp.Matrix([by_name[f"tau{k}"] for k in range(3)])
    matrix = {name: [m.subs(value) for m in tokens] for name, tokens in x.items()}
    hats = sum(
        (g * V for g, V in zip(gamma, matrix["V_hat"], strict=True)), sp.zeros(2)
    )
    outer = sum(
        (
            pi[k] * matrix["m_hat"][k] + gamma[k] * matrix["theta_hat"][k] * tau
            for k in (0, 1)
        ),
        sp.zeros(2, 1),
    )
    inverse = (value[s.lam] * sp.eye(2) + hats).inv()

    def entry(x):
        name, at = x.base.name, [int(n) - 1 for n in x.indices]
        if name == "gamma":
            return gamma[at[0]]
        if name in matrix:
            return matrix[name][at[0]][at[1], at[2] if len(at) == 3 else 0]
        return (inverse if name == "D_inverse" else outer)[
            tuple(at) if len(at) == 2 else at[0]
        ]

    spelled = form.xreplace({a: entry(a) for a in form.atoms(sp.Indexed)}).subs(
        s.E_M, 0
    )
    spelled = spelled.replace(
        lambda f: f.func.__name__ == r"\mathbb{E}_{\nu}", lambda f: f.args[0]
    )
    assert spelled == phi.subs(value)


def test_linear_baseline_numbers():
    """Result 5.1 at the setting of the figures:
    digits of an independent integration.
    """
    p = Parameters()
    assert moments(p.sigma)[0] == pytest.approx(0.4429965, abs=5e-8)
    found = baseline(p)
    assert found["epsilon_lin"] == pytest.approx(3.9427687e-3, rel=1e-7)
    assert found["W_12"] == pytest.approx(0.4300976, abs=5e-8)
    whole = baseline(p.replace(omega=0.0))["epsilon_lin"]
    assert whole == pytest.approx(8.0464668e-3, rel=1e-7)
    for omega in (0.1, 0.7, 1.0):
        for target in ("standard", "alternative"):  # (1 - omega)^2, whatever A
            at = baseline(p.replace(omega=omega, target=target))["epsilon_lin"]
            assert at == pytest.approx((1 - omega) ** 2 * whole, rel=1e-12, abs=1e-18)
    assert baseline(p.replace(omega=1.0, target="alternative"))["W_21"] == 0.8


def test_error_normalisations():
    """half, full and per entry are told apart by name; for two tokens the last equals
    the first.
    """
    from theory.call.refusal import ParameterError
    from theory.positional_semantic import State

    state = State(0.1, 0.0, 12.0, 0.15)
    values = {k: error_of(Parameters(), state, k) for k in errors.NORMALISATIONS}
    assert (
        values["full"] == pytest.approx(2 * values["half"], rel=1e-14)
        and values["entry"] == values["half"]
    )
    with pytest.raises(ParameterError, match="normalise"):
        error_of(Parameters(), state, "both")
