"""Cavity equations along a run: conservation, quadrature, accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate
import scipy.special
from test_cavity import EQUATIONS

from theory.state_tracking import Parameters
from theory.state_tracking.single_students import cavity
from theory.state_tracking.single_students.cavity import Cavity
from theory.state_tracking.single_students.integrate import solve
from theory.state_tracking.single_students.realisation import Start

FAST = Parameters(N=16, L=4, d_g=16, d_h=16, eta=2.0, n_train=2048, rope_theta=100.0)


def test_column_sums_are_conserved():
    """R + (N - 1) <v_w> = zeta on the way to learned, for every share of the training
    set.
    """
    start = Start.drawn(FAST, 3, np.random.default_rng(0))
    system = Cavity(FAST, start)
    for _ in range(1200):
        system.state = [
            x + rate for x, rate in zip(system.state, system.rates(), strict=True)
        ]
        _, _, v_k, v_w, _ = system.state
        total = (v_k + (FAST.N - 1) * v_w) @ system.of_v
        # Exact but for rounding: 1200 steps of 1e-16 times entries of order 10.
        np.testing.assert_allclose(
            total, start.zeta[:, None].repeat(len(system.share), 1), atol=1e-11
        )
    # Something was learned on the way.
    assert (system.observe()["accuracy"] > 0.5).any()


def crossing(curve, name: str) -> np.ndarray:
    """Times at which a curve first passes 1/2, by linear interpolation."""
    y = curve[name].values
    k = (y > 0.5).argmax(1)
    assert (k > 0).all()
    low, high = (y[np.arange(len(y)), j] for j in (k - 1, k))
    t = curve.alpha.values
    return t[k - 1] + (0.5 - low) / (high - low) * (t[k] - t[k - 1])


def test_quadrature_has_converged(monkeypatch):
    """Twice the nodes in everything moves no time by
    the 1e-4 that `per_seed` claims.
    """
    start = Start.drawn(FAST, 2, np.random.default_rng(0))
    epochs = np.arange(0, 1000, 20)
    usual = solve(Cavity(FAST, start), epochs)
    for name, value in (("NODES", 16), ("SHARES", 8), ("NOISE", 9), ("FINE", 129)):
        monkeypatch.setattr(cavity, name, value)
    finer = solve(Cavity(FAST, start), epochs)
    for name in ("A", "rollout_accuracy"):
        np.testing.assert_allclose(
            crossing(usual, name), crossing(finer, name), rtol=1e-4
        )


def by_quadrature(x: dict, at: tuple[int, int], system: Cavity) -> float:
    """Accuracy of one seed and position by brute force: smooth distribution functions
    of entries plus noise.
    """
    v_0, share = np.linspace(-1, 1, 401), np.linspace(-5, 5, 21)
    middle = (v_0[1:] + v_0[:-1]) / 2
    s_k, s_w = np.sqrt(x.u_k[at]), np.sqrt(x.u_w[at])
    total = 0.0
    density = np.exp(-(share**2) / 2) / np.exp(-(share**2) / 2).sum()
    basis = np.linalg.inv(
        np.polynomial.hermite_e.hermevander(system.e, len(system.e) - 1)
    )
    lift = np.polynomial.hermite_e.hermevander(share, len(system.e) - 1) @ basis
    spread = np.polynomial.legendre.legvander(
        middle, len(system.v_0) - 1
    ) @ np.linalg.inv(np.polynomial.legendre.legvander(system.v_0, len(system.v_0) - 1))
    for weight, of_k, of_w in zip(
        density,
        *(lift @ getattr(x, name)[at] @ spread.T for name in ("z_k", "z_w")),
        strict=True,
    ):
        grid = np.linspace(of_k[0] - 6 * s_k, of_k[-1] + 6 * s_k, 250)
        below = scipy.special.ndtr((grid[:, None] - of_w) / s_w).mean(1)
        mass = scipy.special.ndtr((grid[:, None] - of_k) / s_k).mean(1)
        power = below ** (system.p.N - 1)
        total += weight * ((power[1:] + power[:-1]) / 2 * np.diff(mass)).sum()
    return total


AMPLE = 10**12  # sequences, of which every column has the same share


@pytest.mark.parametrize("n_train", [AMPLE, FAST.n_train])
def test_accuracy_along_a_run(n_train):
    """Against brute-force distribution functions, and by sampled logits; variances of
    logits around their means.
    """
    p = FAST.replace(n_train=n_train)
    system = Cavity(p, Start.drawn(p, 1, np.random.default_rng(0)))
    rng = np.random.default_rng(2)
    for _ in range(3):
        x = system._logits()
        found = system._accuracy(x)[0]
        # Seven nodes for the noise and 64 cells for the entries.
        np.testing.assert_allclose(
            found, [by_quadrature(x, (0, i), system) for i in range(FAST.L)], atol=1e-3
        )
        of, seen = np.multiply.outer(system.of_share, system.of_v), system.observe()
        for name, z, u in (
            ("other", x.z_w[0], x.u_w[0]),
            ("correct", x.z_k[0], x.u_k[0]),
        ):
            mean = (of * z).sum((1, 2))
            within = (of * (z - mean[:, None, None]) ** 2).sum((1, 2)) + u
            # The same sums in another order.
            assert seen[f"variance_{name}"][0] == pytest.approx(
                within.mean() + mean.var(), 1e-9
            )
        if n_train == AMPLE:
            n = 60_000
            between = [
                np.polynomial.Legendre.fit(
                    system.v_0, getattr(x, name)[0, 1, 0], len(system.v_0) - 1, [-1, 1]
                )
                for name in ("z_k", "z_w")
            ]
            right = between[0](rng.uniform(-1, 1, n)) + rng.normal(size=n) * np.sqrt(
                x.u_k[0, 1]
            )
            wrong = between[1](rng.uniform(-1, 1, (n, FAST.N - 1)))
            wrong += rng.normal(size=wrong.shape) * np.sqrt(x.u_w[0, 1])
            hits = right > wrong.max(1)
            assert (
                abs(hits.mean() - found[1]) <= 4 * (hits.var() / n) ** 0.5 + 1e-3
            )  # as above
        for _ in range(250):
            system.state = [
                y + rate for y, rate in zip(system.state, system.rates(), strict=True)
            ]


def test_share_of_columns_in_a_training_set():
    """Scatter of how often (action, state) occurs among n sequences, counted."""
    p, rng, repeats = (
        Parameters(N=8, d_g=8, L=4, n_train=500),
        np.random.default_rng(6),
        400,
    )
    squares = []
    for _ in range(repeats):
        perms = rng.permuted(np.broadcast_to(np.arange(p.N), (p.d_g, p.N)), axis=1)
        s, count = rng.integers(p.N, size=p.n_train), np.zeros(p.d_g * p.N)
        for g in rng.integers(p.d_g, size=(p.L, p.n_train)):
            count += np.bincount(g * p.N + s, minlength=p.d_g * p.N)
            s = perms[g, s]
        squares.append(((count / count.mean() - 1) ** 2).mean())
    form = EQUATIONS["share_variance"].evaluate(p.values() | {"n_train": p.n_train})
    form *= 1 - 1 / (p.d_g * p.N)  # counts add up to n L: binomial, not Poisson
    error = np.std(squares, ddof=1) / repeats**0.5
    assert error < 0.0125 * form  # a mistake of 5% would show at 4 standard errors
    assert abs(np.mean(squares) - form) <= 4 * error
