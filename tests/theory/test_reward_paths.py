"""Rewards of one student: laws of pairs against all sequences listed, slopes against differences,
the theory of single students against its students and its refusals.
"""

import itertools

import numpy as np
import pytest
import sympy as sp

from theory import state_tracking as st
from theory.parameters import ParameterError
from theory.state_tracking import reward_paths, rewards, scope, task
from theory.state_tracking.integrate import solve
from theory.state_tracking.realisation import Realisation, Start
from theory.state_tracking.reward_paths import Prompts
from theory.state_tracking.rewarded_students import Kernels, Paths, Rewarded

N, D, L = 4, 3, 3
TEACHERS = np.stack([np.random.default_rng(k).permutation(N) for k in range(D)])
FORMS = reward_paths.equations()


def drawn(attentive, strength=2.0):
    """Matrices (s, a, r) and attention of a student that knows something."""
    rng = np.random.default_rng(5)
    M = rng.uniform(-1, 1, (N, D, N))
    M += strength * (TEACHERS.T[..., None] == np.arange(N))
    at = rng.uniform(0.5, 1, (L, L)) * (1 - attentive) + attentive * 20 * np.eye(L)
    return M, at / at.sum(1, keepdims=True)


def listed(M, at, steps=L):
    """Expected reward over all sequences and first states, every probability its own."""
    total, count = 0.0, 0
    for actions in itertools.product(range(D), repeat=L):
        law, true = np.eye(N), np.arange(N)
        for t in range(steps):
            z = sum(at[t, j] * M[:, a] for j, a in enumerate(actions))
            step = np.exp(z) / np.exp(z).sum(1, keepdims=True)
            law, true = law @ step, TEACHERS[actions[t]][true]
        total, count = total + law[np.arange(N), true].sum(), count + N
    return total / count


def test_equations_entry_by_entry():
    """One step of laws and values, slopes and scatter, as printed."""
    P = np.random.default_rng(0).dirichlet(np.ones(N), (2, N, D))  # t, s, a, r
    paths = Paths(P, TEACHERS)
    one_hot = (TEACHERS[:, None] == np.arange(N)[:, None]).astype(float)  # a, r, s
    value = [np.empty((N, N)), np.empty((N, N)), np.eye(N)]  # none is asked at 0
    free = {x.name: x for e in FORMS.values() for x in (e.rhs.free_symbols | e.lhs.free_symbols)}
    sizes = {free["N"]: N, free["d_g"]: D, free["L"]: 2, rewards.horizon: 2}

    def number(entry, shift):
        at = [int(k) for k in entry.indices]
        name = str(entry.base)
        if name == "M_star":
            return one_hot[at[0] - 1, at[1] - 1, at[2] - 1]
        if name == "transition":
            return P[at[0], at[3] - 1, at[1] - 1, at[2] - 1]
        if name == "pair_law":
            return paths.laws[at[0]][at[1] - 1, at[2] - 1]
        if name == "visits":
            return paths.visits[at[0], at[1] - 1].sum()
        return value[at[0]][at[1] - 1, at[2] - 1]

    def evaluated(name, **at):
        rhs = FORMS[name].rhs.subs(sizes).subs({free[k]: v for k, v in at.items()}).doit()
        entries = {x: number(x, 0) for x in rhs.atoms(sp.Indexed)}
        return float(rhs.xreplace(entries))

    led = np.einsum("sar,aru->su", P[1], np.eye(N)[:, TEACHERS].transpose(1, 0, 2)) / D
    value[1] = led  # of the last step but one, checked below
    states = [(0, 0), (1, 3), (2, 1)]
    for s, p in states:
        form = evaluated("pair_value", t=1, s=s + 1, p=p + 1)
        assert form == pytest.approx(led[s, p], abs=1e-15)
    for r, q in states:
        assert evaluated("pair_start", s=r + 1, p=q + 1) == paths.laws[0][r, q]
        for t in (0, 1):
            law = evaluated("pair_law", t=t, r=r + 1, q=q + 1)
            assert law == pytest.approx(paths.laws[t + 1][r, q], abs=1e-15)
    assert (value[1] * paths.laws[1]).sum() == pytest.approx(paths.rewards, abs=1e-15)
    assert evaluated("expected_reward_pairs") == pytest.approx(paths.rewards, abs=1e-15)
    for kind, name in (("outcome", "reward_slope"), ("step", "step_slope")):
        found = paths.slopes(kind)
        for t, (s, r), b in itertools.product((0, 1), states[:2], (2,)):
            form = evaluated(name, t=t, b=b + 1, r=r + 1, s=s + 1)
            assert form == pytest.approx(found[t, s, b, r], abs=1e-15)
    right = (P * one_hot.transpose(2, 0, 1)).sum(3)
    assert evaluated("mean_success") == pytest.approx(right.mean())
    free["success"] = rewards.s
    assert evaluated("success_scatter", success=right.mean()) == pytest.approx(right.var())


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_steps_that_are_alike_give_equation_18(steps):
    """One probability for every right state, another for every wrong one."""
    s = 0.55
    P = np.where(TEACHERS.T[..., None] == np.arange(N), s, (1 - s) / (N - 1))
    x = (N * s - 1) / (N - 1)
    form = rewards.expected().subs({rewards.x: x, rewards.N: N, rewards.L: steps})
    assert Paths(np.stack([P] * steps), TEACHERS).rewards == pytest.approx(float(form), abs=1e-15)


def test_all_sequences():
    """Exact where attention is on the right action alone; else as far as steps are independent.
    Taking the mean reward for its value at the mean success would be off by much more.
    """
    M, _ = drawn(1.0)
    sure = Kernels(M, np.eye(L), TEACHERS, L).P
    assert Paths(sure, TEACHERS).rewards == pytest.approx(listed(M, np.eye(L)), abs=1e-14)
    M, at = drawn(0.5)
    P, exact = Kernels(M, at, TEACHERS, L).P, listed(M, at)
    gap = abs(Paths(P, TEACHERS).rewards - exact)
    success = (P * (TEACHERS.T[..., None] == np.arange(N))).sum(3).mean()
    x = (N * success - 1) / (N - 1)
    assert gap < 3e-4 and abs((N - 1) / N * x**L + 1 / N - exact) > 3 * gap


@pytest.mark.parametrize("reward", rewards.REWARD)
def test_slopes_are_derivatives(reward):
    """By M and attention, of the mean reward in the theory's own probabilities; a reward per step
    takes visits as given.
    """
    M, at = drawn(0.3)
    held = Kernels(M, at, TEACHERS, L)
    right = TEACHERS.T[..., None] == np.arange(N)

    def value(M, at):
        P = Kernels(M, at, TEACHERS, L).P
        if reward == "step":
            return np.einsum("tsa,tsar,sar->", held.visits, P, right) / L
        each = [Paths(P[: t + 1], TEACHERS).rewards for t in range(L)]
        return each[-1] if reward == "outcome" else np.mean(each)

    d_M, d_at = held.by_weights(held.slopes(reward))
    rng = np.random.default_rng(1)
    for _ in range(3):
        X, Y = rng.normal(size=M.shape), rng.normal(size=at.shape)
        Y -= Y.mean(1, keepdims=True)
        small = 1e-5
        up, down = (value(M + e * X, at + e * Y) for e in (small, -small))
        slope = (d_M * X).sum() + (d_at * Y).sum()
        assert slope == pytest.approx((up - down) / (2 * small), rel=1e-6, abs=1e-9)


def followed(p, seed=0):
    given = Realisation.of_seeds(p, [seed])
    start = Start.drawn(p, 1, np.random.default_rng(0))
    heads = task.draw_weights(p, task.streams(seed)["initialisation"])
    heads = {k: heads[k].T for k in ("W_Q", "W_K")}
    return Rewarded(p, Start(**{**vars(start), **heads}), given)


def prompts_of(M, at, steps=L):
    return Prompts(M, at, TEACHERS, steps)


@pytest.mark.parametrize("steps", [2, L])
def test_prompts_one_by_one(steps):
    """Mean reward over all sequences; slopes along random directions, with gains that differ,
    before attention has emerged.
    """
    M, at = drawn(0.3)
    held = prompts_of(M, at, steps)
    assert held.rewards.mean() == pytest.approx(listed(M, at, steps), abs=1e-14)
    gains = np.random.default_rng(2).uniform(0.5, 2, held.rewards.shape)
    d_M, d_at = held.by_weights(held.slopes(gains))
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=M.shape), rng.normal(size=at.shape)
    up, down = (
        (prompts_of(M + e * X, at + e * Y, steps).rewards * gains).mean() for e in (1e-5, -1e-5)
    )
    assert (d_M * X).sum() + (d_at * Y).sum() == pytest.approx((up - down) / 2e-5, rel=1e-6)
    right = [
        held.P[t, k, s, TEACHERS[held.actions[k, t], s]]
        for t, k, s in itertools.product(range(steps), range(D**L), range(N))
    ]
    np.testing.assert_allclose(held.right_ones.ravel(), right)


def test_equations_of_prompts():
    """Entry by entry, as printed; first step is 1 there."""
    M, at = drawn(0.3)
    held, eq = prompts_of(M, at), reward_paths.prompt_equations()
    gains = np.random.default_rng(2).uniform(0.5, 2, held.rewards.shape)
    values = [held.right]
    for P in held.P[::-1]:
        values.insert(0, values[0] @ P.swapaxes(1, 2))
    x = {
        **{"N": N, "d_g": D, "L": L, "pi": at, "M": M.transpose(1, 2, 0), "horizon": L + 1},
        **{"prompt_action": held.actions + 1, "prompt_gain": gains},
        **{"prompt_move": held.P.transpose(1, 0, 3, 2), "prompt_law": np.stack(held.laws, 2)},
        **{"prompt_value": np.stack(values, 2), "prompt_last": held.right.argmax(2) + 1},
    }
    x["prompt_logit"] = np.log(x["prompt_move"])  # up to a constant of the softmax
    out = held.slopes(gains)
    for n, t, p, r, s in ((0, 0, 1, 2, 3), (17, 1, 3, 0, 0), (26, 2, 0, 1, 2)):
        here = x | {k: v + 1 for k, v in dict(n=n, t=t, p=p, r=r, s=s).items()}
        z = [eq["prompt_logit"].evaluate(here | {"r": k + 1}) for k in range(N)]
        np.testing.assert_allclose(np.exp(z) / np.exp(z).sum(), held.P[t, n, s], rtol=1e-12)
        for name, known in (
            ("prompt_move", held.P[t, n, s, r]),
            ("prompt_law", held.laws[t + 1][n, p, r]),
            ("prompt_reward", held.rewards[n, p]),
            ("prompt_value", values[t][n, p, s]),
            ("prompt_slope", out[t, n, s, r]),
        ):
            assert eq[name].evaluate(here) == pytest.approx(known, rel=1e-12), name


SMALL = st.Parameters.rewards().replace(N=5, d_g=4, L=2, d_h=8, n_train=400, eval_every=8)


def test_penalty_in_the_objective():
    """Slope of the mean reward less the penalty, in the states that are visited now."""
    p = SMALL.replace(kl=0.3, pretrain=0.0, reward="step")
    theory = followed(p)
    theory.state[2] = theory.state[2] + 1.5 * theory.teachers
    kernels = theory.rollouts(0)
    X = np.random.default_rng(0).normal(size=kernels.M.shape)

    def value(e):
        P = Kernels(kernels.M + e * X, kernels.at, kernels.table, 2).P
        reward = np.einsum("tsa,tsar,sar->", kernels.visits, P, theory.teachers[0]) / 2
        cost = np.einsum("tsa,tsar->", kernels.visits, P * np.log(P / theory.old[0]))
        return (1 - 1 / p.rollouts) * reward - 0.3 * cost

    slope = -(theory.gradients()[2][0] * X).sum()
    assert slope == pytest.approx((value(1e-5) - value(-1e-5)) / 2e-5, rel=1e-6)


def test_rewards_take_over_at_a_measurement():
    """At the first measurement with the asked success, and not before; epochs in strides or one by
    one agree.
    """
    p = SMALL.replace(pretrain=0.7, eta=1.0, reward="step")
    epochs = np.arange(0, 801, 8)
    found = solve(followed(p), epochs).isel(seed=0)
    first = int(np.argmax(found.success.values >= 0.7))
    assert first > 2
    assert (found.rewarded.values == (np.arange(len(epochs)) > first)).all()
    labels = solve(followed(p.replace(pretrain=0.999)), epochs).isel(seed=0)
    assert (labels.R[: first + 1] == found.R[: first + 1]).all()
    assert abs(labels.R[-1] - found.R[-1]) > 0.01
    sparse = solve(followed(p), epochs[::20]).isel(seed=0)
    np.testing.assert_allclose(sparse.success, found.success[::20], atol=2e-3)


def test_groups_of_a_prompt_have_their_own_gain():
    """Slope of the objective under normalisation, with the gain of every prompt's own reward; and
    from scratch, where steps of a rollout are not independent.
    """
    p = SMALL.replace(pretrain=0.0, group=8, normalised=True)
    theory = followed(p)
    theory.state[2] = theory.state[2] + 6 * theory.teachers
    held = theory.rollouts(0)
    gain = [float(rewards.gain(8, True).subs(rewards.J, x)) for x in held.rewards.ravel()]
    X = np.random.default_rng(0).normal(size=theory.state[2][0].shape)
    ends = []
    for e in (1e-5, -1e-5):
        moved = Prompts(
            held.M + e * X,
            theory.attention.parts(*theory.state[:2])[0][0],
            theory.given.teachers[0],
            2,
        )
        ends.append((moved.rewards.ravel() * gain).mean())
    slope = -(theory.gradients()[2][0] * X).sum()
    assert slope == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6)
    alike = rewards.gain(8, True).subs(rewards.J, held.rewards.mean())
    assert abs(float(alike) / np.mean(gain) - 1) > 0.05  # of one gain for all


def test_penalty_over_all_prompts():
    """Slope of the rewards with the gains of their prompts, less the penalty in the states that are
    visited now.
    """
    p = SMALL.replace(pretrain=0.0, group=8, normalised=True, kl=0.3)
    theory = followed(p)
    theory.state[2] = theory.state[2] + 3 * theory.teachers
    held, old = theory.rollouts(0), theory.old[0]
    gain = [float(rewards.gain(8, True).subs(rewards.J, x)) for x in held.rewards.ravel()]
    X = np.random.default_rng(0).normal(size=held.M.shape)

    def value(e):
        moved = Prompts(
            held.M + e * X, theory.attention.parts(*theory.state[:2])[0][0], held.table, 2
        )
        cost = np.einsum("tns,tnsr->", held.visits, moved.P * np.log(moved.P / old))
        return (moved.rewards.ravel() * gain).mean() - 0.3 * cost

    slope = -(theory.gradients()[2][0] * X).sum()
    assert slope == pytest.approx((value(1e-5) - value(-1e-5)) / 2e-5, rel=1e-6)


def test_early_rewards_are_refused(monkeypatch):
    """Before attention has emerged, steps of a rollout are not independent; sequences are too many
    to list.
    """
    monkeypatch.setattr(scope, "MOST_LISTED", 1)
    p = SMALL.replace(pretrain=0.0)
    with pytest.raises(ParameterError, match="attention of student 0 is 0.* must be at least 0.9"):
        followed(p)
    assert followed(p.replace(reward="step")).gradients()[0].any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(optimizer="adam"), "optimizer = 'adam': must be sgd where there is a reward"),
        (dict(momentum=0.5), "momentum = 0.5: must be 0.0 where there is a reward"),
        (dict(batch_size=8), "batch_size = 8: must be none or n_train"),
        (dict(group=8, normalised=True, L=20), "normalised = True: must be False with a group"),
    ],
)
def test_what_is_not_described_is_refused(changes, message):
    with pytest.raises(ParameterError, match=message):
        st.predict(SMALL.replace(**changes), seeds=1, level="fixed_disorder")
    with pytest.raises(ParameterError, match="reward = 'outcome'"):
        st.predict(SMALL, seeds=1, level="cavity")
