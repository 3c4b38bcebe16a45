"""Induction heads on a burst: T(N, B) against a flow typed here, and what it says of
the length.

Could see: a wrong rate, balance or delay (each moves the time), and a law that bends
the wrong way in B.
"""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from theory.call.refusal import ParameterError
from theory.induction_heads import bursty
from theory.models.registry import find


def rates(N, B):
    """Equations of motion of alpha, beta, gamma from the loss by hand."""
    k = np.arange(B)
    rows = 2 * (N - B + k)
    item = k / rows

    def moved(_, y):
        alpha, beta, gamma = y
        own = np.exp(alpha)
        label, slope = (own + k) / (own + rows), own * (rows - k) / (own + rows) ** 2
        right, wrong = np.exp(beta * label), np.exp(beta * item)
        L, J = right.sum(), wrong.sum()
        Z, Q = L + J + 2 * (N - B), L**2 + J**2 + 2 * (N - B)
        common = 2 * gamma * L / Z**2 - 2 * gamma**2 * Q / Z**3
        of_L = common - 2 * gamma / Z + 2 * gamma**2 * L / Z**2
        of_J = common + 2 * gamma**2 * J / Z**2
        return [
            -of_L * (right * beta * slope).sum(),
            -of_L * (right * label).sum() - of_J * (wrong * item).sum(),
            2 * L / Z - 2 * gamma * Q / Z**2,
        ]

    return moved


@pytest.mark.parametrize(
    "sizes", [(16, 1), (16, 2), (64, 1), (32, 4), (64, 4), (256, 8), (512, 16)]
)
def test_time(sizes):
    """Within 2% of the flow typed above."""
    N, B = sizes
    p = bursty.Parameters(N=N, B=B)
    half = lambda t, y: y[0] - 0.5
    half.terminal = True
    run = solve_ivp(
        rates(N, B),
        (0, 9 * N**2),
        [0, 0, 0],
        events=half,
        method="LSODA",
        rtol=1e-8,
        atol=1e-10,
    )
    assert bursty.emergence_time(p) == pytest.approx(run.t_events[0][0], rel=0.02)


def test_effective_length():
    """N itself for a single right pair, up to 1/(4N); falling as B^(-5/4) between 1 and
    sqrt(N).
    """
    p = bursty.Parameters()
    single = bursty.effective_length(p, N=[100, 1000], B=1)
    assert np.divide(single, [100, 1000]) - 1 == pytest.approx(
        [1 / 400, 1 / 4000], rel=0.01
    )
    burst = bursty.effective_length(p, N=10**6, B=[1, 2, 4, 8])
    assert (burst[:-1] / burst[1:] > 2).all()
    far = bursty.effective_length(p, N=10**12, B=[1000, 2000])
    assert np.log2(far[0] / far[1]) == pytest.approx(1.25, abs=0.001)


def test_balance_and_rate_to_first_order():
    """At N = 10^6 the equations of motion are the expansion's, up to B/N."""
    N, B, alpha = 10**6, 7, 0.3
    e, given = bursty.equations(), {"N": N, "B": B, "alpha": alpha}
    beta = float(np.sqrt(e["burst_beta_of_alpha"].evaluate(given)))
    best = float(e["burst_gamma_star"].evaluate(given))
    moved = rates(N, B)(0, (alpha, beta, best))
    told = float(e["burst_alpha_rate"].evaluate(given | {"beta": beta}))
    assert moved[0] == pytest.approx(told, rel=1e-4)
    step = 1e-6
    above = np.sqrt(e["burst_beta_of_alpha"].evaluate(given | {"alpha": alpha + step}))
    assert (float(above) - beta) / step == pytest.approx(moved[1] / moved[0], rel=1e-3)


@pytest.mark.parametrize(("sizes", "field"), [((8, 1), "N"), ((32, 5), "B")])
def test_refused(sizes, field):
    """Where the expansion is off by more than 2%; the onset leaves the numbers out."""
    p = bursty.Parameters(N=sizes[0], B=sizes[1])
    with pytest.raises(ParameterError, match=f"^{field} = "):
        bursty.emergence_time(p)


def test_its_onset_is_its_own():
    """A system beside its family has no part of the family's modules."""
    assert find("induction_heads.bursty").wing("theory", "onset") is bursty
    assert bursty.onset(bursty.Parameters()).numbers["T_alpha"] == pytest.approx(
        141.166, rel=1e-4
    )
