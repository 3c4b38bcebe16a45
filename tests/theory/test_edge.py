"""Amplitudes of keys and queries, and the sharpness of the loss in them."""

import numpy as np
import pytest

from theory.parameters import ParameterError
from theory.state_tracking import Parameters, edge, largest_rate, late_states, norms, sharpness
from theory.state_tracking.decay import widest
from theory.state_tracking.edge import sharpest

P = Parameters.demo().replace(weight_decay=0.002)


def loss(p, weights, width):
    """Mean-field loss in both amplitudes, R and S."""
    up, down, x, y = weights
    score = width / np.sqrt(p.d_h) * (up**2 - down**2) / 2
    A = 1 / (1 + (p.L - 1) * np.exp(-score))
    right = (A + (1 - A) / p.d_g) * x + (p.d_g - 1) / p.d_g * (1 - A) * y
    margin = p.N / (p.N - 1) * right
    return np.log1p((p.N - 1) * np.exp(-margin))


def test_sharpness_is_the_hessian():
    """Against second differences of the loss, with the squared lengths of the gradients of R and S
    in the entries of M, for teachers that overlap by 1/N.
    """
    p, width = P.replace(weight_decay=0.0), widest(P)
    state = np.array([5.0, 1.2, 0.5, 0.1])
    step, unit = 1e-3, np.eye(4)
    hessian = np.array(
        [
            [
                sum(
                    s * t * loss(p, state + step * (s * a + t * b), width)
                    for s in (1, -1)
                    for t in (1, -1)
                )
                / (4 * step**2)
                for b in unit
            ]
            for a in unit
        ]
    )
    n, d = p.N, p.d_g
    mixed = (n - 1) / n / (d * n)
    metric = np.diag([1.0, 1.0, mixed, mixed / (d - 1)])
    expected = np.linalg.eigvals(metric @ hessian).real.max()
    assert sharpest(p, state, width) == pytest.approx(expected, rel=1e-4)


def test_closed_form_of_the_learned_state():
    """Sharpness with R and S held, to the share that these have of the eigenvector."""
    form = edge.equations()["sharpness_learned"]
    for rate, close in ((0.002, 1e-3), (0.005, 0.01), (0.008, 0.04)):
        p = P.replace(weight_decay=rate)
        ends = late_states(p).sel(state="learned")
        A, R, S = (float(ends[x]) for x in "ARS")
        g = rate * p.d_g * p.N * (R - S) / A
        found = form.evaluate(p.values() | {"A": A, "R": R, "S": S, "g": g})
        assert 2 / float(largest_rate(p)) == pytest.approx(found, rel=close)


def test_amplitudes_are_the_flow_with_norms():
    """One solution in both coordinates, and a sharpest point on the way."""
    norm = norms.flow().solve(P, alpha=6)
    curve = sharpness(P, 6.0)
    for x in "ARS":
        np.testing.assert_allclose(curve[x], norm[x], rtol=1e-7, atol=1e-12)
    squares = (curve.lined_up**2 + curve.opposed**2) / 2
    np.testing.assert_allclose(squares, norm.P, rtol=1e-7)
    at = int(curve.sharpness.argmax("alpha"))
    assert 0.5 < float(curve.A[at]) < 1 and 0 < at < curve.alpha.size - 1


def test_what_is_refused():
    """No learned state has no rate; other optimisers are refused."""
    assert np.isnan(largest_rate(P.replace(weight_decay=0.02)))
    assert largest_rate(P, weight_decay=[0.002, 0.005]).shape == (2,)
    with pytest.raises(ParameterError, match="optimizer = 'adam'"):
        largest_rate(P.replace(optimizer="adam"))
    with pytest.raises(ParameterError, match="momentum"):
        sharpness(P.replace(momentum=0.9), 1.0)


def test_a_single_action_is_refused():
    """Attention on it is one from the start."""
    with pytest.raises(ParameterError, match="L = 1: must be at least 2 for the flow with norms"):
        sharpness(Parameters.demo().replace(L=1), 1.0)
