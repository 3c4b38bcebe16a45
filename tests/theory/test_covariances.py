"""Covariances of one training set: row by row, and the Equations by finite differences."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import test_fixed_disorder as second
from later import Later
from scipy.special import softmax

from theory.parameters import ParameterError
from theory.runtime import memory
from theory.state_tracking import Parameters, trained
from theory.state_tracking.fourth_order import FourthOrder
from theory.state_tracking.realisation import Realisation, Start
from theory.state_tracking.trained import Covariances, excess_memory

P = second.P
FORMS = Later(trained.equations)


class Counted(FourthOrder):
    """With the covariances of the training set."""

    def __init__(self, p: Parameters, start: Start, given: Realisation) -> None:
        super().__init__(p, start, given)
        self.covariances = Covariances(p, given, self.left)


def test_every_row_of_a_training_set(monkeypatch):
    """Exact gradients over the rows of a small training set: what is left of the force on attention
    falls as the third power of the scatter of M, of the gradient by M as the second; with expected
    covariances as the second and first.
    """
    p = P.replace(N=4, d_g=3, L=4, n_train=60)
    left = {Counted: [], FourthOrder: []}
    for scale, kind in itertools.product((0.1, 0.05), left):
        start, given = second.begin(p, 3, scale)
        # Rows alike in what does not scatter: probabilities respond alike in all groups.
        given = replace(given, M=given.M - given.M.mean(1, keepdims=True))
        (data,) = given.sequences
        exact = second.by_rows(p, start, given, data.actions, data.states)
        monkeypatch.setattr(second, "FixedDisorder", kind)
        found = second.by_theory(p, start, given)
        left[kind].append({name: np.abs(found[name] - exact[name]).max() for name in exact})
    for name, power in (("force", 3), ("d_M", 2)):
        (own, half), (wide, narrow) = ([x[name] for x in left[k]] for k in left)
        assert half < own / (0.85 * 2**power), name
        assert wide / narrow < 1.15 * 2 ** (power - 1), name
        assert half < narrow / 5, name


def test_memory_of_two_training_sets(monkeypatch):
    """What is allocated is what is asked for; a byte less is refused."""
    rng = np.random.default_rng(0)
    start = Start.drawn(P, 2, rng)
    given = Realisation.drawn(P, start, rng)
    assert len(given.sequences) == 2
    left, needed = FourthOrder(P, start, given).left, 2 * excess_memory(P)
    monkeypatch.setattr(memory, "NEGLIGIBLE_BYTES", 0)
    monkeypatch.setattr(memory, "available", lambda: needed)
    assert Covariances(P, given, left).excess.nbytes == needed
    monkeypatch.setattr(memory, "available", lambda: needed - 1)
    with pytest.raises(ParameterError, match="covariances of a training set needs about"):
        Covariances(P, given, left)


def excess_loss(
    p: Parameters, given: Realisation, excess: np.ndarray, at: np.ndarray, M: np.ndarray
) -> float:
    """The Equation, of M[s, a, r] and attention, all its arrays by their own Equations."""
    system = FourthOrder(p, Start.drawn(p, 1, np.random.default_rng(0)), given)
    z = (system._weights(at[None]) @ M[None])[0]
    plain = np.exp(z) / np.exp(z).sum(2, keepdims=True)
    x = {
        **{"N": p.N, "L": p.L, "d_g": p.d_g, "pi": at, "nu": given.share[0]},
        **{"M": M.transpose(1, 2, 0), "covariance_excess": excess},
        "p_plain": plain.reshape(p.N, p.L, p.d_g, p.N),
    }
    x["J_mean"] = np.empty((p.N, p.N, p.N))
    for s, r, q in np.ndindex(x["J_mean"].shape):
        here = x | second.place(s=s, r=r, q=q)
        x["J_mean"][s, r, q] = FORMS["mean_response"].evaluate(here)
    return FORMS["excess_loss"].evaluate(x)


def test_numbers_are_those_of_the_equations():
    """Excess entry by entry; slopes along a random direction of attention and of M."""
    p = P.replace(n_train=20)
    start, given = second.begin(p, 5)
    system = Counted(p, start, given)
    assert (given.share > 0).all()
    (data,), N, L, d = given.sequences, p.N, p.L, p.d_g
    met = np.eye(d)[data.actions]
    triples = np.stack(
        [np.einsum("ns,njb,nkc->sjbkc", np.eye(N)[data.states[:, i]], met, met) for i in range(L)],
        1,
    ) / (p.n_train * L)
    x = {
        **{"N": N, "L": L, "d_g": d, "n_train": p.n_train, "triples": triples},
        **{"nu": given.share[0], "pairs": given.pairs[0].astype(float)},
    }
    excess = np.empty(triples.shape)
    for s, i, j, b, k, c in np.ndindex(excess.shape):
        here = second.place(s=s, i=i, j=j, b=b, k=k, c=c)
        # Counts of both are called nu in print.
        excess[s, i, j, b, k, c] = FORMS["covariance_excess"].evaluate(x | here)
    found = system.covariances.excess[0].reshape(N, d, d, L, L, L).transpose(0, 3, 4, 1, 5, 2)
    # At the own place the excess does not count.
    off = 1 - np.eye(L)
    mask = off[:, :, None, None, None] * off[:, None, None, :, None]
    np.testing.assert_allclose(found * mask, excess * mask, atol=1e-7)
    assert np.abs(excess * mask).max() > 1e-3
    at, M = system.attention.parts(*system.state[:2])[0], system.state[2]
    P_ = softmax(system._weights(at) @ M, -1)
    by_P, by_M, by_at = system.covariances.slopes(at, P_, system.rows, M)
    error = P_ * (by_P - (P_ * by_P).sum(3, keepdims=True))
    by_M = by_M + system._weights(at).swapaxes(2, 3) @ (system.rows * error)
    by_at = by_at + system._force(at, error)
    rng = np.random.default_rng(1)
    along = rng.normal(size=at.shape), rng.normal(size=M.shape)
    ends = [
        excess_loss(p, given, excess, (at + h * along[0])[0], (M + h * along[1])[0])
        for h in (1e-5, -1e-5)
    ]
    parts = (by_at * along[0]).sum(), (by_M * along[1]).sum()
    assert min(np.abs(parts)) > 0.02 * max(np.abs(parts))
    assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(sum(parts), rel=1e-4)
