"""Quantities conserved by descent: column sums of every M_a exactly, |W_Q|^2 - |W_K|^2
per rotary block in continuous time.
"""

import numpy as np
import pytest
import torch

from simulate.state_tracking import Parameters, train
from simulate.state_tracking.gradients import Grouped
from simulate.state_tracking.student import Students


def descend(student, data, epochs: int, weight_decay: float = 0.0) -> None:
    students = Students([student])
    grouped = Grouped(students, [data])
    optimizer = torch.optim.SGD(
        students.parameters(), lr=student.p.eta, weight_decay=weight_decay
    )
    for _ in range(epochs):
        grouped.gradients(students)
        optimizer.step()


def column_sums(student) -> torch.Tensor:
    return student.M.detach().sum(1).clone()


def test_column_sums_are_conserved(tiny, make):
    student, data, _ = make(tiny)
    before, M = column_sums(student), student.M.detach().clone()
    descend(student, data, 200)
    # 200 additions to entries of order one round by 2e-16 each; the entries themselves
    # move by order one.
    assert (column_sums(student) - before).abs().max() < 1e-12
    assert (student.M - M).abs().max() > 0.1


def test_sums_of_single_inputs_move(tiny, make):
    """Sec. 4.2: what is conserved is their mean over all inputs; attention moves
    between columns of unequal sums.
    """
    student, data, _ = make(tiny)
    actions, states = (
        torch.as_tensor(data.actions),
        torch.as_tensor(data.states[:, :-1]),
    )

    def logits():
        return student(actions, states).detach().sum(-1)

    before = logits()
    descend(student, data, 200)
    # Far above the 1e-12 to which the column sums stay.
    assert (logits() - before).abs().max() > 1e-2


def test_row_sums_are_not(tiny, make):
    student, data, _ = make(tiny)
    before = student.M.detach().sum(2)
    descend(student, data, 200)
    assert (student.M.detach().sum(2) - before).abs().max() > 1e-2


def test_weight_decay_breaks_the_law_as_it_must(tiny, make):
    student, data, _ = make(tiny)
    before = column_sums(student)
    descend(student, data, 200, weight_decay=1e-2)
    # Decay multiplies column sums by (1 - eta w) a step; rounding as above.
    assert (
        column_sums(student) - before * (1 - tiny.eta * 1e-2) ** 200
    ).abs().max() < 1e-12


@pytest.mark.parametrize("batch_size", [None, 20])
def test_zeta_is_constant_along_a_run(tiny, batch_size):
    p = tiny.replace(epochs=100, batch_size=batch_size)
    zeta = train(
        p, seeds=(0, 1), dtype="float64", progress=False, workers=1
    ).zeta.values
    assert (
        np.ptp(zeta, axis=1).max() < 1e-13
    )  # a mean of sums of 180 entries of order one
    assert abs(zeta).min() > 1e-3  # not conserved because it is zero
    assert abs(zeta[0, 0] - zeta[1, 0]) > 1e-3  # nor the same for all seeds


def block_balance(student) -> np.ndarray:
    squares = [
        w.detach().square().reshape(-1, 2).sum(1) for w in (student.W_Q, student.W_K)
    ]
    return (squares[0] - squares[1]).numpy()


def test_block_norms_drift_in_proportion_to_eta(tiny: Parameters, make):
    """At a fixed training time eta * epochs, half the rate leaves half the drift: the
    flow conserves.
    """
    drifts, moved = [], []
    for eta, epochs in ((0.5, 200), (0.25, 400)):
        student, data, _ = make(tiny.replace(eta=eta, d_h=6, rope="plain"))
        before, W_Q = block_balance(student), student.W_Q.detach().clone()
        descend(student, data, epochs)
        drifts.append(block_balance(student) - before)
        moved.append((student.W_Q - W_Q).abs().max().item())
    assert min(moved) > 0.1  # the weights do move
    ratio = np.linalg.norm(drifts[1]) / np.linalg.norm(drifts[0])
    assert ratio == pytest.approx(
        0.5, rel=0.1
    )  # the next order is eta times the drift itself
    assert np.abs(drifts[0]).max() < 0.02 * min(moved)


def test_what_a_step_of_attention_adds_vanishes_with_the_rate(tiny: Parameters, make):
    """App. E: one epoch moves A by eta times its derivative along the gradient; what is
    left falls as eta^2, from a start where attention is uneven.
    """
    p = tiny.replace(rope="plain")
    left = []
    for eta in (20.0, 10.0, 5.0):
        student, data, _ = make(p.replace(eta=eta))
        weights = student.W_Q, student.W_K
        actions, states = torch.as_tensor(data.actions), torch.as_tensor(data.states)

        def A(student=student, actions=actions, states=states):
            return student.attention(actions[:1], states[:1, :-1])[0].diagonal().mean()

        before = A()
        along = torch.autograd.grad(before, weights)
        slope = torch.autograd.grad(student.loss(actions, states), weights)
        first = (
            -eta * sum((a * s).sum() for a, s in zip(along, slope, strict=True)).item()
        )
        descend(student, data, 1)
        left.append(A().item() - before.item() - first)
        assert abs(first) > 1e-5 * eta
    ratios = np.divide(left[:-1], left[1:])
    assert ratios[1] == pytest.approx(4, rel=0.1) and abs(ratios[1] - 4) < abs(
        ratios[0] - 4
    )
