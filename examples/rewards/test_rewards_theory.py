"""Rewards: clocks, gains and times against their definitions, computed another way;
students that come with the code.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from rewards import along, clocks, gradients, laws, orbit, theory, times
from rewards.clocks import J, N, horizon, x
from rewards.theory import Parameters
from scipy.optimize import brentq

from theory import ParameterError
from theory import state_tracking as labelled
from verify.checks.check import failed
from verify.checks.report import Report

P = Parameters()
TABLE = theory.equations()
DERIVED = (
    "success",
    "excess",
    "expected_reward",
    "rewards_clock",
    "rewards_clock_step",
    "divergence",
    "penalty_clock",
    "penalty_balance",
    "baseline_gain",
    "normalised_gain",
    "scatter_gain",
    "dA_dalpha",
    "dR_dalpha",
    "dS_dalpha",
)


def test_derivations_hold():
    """All rows against autograd."""
    assert not failed(gradients.checks(TABLE))


@pytest.mark.slow
@pytest.mark.parametrize("name", DERIVED)
def test_a_fault_in_an_equation_is_caught(name):
    """By a row that cites it."""
    faulty = TABLE | {name: replace(TABLE[name], rhs=1.05 * TABLE[name].rhs)}
    rows = [c for c in gradients.checks(faulty) if c.equation == name]
    assert rows and failed(rows)


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_expected_reward_of_every_path(steps):
    """Sum over all paths of sampled states, each right with s and else anywhere."""
    size, right = 4, 0.55
    wrong = (1 - right) / (size - 1)
    total = 0.0
    for path in itertools.product(range(size), repeat=steps):
        if path[-1] != 0:  # states less the true ones
            continue
        moves = np.diff([0, *path]) % size
        total += np.prod(np.where(moves == 0, right, wrong))
    numbers = {x: (size * right - 1) / (size - 1), N: size, horizon: steps}
    found = clocks.expected_reward().subs(numbers)
    assert float(found) == pytest.approx(total, abs=1e-14)


@pytest.mark.slow
def test_gains_of_groups():
    """2.57 and not 7.14 at G = 8, J = 0.02; a large group is as an infinite one."""
    assert float(clocks.gain(8, True).subs(J, 0.02)) == pytest.approx(2.573, abs=1e-3)
    limit = clocks.normalised_gain_limit()
    assert float(limit.subs(J, 0.02)) == pytest.approx(7.143, abs=1e-3)
    large = float(clocks.gain(256, True).subs(J, 0.3))
    assert large == pytest.approx(float(limit.subs(J, 0.3)), rel=5e-3)
    assert clocks.gain(257, True) == limit


@pytest.mark.slow
def test_flow_moves_on_the_supervised_orbit():
    """The flow under rewards, integrated, against the exact solution at another
    time.
    """
    numbers = P.labels.values()
    begun = orbit.time_of(numbers, P.pretrain)
    length = theory.rewards_time(P, 0.7) - begun
    end = theory.flow().solve(P, alpha=length, at=[length])
    assert end.success.item() == pytest.approx(0.7, abs=1e-6)
    there = orbit.states(numbers, orbit.time_of(numbers, 0.7))
    for name in "ARS":
        assert end[name].item() == pytest.approx(there[name][0], abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{"reward": "step", "pretrain": 0.0}, {"kl": 0.1, "horizon": 2}], ids=str
)
def test_flow_and_curve_agree(changes):
    """Integration and quadrature."""
    p = P.replace(**changes)
    flow = theory.flow() if p.reward == "outcome" else theory.flows()[STEP]
    curve = theory.curve(p, 0.6)
    after = curve.alpha.values - orbit.time_of(p.labels.values(), p.pretrain)
    part = after > 0
    path = flow.solve(p, alpha=float(after[-1]), at=after[part])
    assert part.sum() > 50
    assert path.success.values == pytest.approx(curve.success.values[part], abs=1e-6)


STEP = "state_tracking, reward: step"


@pytest.mark.slow
@pytest.mark.parametrize("steps", [2, 3, 5])
def test_time_diverges_where_rewards_start_from_guesses(steps):
    """Quadrature against the law for small x: a power, a logarithm for two steps."""
    p = P.replace(L=steps)
    speed = TABLE["rewards_speed"].number(p.values() | {"A": 1 / p.L})
    law = TABLE["rewards_wait_2" if steps == 2 else "rewards_wait"]

    def both(x_0):
        late = p.replace(pretrain=(1 + 7 * x_0) / 8)
        numbers = p.values() | {"speed": speed, "excess_0": x_0}
        return theory.rewards_time(late, 0.5), law.number(numbers)

    (far, far_law), (near, near_law) = both(1e-3), both(1e-4)
    assert near - far == pytest.approx(near_law - far_law, rel=0.02)
    assert theory.rewards_time(p.replace(pretrain=0.0), 0.5) == np.inf


@pytest.mark.slow
def test_curriculum_of_horizons():
    """One step more pays above `next_horizon`, against the clocks of all lengths."""
    p = P.replace(L=9)
    edges = [float(times.next_horizon().subs(horizon, n)) for n in range(1, p.L)]
    for value in np.linspace(0.15, 0.95, 9):
        excess = (p.N * value - 1) / (p.N - 1)
        best = 1 + sum(excess > edge for edge in edges)
        lengths = range(1, p.L + 1)
        paces = [float(along.clock(p.replace(horizon=n))(value)) for n in lengths]
        assert best == 1 + int(np.argmax(paces))


@pytest.mark.slow
def test_where_rewards_are_as_fast_as_labels():
    """For many states and rollouts: L^(-1/L)."""
    p = P.replace(N=1000, L=10, rollouts=10**6, d_h=16)
    large = float(times.rewards_even().subs(horizon, p.L))
    assert large == pytest.approx(0.794, abs=1e-3)
    assert theory.best_switch(p) == pytest.approx(large, abs=2e-3)


@pytest.mark.slow
def test_onset_answers():
    """Orders of times; what guesses and one step give."""
    found = theory.onset(P).numbers
    early, late = found["alpha_half_best"], found["alpha_half"]
    assert early < found["alpha_half_supervised"] < late
    fewer = theory.onset(P.replace(rollouts=P.n_train // 2)).numbers
    assert fewer["success_even_rollout"] < fewer["success_even"]
    one = theory.onset(P.replace(horizon=1)).numbers
    assert np.isnan(one["success_even"])  # s (1 - 1/G) is slower at every s
    assert one["alpha_half_best"] == one["alpha_half_supervised"]
    scratch = theory.onset(P.replace(pretrain=0.0))
    assert scratch.numbers["alpha_half"] == np.inf
    assert "no student learns" in scratch.notes[0]
    assert theory.emergence_times(P).alpha_half == late


@pytest.mark.slow
def test_curves_of_the_onset():
    """At the same R the same A; before rewards take over the same curve."""
    drawn = theory.onset(P).curves()
    plain, rewarded = drawn["labels"], drawn["labels, then rewards"]
    by_R = np.interp(rewarded.R, plain.R, plain.A)
    reached = rewarded.R.values <= float(plain.R[-1])
    linear = 2e-3  # interpolation
    assert np.abs(by_R - rewarded.A.values)[reached].max() < linear
    p = Parameters(L=5, reward="step", pretrain=0.99)
    drawn = theory.onset(p, until=5.0).curves()
    plain, rewarded = drawn["labels"], drawn["labels, then rewards"]
    assert rewarded.alpha[-1] <= 5 < theory.rewards_time(p, 0.9)
    for name in ("A", "success"):
        expected = np.interp(rewarded.alpha, plain.alpha, plain[name])
        np.testing.assert_allclose(rewarded[name], expected, atol=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(group=7), "rollouts = 2048: must be a multiple of group = 7"),
        (dict(horizon=4), "horizon = 4: must be <= L = 3"),
        (dict(normalised=True, reward="step"), "normalised = True: must be False for"),
        (dict(pretrain=1.0), "pretrain = 1.0: must be"),
        (dict(d_h=3), "d_h = 3: must be"),
    ],
    ids=str,
)
def test_wrong_rewards_are_refused(changes, message):
    """In one line."""
    with pytest.raises(ParameterError, match=message) as caught:
        P.replace(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_what_a_theory_does_not_describe_is_refused():
    """Theories of labels refuse rewards, the flow other rewards, all refuse large
    steps.
    """
    for ask in (
        lambda: labelled.emergence_times(P),
        lambda: labelled.flow().solve(P, alpha=1),
        lambda: labelled.predict(P, seeds=1, alpha=1),
        lambda: theory.rewards_time(P.labels, 0.5),
        lambda: theory.rewards_time(P.replace(eta=50.0), 0.5),
        lambda: theory.flow().solve(P.replace(reward="step"), alpha=1),
        lambda: theory.flow().solve(P.replace(group=8, normalised=True), alpha=1),
        lambda: theory.best_switch(P.replace(kl=0.1)),
        lambda: clocks.clock_of("sum"),
    ):
        with pytest.raises(ParameterError) as caught:
            ask()
        assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_where_a_penalty_stops_students():
    """The clock is 0 there and positive below; it jumps at the critical weight, where
    the slope of the balance is 0; begun higher, it falls continuously.
    """
    critical, missing = theory.critical_penalty(P), 1 - 1 / P.rollouts
    assert critical == pytest.approx(0.2132, abs=1e-4)
    low, high = (theory.reward_stall(P, kl=critical * f) for f in (1.001, 0.999))
    assert low < 0.5 < 0.9 < high
    for part in (0.5, 0.999, 1.001, 3.0):
        p = P.replace(kl=critical * part)
        stop, pace = theory.reward_stall(p), along.clock(p)
        assert abs(pace(stop)) < 1e-12
        assert (pace(np.linspace(p.pretrain, stop, 50)[:-1]) > 0).all()
        weight = TABLE["penalty_balance"].number(p.values() | {"success": stop})
        assert weight * missing == pytest.approx(p.kl, rel=1e-9)
        assert np.isfinite(theory.rewards_time(p, (p.pretrain + stop) / 2))
        assert theory.rewards_time(p, (1 + stop) / 2) == np.inf

    def opening(value):
        return TABLE["penalty_opening"].number(P.values() | {"success": value})

    jump = brentq(opening, low, 0.6)
    weight = TABLE["penalty_balance"].number(P.values() | {"success": jump})
    # A minimum: an error of 1e-8 of its place is one of rounding of its value.
    assert critical == pytest.approx(weight * missing, rel=1e-12)
    assert np.isnan(theory.critical_penalty(P, pretrain=0.4))
    assert theory.reward_stall(P) == 1
    stalled = theory.onset(P.replace(kl=0.25))
    assert stalled.numbers["alpha_half"] == np.inf
    assert stalled.notes == ["the penalty kl = 0.25 stops students before success_half"]


@pytest.mark.slow
def test_penalty_from_guesses_on():
    """Two steps, from scratch: the weight that stops students rises from its value at
    guessing, so that above it they stay there.
    """
    p = Parameters(N=3, L=2, d_g=3, group=8, rollouts=64, normalised=True, pretrain=0.0)
    critical = theory.critical_penalty(p)
    assert theory.reward_stall(p, kl=1.0001 * critical) == 1 / p.N
    assert theory.reward_stall(p, kl=0.9999 * critical) > 0.8


@pytest.mark.slow
def test_clock_by_differences():
    """Slope of the objective over that of ln s, with baseline and penalty."""
    p, h = P.replace(kl=0.2), 1e-6

    def objective(value):
        excess = (p.N * value - 1) / (p.N - 1)
        new, old = (
            np.array([v] + [(1 - v) / (p.N - 1)] * (p.N - 1)) for v in (value, p.begun)
        )
        reward = (p.N - 1) / p.N * excess**p.L * (1 - 1 / p.rollouts)
        return reward - p.kl * p.L * (new * np.log(new / old)).sum()

    slope = 0.5 * (objective(0.5 + h) - objective(0.5 - h)) / (2 * h)
    assert along.clock(p)(0.5) == pytest.approx(slope, rel=1e-8)


# Students that come with the code


@pytest.fixture(scope="module")
def shipped():
    """All kinds."""
    return {kind: laws.shipped(kind) for kind in laws.KINDS}


@pytest.mark.slow
def test_shipped_students_hold(shipped):
    """Every kind in every window that it passes; five seeds decide some of them."""
    found = Report(laws.compare(shipped))
    assert found.exit_code == 0
    assert {c.equation for c in found.checks} >= {*laws.EQUATION.values()}
    for kind in laws.EQUATION:
        rows = [c for c in found.checks if f", {kind}" in c.name]
        decided = [c.name for c in rows if c.verdict in ("agrees", "limit")]
        assert any(name.startswith("clock") for name in decided)
        assert any(name.startswith("orbit") for name in decided)


def off(shipped, change, kind="outcome"):
    """Names of the rows that fail for changed students."""
    changed = {**shipped, kind: change(shipped[kind].copy())}
    return [c.name for c in laws.compare(changed) if not c.within]


@pytest.mark.slow
@pytest.mark.parametrize("pace", [0.8, 1.25])
def test_another_clock_is_seen(shipped, pace):
    """Rewards a fifth faster or slower, in all windows but the first, where a seed
    stands out.
    """
    failing = off(shipped, lambda runs: runs.assign_coords(alpha=runs.alpha * pace))
    assert len([n for n in failing if n.startswith("clock of rewards, outcome")]) >= 2


@pytest.mark.slow
def test_another_law_is_seen(shipped):
    """Rewards per step for the outcome."""
    wrong = P.replace(reward="step")
    rows = laws.clocks("outcome", wrong, shipped["supervised"], shipped["outcome"])
    assert rows and not any(c.within for c in rows)


@pytest.mark.slow
def test_another_orbit_is_seen(shipped):
    """Attention lower, and S higher, at the same R."""

    def moved(runs):
        runs["A"] = runs.A - 0.03 * (runs.rewarded > 0)
        runs["S"] = runs.S + 0.03 * runs.R
        return runs

    failing = off(shipped, moved)
    assert [name for name in failing if "A at equal R" in name]
    assert [name for name in failing if "S at equal R" in name]


@pytest.mark.slow
def test_learning_from_guesses_would_be_seen(shipped):
    """A tenth of what labels do."""

    def taught(runs):
        labels = shipped["supervised"].R.interp(alpha=runs.alpha)
        runs["R"] = runs.R + 0.1 * labels
        return runs

    assert off(shipped, taught, "scratch")


@pytest.mark.slow
def test_too_short_runs_give_no_row(shipped):
    """They pass no window."""
    short = {**shipped, "outcome": shipped["outcome"].isel(alpha=slice(0, 30))}
    assert not [c for c in laws.compare(short) if "outcome" in c.name]
