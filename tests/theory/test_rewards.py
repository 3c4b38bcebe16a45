"""Rewards: clocks, gains and times against their definitions, computed another way."""

import itertools

import numpy as np
import pytest
from scipy.optimize import brentq

from theory import onset as command
from theory import state_tracking as st
from theory.parameters import ParameterError
from theory.state_tracking import inversion, reward_times, rewards
from theory.state_tracking import reward_onset as numbers

P = st.Parameters.rewards()
s, x, N, L, J = rewards.s, rewards.x, rewards.N, rewards.L, rewards.J
ALL = (
    rewards.equations()
    | rewards.gain_equations()
    | reward_times.equations()
    | reward_times.penalty_equations()
)


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_expected_reward_of_every_path(steps):
    """Sum over all paths of sampled states, each right with s and else anywhere alike."""
    size, value = 4, 0.55
    total = 0.0
    for path in itertools.product(
        range(size), repeat=steps
    ):  # where the student goes, less the truth
        moves = np.diff([0, *path]) % size
        total += np.prod(np.where(moves == 0, value, (1 - value) / (size - 1))) * (path[-1] == 0)
    found = rewards.expected().subs({x: (size * value - 1) / (size - 1), N: size, L: steps})
    assert float(found) == pytest.approx(total, abs=1e-14)


def test_rows_that_differ():
    """Two kinds of rows, pushed by hand."""
    low, high = 0.3, 0.7
    pushed = (low * (1 - low) + high * (1 - high)) / (2 - low - high)
    gain = ALL["scatter_gain"].evaluate({"success": 0.5, "success_variance": 0.04})
    assert float(gain) * 0.5 == pytest.approx(pushed, abs=1e-15)


@pytest.mark.parametrize("reward", rewards.REWARD)
def test_clock_is_the_ratio_of_slopes(reward):
    """Slopes of the objective and of the loss in the margin, by differences."""
    objective = {
        "outcome": lambda v: v**3 * 7 / 8 + 1 / 8,
        "step": lambda v: (1 + 7 * v) / 8,
        "true": lambda v: np.mean([v**t * 7 / 8 + 1 / 8 for t in (1, 2, 3)]),
    }[reward]
    right = lambda margin: 1 / (1 + 7 * np.exp(-margin))  # noqa: E731
    up, down = (right(1.3 + h) for h in (1e-5, -1e-5))
    ratio = objective((8 * up - 1) / 7) - objective((8 * down - 1) / 7)
    ratio /= np.log(up) - np.log(down)
    clock = rewards.full_clock(reward, None, False, 3).doit().subs({N: 8, s: right(1.3)})
    assert float(clock) == pytest.approx(ratio, rel=1e-8)


def test_gains_of_groups():
    """Mean over all outcomes of a group; 2.57 and not 7.14 at G = 8, J = 0.02."""
    value = 0.3

    def mean_product(size, normalised):
        """Mean over a group of advantage times score, the score of one rollout with a slope of 1:
        1/J if right, -1/(1-J) if wrong.
        """
        total = 0.0
        for hits in itertools.product((0, 1), repeat=size):
            hit = np.array(hits, float)
            chance = value ** hit.sum() * (1 - value) ** (size - hit.sum())
            advantage = hit - hit.mean()
            if normalised:
                advantage = advantage / (hit.std() or 1)
            total += chance * (advantage * np.where(hit == 1, 1 / value, -1 / (1 - value))).mean()
        return total

    for size, normalised in itertools.product((2, 3, 6), (False, True)):
        found = float(rewards.gain(size, normalised).subs(J, value))
        assert found == pytest.approx(mean_product(size, normalised), rel=1e-12)
    assert float(rewards.gain(8, True).subs(J, 0.02)) == pytest.approx(2.573, abs=1e-3)
    limit = rewards.normalised_limit().subs(J, 0.02)
    assert float(limit) == pytest.approx(7.143, abs=1e-3)
    assert float(rewards.gain(256, True).subs(J, 0.3)) == pytest.approx(
        float(rewards.normalised_limit().subs(J, 0.3)), rel=5e-3
    )


def test_flow_moves_on_the_supervised_orbit():
    """The flow under rewards, integrated, against the exact solution at another time."""
    begun = numbers.time_of(P, P.pretrain)
    at = {k: float(v[0]) for k, v in inversion.states(P.values(), [begun]).items()}
    moved = P.replace(A_0=at["A"], R_0=at["R"], S_0=at["S"])
    length = st.rewards_time(P, 0.7) - begun
    system = rewards.flow("outcome", P.rollouts, False, P.L)
    end = system.solve(moved, alpha=length, at=[length])
    assert end.success.item() == pytest.approx(0.7, abs=1e-6)
    there = inversion.states(P.values(), [numbers.time_of(P, 0.7)])
    for q in "ARS":
        assert end[q].item() == pytest.approx(there[q].item(), abs=1e-6)


@pytest.mark.parametrize("steps", [2, 3, 5])
def test_time_diverges_where_rewards_start_from_guesses(steps):
    """Quadrature against the law for small x: a power, a logarithm for two steps."""
    p = P.replace(L=steps)
    speed = float(ALL["rewards_speed"].evaluate(p.values() | {"A": 1 / p.L}))
    law = ALL["rewards_wait_2" if steps == 2 else "rewards_wait"]

    def both(x_0):
        exact = st.rewards_time(p.replace(pretrain=(1 + 7 * x_0) / 8), 0.5)
        return exact, float(law.evaluate(p.values() | {"speed": speed, "excess_0": x_0}))

    (far, far_law), (near, near_law) = both(1e-3), both(1e-4)
    assert near - far == pytest.approx(near_law - far_law, rel=0.02)
    assert st.rewards_time(p.replace(pretrain=0.0), 0.5) == np.inf


def test_curriculum_of_horizons():
    """The fastest horizon by the equations, against all of them."""
    from theory.state_tracking.reward_onset import fastest_horizon

    p = P.replace(L=9)
    for value in np.linspace(0.15, 0.95, 9):
        every = [float(numbers.clock(p.replace(horizon=n))(value)) for n in range(1, p.L + 1)]
        assert fastest_horizon(p, value) == 1 + int(np.argmax(every))


def test_onset_answers(capsys):
    assert command.main(["state_tracking", "--preset=rewards"]) == 0
    shown = capsys.readouterr().out
    assert "alpha_half_best" in shown and "success_even" in shown
    found = st.onset(P).numbers
    assert found["alpha_half_best"] < found["alpha_half_supervised"] < found["alpha_half"]
    fewer = st.onset(P.replace(rollouts=P.n_train // 2)).numbers
    assert fewer["success_even_rollout"] < fewer["success_even"]  # a rollout costs as much as ever
    one = st.onset(P.replace(horizon=1)).numbers
    assert np.isnan(one["success_even"])  # a clock of s(1 - 1/G) is slower at every s
    assert one["alpha_half_best"] == one["alpha_half_supervised"]
    scratch = st.onset(P.replace(pretrain=0.0))
    assert scratch.numbers["alpha_half"] == np.inf and "no student learns" in scratch.notes[0]
    curves = st.onset(P).curves()
    by_R = np.interp(curves["rewards"].R, curves["supervised"].R, curves["supervised"].A)
    kept = curves["rewards"].R.values <= float(curves["supervised"].R[-1])
    assert np.abs(by_R - curves["rewards"].A.values)[kept].max() < 2e-3  # linear interpolation


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(group=7), "rollouts = 2048: must be a multiple of group = 7"),
        (dict(horizon=4), "horizon = 4: must be <= L = 3"),
        (dict(normalised=True, reward="step"), "normalised = True: must be False for reward"),
        (dict(pretrain=1.0), "pretrain = 1.0: must be"),
    ],
)
def test_wrong_rewards_are_refused(changes, message):
    with pytest.raises(ParameterError, match=message):
        P.replace(**changes)


def test_theories_of_labels_refuse_rewards():
    for ask in (
        lambda: st.emergence_times(P),
        lambda: st.flow().solve(P, alpha=1),
        lambda: st.predict(P, seeds=1, alpha=1, level="cavity"),
        lambda: st.rewards_time(P.replace(optimizer="adam"), 0.5),
        lambda: st.rewards_time(P.replace(reward="none"), 0.5),
        lambda: rewards.flow("true"),
        lambda: rewards.full_clock("sum"),
    ):
        with pytest.raises(ParameterError, match="must be") as caught:
            ask()
        assert "\n" not in str(caught.value)


def divergence(s, s_0):
    """Of a step, from the probabilities of all next states."""
    new, old = (np.array([v] + [(1 - v) / (P.N - 1)] * (P.N - 1)) for v in (s, s_0))
    return (new * np.log(new / old)).sum()


def test_penalised_clock():
    """Slope of expected reward less the penalty for every step, over that of ln s."""
    values = {"success": 0.5, "success_0": 0.3, "penalty": 0.2, "N": P.N, "L": P.L}
    assert float(ALL["divergence"].evaluate(values)) == pytest.approx(divergence(0.5, 0.3))

    def objective(v):
        x = (P.N * v - 1) / (P.N - 1)
        return (P.N - 1) / P.N * x**P.L - 0.2 * P.L * divergence(v, 0.3)

    slope = 0.5 * (objective(0.5 + 1e-6) - objective(0.5 - 1e-6)) / 2e-6
    assert float(ALL["penalty_clock"].evaluate(values)) == pytest.approx(slope, rel=1e-8)
    held = P.replace(kl=0.2)
    missing = numbers.clock(P.replace(rollouts=2))(0.5) * 2 / P.rollouts  # of the baseline
    assert numbers.clock(held)(0.5) == pytest.approx(slope - missing, rel=1e-8)


def test_where_a_penalty_stops_students():
    """The clock is 0 there and positive below; it jumps at the critical weight, where the slope of
    the balance is 0; begun higher, it falls continuously. No way leads past it.
    """
    critical, gain = st.critical_penalty(P), 1 - 1 / P.rollouts
    low, high = (st.reward_stall(P, kl=critical * f) for f in (1.001, 0.999))
    assert low < 0.5 < 0.9 < high
    for f in (0.5, 0.999, 1.001, 3.0):
        p = P.replace(kl=critical * f)
        stop, pace = st.reward_stall(p), numbers.clock(p)
        assert abs(pace(stop)) < 1e-12
        assert (pace(np.linspace(p.pretrain, stop, 50)[:-1]) > 0).all()
        values = {"success": stop, "success_0": p.pretrain, "N": p.N, "L": p.L}
        weight = float(ALL["penalty_balance"].evaluate(values))
        assert weight * gain == pytest.approx(p.kl, rel=1e-9)
        assert np.isfinite(st.rewards_time(p, (p.pretrain + stop) / 2))
        assert st.rewards_time(p, (1 + stop) / 2) == np.inf
    at = {"success_0": P.pretrain, "N": P.N, "L": P.L}

    def opening(s):
        return float(ALL["penalty_opening"].evaluate(at | {"success": s}))

    jump = brentq(opening, low, 0.6)
    weight = float(ALL["penalty_balance"].evaluate(at | {"success": jump}))
    # a minimum: errors of 1e-8 of its place are errors of rounding of its value
    assert critical == pytest.approx(weight * gain, rel=1e-12)
    assert np.isnan(st.critical_penalty(P, pretrain=0.4))
    assert st.reward_stall(P) == 1
    stalled = st.onset(P.replace(kl=0.25))
    assert stalled.numbers["alpha_half"] == np.inf
    assert stalled.notes == ["the penalty kl = 0.25 stops students before success_half"]
    with pytest.raises(ParameterError, match=r"kl = 0.1: must be 0.0 for the best switch"):
        st.best_switch(P.replace(kl=0.1))


def test_penalty_from_guesses_on():
    """Two steps, from scratch: the weight that stops students rises from its value at guessing, so
    that above it they stay there.
    """
    p = st.Parameters(N=3, L=2, d_g=3, d_h=16, reward="outcome", group=8, rollouts=64)
    p = p.replace(normalised=True)
    critical = st.critical_penalty(p)
    assert st.reward_stall(p, kl=1.0001 * critical) == 1 / p.N
    assert st.reward_stall(p, kl=0.9999 * critical) > 0.8


def test_labels_up_to_the_end_of_the_curves():
    """Curves of students whose rewards would take over later are those of supervised training."""
    p = st.Parameters(N=8, L=5, d_g=8, d_h=16, reward="step", pretrain=0.99)
    curves = st.onset(p, until=5.0).curves()
    assert curves["rewards"].alpha[-1] <= 5 < st.rewards_time(p, 0.9)
    for name in ("A", "success"):
        along = np.interp(
            curves["rewards"].alpha, curves["supervised"].alpha, curves["supervised"][name]
        )
        np.testing.assert_allclose(curves["rewards"][name], along, atol=1e-3)
