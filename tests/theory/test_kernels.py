"""Functions of the machine code of per-seed theory against the libraries'."""

import numpy as np
import pytest
from numba import njit
from scipy.special import logsumexp, ndtr, softmax

from theory.state_tracking import Parameters
from theory.state_tracking.single_students import (
    accuracy_kernels,
    fixed_disorder_kernels,
)
from theory.state_tracking.single_students.cavity import _between as between
from theory.state_tracking.single_students.fixed_disorder import FixedDisorder
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


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_diverged_entries_have_no_accuracy(value):
    """Neither where a correct nor where a wrong logit has diverged; other states keep
    theirs.
    """
    rng = np.random.default_rng(0)
    at, M = np.array([[1.0, 0], [0.2, 0.8]]), rng.normal(size=(3, 2, 3))
    target, nodes = rng.integers(3, size=(3, 2)), gauss_hermite(5)
    exact = accuracy_kernels.accuracies(at, M, target, *nodes)
    for r in range(3):
        wrong = M.copy()
        wrong[1, 0, r] = value
        found = accuracy_kernels.accuracies(at, wrong, target, *nodes)
        assert np.isnan(found[:, 1]).all()
        np.testing.assert_array_equal(found[:, ::2], exact[:, ::2])
    assert np.isnan(accuracy_kernels.accuracies(at * np.nan, M, target, *nodes)).all()


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


def test_accuracies_against_the_library():
    """Every node of every group, where the kernel leaves out groups and nodes that are
    certain: at all sizes of logits, noise and lead, and where noise is of other logits
    alone. To 5e-14 for each of the N normal probabilities, and 1e-13 for what does not
    count.
    """
    rng, (nodes, weight) = np.random.default_rng(0), gauss_hermite(5)
    N, d, L = 8, 3, 4
    cases = []
    for sharp in (0, 2, 5):
        at = softmax(sharp * np.eye(L) + 0.3 * rng.normal(size=(L, L)), 1)
        for lead in np.linspace(0, 12, 25):
            M, target = rng.normal(size=(N, d, N)), rng.integers(N, size=(N, d))
            np.put_along_axis(M, target[..., None], lead, 2)
            cases += [(at, size * M, target) for size in (0.01, 1, 30)]
    for behind in np.linspace(0, 9, 25):
        M = np.zeros((N, d, N))
        M[:, :, 1] = (
            rng.choice([-1, 1], N)[:, None] * np.array([1, -1, 0]) + behind * 0.35
        )
        M[:, :, 2:] = -50
        cases.append((np.full((L, L), 1 / L), M, np.zeros((N, d), int)))
    found = []
    for at, M, target in cases:
        own = np.diag(at)[:, None, None, None]
        rest = np.array([(np.delete(row, i) ** 2).sum() for i, row in enumerate(at)])
        z = own * M + (1 - own) * M.mean(
            1, keepdims=True
        )  # step, state, action, next state
        noise = np.sqrt(rest[:, None, None, None] * M.var(1, keepdims=True)) + 1e-9
        noise, y = (
            np.broadcast_to(noise, z.shape),
            np.broadcast_to(target[..., None], z.shape)[..., :1],
        )
        right, own_noise = (np.take_along_axis(x, y, 3) for x in (z, noise))
        chance = ndtr(
            (right[..., None] + own_noise[..., None] * nodes - z[..., None])
            / noise[..., None]
        )
        np.put_along_axis(chance, y[..., None], 1.0, 3)
        found.append(chance.prod(3) @ weight)
        accuracy = accuracy_kernels.accuracies(at, M, target, nodes, weight)
        np.testing.assert_allclose(accuracy, found[-1], rtol=0, atol=N * 5e-14 + 1e-13)
    # Where bounds decide, at both ends: between what they leave out and a thousand
    # times that.
    found = np.concatenate([x.ravel() for x in found])
    for chance in (found, 1 - found):
        assert ((chance > 1e-12) & (chance < 1e-9)).sum() >= 5
