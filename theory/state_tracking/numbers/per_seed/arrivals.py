"""Numerical theory of entries by arrivals: from sizes and drawn keys and queries, any optimiser."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy.stats

from theory import gauss_hermite, scope
from theory.optimisers import Steps
from theory.state_tracking import arrivals
from theory.state_tracking.arrivals import equations
from theory.state_tracking.numbers.per_seed.attention import Attention
from theory.state_tracking.numbers.per_seed.runs import half_epochs
from theory.state_tracking.numbers.per_seed.start import Start, started
from theory.state_tracking.numbers.per_seed.strides import Single
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.scope import ARRIVALS
from theory.state_tracking.symbols import L, N, d_g, n_train

RARE = 1e-4  # share of states with more arrivals than are followed
NODES = 3  # of the mean entry to a state at the start
PARTS = 5  # of single entries in initial value and in counts


@cache
def _forms() -> dict[str, Callable]:
    """Contributions of single entries, compiled from the equations."""
    eq = equations()
    k, x = arrivals.arriving, arrivals
    return {
        "answer": eq["entry_answer"].lambdify(x.T, x.p_kind, N, d_g),
        "counts": eq["entry_counts"].lambdify(x.pi_i, x.T, x.p_kind, k, N, d_g, n_train, L),
        "scatter": eq["entry_scatter"].lambdify(x.off_square, k, x.gap, x.V, d_g),
    }


@dataclass(frozen=True)
class Kinds:
    """Law of the kinds of states, arrays over them: the slopes of the loss of
    `theory.state_tracking.arrivals`, written for arrays.

    Attributes
    ----------
    share, k, offset : ndarray
        As the arrays of `theory.state_tracking.arrivals`.
    N, d_g : int
        States and actions.
    """

    share: np.ndarray
    k: np.ndarray
    offset: np.ndarray
    N: int
    d_g: int

    def slopes(
        self, own: np.ndarray, right: np.ndarray, wrong: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Derivatives of the losses of positions by entries of every kind and by attention on the
        own action, sums of squared probabilities, and mean probabilities of states by kind.

        Parameters
        ----------
        own : ndarray, shape (B, L)
            Attention on the own action.
        right, wrong : ndarray, shape (B, kinds)
            Entries.
        """
        b, x, y = own[..., None], right[:, None], wrong[:, None]
        mean = (self.k * x + (self.d_g - self.k) * y) / self.d_g
        e_x, e_y = (np.exp(b * v + (1 - b) * mean + self.offset) for v in (x, y))
        states, chosen = self.N * self.share, self.N * self.share * self.k / self.d_g
        Z = (e_y @ states)[..., None] - e_y + e_x
        by_x = chosen * (e_x / Z - 1)
        mass = e_y * (1 / Z @ chosen)[..., None]
        by_y = states * mass - chosen * e_y / Z
        by_mean = (1 - b) * (by_x + by_y)
        by_right = b * by_x + self.k / self.d_g * by_mean
        by_wrong = b * by_y + (1 - self.k / self.d_g) * by_mean
        by_own = (by_x * (x - mean) + by_y * (y - mean)).sum(-1)
        squares = (((e_y**2 @ states)[..., None] - e_y**2 + e_x**2) / Z**2) @ chosen
        return by_right, by_wrong, by_own, squares, mass


class Arrivals:
    """Mean entries of M by kind, and keys and queries of students, under the optimiser of ``p``.

    Parameters
    ----------
    p : Parameters
        Sizes and training.
    start : Start
        Keys, queries and overlaps at the start.
    """

    def __init__(self, p: Parameters, start: Start) -> None:
        self.p, self.attention = p, Attention(p)
        law = scipy.stats.binom(p.d_g, 1 / p.N)
        most = min(p.d_g, int(law.isf(RARE)) + 1)
        node, weight = gauss_hermite(NODES)
        of_k, of_node = np.divmod(np.arange((most + 1) * NODES), NODES)
        share = law.pmf(of_k) / law.cdf(most) * weight[of_node]
        offset = np.sqrt(p.initial_variance / p.d_g) * node[of_node]
        self.kinds = Kinds(share, of_k.astype(float), offset, p.N, p.d_g)
        self.many = [p.N**2 * share * of_k, p.N**2 * share * (p.d_g - of_k)]
        # Single wrong entries: initial value and counts in the training set, in standard units.
        one, weight = gauss_hermite(PARTS)
        self.own_start, self.own_counts = (x.ravel() for x in np.meshgrid(one, one))
        self.of_part = np.outer(weight, weight).ravel()
        right, wrong = self._entries(start)
        wrong = np.repeat(wrong[..., None], self.of_part.size, 2)
        self.state = [start.W_Q.astype(float), start.W_K.astype(float), right, wrong]
        right_many, wrong_many = self.many
        counts = (1, 1, right_many, wrong_many[:, None] * self.of_part)
        self.steps = Steps(p, p.eta, p.updates, counts)

    def _entries(self, start: Start) -> list[np.ndarray]:
        """Mean entries by kind at the start: the smallest that have the overlaps and the sum."""
        k = self.kinds.k
        one = np.ones_like(k)
        # What a right and a wrong entry is in R, S and zeta, up to their numbers of terms.
        along = [np.stack([one, k - 1, one]), np.stack([0 * one, k, one])]
        p, many = self.p, self.many
        gram = sum((a * n) @ a.T for a, n in zip(along, many, strict=True))
        pairs = p.d_g * p.N
        terms = np.array([pairs, pairs * (p.d_g - 1), pairs])
        sums = np.stack([start.R, start.S, start.zeta]) * terms[:, None]
        lift = np.linalg.lstsq(gram, sums, rcond=None)[0].T
        return [lift @ a for a in along]

    def gradients(self) -> list[np.ndarray]:
        """Derivative of the loss by single weights."""
        p, d, (W_Q, W_K, right, wrong) = self.p, self.p.d_g, self.state
        attention = self.attention.forward(W_Q, W_K)
        on_own, all_squares = np.einsum("bii->bi", attention), (attention**2).sum(2)[..., None]
        typical = wrong @ self.of_part
        *by_entry, by_own, squares, mass = self.kinds.slopes(on_own, right, typical)
        by_right, by_wrong = (
            np.divide(x.mean(1), n, out=np.zeros((len(on_own), n.size)), where=n > 0)
            for x, n in zip(by_entry, self.many, strict=True)
        )
        # Single wrong entries about the mean of their kind.
        k, f = self.kinds.k / d, _forms()
        off = np.sqrt(p.initial_variance * (1 - 1 / d)) * self.own_start
        off = off + wrong - typical[..., None]
        answer = f["answer"](all_squares, mass, p.N, d).mean(1)
        counted = f["counts"](on_own[..., None], all_squares, mass, k, p.N, d, p.n_train, p.L).mean(
            1
        )
        single = by_wrong[..., None] + answer[..., None] * off
        single += np.sqrt(counted)[..., None] * self.own_counts
        # Variance of M over actions, at the states that are likely.
        scatter = f["scatter"](off**2 @ self.of_part, k, right - typical, p.initial_variance, d)
        heavy = mass * self.kinds.share
        V = (heavy * scatter[:, None]).sum(2) / heavy.sum(2)
        noise = V * (1 - squares)
        force = (noise[..., None] * attention + by_own[..., None] * np.eye(p.L)) / p.L
        heads = self.attention.backward(W_Q, W_K, attention, force)
        return [*heads, by_right, single]

    def epoch(self) -> None:
        """One step of the optimiser, which takes all data."""
        self.state = self.steps(self.state, self.gradients())


@scope.guard(ARRIVALS)
def emergence_steps(p: Parameters, start: Start) -> np.ndarray:
    """Steps of the optimiser until A = 1/2, from sizes and starts alone.

    Under Adam the mean of five starts is off by some per cent, single starts by up to a fifth
    (`verify.state_tracking.domains.arrival_checks`). Of many drawn starts take quantiles and the
    share that is NaN, not the mean: some never arrive.

    Parameters
    ----------
    p : Parameters
        Sizes, optimiser, and the length of the run.
    start : Start
        Keys, queries and overlaps: measured in students, or `Start.drawn`.

    Returns
    -------
    ndarray, shape (B,)
        0 where A starts at or above 1/2; NaN where a run ends before.
    """
    started(p, start)
    return half_epochs(Single(Arrivals(p, start)), p.updates)
