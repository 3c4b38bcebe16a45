"""Students that learn from rewards: policy gradients against autograd and against the exact slope
of the expected reward, and the way from supervised training to rewards.
"""

import numpy as np
import pytest
import torch

from simulate.state_tracking import SYSTEMS, Parameters, Student
from simulate.state_tracking.rewards import Learner
from theory.parameters import ParameterError
from theory.state_tracking import task

TINY = Parameters(
    N=4, L=3, d_g=3, d_h=6, n_train=64, n_test=64, epochs=16, eval_every=4, rope="plain",
    reward="outcome", rollouts=64,
)  # fmt: skip
REWARDS, LABELS = SYSTEMS["rewards"], SYSTEMS["student"]
ALONE = dict(progress=False, workers=1, dtype="float64")


def made(p):
    return Learner(p, 0, torch.device("cpu"), torch.float64)


def plain(found):
    """The plain module with the same weights."""
    weights = {n: w[0].detach().numpy() for n, w in found.students.named_parameters()}
    return Student(found.p, weights, torch.float64)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        dict(group=8),
        dict(group=8, normalised=True),
        dict(reward="step"),
        dict(reward="true", horizon=2),
    ],
    ids=str,
)
def test_policy_gradient_is_that_of_autograd(changes):
    """Minus the mean of advantage times log-probability of sampled states; advantages by hand."""
    found = made(TINY.replace(**changes))
    p, draws, seen = found.p, found.prompts(3), {}
    known = found.advantages
    found.advantages = lambda a, path: (
        seen.setdefault("value", known(a, path))
        if (seen.setdefault("states", path) is path)
        else None
    )
    found.ascend(*draws)
    actions, states = draws[0], seen["states"]
    reference, steps = plain(found), states.shape[1] - 1
    chosen = torch.log_softmax(reference(actions, states[:, :-1]), 2)
    chosen = chosen.gather(2, states[:, 1:, None])[..., 0]
    loss = -(seen["value"] * chosen).sum() / len(actions)
    loss.backward()
    for name, w in reference.named_parameters():
        own = found.students.get_parameter(name).grad[0]
        assert torch.allclose(own, w.grad, rtol=0, atol=1e-14), name
    # Advantages once more, from the definition of the reward.
    table, rows = found.permutations[0], states.numpy()
    reward = np.zeros((len(rows), steps))
    for n, (acts, path) in enumerate(zip(actions.numpy(), rows, strict=True)):
        true = path[0]
        hits = []
        for t in range(steps):
            true = table[acts[t], true]
            asked = table[acts[t], path[t]] if p.reward == "step" else true
            hits.append(float(path[t + 1] == asked))
        if p.reward == "outcome":
            reward[n] = hits[-1]
        elif p.reward == "step":
            reward[n] = np.array(hits) / steps
        else:
            reward[n] = [sum(hits[t:]) / steps for t in range(steps)]
    grouped = reward.reshape(-1, p.group or p.rollouts, steps)
    advantage = grouped - grouped.mean(1, keepdims=True)
    if p.normalised:
        spread = grouped.std(1, keepdims=True)
        advantage = np.divide(advantage, spread, out=np.zeros_like(advantage), where=spread > 1e-9)
    assert np.allclose(seen["value"].numpy(), advantage.reshape(-1, steps), atol=1e-12)


@pytest.mark.parametrize("reward", ["outcome", "step"])
def test_penalty_is_that_of_autograd(reward):
    """What a penalty adds to the slope: the mean divergence of the steps of a rollout from the old
    policy, whose weights are kept where rewards take over.
    """
    found, without = (made(TINY.replace(reward=reward, kl=kl)) for kl in (0.7, 0.0))
    with torch.no_grad():
        for one in (found, without):
            for w in one.students.parameters():
                w += 0.3 * torch.sin(torch.arange(w.numel(), dtype=w.dtype)).reshape(w.shape)
    draws, seen = found.prompts(3), []
    known = found.advantages
    found.advantages = lambda a, path: (seen.append(path), known(a, path))[1]
    found.ascend(*draws)
    without.ascend(*draws)
    new, states = plain(found), seen[0][:, :-1]
    weights = {n: w[0].numpy() for n, w in found.old.items()}
    old = Student(found.p, weights, torch.float64)
    log_new, log_old = (torch.log_softmax(m(draws[0], states), 2) for m in (new, old))
    loss = 0.7 * (log_new.exp() * (log_new - log_old.detach())).sum() / len(states)
    loss.backward()
    assert loss > 0.01
    for name, w in new.named_parameters():
        added = found.students.get_parameter(name).grad - without.students.get_parameter(name).grad
        assert torch.allclose(added[0], w.grad, rtol=0, atol=1e-14), name


def test_old_policy_is_kept_and_resumed(tmp_path):
    """The policy that rewards took over from, and no later one; another weight is another run."""
    p = TINY.replace(pretrain=0.35, epochs=160, eta=2.0, kl=0.05)
    one = Learner(p, 0, torch.device("cpu"), torch.float64)
    before = None
    for number in range(100):
        if not one.rewarded:
            before = one.weights()
        one.step(number)
    assert one.rewarded
    assert all(torch.equal(before[n], w) for n, w in one.old.items())
    again = Learner(p, 0, torch.device("cpu"), torch.float64)
    again.load(one.state())
    assert all(torch.equal(again.old[n], w) for n, w in one.old.items())
    free = REWARDS.train(p.replace(kl=0.0), [0], store=tmp_path, **ALONE)
    held = REWARDS.train(p, [0], store=tmp_path, **ALONE)
    assert held.success[0, -1] < free.success[0, -1]


def exact_slope(found):
    """Gradient of the expected reward over all prompts, by autograd; no state is sampled."""
    p, student = found.p, plain(found)
    axes = np.indices((p.d_g,) * p.L + (p.N,)).reshape(p.L + 1, -1)
    actions, first = torch.as_tensor(axes[:-1].T.copy()), torch.as_tensor(axes[-1])
    law = torch.nn.functional.one_hot(first, p.N).double()
    true = first
    for t in range(p.L):
        kernel = torch.stack(
            [
                torch.softmax(student(actions, torch.full_like(first, r)[:, None], t)[:, 0], 1)
                for r in range(p.N)
            ],
            1,
        )
        law = torch.einsum("ns,nsr->nr", law, kernel)
        true = torch.as_tensor(found.permutations[0])[actions[:, t], true]
    reward = law[torch.arange(len(law)), true].mean()
    reward.backward()
    return {n: w.grad.numpy() for n, w in student.named_parameters()}, reward.item()


def test_mean_gradient_is_the_slope_of_the_expected_reward():
    """Times 1 - 1/G with a baseline over G, here 2."""
    found, law = made(TINY.replace(rollouts=32768, group=2)), 1 / 2
    with torch.no_grad():  # away from guessing
        found.students.M += torch.as_tensor(task.teacher_matrices(found.permutations[0])) * 2
    slope, _ = exact_slope(found)
    size = sum((v**2).sum() for v in slope.values())
    along = []
    for number in range(32):
        found.ascend(*found.prompts(number))
        got = {n: -w.grad[0].numpy() for n, w in found.students.named_parameters()}
        along.append(sum((got[n] * slope[n]).sum() for n in slope) / size)
    error = np.std(along, ddof=1) / len(along) ** 0.5
    assert error < 0.02 * law  # 10% off would be 5 sigma
    assert abs(np.mean(along) - law) < 4 * error


def test_expected_reward_is_that_of_sampled_states():
    """Exact propagation of the test set against rollouts of the same prompts."""
    found = made(TINY.replace(n_test=20_000))
    with torch.no_grad():
        found.students.M += torch.as_tensor(task.teacher_matrices(found.permutations[0])) * 3
    actions, states = (v[0] for v in found.test_data)
    rng, student = torch.Generator().manual_seed(0), plain(found)
    at, right = states[:, 0], []
    with torch.no_grad():
        for t in range(found.p.L):
            chance = torch.softmax(student(actions, at[:, None], t)[:, 0], 1)
            forced = torch.softmax(student(actions, states[:, t : t + 1], t)[:, 0], 1)
            right.append(forced.gather(1, states[:, t + 1 : t + 2])[:, 0])
            at = torch.multinomial(chance, 1, generator=rng)[:, 0]
    success, spread, reward = found.policy()
    every = torch.stack(right)
    assert success == pytest.approx(float(every.mean()), abs=1e-12)
    assert spread == pytest.approx(float(every.var(correction=0)), abs=1e-12)
    hit = float((at == states[:, -1]).double().mean())
    assert abs(hit - reward) < 4 * (reward * (1 - reward) / len(at)) ** 0.5


def test_rewards_go_on_from_a_supervised_run(tmp_path):
    """Final weights are kept where asked, and only there; another start is another run."""
    p = TINY.replace(reward="none", epochs=40)
    kept = LABELS.train(p, [0, 1], keep=True, store=tmp_path, **ALONE)
    usual = LABELS.train(p, [0, 1], store=tmp_path, **ALONE)
    assert "M_end" in kept and "M_end" not in usual
    assert (kept.R == usual.R).all()
    for seed in (0, 1):  # R is the mean over the entries that the teachers name
        end, last = (x.sel(seed=seed) for x in (kept.M_end, kept.R.isel(alpha=-1)))
        places = np.ndenumerate(task.draw_permutations(p, task.streams(seed, 0)["task"]))
        on_own = [end.isel(teacher=a, now=j, next=k).item() for (a, j), k in places]
        assert np.mean(on_own) == pytest.approx(last.item(), abs=1e-12)
    runs = REWARDS.train(TINY, [1], start=kept, store=tmp_path, **ALONE)
    assert runs.R.values[0, 0] == kept.R.sel(seed=1).values[-1]
    assert runs.rewarded.values.all() and runs.R.values[0, -1] != runs.R.values[0, 0]
    scratch = REWARDS.train(TINY, [1], store=tmp_path, **ALONE)
    assert scratch.R.values[0, 0] == usual.R.sel(seed=1).values[0]
    with pytest.raises(ParameterError, match="W_Q_end is missing; train it with keep=True"):
        REWARDS.train(TINY, [0], start=usual, store=tmp_path, **ALONE)


def test_rewards_take_over_at_their_success(tmp_path):
    p = TINY.replace(pretrain=0.35, epochs=160, eta=2.0)
    runs = REWARDS.train(p, [0], store=tmp_path, **ALONE).isel(seed=0)
    first = int(np.argmax(runs.success.values >= 0.35))
    assert 0 < first < len(runs.alpha) - 2
    assert (runs.rewarded.values == (np.arange(len(runs.alpha)) > first)).all()
    labels = LABELS.train(p.replace(reward="none"), [0], store=tmp_path, **ALONE).isel(seed=0)
    assert (runs.R.values[: first + 1] == labels.R.values[: first + 1]).all()
    assert runs.R.values[first + 1] != labels.R.values[first + 1]


@pytest.mark.parametrize(
    ("system", "changes", "message"),
    [
        (REWARDS, dict(reward="none"), "reward = 'none': must be outcome, step or true"),
        (REWARDS, dict(fix_embedding=False, d_model=2), "fix_embedding = False: must be True"),
        (LABELS, {}, "reward = 'outcome': must be none"),
    ],
)
def test_wrong_students_are_refused(system, changes, message):
    with pytest.raises(ParameterError, match=message):
        system.train(TINY.replace(**changes), **ALONE)
