"""Functions of the machine code of per-seed theory against the libraries'."""

import itertools

import numpy as np
import pytest
from numba import njit
from scipy.special import logsumexp, ndtr, softmax

from theory.state_tracking import Parameters
from theory.state_tracking.model.task import visited
from theory.state_tracking.single_students.cavity import _between as between
from theory.state_tracking.single_students.fixed_disorder import FixedDisorder
from theory.state_tracking.single_students.kernels import (
    accuracy_kernels,
    fixed_disorder_kernels,
)
from theory.state_tracking.single_students.realisation import Realisation, Start
from theory.symbols.special import gauss_hermite, gauss_legendre


def over(function):
    """The compiled function over an array."""

    @njit(**{**fixed_disorder_kernels.HOW, "cache": False})
    def applied(x):
        out = np.empty_like(x)
        for k in range(len(x)):
            out[k] = function(x[k])
        return out

    return applied


def test_exponential():
    """To rounding of the exponent, 1e-16 times the argument's size; NaN stays."""
    x = np.linspace(-600, 600, 20011)
    np.testing.assert_allclose(
        over(fixed_disorder_kernels._exp)(x), np.exp(x), rtol=2e-13
    )
    x = np.linspace(-30, 30, 20011)
    np.testing.assert_allclose(
        over(fixed_disorder_kernels._exp)(x), np.exp(x), rtol=1e-14
    )
    x /= 100  # a few roundings where the exponent is 0
    np.testing.assert_allclose(
        over(fixed_disorder_kernels._exp)(x), np.exp(x), rtol=1e-15
    )
    assert np.isnan(over(fixed_disorder_kernels._exp)(np.array([np.nan])))[0]
    assert over(fixed_disorder_kernels._exp)(np.array([-1e6]))[0] < 1e-300


def test_normal_probability_and_its_integral():
    """To the 5e-14 that the polynomials claim; beyond `FAR` a probability is 0 or 1."""
    x = np.concatenate([np.linspace(-12, 12, 20011), [-1e9, 1e9]])
    np.testing.assert_allclose(
        over(accuracy_kernels._normal)(x), ndtr(x), rtol=0, atol=5e-14
    )
    assert ndtr(-accuracy_kernels.FAR) < 1e-15
    x = x[abs(x) <= accuracy_kernels.FAR]
    exact = x * ndtr(x) + np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(
        over(accuracy_kernels._ramp)(x), exact, rtol=0, atol=5e-14
    )


def test_accuracies_by_nodes_and_by_cells():
    """Where noise is wide, ten nodes in the initial value give what a thousand cells
    do; where it is narrow, cells are used, and both sides of the rule agree. Diverged
    logits have no accuracy.
    """
    v_0, of_v = gauss_legendre(10, -1)
    z = (v_0 + 0.1 * v_0**2)[None, None]
    nodes, weight = gauss_hermite(7)

    def accuracy(width, cells, scale=1.0):
        fine = np.linspace(-1, 1, cells + 1)
        to_cells = [between(v_0, x) for x in (fine, (fine[1:] + fine[:-1]) / 2)]
        noise = np.array([width**2])
        rest = (*to_cells, of_v / 2, 15, 500, nodes, weight)
        return accuracy_kernels.column_accuracies(
            scale * (z + 0.5), scale * z, noise, noise, *rest
        )[0, 0]

    limit = 2 / accuracy_kernels.SMOOTH  # of the noise, as logits range over 2
    by_nodes, by_cells = (accuracy(limit * (1 + sign * 1e-7), 1000) for sign in (1, -1))
    assert by_nodes == pytest.approx(
        by_cells, abs=1e-6
    )  # of a thousand cells: 1e-6 of the width
    assert (
        abs(accuracy(1.1 * limit, 1000) - by_nodes) > 1e-3
    )  # a wrong width would be seen
    assert np.isnan(accuracy(limit, 64, np.inf))


def test_averages_under_the_softmax():
    """Against a softmax of the library; logits that only diverging descent has give
    NaN.
    """
    rng = np.random.default_rng(0)
    z, M = 9 * rng.normal(size=(7, 5)), rng.normal(size=(3, 7))
    rows, p = fixed_disorder_kernels._table(M), softmax(z, 0)
    e = z.copy()
    fixed_disorder_kernels._exponentials(e)
    sums = rows[3:8] @ e
    scale = fixed_disorder_kernels._scales(sums[4])
    np.testing.assert_allclose(np.log(sums[4]), logsumexp(z, 0), rtol=1e-14)
    means = M @ p
    np.testing.assert_allclose(
        sums[1:4] * scale, means - means.mean(0), rtol=0, atol=1e-13
    )
    np.testing.assert_allclose(rows[8] @ e * scale, M.mean(0) @ p, rtol=0, atol=1e-13)
    C = np.cov(M.T, bias=True)
    of_logits = [np.diag(C) @ x - x @ C @ x for x in p.T]
    np.testing.assert_allclose(
        fixed_disorder_kernels._variance(sums, scale), of_logits, rtol=0, atol=1e-13
    )
    for far in (1e3, -1e3, np.inf, np.nan):
        e = np.full((7, 5), far)
        fixed_disorder_kernels._exponentials(e)
        with np.errstate(over="ignore"):
            assert np.isnan(fixed_disorder_kernels._scales(e.sum(0))).all()


@pytest.mark.parametrize("size", [(2, 3), (3, 2)], ids=str)
def test_sums_over_counted_pairs(size):
    """Mean weights and force by their definitions, at even and odd numbers of places
    and actions, also of groups without rows: from counts in bytes, and from shares
    where counts exceed 255.
    """
    p, rng = (
        Parameters(N=3, L=size[0], d_g=size[1], d_h=4, n_train=8),
        np.random.default_rng(5),
    )
    start = Start.drawn(p, 1, rng)
    given = Realisation.drawn(p, start, rng)
    pairs, share = given.pairs.astype(float), given.share
    assert (share == 0).any() and pairs.max() * 8 * p.L > 1.5
    for times, kind in ((1, np.uint8), (1000, np.uint16)):
        system = FixedDisorder(p.replace(n_train=times * p.n_train), start, given)
        assert system.counts.dtype == kind
        at, M = system.attention.parts(*system.state[:2])[0], system.state[2]
        weights = np.einsum("bij,bsijac->bsiac", at, pairs)
        weights /= np.where(share > 0, share, 1)[..., None]
        error = rng.normal(size=(1, p.N, p.L, p.d_g, p.N))
        force = np.einsum("bsiar,bscr,bsijac->bij", error, M, pairs)
        flat = (1, p.N, p.L * p.d_g, -1)
        for found, expected in (
            (system._weights(at), weights.reshape(flat)),
            (system._force(at, error.reshape(flat)), force),
        ):  # of order one, from shares in single precision
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def answered(
    at: np.ndarray, M: np.ndarray, words: np.ndarray, states: np.ndarray
) -> tuple[list[float], list[float]]:
    """Share of right steps of each word, and whether its rollout ends rightly."""
    right, ends = [], []
    for word, path in zip(words, states, strict=True):
        guess = [(row @ M[s][word]).argmax() for row, s in zip(at, path, strict=False)]
        right.append(np.mean(guess == path[1:]))
        rolled = path[0]
        for row in at:
            rolled = (row @ M[rolled][word]).argmax()
        ends.append(float(rolled == path[-1]))
    return right, ends


def test_answers_on_words():
    """Against the library's largest logits, where all actions count and where the right
    one decides alone, with weights that know the teachers a little and well.
    """
    rng = np.random.default_rng(0)
    N, d, L, n = 7, 3, 4, 300
    teachers = np.array([rng.permutation(N) for _ in range(d)])
    words = rng.integers(d, size=(n, L))
    states = visited(teachers, words, rng.integers(N, size=n))
    known, means = np.eye(N)[teachers.T], []
    for sharp, learned in itertools.product((0, 2, 9), (0.5, 2, 6)):
        at = softmax(sharp * np.eye(L) + rng.normal(size=(L, L)), 1)
        M = learned * known + rng.normal(size=known.shape)
        found = accuracy_kernels.answers(at, M, words, states)
        right, ends = answered(at, M, words, states)
        np.testing.assert_allclose(found[0], right, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(found[1], ends)
        means.append(found[1].mean())
    assert min(means) < 0.3 and max(means) == 1


def test_what_decides_alone():
    """The largest entry of each state and action, its lead, and the widest row."""
    M = np.random.default_rng(1).normal(size=(5, 3, 5))
    top, lead, apart = accuracy_kernels._first_guesses(M)
    rows = np.sort(M, 2)
    np.testing.assert_array_equal(top, M.argmax(2))
    np.testing.assert_allclose(lead, rows[..., -1] - rows[..., -2], rtol=1e-14)
    np.testing.assert_allclose(apart, np.ptp(M, 2).max(1), rtol=1e-14)
