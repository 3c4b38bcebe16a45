"""Starts of students, drawn and measured, and cavity equations from these."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats
import xarray as xr
from test_dressed import P

from theory.state_tracking import Parameters
from theory.state_tracking.single_students.cavity import Cavity
from theory.state_tracking.single_students.integrate import half_times, solve
from theory.state_tracking.single_students.realisation import Start


def test_half_time_is_where_the_curve_crosses():
    """`half_times` against the curve of `solve`; a seed that needs longer gets NaN."""
    p = Parameters(N=8, L=4, d_g=8, d_h=16, eta=2.0)
    start = Start.drawn(p, 4, np.random.default_rng(0))
    curve = solve(Cavity(p, start), np.arange(601))
    times = half_times(Cavity(p, start), 600)
    for k, time in enumerate(times):
        if np.isfinite(time):
            assert np.interp(time, curve.alpha, curve.A[k]) == pytest.approx(
                0.5, abs=1e-12
            )  # linear in between
            assert (curve.A[k].values[curve.alpha.values < time] < 0.5).all()
        else:
            assert (curve.A[k] < 0.5).all()
    assert np.isfinite(times).any()
    first = np.nanmin(times)
    early = half_times(Cavity(p, start), int(first * p.d_g * p.N))
    assert np.isnan(early).all()


def test_drawn_starts_have_the_moments_of_random_students():
    """Means and all second moments of (R, S, zeta) against matrices and permutations
    drawn one by one.
    """
    p, n = P.replace(N=3, d_g=3, d_h=2), 200_000
    rng = np.random.default_rng(11)
    M = rng.uniform(-1, 1, (n, p.d_g, p.N, p.N))
    perms = rng.permuted(np.broadcast_to(np.arange(p.N), (n, p.d_g, p.N)), axis=2)
    teachers = (perms[:, :, None, :] == np.arange(p.N)[:, None]).astype(float)
    trace = np.einsum("xars,xbrs->xab", teachers, M) / p.N
    own = np.trace(trace, axis1=1, axis2=2)
    direct = np.stack(
        [
            own / p.d_g,
            (trace.sum((1, 2)) - own) / (p.d_g * (p.d_g - 1)),
            M.sum((1, 2, 3)) / (p.d_g * p.N),
        ]
    )
    start = Start.drawn(p, n, rng)
    drawn = np.stack([start.R, start.S, start.zeta])
    for x, y in [(drawn[k], direct[k]) for k in range(3)]:
        assert abs(x.mean() - y.mean()) <= 4 * ((x.var() + y.var()) / n) ** 0.5
    for i, j in itertools.combinations_with_replacement(range(3), 2):
        x, y = drawn[i] * drawn[j], direct[i] * direct[j]
        error = ((x.var() + y.var()) / n) ** 0.5
        assert (
            error < 0.0125 * y.mean()
        )  # a mistake of 5% would show at 4 standard errors
        assert abs(x.mean() - y.mean()) <= 4 * error, (i, j)
    weights = np.concatenate([start.W_Q.ravel(), start.W_K.ravel()])
    assert scipy.stats.kstest(weights, "uniform", (-1, 2)).pvalue > 6e-5  # 4 sigma
    correlation = np.corrcoef(np.concatenate([start.W_Q, start.W_K, drawn.T], 1).T)
    assert (
        np.abs(correlation[:4] - np.eye(4, 7)).max() * n**0.5 < 4.5
    )  # the largest of 18 normal numbers
    assert (start.variance_right == 1 / 3).all() and (
        start.variance_wrong == 1 / 3
    ).all()


def test_measured_starts_are_those_of_the_data_set():
    """Values at time 0, per seed, in whatever order the data set has its axes; later
    times do not matter.
    """
    rng, names = (
        np.random.default_rng(0),
        ("R", "S", "zeta", "M_variance_correct", "M_variance_other"),
    )
    weights = {
        f"W_{x}_start": (("d_h", "seed"), rng.normal(size=(P.d_h, 4))) for x in "QK"
    }
    data = xr.Dataset(
        weights
        | {name: (("alpha", "seed"), rng.uniform(0.1, 1, (3, 4))) for name in names}
    )
    start = Start.measured(data)
    np.testing.assert_array_equal(start.W_Q, data.W_Q_start.values.T)
    np.testing.assert_array_equal(start.W_K, data.W_K_start.values.T)
    for mine, name in zip(
        (start.R, start.S, start.zeta, start.variance_right, start.variance_wrong),
        names,
        strict=True,
    ):
        np.testing.assert_array_equal(mine, data[name].values[0])


def test_seeds_do_not_depend_on_their_company():
    """Stacked or alone, every curve is the same,
    and is given at the epochs asked for.
    """
    p = P.replace(N=5, d_g=4, d_h=8, eta=2.0, n_train=400)
    start = Start.drawn(p, 3, np.random.default_rng(4))
    before = [x.copy() for x in vars(start).values()]
    epochs = [0, 7, 8, 40]
    together = solve(Cavity(p, start), epochs)
    assert together.A.dims == ("seed", "alpha") and together.sizes == {
        "seed": 3,
        "alpha": 4,
    }
    assert list(together.epoch.values) == epochs
    np.testing.assert_allclose(
        together.alpha, np.array(epochs) / (p.d_g * p.N), rtol=1e-15
    )
    for k in range(3):
        alone = solve(
            Cavity(p, Start(*(x[k : k + 1] for x in vars(start).values()))), epochs
        )
        for name in together:
            # The same operations per seed; library sums may be ordered by the shape, so
            # rounding may differ.
            np.testing.assert_allclose(
                alone[name][0], together[name][k], rtol=1e-12, atol=1e-14
            )
    finer = solve(Cavity(p, start), [*range(9), 40])
    for name in together:
        # Looking does not disturb; how memory is aligned may change the last bit.
        np.testing.assert_allclose(
            finer[name][:, [0, 7, 8, 9]], together[name], rtol=1e-12, atol=1e-14
        )
    for mine, other in zip(vars(start).values(), before, strict=True):
        np.testing.assert_array_equal(mine, other)  # nor does running change the start
