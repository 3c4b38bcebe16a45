"""Hand-written gradients and statistics against autograd, finite differences and plain
NumPy.
"""

import numpy as np
import pytest
import scipy.stats
import torch

from simulate.state_tracking import Parameters, Student, logic, teacher_weights
from simulate.state_tracking.gradients import Attention, Grouped, Plain
from simulate.state_tracking.student import Students
from theory.state_tracking.model import task

# Double precision: both sides sum at most 1e3 rows of order one.
EXACT = 1e-12
# Gradients of W_Q and W_K vanish identically for L = 1 and d_g = 1, up to the rounding
# of one sum.
ROUNDING = 1e-16

CASES = {
    "tiny": dict(),
    "one_step": dict(L=1),
    "one_action": dict(d_g=1),
    "one_of_both": dict(L=1, d_g=1),
    "two_states": dict(N=2),
    "one_sequence": dict(n_train=1),
    "states_that_never_occur": dict(N=40, n_train=3),
    "states_of_two_bytes": dict(N=300, n_train=20),
    "plain": dict(rope="plain"),
    "linear": dict(rope="linear"),
    "theta": dict(rope_theta=10.0),
    "two_dimensions": dict(d_h=2, rope="plain"),
    "larger": dict(N=16, d_g=12, L=9, d_h=32, n_train=100),
}


def tensors(data: task.Sequences) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.as_tensor(data.actions), torch.as_tensor(data.states)


def autograd(student: Student, data: task.Sequences) -> dict[str, torch.Tensor]:
    student.zero_grad()
    loss = student.loss(*tensors(data))
    loss.backward()
    return {
        "loss": loss.detach(),
        **{name: w.grad.clone() for name, w in student.named_parameters()},
    }


def engine(
    student: Student, data: task.Sequences, kind: type = Grouped
) -> dict[str, torch.Tensor]:
    students = Students([student])
    found = kind(students, [data])
    found.gradients(students)
    gradients = {name: w.grad[0].clone() for name, w in students.named_parameters()}
    return {"loss": found.statistics(students)["loss"][0], **gradients}


def disagreement(found: dict, expected: dict) -> float:
    """Largest difference, relative to the largest entry of each quantity."""
    assert found.keys() == expected.keys()
    largest = [
        ((found[k] - v).abs().max() - ROUNDING).clamp(min=0)
        / v.abs().max().clamp(min=1e-300)
        for k, v in expected.items()
    ]
    return float(torch.stack(largest).max())  # NaN if one is


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", [Grouped, Plain])
def test_gradients_equal_autograd(tiny, make, case, kind):
    p = tiny.replace(**CASES[case])
    student, data, _ = make(p, seed=2)
    assert disagreement(engine(student, data, kind), autograd(student, data)) < EXACT


def test_states_do_not_occur_in_the_case_that_says_so(tiny, make):
    p = tiny.replace(**CASES["states_that_never_occur"])
    _, data, _ = make(p, seed=2)
    assert len(np.unique(data.states)) < p.N


@pytest.mark.parametrize("kind", [Grouped, Plain])
def test_gradients_of_a_minibatch_equal_autograd(tiny, make, kind):
    """Other sequences for every student of a stack, in any order,
    some of them twice.
    """
    made = [make(tiny, seed) for seed in (0, 1)]
    students = Students([student for student, _, _ in made])
    chosen = [np.array([11, 5, 5, 63, 0]), np.array([2, 40, 7, 8, 40])]
    kind(students, [data for _, data, _ in made]).gradients(students, chosen)
    for b, (_, data, _) in enumerate(made):
        student = students.members[b]
        found = {name: w.grad[b].clone() for name, w in students.named_parameters()}
        part = task.Sequences(data.actions[chosen[b]], data.states[chosen[b]])
        expected = autograd(student, part)
        del expected["loss"]
        assert disagreement(found, expected) < EXACT


def test_gradients_after_training_equal_autograd(tiny, make):
    """Away from the start, where attention is uneven and logits are large."""
    student, data, perms = make(tiny)
    with torch.no_grad():
        for name, w in teacher_weights(tiny, perms, gap=3.0).items():
            getattr(student, name).add_(torch.as_tensor(w))
    assert disagreement(engine(student, data), autograd(student, data)) < EXACT


def test_huge_logits_do_not_overflow(tiny, make):
    student, data, perms = make(tiny)
    with torch.no_grad():
        student.M.copy_(
            -1000 * torch.as_tensor(task.teacher_matrices(perms))
        )  # e^1000 is out of range
    found = engine(student, data)
    assert all(torch.isfinite(g).all() for g in found.values())
    assert disagreement(found, autograd(student, data)) < EXACT


def test_plain_does_not_depend_on_its_slices(tiny, make):
    student, data, _ = make(tiny)

    def in_sevens(students, data):
        return Plain(students, data, slice_size=7)

    assert (
        disagreement(engine(student, data, in_sevens), autograd(student, data)) < EXACT
    )


@pytest.mark.parametrize("name", ["W_Q", "W_K", "M"])
def test_gradients_equal_finite_differences(tiny, make, name):
    student, data, _ = make(tiny)
    students = Students([student])
    grouped = Grouped(students, [data])
    grouped.gradients(students)
    gradient = getattr(students, name).grad.flatten()
    weight = getattr(students, name).data.view(-1)
    h = 1e-4
    for k in np.random.default_rng(0).choice(weight.numel(), 4, replace=False):
        start, loss = weight[k].item(), []
        for shift in (h, -h):
            weight[k] = start + shift
            loss.append(grouped.statistics(students)["loss"].item())
        weight[k] = start
        # Central differences: truncation h^2 = 1e-8, rounding 1e-16/h = 1e-12;
        # gradients are of order 1e-3.
        assert (loss[0] - loss[1]) / (2 * h) == pytest.approx(
            gradient[k].item(), rel=1e-4, abs=1e-8
        )
        assert abs(gradient[k]) > 1e-5


def test_learned_embedding_gradients_equal_autograd(tiny, make):
    p = tiny.replace(fix_embedding=False, d_model=3)
    student, data, _ = make(p)
    expected = autograd(student, data)
    assert set(expected) == {"loss", "W_Q", "W_K", "M", "embedding"}
    assert disagreement(engine(student, data, Plain), expected) < EXACT


def numpy_statistics(student: Student, data: task.Sequences) -> dict[str, float]:
    actions, states = tensors(data)
    logits = student(actions, states[:, :-1]).detach().numpy().reshape(-1, student.p.N)
    target = data.states[:, 1:].reshape(-1)
    hit = np.zeros(logits.shape, bool)
    hit[np.arange(len(target)), target] = True
    return {
        "loss": np.mean(np.log(np.exp(logits).sum(1)) - logits[hit]),
        "logit_correct": logits[hit].mean(),
        "variance_correct": logits[hit].var(),
        "logit_other": logits[~hit].mean(),
        "variance_other": logits[~hit].var(),
        "kurtosis_correct": scipy.stats.kurtosis(logits[hit]),
        "kurtosis_other": scipy.stats.kurtosis(logits[~hit]),
    }


@pytest.mark.parametrize("case", [c for c in CASES if c != "one_sequence"])
@pytest.mark.parametrize("kind", [Grouped, Plain])
def test_statistics_equal_numpy(tiny, make, case, kind):
    p = tiny.replace(**CASES[case])
    student, data, _ = make(p)
    students = Students([student])
    found = {
        name: v[0] for name, v in kind(students, [data]).statistics(students).items()
    }
    for name, value in numpy_statistics(student, data).items():
        # Central moments as differences of moments of order 0.1: rounding only,
        # amplified by up to 1/variance^2.
        rel = 1e-9 if name.startswith("kurtosis") else 1e-11
        assert float(found[name]) == pytest.approx(
            value, rel=rel, abs=1e-14, nan_ok=True
        ), name
    attention = student.attention(*(t[:1, : p.L] for t in tensors(data)))[0]
    assert (found["attention"] - attention).abs().max() < EXACT
    assert set(found) == {
        "loss",
        "logit_correct",
        "logit_other",
        "variance_correct",
        "variance_other",
        "kurtosis_correct",
        "kurtosis_other",
        "attention",
    }


def test_statistics_of_a_learned_embedding_average_the_attention(tiny, make):
    p = tiny.replace(fix_embedding=False, d_model=3)
    student, data, _ = make(p)
    actions, states = tensors(data)
    attention = student.attention(actions, states[:, :-1]).mean(0)
    students = Students([student])
    found = Plain(students, [data], slice_size=7).statistics(students)["attention"][0]
    assert (found - attention).abs().max() < EXACT


@pytest.mark.parametrize("rope", ["2pi", "plain", "linear"])
@pytest.mark.parametrize("L", [1, 2, 7])
def test_gradient_of_A_equals_autograd(tiny, make, rope, L):
    student, data, _ = make(tiny.replace(rope=rope, L=L))
    actions, states = tensors(data)
    A = student.attention(actions[:1], states[:1, :-1])[0].diagonal().mean()
    A.backward()
    weights = student.W_Q, student.W_K
    head = Attention(student.p, torch.float64, torch.device("cpu"))
    for (found,), w in zip(
        head.gradient_of_A(*(w.detach()[None] for w in weights)), weights, strict=True
    ):
        assert (found - w.grad).abs().max() <= EXACT * w.grad.abs().max() + ROUNDING


def wrong_query_sign(monkeypatch):
    right = Attention.backward

    def backward(self, *args):
        d_q, d_k = right(self, *args)
        return -d_q, d_k

    monkeypatch.setattr(Attention, "backward", backward)


def wrong_rotation(monkeypatch):
    right = Attention.__init__

    def init(self, *args):
        right(self, *args)
        self.table[:, 1::2] *= -1

    monkeypatch.setattr(Attention, "__init__", init)


def wrong_lag(monkeypatch):
    right = Attention.__init__

    def init(self, *args):
        right(self, *args)
        self.table = (
            self.table.view(self.L, self.L, -1).roll(1, 1).view(self.table.shape)
        )

    monkeypatch.setattr(Attention, "__init__", init)


def wrong_order(monkeypatch):
    right = logic.Groups.of

    def of(*given):
        groups = right(*given)
        groups.targets[:] = groups.targets[:, ::-1]
        return groups

    monkeypatch.setattr(logic.Groups, "of", of)


def transposed_logic(monkeypatch):
    right = Grouped.gradients

    def gradients(self, students, *given):
        right(self, students, *given)
        students.M.grad = students.M.grad.transpose(2, 3).contiguous()

    monkeypatch.setattr(Grouped, "gradients", gradients)


@pytest.mark.parametrize(
    "mistake",
    [wrong_query_sign, wrong_rotation, wrong_lag, wrong_order, transposed_logic],
)
def test_a_mistake_in_the_engine_is_seen(tiny: Parameters, make, monkeypatch, mistake):
    student, data, _ = make(tiny)
    expected = autograd(student, data)
    assert disagreement(engine(student, data), expected) < EXACT
    mistake(monkeypatch)
    assert (
        disagreement(engine(student, data), expected) > 1e-3
    )  # nine orders above the limit of the tests
