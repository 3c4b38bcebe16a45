"""All weights where the right pair is recent: the last pair as a special case, the
drive of alpha_3, the exact mean against the network, refusals.

Could see: S of another row, a drive that is not the square of gamma_4, a mean over
other places.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import digamma

from simulate.induction_heads import student as pairs
from simulate.induction_heads.student import NAMES, Nineteen, squared_error
from theory.call.refusal import ParameterError
from theory.induction_heads import Parameters
from theory.induction_heads.all_weights import descent, law, recent
from theory.induction_heads.all_weights.plateau import FIVE


def test_a_window_of_one_pair_is_the_last_one():
    """Its mean over places, S = 0 by digammas, against the loss of that place without
    S.
    """
    told = recent.predicted(64, 1 / 64, rtol=1e-6)
    assert told == pytest.approx(law.predicted(64, rtol=1e-6), rel=1e-5)


@pytest.mark.parametrize("w", [0.1, 0.5])
def test_rest_and_drive(w):
    """At many pairs and beta_2 = 0 the gammas rest where the equations say, and drive
    alpha_3 by the square of gamma_4, as against the last pair.
    """
    e, N = recent.equations(), 10**5
    S, gamma_4 = (
        float(e[n].evaluate({"window": w})) for n in ("recent_S", "recent_gamma_4")
    )
    at = recent.places(N, w)
    seen = digamma(N) - digamma(at)
    assert seen.mean() == pytest.approx(S, abs=10 / N)
    index = [NAMES.index(n) for n in FIVE]

    def slopes(state, places, seen):
        theta = np.zeros(len(NAMES))
        theta[index] = state
        return recent.compiled()(theta, N, places, seen)[1][index]

    output = (1 - gamma_4) / 2  # Gamma + gamma_4 = 1
    mean = slopes([0.3, 0.0, output, output, gamma_4], at, seen)
    assert mean[2:] == pytest.approx([0, 0, 0], abs=20 * np.log(N) / N**2)
    single = slopes([0.3, 0.0, 1.0, 1.0, -1.0], np.array([float(N)]), np.zeros(1))
    assert mean[0] / single[0] == pytest.approx(gamma_4**2, rel=1e-12)
    known = {"window": w, "N": N}
    ratio = e["T_alpha_all_recent"].evaluate(known) * gamma_4**2 * np.log(N) / N**2
    assert float(ratio) == pytest.approx(4 * (1 - np.exp(-0.5)))


def test_the_mean_over_places_is_the_networks():
    """Loss and gradient of nineteen numbers by autograd,
    queries at the last quarter.
    """
    N, theta = 16, 0.3 * np.random.default_rng(5).standard_normal(19)
    p = Parameters(N=N, data="orthonormal", query="last")
    one = pairs.orthonormal(p, 1, torch.Generator().manual_seed(1), torch.float64)
    asked = recent.places(N, 0.25).astype(int)
    items, labels, codes = (x.expand(len(asked), -1, -1) for x in one)
    batch = pairs.batch_of(items, labels, codes, torch.tensor(asked - 1))
    student = Nineteen(p.dimension, p.mask, torch.float64)
    student.theta.data = torch.tensor(theta)
    loss = squared_error(student(batch.X), batch.y, "sum")
    loss.backward()
    each = [descent.loss_of(N, int(k), p.mask)(theta) for k in asked]
    assert float(loss.detach()) == pytest.approx(
        np.mean([x for x, _ in each]), rel=1e-12
    )
    slopes = np.mean([x for _, x in each], 0)
    moved = [n in descent.moving(p.mask) for n in NAMES]
    np.testing.assert_allclose(
        student.theta.grad.numpy()[moved], slopes[moved], atol=1e-12
    )


@pytest.mark.parametrize(
    ("size", "window"), [(64, 0.6), (64, 0.0), (16, 0.01), (8, 0.5)]
)
def test_refusals(size, window):
    """Wide windows, windows without a pair, few pairs: in one line."""
    for of in (recent.predicted, recent.exact):
        with pytest.raises(ParameterError, match="^(size|window)") as said:
            of(size, window)
        assert "\n" not in str(said.value)
