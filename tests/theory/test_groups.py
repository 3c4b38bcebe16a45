"""Groups as teachers: actions, overlaps, one number per class, and the flow of a group
that acts on itself, against students on every input of tiny tasks.
"""

import itertools

import numpy as np
import pytest

from theory import state_tracking as st
from theory.call.refusal import ParameterError
from theory.state_tracking.model import groups, task

TRANSITIVE = [
    "Z_5",
    "D_4",
    "S_4",
    "A_5",
    "D_3_regular",
    "A_4_regular",
    "Z_2xS_3_regular",
]


def parameters(name, **more):
    order, points = groups.sizes(name)
    return st.Parameters(N=points, d_g=order, permutations=name, **more)


@pytest.mark.parametrize("name", TRANSITIVE)
def test_a_group_is_closed_and_transitive(name):
    """Products are elements, all different; any state leads to any other; the first is
    the identity.
    """
    table = groups.table(name)
    order, points = table.shape
    elements = {tuple(g) for g in table.tolist()}
    assert (order, points) == groups.sizes(name) and len(elements) == order
    assert all(tuple(g[h]) in elements for g in table[:8] for h in table)
    assert (
        np.sort(table, axis=0)[:: order // points] == np.arange(points)[:, None]
    ).all()
    assert (table[0] == np.arange(points)).all()


@pytest.mark.parametrize("name", TRANSITIVE)
def test_overlaps_are_fixed_points(name):
    """Of a^-1 b; their mean is the derived one, and 0 where a group acts on itself."""
    table, p = groups.table(name), parameters(name)
    found = groups.overlaps(table)
    inverse = np.argsort(table, axis=1)
    fixed = (inverse[:, table] == np.arange(p.N)).mean(2)  # a^-1 b, by a and b
    assert np.allclose(found, fixed)
    if name.endswith("regular"):
        assert (found == np.eye(p.d_g)).all()
    assert p.values()["tau"] == pytest.approx(task.teacher_overlap(table), abs=1e-14)


def every_input(table, L):
    """Actions and states of all sequences."""
    order, points = table.shape
    actions, start = zip(
        *itertools.product(itertools.product(range(order), repeat=L), range(points)),
        strict=True,
    )
    actions, states = np.array(actions), [np.array(start)]
    for t in range(L):
        states.append(table[actions[:, t], states[-1]])
    return actions, np.stack(states, 1)


def student_on_everything(p, M):
    """Loss, and its derivative by M, at attention 1/L to every action."""
    import torch

    from simulate.state_tracking import Student

    none = np.zeros((p.d_h, 1))
    made = Student(p, {"W_Q": none, "W_K": none, "M": M}, torch.float64)
    actions, states = map(
        torch.as_tensor, every_input(groups.table(p.permutations), p.L)
    )
    loss = made.loss(actions, states)
    loss.backward()
    return loss.item(), made.M.grad.numpy()


def test_every_pair_of_teachers_by_its_own_overlap():
    """S_4 on 4 points at M = 0: the projection of the first step on every teacher of
    the group.
    """
    p = parameters("S_4", L=2, d_h=4)
    teachers = task.teacher_matrices(groups.table("S_4"))
    _, slope = student_on_everything(p, np.zeros((p.d_g, p.N, p.N)))
    found = -p.eta * np.einsum("ars,brs->ab", slope, teachers) / p.N
    tau_ab = groups.overlaps(groups.table("S_4"))
    numbers = p.values() | {"A": 1 / p.L, "g": 1 - 1 / p.N, "tau_ab": tau_ab}
    assert np.allclose(
        found, st.equations()["delta_S_ab"].evaluate(numbers), rtol=0, atol=1e-15
    )
    assert len(np.unique(found.round(12))) == 4  # as many as numbers of common images


def test_attention_of_a_group_emerges_as_its_flow_says():
    """The exact solution takes the mean overlap of the group."""
    p = parameters("A_4_regular", L=6, d_h=16, rope="plain")
    half = float(st.emergence_times(p).alpha_half)
    curve = st.flow("group").solve(p, alpha=half, at=[half])
    assert curve.A.item() == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"permutations": "A_5"}, "d_g = 32: must be 60 with permutations = A_5"),
        (
            {"permutations": "A_5", "d_g": 60},
            "N = 32: must be 5 with permutations = A_5",
        ),
        ({"permutations": "A_5_regular", "d_g": 60}, "N = 32: must be 60"),
        (
            {"permutations": "D_2"},
            "permutations = 'D_2': must be one of iid, distinct or a group",
        ),
        ({"permutations": "Z_2xZ_2"}, "permutations = 'Z_2xZ_2': must be one of"),
        ({"permutations": "M_11"}, "permutations = 'M_11': must be one of"),
    ],
)
def test_wrong_groups_are_refused(changes, message):
    with pytest.raises(ParameterError, match=message):
        st.Parameters(**changes)


def test_theories_of_other_teachers_are_refused():
    p = parameters("Z_5", L=4)
    for ask, message in (
        (lambda: st.flow().solve(p, alpha=1), "must be iid as the flow's teachers"),
        (lambda: st.flow("group").solve(st.Parameters(), alpha=1), "must be a group"),
        (
            lambda: st.predict(p, seeds=1, alpha=1, level="cavity"),
            r"iid or distinct \(or level fixed_disorder\)",
        ),
    ):
        with pytest.raises(ParameterError, match=message) as caught:
            ask()
        assert "\n" not in str(caught.value)


def test_presets_of_word_problems():
    for name, order in (("words_a5", 60), ("words_s5", 120)):
        p = st.Parameters.presets()[name]()
        assert (p.N, p.d_g, p.values()["tau"]) == (order, order, 0)
        assert p.alpha(p.epochs) > 2 * float(st.emergence_times(p).alpha_half)
        assert st.Parameters.presets()[name](L=12, epochs=5) == p.replace(
            L=12, epochs=5
        )
