"""Fixed-disorder theory under any optimiser: its gradients go through the optimiser's steps, and
every step counts the batch that the seed's student takes. Where every step takes all data,
covariances of the weights within groups are those of the training set.

A group's rows are few, so that the covariance of its weights differs from the one expected of
independent uniform actions. To second order in the logits the loss is linear in this difference.
It is kept with the response of probabilities averaged over the groups of a state: what it
multiplies is then a sum over groups, which is counted once.
"""

import copy
from functools import cache
from typing import Self

import numpy as np
import sympy as sp

from theory.equation import Equation, table
from theory.notation import array, symbol
from theory.optimisers import Steps
from theory.parameters import ParameterError
from theory.runtime import memory
from theory.state_tracking import fixed_disorder, task
from theory.state_tracking.definitions import pi
from theory.state_tracking.fixed_disorder import (
    GROUP,
    FixedDisorder,
    pairs,
    plain,
    share,
    weight_covariance,
    within,
)
from theory.state_tracking.fourth_order import FourthOrder
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.realisation import Realisation, Start
from theory.state_tracking.symbols import L, M, N, a, b, c, d_g, i, j, k, q, r, ref, s

BEYOND = "beyond the paper: covariances of one training set"
AVERAGED = "response of probabilities averaged over the groups of a state"

triples = array(
    "triples", r"\nu", "share of the rows with a state, a step, and actions b and c at two places"
)
excess = array(
    "covariance_excess",
    r"\mathcal{E}",
    "covariance of the weights of two actions at two places beyond the expected",
)
mean_response = array("J_mean", r"\bar{J}", "response of probabilities, mean over a state's groups")
excess_loss = symbol("l_excess", r"\ell^{\mathcal{E}}", "what this adds to the mean loss")


def beyond_expected() -> sp.Expr:
    """Summed over the groups of a state and a step, with their shares: about the known mean of each
    group, less what independent uniform actions have.
    """
    rows, by_group = share[GROUP], (a, 1, d_g)
    means = pairs[s, i, j, a, b] * pairs[s, i, k, a, c] / rows
    same = sp.KroneckerDelta(j, k) * weight_covariance() * sp.Sum(rows * within(), by_group)
    return triples[s, i, j, b, k, c] - sp.Sum(means, by_group) - same


def loss() -> sp.Expr:
    """Half the response contracted with the covariance of logits."""
    elsewhere = (1 - sp.KroneckerDelta(i, j)) * (1 - sp.KroneckerDelta(i, k))
    entries = M[b, r, s] * mean_response[s, r, q] * M[c, q, s]
    groups = ((s, 1, N), (i, 1, L))
    places = ((j, 1, L), (k, 1, L))
    actions = ((b, 1, d_g), (c, 1, d_g))
    states = ((r, 1, N), (q, 1, N))
    weights = elsewhere * pi[i, j] * pi[i, k] * excess[s, i, j, b, k, c]
    return sp.Sum(weights * entries, *groups, *places, *actions, *states) / 2


@cache
def equations() -> dict[str, Equation]:
    """The excess of covariance, the mean response, and what both add to the loss."""
    groups = ((i, 1, L), (a, 1, d_g))
    response = fixed_disorder.equations()["response"].rhs
    of_group = response.xreplace({fixed_disorder.prob[x]: plain[(*GROUP, x)] for x in (r, q)})
    average = sp.Sum(share[GROUP] * of_group, *groups) / sp.Sum(share[GROUP], *groups)
    exact = table(
        ref(BEYOND), status="exact", covariance_excess=(excess[s, i, j, b, k, c], beyond_expected())
    )
    ordered = table(
        ref(BEYOND),
        fixed_disorder.SECOND_ORDER,
        status="leading order",
        mean_response=(mean_response[s, r, q], average),
        excess_loss=(excess_loss, loss(), AVERAGED),
    )
    return exact | ordered


# Covariances of the weights within groups as one training set has them

# Entries per student, 256 MB. Beyond, covariances stay at their expected values, from which those
# of one set differ by the root of the number of rows per group.
MOST = 2**26


def entries(p: Parameters) -> int:
    """Number of covariances of one student."""
    return p.N * p.L * (p.L * p.d_g) ** 2


def excess_memory(p: Parameters) -> float:
    """Bytes of the covariances of one student."""
    return 4 * entries(p)


class Covariances:
    """Excess of covariances over what independent uniform actions have, summed over the groups of
    a state and a step; arrays over seeds.

    Parameters
    ----------
    p : Parameters
        Sizes.
    given : Realisation
        With its training sets.
    left : ndarray, shape (B, N, L, d_g)
        Shares of the groups, times the part of a variance that remains about their known means.

    Raises
    ------
    ParameterError
        If they need more memory than there is.
    """

    def __init__(self, p: Parameters, given: Realisation, left: np.ndarray) -> None:
        self.p = p
        sets = given.sequences or ()
        memory.require(excess_memory, p, "covariances of a training set", times=len(sets))
        self.excess = np.empty((len(sets), p.N, p.d_g**2, p.L**3), np.float32)
        for student, data in enumerate(sets):
            self.excess[student] = self._counted(data, given, left, student)

    def __getitem__(self, seeds: slice) -> Self:
        """Those of some of the seeds."""
        part = copy.copy(self)
        part.excess = self.excess[seeds]
        return part

    def _counted(
        self, data: task.Sequences, given: Realisation, left: np.ndarray, student: int
    ) -> np.ndarray:
        """Excess of one student, shape (s, b c, i j k)."""
        p, (n, L), d = self.p, data.actions.shape, self.p.d_g
        if given.pairs is None:
            raise ValueError("pairs of actions are not counted")
        out = np.empty((p.N, d * d, L, L, L), np.float32)
        per_state = given.share[student]
        both = (data.actions[:, :, None] * d + data.actions[:, None, :]) * L**2
        both += np.arange(L)[:, None] * L + np.arange(L)
        uniform = (np.eye(d) / d - 1 / d**2).ravel()
        for step in range(L):
            places = data.states[:, step, None, None] * (d * L) ** 2 + both
            excess = np.bincount(places.ravel(), minlength=p.N * (d * L) ** 2) / (n * L)
            excess = excess.reshape(p.N, d * d, L, L)
            met = given.pairs[student, :, step].astype(float)  # s, j, a, b
            per_row = (
                met / np.where(per_state[:, step] > 0, per_state[:, step], np.inf)[:, None, :, None]
            )
            excess -= np.einsum("sjab,skac->sbcjk", met, per_row, optimize=True).reshape(
                excess.shape
            )
            expected = left[student, :, step].sum(1)[:, None] * uniform
            excess[..., np.arange(L), np.arange(L)] -= expected[..., None]
            out[:, :, step] = excess
        return out.reshape(p.N, d * d, L**3)

    def slopes(
        self, at: np.ndarray, P: np.ndarray, rows: np.ndarray, M: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Derivatives of what the excess adds to the loss: by probabilities P per share of a group,
        by M as it stands beside them, and by attention.

        Parameters
        ----------
        at : ndarray, shape (B, L, L)
            Attention.
        P : ndarray, shape (B, N, L d_g, N)
            Softmax of the mean logits of groups.
        rows : ndarray, shape (B, N, L d_g, 1)
            Shares of the groups.
        M : ndarray, shape (B, N, d_g, N)
            Weights by state, action and next state.
        """
        B, N, d, _ = M.shape
        L, diagonal = self.p.L, np.arange(N)
        whole = rows.sum(2, keepdims=True)
        heavy = rows / np.where(whole > 0, whole, 1) * P
        J = -heavy.swapaxes(2, 3) @ P
        J[:, :, diagonal, diagonal] += heavy.sum(2)
        other = at * (1 - np.eye(L))
        squares = (other[..., None] * other[..., None, :]).reshape(B, 1, -1, 1)
        by_cov = (self.excess @ squares.astype(np.float32)).astype(float).reshape(B, N, d, d)
        responded = M @ J
        of_cov = (responded @ M.swapaxes(2, 3)).reshape(B, N, 1, d * d).astype(np.float32)
        by_squares = (of_cov @ self.excess).sum(1, dtype=float).reshape(B, L, L, L)
        by_at = (by_squares @ other[..., None])[..., 0] * (1 - np.eye(L))
        H = M.swapaxes(2, 3) @ by_cov @ M
        by_P = H[:, :, diagonal, diagonal][:, :, None] / 2 - P @ H
        return by_P / np.where(whole > 0, whole, 1), by_cov @ responded, by_at


# Students under any optimiser

# Multiplications of a gradient of one student, alone and times training sequences.
WORK, WORK_OF_SEQUENCES = 2**23, 2**31

WORK_OF_WORDS = 2**27  # multiplications, a tenth of a second


def _counts(p: Parameters) -> bool:
    """Whether descent with all data is followed to fourth order, with covariances counted.

    To second order A is off by up to 0.05 where sequences are few, as one over the root of their
    number, and by up to 0.01 beyond these limits. A gradient takes about 7 ns times `WORK`, some
    100 of them a run; to second order it is ten times as fast.
    """
    work = entries(p) + p.N**3 * p.L * p.d_g
    return work <= (WORK if p.momentum else min(WORK, WORK_OF_SEQUENCES / p.n_train))


class Counted(FourthOrder):
    """Fixed-disorder theory to fourth order. Where every step takes all data, covariances within
    groups are those of the training set, up to `MOST` entries per student; beyond, and
    in batches, they are the expected ones.

    Parameters
    ----------
    p, start, given, accuracies
        As for `FixedDisorder`, with the sequences of the realisation.
    """

    def __init__(
        self, p: Parameters, start: Start, given: Realisation, accuracies: bool = True
    ) -> None:
        super().__init__(p, start, given, accuracies)
        known = p.batches == 1 and given.pairs is not None and given.sequences is not None
        if known and entries(p) <= MOST:
            self.covariances = Covariances(p, given, self.left)

    def _answers(self, every: list[tuple[np.ndarray, ...]]) -> dict[str, np.ndarray]:
        """Accuracies on all words where they can be listed: of few actions, logits are far from
        Gaussian and those of different states go together.
        """
        if float(self.p.d_g) ** self.p.L * (self.p.L * self.p.N) ** 2 > WORK_OF_WORDS:
            return super()._answers(every)
        steps, ends = zip(*(on_all_words(x[0], *x[5:]) for x in every), strict=True)
        return {"steps": np.array(steps), "rollout_accuracy": np.array(ends)}


def on_all_words(at: np.ndarray, M: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, float]:
    """Shares over all words and first states: of right answers by step, beside the right states;
    of rollouts by the likeliest next states that end right.
    """
    (N, d, _), L = M.shape, len(at)
    words = np.indices((d,) * L).reshape(L, -1)

    def likeliest(row: np.ndarray, entries: np.ndarray) -> np.ndarray:
        z = np.zeros((1, N))
        for weight in row:  # words one letter longer
            z = (z[:, None] + weight * entries).reshape(-1, N)
        return z.argmax(1)

    guess = np.array([[likeliest(row, entries) for entries in M] for row in at])
    right = (guess == target[:, words].swapaxes(0, 1)).mean((1, 2))
    ours = theirs = np.arange(N)[:, None]
    for led, action in zip(guess, words, strict=True):
        ours, theirs = np.take_along_axis(led, ours, 0), target[theirs, action]
    return right, float((ours == theirs).mean())


class Trained(Counted):
    """As `Counted`, step by step: momentum, Adam, schedules, clipping, batches.

    Parameters
    ----------
    p : Parameters
        With the optimiser and the length of the run.
    start : Start
        Initial keys and queries of the seeds.
    given : Realisation
        As for `FixedDisorder`, with its sequences.
    accuracies : bool
        Compute accuracies; otherwise they are NaN.

    Raises
    ------
    ParameterError
        If batches are asked for and the realisation has no sequences.
    """

    def __init__(
        self, p: Parameters, start: Start, given: Realisation, accuracies: bool = True
    ) -> None:
        super().__init__(p, start, given, accuracies)
        if p.batches > 1 and given.sequences is None:
            raise ParameterError(
                f"given: has no sequences, which batch_size = {p.batch_size} needs; "
                "make it by Realisation.of with these parameters"
            )
        self.whole, self.epochs = given, 0
        self.steps = Steps(p, p.eta, p.updates)

    def epoch(self) -> None:
        """One epoch, or one step where those are counted."""
        for step in self.p.steps_of(self.epochs):
            if self.p.batches > 1:
                self.see(*self.whole.batch(self.p, step))
            self.state = self.steps(self.state, self.gradients())
        self.epochs += 1

    def observe(self) -> dict[str, np.ndarray]:
        """Order parameters, logits, loss and accuracies per seed, over the whole training set."""
        self.see(self.whole, self.p.n_train)
        return super().observe()


def system(
    p: Parameters, start: Start, given: Realisation, accuracies: bool = True
) -> FixedDisorder:
    """Fixed-disorder theory; in strides where steps depend on the weights alone."""
    if not p.steady or p.batches > 1:
        return Trained(p, start, given, accuracies)
    return (Counted if _counts(p) else FixedDisorder)(p, start, given, accuracies)
