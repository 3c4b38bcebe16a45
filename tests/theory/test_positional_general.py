"""The general state evolution (Results 4.2 and C.2): its reductions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.special

from theory.call.refusal import ParameterError
from theory.positional_semantic import Parameters, prox, solve
from theory.positional_semantic import general as g

A_3 = ((0.6, 0.3, 0.1), (0.2, 0.6, 0.2), (0.1, 0.3, 0.6))


def test_two_tokens_are_the_headline_system():
    """Sobol sums with the general equations against the split quadrature: 1 %, the
    error of 1024 points.
    """
    p = Parameters(alpha=2.0, prox="local", order=12)
    system = g.headline(p, 1024)
    found = g.solve(
        system, g.starting_order(system, 0.46, 0.62, np.zeros(2), 50.0), tolerance=1e-5
    )
    exact = solve(p, "semantic")
    assert found.order.q[:, 0, 0, 0] == pytest.approx([exact.state.q] * 2, rel=0.01)
    assert found.order.theta[:, 0, 0, 0] == pytest.approx(
        [exact.state.theta] * 2, rel=0.01
    )
    assert found.train_loss == pytest.approx(exact.train_loss, rel=0.01)
    assert found.test_full / 2 == pytest.approx(exact.test_mse_half, rel=0.01)


def test_atoms_of_the_law_are_averaged():
    """Eqs. (5)-(6): with two pairs of spectrum and encoding every order parameter is
    the mean over those of either alone, at the same conjugates.
    """
    gamma, weight = np.array([[[0.25], [0.16]], [[0.5], [0.2]]]), np.array([0.3, 0.7])
    pi = np.array([[[1.0], [-1.0]], [[-0.5], [2.0]]])
    one = g.headline(Parameters(alpha=1.0), 2)
    both = replace(one, gamma=gamma, pi=pi, weight=weight)
    assert both.spectra() == pytest.approx(
        np.einsum("k,klc->lc", weight, gamma), rel=1e-14
    )
    hats = g.starting_order(one, 2.0, 0.5, np.array([0.3, -0.4]), 0.2)._asdict()

    def parameters(system):
        order, norm, overlap = g.input_channel(system, hats)
        return np.concatenate([np.ravel(v) for v in [*order, norm, overlap]])

    alone = [parameters(replace(one, gamma=gamma[[k]], pi=pi[[k]])) for k in range(2)]
    assert parameters(both) == pytest.approx(weight @ alone, rel=1e-12)
    assert np.abs(alone[0] / alone[1] - 1).min() > 0.02  # they do differ


@pytest.mark.parametrize("V", [2.0, 50.0, 500.0])
def test_proximal_points_settle_like_newton(monkeypatch, V):
    """Quadratically at last: 15 steps are enough over two decades of V; halving the
    distance 37 times would be needed otherwise.
    """
    monkeypatch.setattr(prox, "NEWTON", 20)
    system = g.headline(Parameters(alpha=2.0, prox="local"), 256)
    g.output_channel(system, g.starting_order(system, 0.46, 0.62, np.zeros(2), V))


def test_proximal_points_are_minima_from_where_the_objective_bends_down():
    """Newton's step with a Hessian that is not positive would end on saddles."""
    system, random, V = (
        g.headline(Parameters(alpha=1.0), 2),
        np.random.default_rng(0),
        50.0,
    )
    w, start, h = (x * random.normal(size=(200, 2, 1)) for x in (1, 2, 1))
    Y, trace = system.target(h), np.ravel(system.spectra())

    def objective(z):
        value, _, bent = system.loss(z.reshape(200, 2), Y, trace)
        return (
            value + ((z - w) ** 2).sum((1, 2)) / (2 * V),
            np.linalg.eigvalsh(bent)[:, 0] + 1 / V,
        )

    before, lowest = objective(start)
    assert (lowest < 0).sum() > 50
    z, value = prox.proximal(system.loss, w, Y, np.full((2, 1, 1), V), trace, start)
    after, lowest = objective(z)
    assert (lowest > 0).all() and (after <= before).all()
    np.testing.assert_allclose(value, after, rtol=1e-12)  # rounding


@pytest.mark.slow
def test_positional_branch_of_the_headline_system():
    """With m_1 = -m_2 and theta = 0, which mirror images keep exactly: 1.5 %, the error
    of 2048 points.
    """
    p = Parameters(alpha=1.0, prox="local")
    system = g.headline(p, 2048)
    start = g.starting_order(system, 0.17, 0.0, np.array([0.25, -0.25]), 62.0)
    found, exact = (
        g.solve(system, start, damping=0.8, tolerance=1e-5),
        solve(p, "positional"),
    )
    assert found.order.m[:, 0, 0] == pytest.approx(
        [exact.state.m, -exact.state.m], rel=0.015
    )
    assert found.order.q[:, 0, 0, 0] == pytest.approx([exact.state.q] * 2, rel=0.015)
    assert np.abs(found.order.theta).max() < 1e-12
    assert (found.train_loss, found.test_full / 2) == pytest.approx(
        (exact.train_loss, exact.test_mse_half), rel=0.015
    )


def mixture(system, labels, pi):
    """The same system with every token in one of two
    clusters of the same covariance.
    """
    return replace(
        system,
        gamma=np.repeat(system.gamma, 2, 2),
        pi=pi,
        labels=labels,
        teacher_mean=np.zeros((2, 2, 1)),
    )


def test_equal_clusters_are_one():
    """Clusters that do not differ: hats split by their probabilities, everything else
    as without clusters.
    """
    system = g.headline(Parameters(alpha=1.0), 128)
    both = mixture(
        system, np.array([[0.4, 0.1], [0.2, 0.3]]), np.repeat(system.pi, 2, 2)
    )
    one = g.starting_order(system, 0.18, 0.05, np.array([0.25, -0.25]), 60.0)
    two = g.starting_order(both, 0.18, 0.05, np.array([0.25, -0.25]), 60.0)
    hats, *numbers = g.output_channel(system, one)
    split, *same = g.output_channel(both, two)
    assert same == pytest.approx(numbers, rel=1e-12)
    share = np.array([[0.5, 0.5], [0.6, 0.4]])
    for name, value in hats.items():
        assert split[name].sum(1) == pytest.approx(value[:, 0], rel=1e-10, abs=1e-14)
        assert split[name][:, 0].ravel() == pytest.approx(
            (share[:, [0]] * value[:, 0].reshape(2, -1)).ravel(), rel=1e-10, abs=1e-14
        )
    a, b = g.input_channel(system, hats), g.input_channel(both, split)
    assert b[1] == pytest.approx(a[1], rel=1e-10) and b[0].q[:, 1] == pytest.approx(
        a[0].q[:, 0], rel=1e-10
    )


def test_certain_labels_pick_their_cluster():
    """With all probability on one pair of labels the other clusters are never seen."""
    system = g.headline(Parameters(alpha=1.0), 128)
    pi = np.repeat(system.pi, 2, 2)
    pi[..., 1] += 0.7
    sure = mixture(system, np.array([[0.0, 0.0], [0.0, 1.0]]), pi)
    x = g.starting_order(sure, 0.18, 0.0, np.array([0.25, -0.25]), 60.0)
    hats, *_ = g.output_channel(sure, x)
    assert not hats["q"][:, 0].any() and hats["q"][:, 1].all()


def test_labels_of_two_tokens_are_drawn_together():
    """Both tokens in the first cluster or both in the second, half and half: every
    number is the mean of those of the two certain pairs, and not that of labels drawn
    one by one.
    """
    system = g.headline(Parameters(alpha=1.0), 128)
    pi = np.repeat(system.pi, 2, 2)
    pi[..., 1] += 0.7
    gamma = np.concatenate(
        [np.array([[[0.25], [0.25]]]), np.array([[[0.36], [0.16]]])], 2
    )

    def found(labels):
        made = replace(mixture(system, np.array(labels), pi), gamma=gamma)
        x = g.starting_order(made, 0.18, 0.05, np.array([0.25, -0.25]), 60.0)
        hats, *numbers = g.output_channel(made, x)
        return hats, np.array(numbers)

    (first, one), (second, other) = found([[1.0, 0], [0, 0]]), found([[0, 0], [0, 1.0]])
    together, numbers = found([[0.5, 0], [0, 0.5]])
    _, apart = found([[0.25, 0.25], [0.25, 0.25]])
    assert numbers == pytest.approx((one + other) / 2, rel=1e-12)
    assert np.abs(apart / numbers - 1).max() > 0.01
    for name, value in together.items():
        assert value == pytest.approx(
            (first[name] + second[name]) / 2, rel=1e-10, abs=1e-14
        )


def test_each_cluster_has_its_own_variance_and_mean():
    """Clusters that differ in both, certain labels, one per token: as a system whose
    tokens have these variances and means.
    """
    narrow, wide = np.array([[[0.25], [0.25]]]), np.array([[[0.36], [0.16]]])
    first, second = np.array([[[1.0], [-1.0]]]), np.array([[[0.6], [-1.4]]])
    system = replace(g.headline(Parameters(alpha=1.0), 128), gamma=narrow, pi=first)
    labels = np.zeros((2, 2))
    labels[0, 1] = 1.0  # the first token in the first cluster, the second in the second
    sure = replace(
        mixture(system, labels, np.concatenate([first, second], 2)),
        gamma=np.concatenate([narrow, wide], 2),
    )
    pick = lambda a, b: np.stack([a[:, 0], b[:, 1]], 1)
    alone = replace(system, gamma=pick(narrow, wide), pi=pick(first, second))
    x, y = (
        g.starting_order(q, 0.18, 0.05, np.array([0.25, -0.25]), 60.0)
        for q in (sure, alone)
    )
    (hats, *numbers), (expected, *same) = (
        g.output_channel(sure, x),
        g.output_channel(alone, y),
    )
    assert numbers == pytest.approx(same, rel=1e-12)
    for name, value in expected.items():
        assert not hats[name][0, 1].any() and not hats[name][1, 0].any()
        found = np.stack([hats[name][0, 0], hats[name][1, 1]])
        assert found == pytest.approx(value[:, 0], rel=1e-10, abs=1e-14)
    (order, *_), (wanted, *_) = (
        g.input_channel(sure, hats),
        g.input_channel(alone, expected),
    )
    for name in ("q", "m", "V", "theta"):
        full = getattr(order, name)
        assert np.stack([full[0, 0], full[1, 1]]) == pytest.approx(
            getattr(wanted, name)[:, 0], rel=1e-10
        )
        assert full[1, 1] != pytest.approx(
            full[1, 0], rel=0.05
        )  # the clusters do differ


def test_untied_keys_equal_to_queries_attend_like_tied_ones():
    """softmax(h_Q h_K^T) at h_K = h_Q is the tied attention."""
    tied, untied = (
        replace(g.headline(Parameters(alpha=1.0), 64), rank=r, untied=r == 2)
        for r in (1, 2)
    )
    rng = np.random.default_rng(0)
    h, Y = (
        rng.standard_normal((20, 2, 1)),
        scipy.special.softmax(rng.standard_normal((20, 2, 2)), -1),
    )
    rho = np.full(2, 0.25)
    a = tied.loss(h.reshape(20, -1), Y, rho)
    b = untied.loss(np.repeat(h, 2, 2).reshape(20, -1), Y, rho)
    assert b[0] == pytest.approx(a[0], rel=1e-12)
    # By the chain rule the tied gradient is the sum of those in queries and keys.
    assert b[1].reshape(20, 2, 2).sum(2).ravel() == pytest.approx(
        a[1].ravel(), rel=1e-9, abs=1e-12
    )


def test_untied_attention_is_of_queries_on_keys():
    """Columns (h_Q, h_K) that differ: the loss is that of softmax(h_Q h_K^T), not of
    its transposed scores.
    """
    untied = replace(g.headline(Parameters(alpha=1.0), 64), rank=2, untied=True)
    rng = np.random.default_rng(1)
    h, Y = (
        rng.standard_normal((20, 2, 2)),
        scipy.special.softmax(rng.standard_normal((20, 2, 2)), -1),
    )
    rho = np.array([0.3, 0.2])
    value, *_ = untied.loss(h.reshape(20, -1), Y, rho)
    queries, keys = h[..., :1], h[..., 1:]

    def written_out(a, b):
        return (
            (Y - scipy.special.softmax(a @ b.transpose(0, 2, 1), -1)) ** 2 * rho
        ).sum((1, 2)) / 2

    assert value == pytest.approx(written_out(queries, keys), rel=1e-12)
    assert np.abs(value / written_out(keys, queries) - 1).mean() > 0.05


@pytest.mark.slow
def test_three_tokens():
    """L = 3 with its own variances: norm, overlap and loss of the empirical minimum at
    d = 800 (two seeds, 1.5 %).
    """
    gamma = np.array([0.5, 0.6, 0.4])[None, :, None] ** 2
    system = g.System(
        3.0,
        0.02,
        gamma,
        np.zeros((1, 3, 1)),
        np.ones(1),
        g.dot_product_target(0.2, A_3),
        points=512,
    )
    found = g.solve(
        system, g.starting_order(system, 0.75, 0.8, np.zeros(3), 30.0), tolerance=1e-4
    )
    assert found.norm == pytest.approx(0.7165, rel=0.015)
    assert found.overlap[0, 0] == pytest.approx(0.8354, rel=0.015)
    assert found.train_loss == pytest.approx(0.012496, rel=0.015)


@pytest.mark.parametrize(
    "change", [{"points": 100}, {"untied": True}, {"pi": np.zeros((1, 3, 1))}]
)
def test_what_does_not_fit_is_refused(change):
    """One line naming the field."""
    with pytest.raises(ParameterError):
        replace(g.headline(Parameters(alpha=1.0)), **change)
