"""What students of the shipped ensembles of state tracking show, in numbers: variances, recovery,
sharpness, greedy accuracy.
"""

from __future__ import annotations

import numpy as np
import pytest

from theory import state_tracking as st
from verify.emergence import first_crossing
from verify.state_tracking import ensemble, trajectories

NAMES = ("demo", "table_1", "table_2")


@pytest.fixture(scope="module", params=NAMES)
def shipped(request):
    """Parameters and runs of one ensemble."""
    return ensemble.shipped(request.param)


def test_logit_variances_grow_as_attention_locks(shipped):
    """Caption of Fig. 3: in every seed the variances rise, several-fold; at A = 1 the formula gives
    that of one entry of M.
    """
    p, runs = shipped
    for kind in ("correct", "other"):
        rise = runs[f"variance_{kind}"].max("alpha") / runs[f"variance_{kind}"].isel(alpha=0)
        assert 4 < float(rise.min()) and float(rise.mean()) == pytest.approx(
            {8: 4.6, 10: 6.7}[p.L], rel=0.15
        )
    form = st.equations()["logit_variance"]
    entry = float(form.evaluate({**p.values(), "participation": 1.0}))
    assert entry == pytest.approx(p.initial_variance, rel=1e-14)  # rounding
    # Untrained entries would rise more: descent shrinks the largest ones.
    assert float(runs.variance_other.max()) < entry


def test_attention_is_alike_on_the_diagonal_and_uneven_off_it(shipped):
    """Fig. 5: spread over mean, in every seed: below 0.3 on the diagonal at all times, and more
    than three times that (4.4 at worst) off it once A exceeds 0.4.
    """
    p, runs = shipped
    rows = runs.attention.transpose("seed", "alpha", "step", "action").values
    diagonal = np.diagonal(rows, axis1=2, axis2=3)
    others = rows[:, :, ~np.eye(p.L, dtype=bool)]
    on, off = (x.std(-1) / x.mean(-1) for x in (diagonal, others))
    learned = runs.A.transpose("seed", "alpha").values > 0.4
    assert on.max() < 0.3 and learned.any(1).all()
    assert (off[learned] > 3 * on[learned]).all()


# What S adds after A = 0.95, over what it rose until then: mean over seeds.
LATER = {"demo": -0.24, "table_1": 0.01, "table_2": -0.11}


@pytest.mark.parametrize("name", NAMES)
def test_off_target_overlap_saturates(name):
    """Sec. 4.3: S of the flow (15) stays once attention is nearly perfect, from every seed's own
    start; students' S stays on average at Table 1, and falls at the demo's setting.
    """
    p, runs = ensemble.shipped(name)

    def stages(curves):
        A, S = (curves[x].transpose("seed", "alpha").values for x in "AS")
        seeds, locked = np.arange(len(A)), (A > 0.95).argmax(1)
        assert (A[seeds, locked] > 0.95).all()
        return S[seeds, locked] - S[:, 0], S[:, -1] - S[seeds, locked]

    rise, later = stages(trajectories.own_start(p, runs))
    assert (rise > 0).all() and (later > 0).all() and (later < 0.01 * rise).all()
    rise, later = stages(runs)
    assert (rise > 0).all()
    share, error = (x / rise.mean() for x in (later.mean(), later.std(ddof=1) / len(later) ** 0.5))
    assert error < 0.08 and abs(share - LATER[name]) < 4 * error
    assert name != "demo" or share < -4 * error


def test_recovery_matters_less_and_less(shipped):
    """Sec. 5: the part of right final states that owes itself to recovery falls from all of them to
    none.
    """
    p, runs = shipped
    chain = runs.step_accuracy.prod("step")
    through_errors = (1 - chain / runs.rollout_accuracy).mean("seed").values
    assert through_errors[0] > 0.999 and abs(through_errors[-1]) < 1e-3
    # Test sequences carry 1/sqrt(4096) of noise at rollout 1/N, a few percent of the share.
    assert np.diff(through_errors).max() < 0.05
    # Recovery itself, by (86): from 1/N to 0, decreasing.
    accuracy = np.linspace(1 / p.N, 1, 50)
    recovery = st.equations()["recovery"].evaluate({"N": p.N, "accuracy": accuracy})
    assert (
        recovery[0] == pytest.approx(1 / p.N, rel=1e-13)
        and recovery[-1] == 0
        and (np.diff(recovery) < 0).all()
    )


def test_rollouts_lag_behind_steps_in_every_seed(shipped):
    """App. I: rho_L grows slower than the accuracy of a step."""
    _, runs = shipped
    step, rollout = (
        first_crossing(runs[name], 0.5).values for name in ("accuracy", "rollout_accuracy")
    )
    assert (rollout > step + 0.1).all()  # the grid of times is 0.2 apart, and interpolated
    # Sec. 5: and rises from a quarter to three quarters in about half the time or less.
    rise = [
        first_crossing(runs[name], 0.75).values - first_crossing(runs[name], 0.25).values
        for name in ("rollout_accuracy", "accuracy")
    ]
    assert (rise[0] < 0.6 * rise[1]).all()
    gap = (runs.rollout_accuracy - runs.accuracy).values
    assert gap.max() < 4 * 0.5 / np.sqrt(ensemble.TESTED)  # sampling noise of the rollouts


def test_greedy_students_do_become_perfect(shipped):
    """App. I says that they cannot: all predictions on all test sequences are right, though the
    loss is not zero.
    """
    _, runs = shipped
    assert (runs.accuracy.isel(alpha=-1) == 1).all() and (
        runs.rollout_accuracy.isel(alpha=-1) == 1
    ).all()
    assert float(runs.loss.isel(alpha=-1).min()) > 0.1 and float(runs.A.max()) < 1
