"""Students that learn from rewards: policy gradients against autograd and against the
exact slope of the expected reward, and the way from labels to rewards.
"""

import numpy as np
import pytest
import torch
from rewards import laws
from rewards.simulate import Student, train
from rewards.theory import Parameters

from simulate import state_tracking as labelled
from theory.state_tracking.model import task

TINY = Parameters(
    **dict(N=4, d_g=3, d_h=6, rope="plain", n_train=64, n_test=64, epochs=16),
    **dict(eval_every=4, rollouts=64, pretrain=0.0),
)
ALONE = dict(progress=False, workers=1, dtype="float64", device="cpu")


def student(p, stirred=0.0):
    """A student; with all weights moved by a fixed pattern."""
    one = Student(p, 0, torch.device("cpu"), torch.float64)
    with torch.no_grad():
        for w in one.weights.parameters():
            pattern = torch.sin(torch.arange(w.numel(), dtype=w.dtype))
            w += stirred * pattern.reshape(w.shape)
    return one


def plain(one, weights=None):
    """The plain module with the same weights."""
    named = weights or dict(one.weights.named_parameters())
    arrays = {name: w[0].detach().numpy() for name, w in named.items()}
    return labelled.Student(one.p.labels, arrays, torch.float64)


def known(student, knowledge):
    """Add the teachers to the logic matrices."""
    teachers = task.teacher_matrices(student.labelled.permutations[0])
    with torch.no_grad():
        student.weights.M += knowledge * torch.as_tensor(teachers)
    return student


def advantages_by_hand(p, table, actions, states):
    """From the definition of the reward."""
    steps = states.shape[1] - 1
    reward = np.zeros((len(states), steps))
    for n, (acts, path) in enumerate(zip(actions, states, strict=True)):
        true = path[0]
        for t in range(steps):
            true = table[acts[t], true]
            reward[n, t] = (path[t + 1] == table[acts[t], path[t]]) / steps
        if p.reward == "outcome":
            reward[n] = path[-1] == true
    grouped = reward.reshape(-1, p.baseline_size, steps)
    advantage = grouped - grouped.mean(1, keepdims=True)
    if p.normalised:
        spread = grouped.std(1, keepdims=True)
        zero = np.zeros_like(advantage)
        advantage = np.divide(advantage, spread, out=zero, where=spread > 1e-9)
    return advantage.reshape(-1, steps)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        dict(group=8),
        dict(group=8, normalised=True),
        dict(reward="step"),
        dict(horizon=2),
    ],
    ids=str,
)
def test_policy_gradient_is_that_of_autograd(changes):
    """Minus the mean of advantage times log-probability of sampled states; advantages
    by hand.
    """
    one = student(TINY.replace(**changes))
    prompts = one.prompts(3)
    states = one.rolled_out(prompts).states
    one.ascend(prompts)
    table = np.asarray(one.labelled.permutations[0])
    by_hand = (x.numpy() for x in (prompts.actions, states))
    advantage = advantages_by_hand(one.p, table, *by_hand)
    module = plain(one)
    logits = module(prompts.actions, states[:, :-1])
    chosen = torch.log_softmax(logits, 2).gather(2, states[:, 1:, None])[..., 0]
    loss = -(torch.as_tensor(advantage) * chosen).sum() / len(states)
    loss.backward()
    for name, w in module.named_parameters():
        own = one.weights.get_parameter(name).grad[0]
        assert torch.allclose(own, w.grad, rtol=0, atol=1e-14), name


@pytest.mark.slow
@pytest.mark.parametrize("reward", ["outcome", "step"])
def test_penalty_is_that_of_autograd(reward):
    """What a penalty adds to the slope: the mean divergence of the steps of a rollout
    from the old policy, whose weights are kept where rewards take over.
    """
    p = TINY.replace(reward=reward, kl=0.7)
    held, free = student(p, 0.3), student(p.replace(kl=0.0), 0.3)
    prompts = held.prompts(3)
    states = held.rolled_out(prompts).states[:, :-1]
    for one in (held, free):
        one.ascend(prompts)
    new, old = plain(held), plain(held, held.old)
    log_new, log_old = (
        torch.log_softmax(module(prompts.actions, states), 2) for module in (new, old)
    )
    ratio = log_new - log_old.detach()
    loss = 0.7 * (log_new.exp() * ratio).sum() / len(states)
    loss.backward()
    assert loss.item() > 0.01
    for name, w in new.named_parameters():
        slopes = [one.weights.get_parameter(name).grad[0] for one in (held, free)]
        assert torch.allclose(slopes[0] - slopes[1], w.grad, rtol=0, atol=1e-14), name


def exact_slope(one):
    """Gradient of the expected reward over all prompts, by autograd; no state is
    sampled.
    """
    p, module = one.p, plain(one)
    shape = (p.d_g,) * p.L + (p.N,)
    axes = np.indices(shape).reshape(p.L + 1, -1)
    actions, first = torch.as_tensor(axes[:-1].T.copy()), torch.as_tensor(axes[-1])
    law = torch.nn.functional.one_hot(first, p.N).double()
    true = first
    for t in range(p.L):
        rows = []
        for state in range(p.N):
            now = torch.full_like(first, state)[:, None]
            rows.append(torch.softmax(module(actions, now, t)[:, 0], 1))
        law = torch.einsum("ns,nsr->nr", law, torch.stack(rows, 1))
        true = one.table[actions[:, t], true]
    law[torch.arange(len(law)), true].mean().backward()
    return {name: w.grad.numpy() for name, w in module.named_parameters()}


@pytest.mark.slow
def test_mean_gradient_is_the_slope_of_the_expected_reward():
    """Times 1 - 1/G with a baseline over G, here 2."""
    one, law = known(student(TINY.replace(rollouts=32768, group=2)), 2), 1 / 2
    slope = exact_slope(one)
    size = sum((v**2).sum() for v in slope.values())
    along = []
    for number in range(32):
        one.ascend(one.prompts(number))
        product = 0.0
        for name, w in one.weights.named_parameters():
            product -= (w.grad[0].numpy() * slope[name]).sum()
        along.append(product / size)
    error = np.std(along, ddof=1) / len(along) ** 0.5
    assert error < 0.02 * law  # 10% off would be 5 sigma
    assert abs(np.mean(along) - law) < 4 * error


@pytest.mark.slow
def test_expected_reward_is_that_of_sampled_states():
    """Exact propagation of the test set against rollouts of the same prompts."""
    one = known(student(TINY.replace(n_test=20_000)), 3)
    actions, states = (data[0] for data in one.labelled.test_data)
    rng, module = torch.Generator().manual_seed(0), plain(one)
    now, right = states[:, 0], []
    with torch.no_grad():
        for t in range(one.p.L):
            chance = torch.softmax(module(actions, now[:, None], t)[:, 0], 1)
            forced = torch.softmax(module(actions, states[:, t : t + 1], t)[:, 0], 1)
            right.append(forced.gather(1, states[:, t + 1 : t + 2])[:, 0])
            now = torch.multinomial(chance, 1, generator=rng)[:, 0]
    policy, every = one.policy(), torch.stack(right)
    variance = every.var(correction=0).item()
    assert policy["success"] == pytest.approx(every.mean().item(), abs=1e-12)
    assert policy["success_variance"] == pytest.approx(variance, abs=1e-12)
    hit, reward = (now == states[:, -1]).double().mean(), policy["expected_reward"]
    assert abs(hit - reward) < 4 * (reward * (1 - reward) / len(now)) ** 0.5


@pytest.mark.slow
def test_old_policy_is_kept_and_resumed():
    """The policy that rewards took over from, and no later one."""
    p = TINY.replace(pretrain=0.35, epochs=160, eta=2.0, kl=0.05)
    one, before = student(p), {}
    for number in range(100):
        if not one.rewarded:
            before = one.copied()
        one.step(number)
    assert one.rewarded
    assert all(torch.equal(before[name], w) for name, w in one.old.items())
    again = student(p)
    again.load(one.state())
    assert again.rewarded
    for name, w in one.old.items():
        assert torch.equal(again.old[name], w)
    for student_ in (one, again):
        student_.step(100)
    for mine, theirs in zip(
        one.weights.parameters(), again.weights.parameters(), strict=True
    ):
        assert torch.equal(mine, theirs)


@pytest.mark.slow
def test_rewards_take_over_at_their_success(tmp_path):
    """At the first measurement that reaches it; before it they are students with
    labels.
    """
    p = TINY.replace(pretrain=0.35, epochs=160, eta=2.0)
    runs = train(p, [0], store=tmp_path, **ALONE).isel(seed=0)
    first = int(np.argmax(runs.success.values >= 0.35))
    assert 0 < first < len(runs.alpha) - 2
    assert (runs.rewarded.values == (np.arange(len(runs.alpha)) > first)).all()
    plain_runs = labelled.train(p.labels, [0], store=tmp_path, **ALONE).isel(seed=0)
    same = slice(0, first + 1)
    assert (runs.R[same].values == plain_runs.R[same].values).all()
    assert runs.R.values[first + 1] != plain_runs.R.values[first + 1]
    held = train(p.replace(kl=0.05), [0], store=tmp_path, **ALONE)
    assert held.success[0, -1] < runs.success[-1]


@pytest.mark.slow
def test_students_are_those_that_come_with_the_code(tmp_path):
    """Trained again, to the rounding of single precision that descent amplifies."""
    p = laws.parameters("grpo")
    stored = laws.shipped("grpo").isel(seed=0, alpha=slice(0, 41))
    until = float(stored.alpha[-1])
    runs = train(p, [0], until=until, store=tmp_path, progress=False, workers=1)
    assert stored.rewarded[-1] == 1
    for name in ("R", "success", "expected_reward"):
        np.testing.assert_allclose(runs[name][0], stored[name], atol=1e-4)
