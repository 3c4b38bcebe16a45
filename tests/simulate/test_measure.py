"""Measurements along a run against slow loops and the definitions."""

import numpy as np
import pytest
import sympy
import torch

from simulate.state_tracking import Parameters
from simulate.state_tracking.gradients import Attention
from simulate.state_tracking.measure import (
    MEANING,
    attention_factor,
    lambda_of_frequencies,
    measure,
    overlaps,
    predictions,
)
from simulate.state_tracking.student import Student, Students
from theory.state_tracking import attention
from theory.state_tracking.model import symbols, task

EXACT = 1e-12  # double precision, sums of at most 1e3 terms of order one


def factor(student: Student) -> tuple[float, float]:
    real, ansatz = attention_factor(Students([student]))
    return float(real[0]), float(ansatz[0])


def test_overlaps_are_the_traces(tiny, make):
    student, _, perms = make(tiny)
    M, teachers = student.M.detach().numpy(), task.teacher_matrices(perms)
    d_g, N = tiny.d_g, tiny.N
    traces = np.array(
        [[np.trace(teachers[a].T @ M[b]) / N for b in range(d_g)] for a in range(d_g)]
    )
    found = overlaps(student.M[None], torch.as_tensor(teachers)[None])
    R, S, zeta = (float(found[name]) for name in ("R", "S", "zeta"))
    assert R == pytest.approx(np.diag(traces).mean(), rel=EXACT)
    assert S == pytest.approx(traces[~np.eye(d_g, dtype=bool)].mean(), rel=EXACT)
    assert zeta == pytest.approx(M.sum() / (d_g * N), rel=EXACT)
    assert float(found["M_variance_correct"]) == pytest.approx(
        M[teachers == 1].var(), rel=EXACT
    )
    assert float(found["M_variance_other"]) == pytest.approx(
        M[teachers == 0].var(), rel=EXACT
    )


def test_overlap_with_other_teachers_needs_two(tiny, make):
    student, _, perms = make(tiny.replace(d_g=1))
    assert (
        overlaps(student.M[None], torch.as_tensor(task.teacher_matrices(perms))[None])[
            "S"
        ]
        .isnan()
        .all()
    )


@pytest.mark.parametrize(
    "embedding", [dict(), dict(fix_embedding=False, d_model=3)], ids=str
)
def test_predictions_are_the_slow_loop(tiny, make, alone, embedding):
    """A student half taught, so that accuracies are neither 0 nor 1; its own states are
    fed back.
    """
    p = tiny.replace(**embedding)
    student, data, perms = make(p)
    with torch.no_grad():
        student.M.add_(1.5 * torch.as_tensor(task.teacher_matrices(perms)))
    students, engine, test, _ = alone(student, data, perms)
    steps, final = (v[0] for v in predictions(students, engine, *test))
    right, arrived = np.zeros((p.n_train, p.L)), np.zeros(p.n_train)
    for k in range(p.n_train):
        actions, path = torch.as_tensor(data.actions[k : k + 1]), data.states[k]
        own = [path[0]]
        for t in range(p.L):
            forced = (
                student(actions, torch.as_tensor(path[None, : t + 1]))[0, t]
                .argmax()
                .item()
            )
            right[k, t] = forced == path[t + 1]
            own.append(
                student(actions, torch.as_tensor(np.array(own)[None]))[0, t]
                .argmax()
                .item()
            )
        arrived[k] = own[-1] == path[-1]
    assert steps.tolist() == right.mean(0).tolist()
    assert final == arrived.mean()
    assert 0 < final < steps.mean() < 1


@pytest.mark.parametrize("rope", ["2pi", "plain", "linear"])
def test_attention_factor_is_the_gradient_norm(tiny, make, rope):
    p = tiny.replace(rope=rope)
    student, data, _ = make(p)
    actions, states = (
        torch.as_tensor(data.actions[:1]),
        torch.as_tensor(data.states[:1]),
    )
    student.attention(actions, states[:, :-1])[0].diagonal().mean().backward()
    norm = sum(w.grad.square().sum().item() for w in (student.W_Q, student.W_K))
    assert factor(student)[0] == pytest.approx(p.d_g * p.N * norm, rel=EXACT)


@pytest.mark.parametrize("rope", ["2pi", "plain", "linear"])
def test_eigenvalues_are_the_sums_they_stand_for(tiny, rope):
    """L (L-1) lambda_n is the sum of cos(omega_n (i - k)) over pairs i != k."""
    p = tiny.replace(rope=rope, L=5)
    offsets = np.subtract.outer(np.arange(p.L), np.arange(p.L))
    pairs = [
        (np.cos(w * offsets).sum() - p.L) / (p.L * (p.L - 1)) for w in p.frequencies
    ]
    assert lambda_of_frequencies(p) == pytest.approx(
        pairs, abs=1e-11
    )  # sin/sin near multiples of 2 pi loses a digit


def test_ansatz_factor_is_its_formula(tiny, make):
    student, _, _ = make(tiny)
    W_Q, W_K = (w.detach().numpy()[:, 0] for w in (student.W_Q, student.W_K))
    gap = 1 - np.repeat(lambda_of_frequencies(tiny), 2)
    head = Attention(tiny, torch.float64, torch.device("cpu"))
    A = head.forward(student.W_Q[None], student.W_K[None])[0].diagonal().mean().item()
    norms = (gap**2 * (W_Q**2 + W_K**2)).sum() / tiny.d_h
    expected = tiny.d_g * tiny.N * A**2 * (1 - A) ** 2 * norms
    assert factor(student)[1] == pytest.approx(expected, rel=EXACT)


@pytest.mark.parametrize("zeroed", ["W_Q", "W_K"])
def test_ansatz_is_exact_at_uniform_attention(tiny, make, zeroed):
    student, _, _ = make(tiny)
    with torch.no_grad():
        getattr(student, zeroed).zero_()
    real, ansatz = factor(student)
    assert real > 1e-3
    assert ansatz == pytest.approx(real, rel=1e-11)  # rounding of lambda_n, see above


def test_compiled_equations_do_not_depend_on_what_ran_before(tiny, make, monkeypatch):
    """A resumed run must measure, in another process, what this one would have, to the
    last bit.

    SymPy numbers nameless dummies and sorts factors by name: Dummy_10000 comes before
    Dummy_9999.
    """
    student, _, _ = make(tiny)
    blocks = [w.detach().numpy().reshape(-1, 2) for w in (student.W_Q, student.W_K)]
    norms = [(b**2).sum(1) for b in blocks]
    arguments = [
        symbols.A,
        symbols.N,
        symbols.d_g,
        symbols.d_h,
        attention.lambda_,
        symbols.W_Q2,
        symbols.W_K2,
    ]
    form, A = attention.equations()["c_ansatz"], np.linspace(0.01, 0.99, 99)
    found = set()
    for count in range(9_980, 10_001):
        monkeypatch.setattr(sympy.Dummy, "_count", count)
        compiled = form.lambdify(*arguments)
        found.add(
            compiled(
                A, tiny.N, tiny.d_g, tiny.d_h, lambda_of_frequencies(tiny), *norms
            ).tobytes()
        )
    assert len(found) == 1


def test_attention_does_not_move_for_a_single_action(tiny, make):
    student, _, _ = make(tiny.replace(L=1))
    assert factor(student) == (0, 0)


@pytest.mark.parametrize("d_model", [1, 3])
def test_attention_factor_is_undefined_for_a_learned_embedding(tiny, make, d_model):
    """Attention then depends on the tokens: no single gradient of A exists."""
    student, _, _ = make(tiny.replace(fix_embedding=False, d_model=d_model))
    assert np.isnan(factor(student)).all()


def test_every_meaning_is_measured(tiny: Parameters, make, alone):
    student, data, perms = make(tiny, dtype=torch.float32)
    found = {name: v[0] for name, v in measure(*alone(student, data, perms)).items()}
    assert set(found) == set(MEANING)
    assert all(v.dtype == np.float64 and np.isfinite(v).all() for v in found.values())
    assert found["A"] == pytest.approx(np.diag(found["attention"]).mean(), rel=EXACT)
    assert found["accuracy"] == found["step_accuracy"].mean()


def test_single_precision_measures_what_double_does(tiny, make, alone):
    found = []
    for dtype in (torch.float32, torch.float64):
        student, data, perms = make(tiny, dtype=dtype)
        found.append(measure(*alone(student, data, perms)))
    for name in (
        "A",
        "R",
        "S",
        "zeta",
        "loss",
        "logit_correct",
        "variance_correct",
        "c_A",
        "c_ansatz",
    ):
        # Weights rounded to 6e-8; means of 256 rows and differences of moments keep
        # five digits.
        assert found[0][name] == pytest.approx(found[1][name], rel=1e-5, abs=1e-6), name
