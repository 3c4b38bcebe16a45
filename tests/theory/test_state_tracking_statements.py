"""Statements of Forner et al. beside their equations: steps to derivatives, rollouts
below steps, no perfect probabilities.
"""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp
from later import Later

from theory import state_tracking as st
from theory.state_tracking import rollout
from theory.state_tracking.model.symbols import L, N, accuracy

EQ = Later(st.equations)


def test_difference_quotients_converge_uniformly():
    """Sec. 4.3: steps of the closed updates against the flow; the largest gap on [0,
    6], of states and of difference quotients, halves with the step.
    """
    p = st.Parameters.demo()
    flow = st.flow()
    state = list(flow.state)
    v = p.values()
    numbers = {
        s: v[s.name]
        for q in flow.expanded.values()
        for s in q.free_symbols
        if s not in state
    }
    rates = sp.lambdify(state, [q.subs(numbers) for q in flow.expanded.values()])
    gaps = []
    for step in (1 / 128, 1 / 256, 1 / 512):  # the last is half of 1/(d_g N)
        at = np.arange(0, 6 + step / 2, step)
        x, path = np.array([1 / p.L, 0.0, 0.0]), []
        for _ in at:
            path.append(x)
            x = x + step * np.array(rates(*x), float)
        exact = flow.solve(p, alpha=6.0, at=at)
        path = np.array(path)
        solved = np.stack([exact[q.name].values for q in state], 1)
        slopes = np.array([rates(*y) for y in solved], float)
        quotients = np.diff(path, axis=0) / step
        gaps.append(
            [np.abs(path - solved).max(), np.abs(quotients - slopes[:-1]).max()]
        )
    first, second = (np.divide(*gaps[k : k + 2]) for k in (0, 1))
    # The next order in the step is what is left.
    np.testing.assert_allclose(first, 2, atol=0.1)
    np.testing.assert_allclose(second, 2, atol=0.05)
    assert gaps[1][0] < 0.01


def test_rollouts_grow_slower_than_steps():
    """App. I: (87) less 1/N is (N-1)/N r^L, the accuracy less 1/N is (N-1)/N r, with
    one r between 0 and 1.
    """
    r = sp.Symbol("r", positive=True)
    of_r = {accuracy: (1 + (N - 1) * r) / N}
    above = sp.simplify((EQ["rollout_mean"].rhs - 1 / N).subs(of_r))
    assert sp.simplify(above - (N - 1) / N * r**L) == 0
    assert sp.simplify((accuracy - 1 / N).subs(of_r) - (N - 1) / N * r) == 0
    # At guessing rho has slope 0 where the accuracy has slope 1.
    slope = sp.diff(EQ["rollout_mean"].rhs, accuracy).subs(L, 10)
    assert sp.simplify(slope.subs(accuracy, 1 / N)) == 0


def test_gaussian_logits_are_never_perfect():
    """App. I: the integral (91) stays below 1 for any margin in standard deviations,
    and tends to
    1.
    """
    integrand = EQ["accuracy"].rhs.function.replace(
        rollout.BELOW, lambda x: (1 + sp.erf(x / sp.sqrt(2))) / 2
    )
    margin_of = sp.lambdify(
        (rollout.u, rollout.mu_k),
        integrand.subs(
            {rollout.mu_kbar: 0, rollout.sigma_k: 1, rollout.sigma_kbar: 1, N: 16}
        ),
        "scipy",
    )
    points = np.linspace(-12, 12, 4001)
    missing = []
    for margin in (2.0, 4.0, 6.0):
        found = float(np.trapezoid(margin_of(points, margin), points))
        missing.append(1 - found)
        assert st.gaussian_accuracy(margin, 1.0, 1.0, 16) == pytest.approx(
            found, abs=1e-12
        )  # both beyond rounding of the sum
        # Union bound over the 15 others, each wrong with probability Phi(-margin/sqrt
        # 2).
        assert 0 < missing[-1] < 15 * float(sp.erfc(margin / 2).evalf()) / 2
    assert missing[0] > 5 * missing[1] > 25 * missing[2]
