"""Fixed-disorder theory under any optimiser: its gradients go through the optimiser's steps, and
every step counts the batch that the seed's student takes.
"""

from functools import cache
from typing import Any

import numpy as np
import sympy as sp

from theory.lowered import Lowered
from theory.optimisers import Steps
from theory.parameters import ParameterError
from theory.state_tracking import fixed_disorder
from theory.state_tracking.covariances import MOST, Covariances, entries
from theory.state_tracking.fixed_disorder import GROUP, FixedDisorder, force, mean, plain
from theory.state_tracking.fourth_order import FourthOrder
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.realisation import Realisation, Start
from theory.state_tracking.rewarded_students import Rewarded
from theory.state_tracking.symbols import N, b, d_g, i, j, r, s

# Multiplications of a gradient of one student, alone and times training sequences.
WORK, WORK_OF_SEQUENCES = 2**23, 2**31

WORK_OF_WORDS = 2**27  # multiplications, a tenth of a second


def _counts(p: Parameters) -> bool:
    """Whether plain descent with all data is followed to fourth order, with covariances counted.

    To second order A is off by up to 0.05 where sequences are few, as one over the root of their
    number. A gradient takes about 7 ns times `WORK`, some 300 of them a run; to second order it is
    ten times as fast.
    """
    work = entries(p) + p.N**3 * p.L * p.d_g
    return work <= min(WORK, WORK_OF_SEQUENCES / p.n_train)


class Counted(FourthOrder):
    """Fixed-disorder theory to fourth order. Where every step takes all data, covariances within
    groups are those of the training set, up to `covariances.MOST` entries per student; beyond, and
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
    if p.reward != "none":
        return Rewarded(p, start, given, accuracies)
    if not p.steady or p.batches > 1:
        return Trained(p, start, given, accuracies)
    return (Counted if _counts(p) else FixedDisorder)(p, start, given, accuracies)


# Rates of the fixed-disorder theory as generated from its equations

rate = sp.IndexedBase("rate_M")  # rate per epoch


@cache
def generated(xp: Any = np) -> Lowered:
    """Array code generated from the equations: change of M per epoch and force on attention, from
    ``M``, ``M_star``, ``pi``, ``nu`` and ``pairs`` of a stack of students, and the sizes.

    An empty group is treated as one row; it has no pairs and no fluctuations, and does not
    contribute.

    Parameters
    ----------
    xp : module
        Array module, as `theory.lowered.Lowered`.
    """
    eq = fixed_disorder.equations()
    logit = sp.exp(mean[(*GROUP, r)])
    student = sp.Symbol("student", integer=True, positive=True)
    steps = ("mean_weight", "group_logit", "mean_entry", "entry_covariance", "scatter")
    later = ("logit_lift", "mean_probability", "response", "force")
    made = {eq[name].lhs: eq[name].rhs for name in steps}
    made[plain[r]] = logit / sp.Sum(logit, (r, 1, N))
    made |= {eq[name].lhs: eq[name].rhs for name in later}
    made[rate[b, r, s]] = eq["rate_M"].rhs / (d_g * N)
    return Lowered(made, (rate[b, r, s], force[i, j]), (student, *GROUP), xp)


class Spelled(FixedDisorder):
    """`FixedDisorder` for counted training sets, with rates generated from the equations."""

    def __init__(self, p: Parameters, start: Start, given: Realisation) -> None:
        super().__init__(p, start, given)
        if given.pairs is None:
            raise ParameterError("pairs = None: must be counts of a training set")
        self.numbers = {
            **{"N": p.N, "L": p.L, "d_g": p.d_g, "n_train": p.n_train, "eta": p.eta},
            "nu": np.maximum(given.share, 1 / (p.n_train * p.L)),
            "pairs": given.pairs.astype(float),
            "M_star": self.teachers.transpose(0, 2, 3, 1),
        }

    def gradients(self) -> list[np.ndarray]:
        """Derivatives of the loss by the state."""
        W_Q, W_K, M = self.state
        pi = self.attention.forward(W_Q, W_K)
        d_M, by_at = generated()({**self.numbers, "pi": pi, "M": M.transpose(0, 2, 3, 1)})
        heads = self.attention.backward(W_Q, W_K, pi, by_at)
        return [*heads, -d_M.transpose(0, 3, 1, 2) / self.p.eta]
