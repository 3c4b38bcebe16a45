"""The task: permutations, sequences, tokens, groups, and independent random streams."""

import itertools
import math

import numpy as np
import pytest
import torch

from simulate.state_tracking import Parameters, train
from simulate.state_tracking.learner import Learner
from theory.call.refusal import ParameterError
from theory.state_tracking.model import groups, task

# standard errors: a correct program exceeds it once in 16000 seeds, and the seeds are
# fixed
LIMIT = 4


def chi_square(counts: np.ndarray) -> float:
    """Deviation of counts from equal ones, in standard deviations of chi-square."""
    expected, freedom = counts.mean(), counts.size - 1
    return (((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(
        2 * freedom
    )


def start(p: Parameters, seed: int) -> Learner:
    return Learner(p, [seed], torch.device("cpu"), torch.float64)


def weights(run: Learner) -> np.ndarray:
    return np.concatenate(
        [w.detach().numpy().ravel() for w in run.students.parameters()]
    )


def test_number_of_training_sequences_moves_nothing_else(tiny):
    few, many = (start(tiny.replace(n_train=n), 3) for n in (64, 65))
    assert len(few.train_data[0].actions) + 1 == len(many.train_data[0].actions)
    assert (few.permutations[0] == many.permutations[0]).all()
    assert (few.test_data[0] == many.test_data[0]).all()
    assert (few.test_data[1] == many.test_data[1]).all()
    assert (weights(few) == weights(many)).all()


def test_number_of_test_sequences_moves_nothing_else(tiny):
    few, many = (start(tiny.replace(n_test=n), 3) for n in (32, 33))
    assert (few.train_data[0].actions == many.train_data[0].actions).all()
    assert (few.train_data[0].states == many.train_data[0].states).all()
    assert (weights(few) == weights(many)).all()


def test_seeds_and_streams_differ(tiny):
    one, other = start(tiny, 0), start(tiny, 1)
    assert (one.permutations[0] != other.permutations[0]).any()
    assert (one.train_data[0].actions != other.train_data[0].actions).any()
    assert (weights(one) != weights(other)).any()
    assert (one.train_data[0].actions[:32] != one.test_data[0][0].numpy()).any()
    first = [rng.random() for rng in task.streams(0).values()]
    assert len(set(first)) == len(task.STREAMS)


@pytest.mark.parametrize("kind", ["iid", "distinct"])
@pytest.mark.parametrize("N", [2, 6, 9])
def test_permutations_are_permutations(kind, N):
    perms = task.draw_permutations(
        Parameters(N=N, d_g=2, permutations=kind), np.random.default_rng(0)
    )
    assert perms.shape == (2, N)
    assert (np.sort(perms, axis=1) == np.arange(N)).all()


def test_iid_permutations_are_uniform():
    # 10000 expected per cell: a cell that is off by 5% alone shifts z by 9.
    perms = task.draw_permutations(
        Parameters(N=3, d_g=60_000), np.random.default_rng(0)
    )
    _, counts = np.unique(perms @ [9, 3, 1], return_counts=True)
    assert len(counts) == 6
    assert abs(chi_square(counts)) < LIMIT


def test_iid_permutations_are_independent():
    # Neighbours agree with probability 1/6: standard error 0.9% of it, so a 5% error is
    # 5.5 of them.
    perms = task.draw_permutations(
        Parameters(N=3, d_g=60_000), np.random.default_rng(1)
    )
    equal = (perms[1:] == perms[:-1]).all(axis=1)
    z = (equal.mean() - 1 / 6) / math.sqrt(1 / 6 * 5 / 6 / equal.size)
    assert abs(z) < LIMIT


def test_distinct_permutations_reach_all_of_them():
    perms = task.draw_permutations(
        Parameters(N=3, d_g=6, permutations="distinct"), np.random.default_rng(0)
    )
    assert {tuple(sigma) for sigma in perms} == set(itertools.permutations(range(3)))


def test_distinct_permutations_differ_where_they_are_too_many_to_list():
    perms = task.draw_permutations(
        Parameters(N=8, d_g=400, permutations="distinct"), np.random.default_rng(0)
    )
    assert len({tuple(sigma) for sigma in perms}) == 400


def test_a_repeated_permutation_is_drawn_anew():
    class Repeats:
        """Every permutation twice."""

        def __init__(self):
            self.rng, self.drawn = np.random.default_rng(0), []

        def permutation(self, n):
            if len(self.drawn) % 2:
                self.drawn.append(self.drawn[-1])
            else:
                self.drawn.append(self.rng.permutation(n))
            return self.drawn[-1]

    rng = Repeats()
    perms = task.draw_permutations(Parameters(N=9, d_g=4, permutations="distinct"), rng)
    assert len({tuple(sigma) for sigma in perms}) == 4
    assert len(rng.drawn) == 7  # the fourth new one is the seventh draw


def test_distinct_permutations_are_uniform():
    # tau of two distinct elements of S_3 has mean 1/3 - (2/3)/5 = 1/5; the standard
    # error is 0.6% of it.
    p, rng = Parameters(N=3, d_g=2, permutations="distinct"), np.random.default_rng(2)
    draws = np.array([task.draw_permutations(p, rng) for _ in range(20_000)])
    taus = (draws[:, 0] == draws[:, 1]).mean(axis=1)
    assert abs(taus.mean() - 1 / 5) / (taus.std() / math.sqrt(taus.size)) < LIMIT
    _, counts = np.unique(draws[:, 0] @ [9, 3, 1], return_counts=True)
    assert abs(chi_square(counts)) < LIMIT


def test_states_follow_the_actions(tiny):
    perms = task.draw_permutations(tiny, np.random.default_rng(0))
    data = task.draw_sequences(perms, 50, tiny.L, np.random.default_rng(1))
    assert data.actions.shape == (50, tiny.L)
    assert data.states.shape == (50, tiny.L + 1)
    for actions, states in zip(data.actions, data.states, strict=True):
        s = states[0]
        for t, g in enumerate(actions):
            s = perms[g][s]
            assert states[t + 1] == s


def test_tokens_are_actions_then_states(tiny):
    perms = task.draw_permutations(tiny, np.random.default_rng(0))
    data = task.draw_sequences(perms, 200, tiny.L, np.random.default_rng(1))
    tokens = data.tokens(tiny.d_g)
    assert tokens.shape == (200, 2 * tiny.L + 1)
    assert (tokens[:, : tiny.L] == data.actions).all()
    assert (tokens[:, tiny.L :] - tiny.d_g == data.states).all()
    assert set(np.unique(tokens)) == set(
        range(tiny.d_g + tiny.N)
    )  # 200 sequences use every token


def test_actions_and_states_are_uniform():
    # 80000 actions, 20000 states: one cell off by 5% shifts z by 18 and by 12.
    perms = np.array([[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1]])
    data = task.draw_sequences(perms, 20_000, 4, np.random.default_rng(3))
    assert abs(chi_square(np.bincount(data.actions.ravel(), minlength=5))) < LIMIT
    assert abs(chi_square(np.bincount(data.states[:, 0], minlength=3))) < LIMIT
    assert abs(chi_square(np.bincount(data.states[:, -1], minlength=3))) < LIMIT


def test_actions_are_independent_of_each_other_and_of_the_state():
    perms = task.draw_permutations(Parameters(N=3, d_g=4), np.random.default_rng(0))
    data = task.draw_sequences(perms, 40_000, 3, np.random.default_rng(4))
    # 2500 and 3333 expected per cell: a 5% error in the diagonal ones shifts z by 6 and
    # by 7.
    neighbours = np.bincount(4 * data.actions[:, 0] + data.actions[:, 1], minlength=16)
    with_state = np.bincount(4 * data.states[:, 0] + data.actions[:, 0], minlength=12)
    assert abs(chi_square(neighbours)) < LIMIT
    assert abs(chi_square(with_state)) < LIMIT


def test_current_states_are_uniform_whatever_the_actions():
    """App. D.1: every step's state against every action of the sequence, the ones
    before it too.
    """
    perms = task.draw_permutations(Parameters(N=3, d_g=4), np.random.default_rng(0))
    data = task.draw_sequences(perms, 40_000, 3, np.random.default_rng(5))
    # 3333 expected per cell: a 5% error in a quarter of them shifts z by more than 4.
    for t, j in itertools.product(range(4), range(3)):
        pairs = np.bincount(4 * data.states[:, t] + data.actions[:, j], minlength=12)
        assert abs(chi_square(pairs)) < LIMIT, (t, j)
    # Exactly, with actions fixed: different first states never meet.
    for actions in data.actions[:50]:
        for t in range(4):
            same = (data.actions[:, :t] == actions[:t]).all(1)
            ends = set(zip(data.states[same, 0], data.states[same, t], strict=True))
            assert len(ends) == len({end for _, end in ends}) == 3


@pytest.mark.parametrize(
    "table",
    [
        groups.table("Z_1"),
        groups.table("Z_2"),
        groups.table("Z_7"),
        *(groups.table(f"S_{n}_regular") for n in (1, 2, 3, 4)),
    ],
)
def test_groups_act_on_themselves(table):
    """Composing the permutations of g and h gives that of g h, which the table names
    itself.
    """
    order = len(table)
    assert (np.sort(table, axis=1) == np.arange(order)).all()
    assert len({tuple(row) for row in table}) == order
    for g in range(order):
        for h in range(order):
            assert (table[g][table[h]] == table[table[g][h]]).all()
    assert sum((row == np.arange(order)).all() for row in table) == 1  # one identity


def test_cyclic_commutes_and_symmetric_does_not():
    assert (groups.table("Z_5") == groups.table("Z_5").T).all()
    assert len(groups.table("S_4_regular")) == 24
    assert (groups.table("S_3_regular") != groups.table("S_3_regular").T).any()


def test_a_given_action_trains(tiny):
    p, table = tiny.replace(N=6, d_g=6), groups.table("S_3_regular")
    result = train(p, permutations=table, progress=False, workers=1)
    assert result.tau.item() == 0  # distinct elements of a regular action agree nowhere
    assert result.loss.isel(alpha=-1).item() < result.loss.isel(alpha=0).item()
    random = train(
        p, progress=False, workers=1
    )  # not taken from the store of the given ones
    assert random.tau.item() > 0
    again = train(p, permutations=table.tolist(), progress=False, workers=1)
    assert again.identical(result)


@pytest.mark.parametrize(
    "bad",
    [
        [[0, 1, 2]],
        [[0, 1, 2]] * 3,
        [[0, 1], [1, 0]],
        [[0, 1, 2], [0, 1, 3]],
        [[0, 1, 2], [0, 0, 2]],
        [[0, 1, 2], [-1, 0, 1]],
        [[0.0, 0.5, 1.0], [0.0, 1.0, 2.0]],
        [[0, 1, np.nan], [0, 1, 2]],
        [["a", "b", "c"], ["a", "c", "b"]],
        3,
        [],
        [[[0, 1, 2]], [[0, 1, 2]]],
        [[0, 1, 2], [0, 1]],
        [[0, 1, None], [0, 1, 2]],
    ],
    ids=str,
)
def test_malformed_permutations_are_refused(bad):
    with pytest.raises(ParameterError, match="permutations") as caught:
        train(
            Parameters(N=3, L=2, d_g=2, d_h=4, n_train=8, n_test=8, epochs=1),
            permutations=bad,
            progress=False,
        )
    assert "\n" not in str(caught.value)


def test_teacher_matrices_act_as_the_permutations(tiny):
    perms = task.draw_permutations(tiny, np.random.default_rng(0))
    for matrix, sigma in zip(task.teacher_matrices(perms), perms, strict=True):
        for s in range(tiny.N):
            assert (matrix @ np.eye(tiny.N)[s] == np.eye(tiny.N)[sigma[s]]).all()


@pytest.mark.parametrize(("N", "d_g"), [(2, 2), (3, 6), (6, 5), (9, 4)])
def test_overlap_is_the_mean_trace(N, d_g):
    perms = task.draw_permutations(Parameters(N=N, d_g=d_g), np.random.default_rng(N))
    M = task.teacher_matrices(perms)
    traces = [
        np.trace(M[a].T @ M[b]) / N for a in range(d_g) for b in range(d_g) if a != b
    ]
    # A mean of at most 30 numbers of order one: rounding only.
    assert task.teacher_overlap(perms) == pytest.approx(np.mean(traces), abs=1e-14)


def test_overlap_of_a_single_teacher_is_undefined():
    assert math.isnan(task.teacher_overlap(np.array([[1, 0, 2]])))
