"""The student against a slow loop over Eqs. (3)-(6), its other realisations (App. C),
and the teacher (Sec. 3.3).
"""

import itertools

import numpy as np
import pytest
import torch

from simulate.state_tracking import (
    GLUStudent,
    Parameters,
    Student,
    teacher_weights,
    with_full_embedding,
)
from simulate.state_tracking.measure import overlaps, predictions
from theory.call.refusal import ParameterError
from theory.state_tracking.model import task

EXACT = 1e-12  # double precision: sums of at most 1e2 terms of order one
SIZES = [
    dict(),
    dict(rope="plain"),
    dict(rope="linear"),
    dict(L=1),
    dict(d_g=1),
    dict(N=2, d_g=3, d_h=2, L=5),
]


def tensors(data: task.Sequences) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.as_tensor(data.actions), torch.as_tensor(data.states)


def slow_logits(
    p: Parameters, W_Q, W_K, M, actions, states
) -> tuple[np.ndarray, np.ndarray]:
    """Attention (L, L) and logits (L, N) of one sequence, token by token with explicit
    rotation matrices.
    """

    def turned(w, position):
        out = np.zeros(p.d_h)
        for n in range(p.d_h // 2):
            base = (
                2 * np.pi * (1 - n / (p.d_h // 2))
                if p.rope == "linear"
                else p.rope_theta ** (-2 * n / p.d_h)
            )
            angle = position * base * (2 * np.pi if p.rope == "2pi" else 1)
            block = np.array(
                [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
            )
            out[2 * n : 2 * n + 2] = block @ w[2 * n : 2 * n + 2]
        return out

    attention, logits = np.zeros((p.L, p.L)), np.zeros((p.L, p.N))
    for step, i in enumerate(range(p.L + 1, 2 * p.L + 1)):
        scores = [
            np.exp(turned(W_Q, i) @ turned(W_K, j) / np.sqrt(p.d_h))
            for j in range(1, p.L + 1)
        ]
        attention[step] = np.array(scores) / sum(scores)
        for j in range(p.L):
            logits[step] += attention[step, j] * M[actions[j]][:, states[step]]
    return attention, logits


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_forward_is_the_slow_loop(tiny, make, sizes):
    p = tiny.replace(**sizes)
    student, data, _ = make(p, seed=1)
    W_Q, W_K, M = (
        w.detach().numpy() for w in (student.W_Q[:, 0], student.W_K[:, 0], student.M)
    )
    actions, states = tensors(data)
    attention = student.attention(actions, states[:, :-1]).detach().numpy()
    logits = student(actions, states[:, :-1]).detach().numpy()
    for k in range(5):
        slow_attention, slow = slow_logits(
            p, W_Q, W_K, M, data.actions[k], data.states[k]
        )
        assert np.abs(attention[k] - slow_attention).max() < EXACT
        assert np.abs(logits[k] - slow).max() < EXACT * np.abs(slow).max()


def test_loss_is_the_mean_cross_entropy(tiny, make):
    student, data, _ = make(tiny)
    actions, states = tensors(data)
    logits = student(actions, states[:, :-1]).detach().numpy()
    terms = [
        np.log(np.exp(z).sum()) - z[s]
        for row, path in zip(logits, data.states, strict=True)
        for z, s in zip(row, path[1:], strict=True)
    ]
    assert student.loss(actions, states).item() == pytest.approx(
        np.mean(terms), rel=EXACT
    )


def test_attention_rows_are_distributions_over_the_actions(tiny, make):
    student, data, _ = make(tiny)
    actions, states = tensors(data)
    attention = student.attention(actions, states[:, :-1])
    assert attention.shape == (tiny.n_train, tiny.L, tiny.L)
    assert (attention > 0).all()
    assert (attention.sum(-1) - 1).abs().max() < EXACT


def test_later_states_do_not_matter(tiny, make):
    student, data, _ = make(tiny)
    actions, states = tensors(data)
    changed = states.clone()
    changed[:, 2:] = (changed[:, 2:] + 1) % tiny.N
    before, after = student(actions, states[:, :-1]), student(actions, changed[:, :-1])
    assert torch.equal(before[:, :2], after[:, :2])
    assert not torch.equal(before[:, 2:], after[:, 2:])


@pytest.mark.parametrize("rope", ["2pi", "plain", "linear"])
def test_attention_depends_on_offsets_only(tiny, make, rope):
    """Log ratios within a row move along with the position: l_ij depends on j - i (Eq.
    5).
    """
    p = tiny.replace(rope=rope, L=7)
    student, data, _ = make(p)
    actions, states = tensors(data)
    log = student.attention(actions[:1], states[:1, :-1])[0].detach().log()
    ratios = log[:, 1:] - log[:, :-1]
    assert (ratios[1:, 1:] - ratios[:-1, :-1]).abs().max() < EXACT
    assert (ratios[1:] - ratios[:-1]).abs().max() > 1e-2  # rows as such differ


def test_one_step_at_a_time_is_the_same(tiny, make):
    student, data, _ = make(tiny)
    actions, states = tensors(data)
    together = student(actions, states[:, :-1])
    for t in range(tiny.L):
        alone = student(actions, states[:, t : t + 1], step=t)
        assert (alone[:, 0] - together[:, t]).abs().max() < EXACT


def test_weights_start_uniform(tiny):
    # Variance 1/3 of 1.9e5 entries: standard error 0.2%, so a 5% error is 24 of them;
    # all within (-1, 1).
    p = tiny.replace(N=60, d_g=50, d_h=5000)
    weights = task.draw_weights(p, np.random.default_rng(0))
    for w in weights.values():
        z_mean = w.mean() / np.sqrt(1 / 3 / w.size)
        z_square = ((w**2).mean() - 1 / 3) / np.sqrt(4 / 45 / w.size)
        assert np.abs(w).max() < 1
        assert abs(z_mean) < 4
        assert abs(z_square) < 4


def test_keys_and_queries_start_as_a_linear_layer_of_one_feature(tiny):
    """PyTorch's own default for one input feature has the variance that the theory is
    given.
    """
    # 2e5 entries: standard error of the variance 0.2%, so a 5% error is 25 of them.
    torch.manual_seed(0)
    w = torch.nn.Linear(1, 200_000, bias=False).weight.detach().double()
    assert 0.999 < w.abs().max() <= 1
    assert abs((w**2).mean().item() - tiny.initial_variance) < 4 * np.sqrt(
        4 / 45 / w.numel()
    )


def test_learned_embeddings_start_normal_and_weights_as_a_linear_layer(tiny):
    # At least 3e4 entries each: standard error of the variance at most 0.8%, so a 5%
    # error is 6 of them.
    p = tiny.replace(N=2000, d_g=500, d_h=2500, d_model=16, fix_embedding=False)
    rng = np.random.default_rng(1)
    weights = task.draw_weights(p.replace(N=60, d_g=50), rng) | {
        "embedding": task.draw_weights(p.replace(d_g=1), rng)["embedding"]
    }
    linear = 1 / 4  # torch.nn.Linear(16, .) draws from (-1/sqrt(16), 1/sqrt(16))
    for name, variance, fourth in (
        ("W_Q", linear**2 / 3, linear**4 / 5),
        ("W_K", linear**2 / 3, linear**4 / 5),
        ("embedding", 1, 3),
    ):
        w = weights[name]
        assert abs(w.mean()) < 4 * np.sqrt(variance / w.size), name
        assert abs((w**2).mean() - variance) < 4 * np.sqrt(
            (fourth - variance**2) / w.size
        ), name
    assert np.abs(weights["W_Q"]).max() < linear


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_glu_equals_the_student_in_outputs_and_gradients(tiny, make, sizes):
    p = tiny.replace(**sizes)
    student, data, _ = make(p)
    weights = {name: w.detach().numpy() for name, w in student.named_parameters()}
    glu = GLUStudent(p, weights, torch.float64)
    actions, states = tensors(data)
    plain, gated = student(actions, states[:, :-1]), glu(actions, states[:, :-1])
    assert (plain - gated).abs().max() < EXACT * plain.abs().max()
    for module in (student, glu):
        module.loss(actions, states).backward()
    blocks = glu.W_down.grad.reshape(p.N, p.d_g, p.N).permute(1, 0, 2)
    assert (blocks - student.M.grad).abs().max() < EXACT * student.M.grad.abs().max()
    for name in ("W_Q", "W_K"):
        found, expected = getattr(glu, name).grad, getattr(student, name).grad
        assert (
            (found - expected).abs().max() < EXACT * expected.abs().max() + 1e-16
        )  # they vanish for L = 1, d_g = 1


def test_glu_projections_are_fixed(tiny, make):
    student, _, _ = make(tiny)
    glu = GLUStudent(
        tiny,
        {name: w.detach().numpy() for name, w in student.named_parameters()},
        torch.float64,
    )
    assert {name for name, _ in glu.named_parameters()} == {"W_Q", "W_K", "W_down"}


def widened(p: Parameters, make) -> tuple[Student, Student, torch.Tensor, torch.Tensor]:
    student, data, _ = make(p)
    weights = {name: w.detach().numpy() for name, w in student.named_parameters()}
    return student, with_full_embedding(p, weights, torch.float64), *tensors(data)


def test_full_embedding_equals_the_student(tiny, make):
    student, wide, actions, states = widened(tiny, make)
    narrow_logits, wide_logits = (
        student(actions, states[:, :-1]),
        wide(actions, states[:, :-1]),
    )
    assert wide.W_Q.shape == (tiny.d_h, tiny.d_g + tiny.N)
    assert (narrow_logits - wide_logits).abs().max() < EXACT * narrow_logits.abs().max()


def test_full_embedding_gradients_sum_to_the_vectors(tiny, make):
    student, wide, actions, states = widened(tiny, make)
    for module in (student, wide):
        module.loss(actions, states).backward()
    assert (
        wide.M.grad - student.M.grad
    ).abs().max() < EXACT * student.M.grad.abs().max()
    for name, own in (("W_Q", slice(tiny.d_g, None)), ("W_K", slice(0, tiny.d_g))):
        vector, columns = getattr(student, name).grad, getattr(wide, name).grad
        assert (
            columns.sum(1, keepdim=True) - vector
        ).abs().max() < EXACT * vector.abs().max()
        used = columns[:, own]  # queries come from states, keys from actions
        assert torch.count_nonzero(columns) == torch.count_nonzero(used)
        assert (
            used - vector / used.shape[1]
        ).abs().max() > 1e-2 * vector.abs().max()  # single columns differ


def test_full_embedding_trains_differently_when_columns_are_free(tiny, make):
    student, wide, actions, states = widened(tiny, make)
    for module in (student, wide):
        module.loss(actions, states).backward()
        with torch.no_grad():
            for w in module.parameters():
                w -= 10.0 * w.grad
    narrow_logits, wide_logits = (
        student(actions, states[:, :-1]),
        wide(actions, states[:, :-1]),
    )
    # A single step moves keys by single columns' gradients: far above the 1e-15 by
    # which the students agreed before.
    assert (narrow_logits - wide_logits).abs().max() > 1e-6


TAUGHT = [
    dict(),
    dict(rope="plain"),
    dict(rope="linear"),
    dict(L=1),
    dict(d_g=1),
    dict(L=1, d_g=1),
    dict(L=20, d_h=64),
    dict(N=24, d_g=24, L=10, d_h=8, rope="plain"),
]


@pytest.mark.parametrize("sizes", TAUGHT, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_teacher_solves_the_task(tiny, make, alone, sizes, dtype):
    p, gap = tiny.replace(**sizes), 40.0
    _, data, perms = make(p)
    teacher = Student(p, teacher_weights(p, perms, gap), dtype)
    actions, states = tensors(data)
    diagonal = teacher.attention(actions[:1], states[:1, :-1])[0].diagonal()
    assert diagonal.min() > 1 - 1e-6
    found = teacher.retrieve(teacher.attention(actions, states[:, :-1]), actions)
    assert (found.argmax(-1) == actions).all()  # the action whose turn it is
    assert found.max(-1).values.min() > 1 - 1e-6
    students, engine, test, teachers = alone(teacher, data, perms)
    steps, rollout = predictions(students, engine, *test)
    assert (steps == 1).all()
    assert rollout == 1
    found = overlaps(students.M, teachers)
    R, S, zeta = (float(found[name]) for name in ("R", "S", "zeta"))
    assert R == gap  # sums of whole numbers are exact
    assert zeta == gap
    if p.d_g > 1:
        assert S == pytest.approx(gap * task.teacher_overlap(perms), rel=EXACT)
    # Cross-entropy of a gap of 40 is N e^-40 = 1e-16; e^-30 leaves room for
    # single-precision attention.
    assert teacher.loss(actions, states).item() < np.exp(-30)


@pytest.mark.parametrize("gap", [5.0, 40.0])
def test_the_teacher_keeps_the_gap_it_is_asked_for(tiny, make, gap):
    _, data, perms = make(tiny)
    teacher = Student(tiny, teacher_weights(tiny, perms, gap), torch.float64)
    actions, states = tensors(data)
    log = teacher.attention(actions[:1], states[:1, :-1])[0].detach().log()
    others = [
        log[i, i] - log[i, j] for i, j in itertools.permutations(range(tiny.L), 2)
    ]
    assert min(others) == pytest.approx(
        gap, rel=1e-9
    )  # log of numbers down to e^-40, gap times rounding


@pytest.mark.parametrize(
    "unusable", [dict(d_h=2, rope="2pi", L=3), dict(d_h=2, rope="linear", L=2)], ids=str
)
def test_frequencies_that_cannot_tell_positions_apart_are_refused(tiny, make, unusable):
    p = tiny.replace(**unusable)
    with pytest.raises(ParameterError, match="rope") as caught:
        teacher_weights(p, make(p)[2])
    assert "\n" not in str(caught.value)


def test_a_single_action_and_a_single_step_work(tiny, make):
    for p in (tiny.replace(L=1), tiny.replace(d_g=1), tiny.replace(L=1, d_g=1, N=2)):
        student, data, _ = make(p)
        actions, states = tensors(data)
        assert student(actions, states[:, :-1]).shape == (p.n_train, p.L, p.N)
        assert torch.isfinite(student.loss(actions, states))
