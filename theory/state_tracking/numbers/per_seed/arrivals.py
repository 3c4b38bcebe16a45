"""Numerical theory of entries by arrivals: from sizes and drawn keys and queries, any optimiser."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import scipy.stats
import sympy as sp

from theory import scope
from theory.optimisers import Steps
from theory.special import gauss_hermite
from theory.state_tracking import arrivals
from theory.state_tracking.logits import pi_i
from theory.state_tracking.numbers.per_seed.attention import Attention
from theory.state_tracking.numbers.per_seed.start import Start
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.scope import ARRIVALS
from theory.state_tracking.symbols import N, d_g

RARE = 1e-4  # share of states with more arrivals than are followed
NODES = 3  # of the mean entry to a state at the start


@cache
def compiled(kinds: int) -> Any:
    """Slopes of a position's loss by entries of every kind and by attention on the own action, and
    the sum of squared probabilities, as array code derived from the loss.
    """
    loss, squares, (*law, right, wrong) = arrivals.spelled(kinds)
    by = [sp.diff(loss, x) for x in (*right, *wrong, pi_i)]
    arguments = [pi_i, *right, *wrong, *(x for own in law for x in own), N, d_g]
    return sp.lambdify(arguments, [*by, squares], "numpy", cse=True)


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
        self.k = of_k.astype(float)
        self.share = law.pmf(of_k) / law.cdf(most) * weight[of_node]
        self.offset = np.sqrt(p.initial_variance / p.d_g) * node[of_node]
        many = p.N**2 * self.share
        self.many = [many * self.k, many * (p.d_g - self.k)]
        self.state = [start.W_Q.astype(float), start.W_K.astype(float), *self._entries(start)]
        self.steps = Steps(p, p.eta, p.updates)

    def _entries(self, start: Start) -> list[np.ndarray]:
        """Mean entries by kind at the start: the smallest that have the overlaps and the sum."""
        one = np.ones_like(self.k)
        # What a right and a wrong entry is in R, S and zeta, up to their numbers of terms.
        along = [np.stack([one, self.k - 1, one]), np.stack([0 * one, self.k, one])]
        p, many = self.p, self.many
        gram = sum((a * n) @ a.T for a, n in zip(along, many, strict=True))
        pairs = p.d_g * p.N
        terms = np.array([pairs, pairs * (p.d_g - 1), pairs])
        sums = np.stack([start.R, start.S, start.zeta]) * terms[:, None]
        lift = np.linalg.lstsq(gram, sums, rcond=None)[0].T
        return [lift @ a for a in along]

    def gradients(self) -> list[np.ndarray]:
        """Derivative of the loss by single weights."""
        p, (W_Q, W_K, right, wrong) = self.p, self.state
        at = self.attention.forward(W_Q, W_K)
        own = np.einsum("bii->bi", at)
        entries = [x[:, None] for x in (*right.T, *wrong.T)]
        law = (*self.share, *self.k, *self.offset)
        found = compiled(len(self.k))(own, *entries, *law, p.N, p.d_g)
        *by_entry, by_own, squares = (np.broadcast_to(x, own.shape) for x in found)
        mean = np.stack([x.mean(1) for x in by_entry], 1)
        noise = p.initial_variance * (1 - 1 / p.d_g) * (1 - squares)
        force = (noise[..., None] * at + by_own[..., None] * np.eye(p.L)) / p.L
        heads = self.attention.backward(W_Q, W_K, at, force)
        mean = mean / np.maximum(np.concatenate(self.many), 1e-300)
        return [*heads, *np.split(mean, 2, 1)]

    def step(self) -> None:
        """One step of the optimiser."""
        self.state = self.steps(self.state, self.gradients())

    def attend(self) -> np.ndarray:
        """Attention A per student."""
        at = self.attention.forward(*self.state[:2])
        return np.einsum("bii->b", at) / self.p.L


@scope.guard(ARRIVALS)
def emergence_steps(p: Parameters, start: Start) -> np.ndarray:
    """Steps of the optimiser until A = 1/2, from sizes and starts alone.

    Parameters
    ----------
    p : Parameters
        Sizes, optimiser, and the length of the run.
    start : Start
        Keys, queries and overlaps: measured in students, or `Start.drawn`.

    Returns
    -------
    ndarray, shape (B,)
        NaN where a run ends before.
    """
    system, A = Arrivals(p, start), []
    for _ in range(p.updates + 1):
        A.append(system.attend())
        if (A[-1] > 0.5).all():
            break
        system.step()
    rows = np.array(A).T
    out = np.full(len(rows), np.nan)
    for b, row in enumerate(rows):
        above = np.flatnonzero(row >= 0.5)
        if above.size and (j := above[0]):
            out[b] = j - 1 + (0.5 - row[j - 1]) / (row[j] - row[j - 1])
    return out
