"""Learned embeddings: what training keeps, against autograd and trained students."""

import numpy as np
import pytest
import torch

from simulate.state_tracking import train
from simulate.state_tracking.learner import Learner
from theory.state_tracking import Parameters, embeddings, task

P = Parameters(
    N=5, L=3, d_g=4, d_h=6, d_model=7, fix_embedding=False, n_train=40, n_test=8, eta=0.1, epochs=64,
    eval_every=64,
)  # fmt: skip
HEADS = {"W_Q": slice(P.d_g, None), "W_K": slice(None, P.d_g)}  # and the tokens that they read


def kept(weights, name):
    E, W = weights["embedding"][HEADS[name]], weights[name]
    return E.T @ E - W.T @ W


def lowered(name, **arrays):
    """Right side of an equation, entry by entry in all of its free indices."""
    rhs = embeddings.equations()[name].rhs
    sizes = {embeddings.tokens: len(arrays["embedding"]), embeddings.d_h: P.d_h}
    rhs = rhs.subs(sizes | {embeddings.d_model: P.d_model, embeddings.eta: P.eta}).doit()
    out = np.empty((P.d_model, P.d_model))
    entries = {
        x: arrays[str(x.base)][tuple(int(k) - 1 for k in x.indices)]
        for x in rhs.atoms(embeddings.E[1, 1].func)
        if all(k.is_number for k in x.indices)
    }
    for m, n in np.ndindex(out.shape):
        at = rhs.subs({embeddings.one: m + 1, embeddings.two: n + 1})
        out[m, n] = at.xreplace(
            entries
            | {
                x: arrays[str(x.base)][tuple(int(k) - 1 for k in x.indices)]
                for x in at.atoms(embeddings.E[1, 1].func)
            }
        )
    return out


def test_one_step_of_descent():
    """Nothing to first order in the step, and the second order as derived, from the slopes of
    autograd for a student's own data.
    """
    run = Learner(P, [0], torch.device("cpu"), torch.float64)
    before = {n: w[0].detach().numpy().copy() for n, w in run.students.named_parameters()}
    run.step(0)
    after = {n: w[0].detach().numpy() for n, w in run.students.named_parameters()}
    for name, own in HEADS.items():
        by_E, by_W = (-run.students.get_parameter(x).grad[0].numpy() for x in ("embedding", name))
        change = kept(after, name) - kept(before, name)
        second = P.eta**2 * (by_E[own].T @ by_E[own] - by_W.T @ by_W)
        np.testing.assert_allclose(change, second, atol=1e-15)
        size = np.abs(before["embedding"][own].T @ by_E[own]).max() * P.eta
        assert np.abs(change).max() < 0.2 * size  # a first order would stand out


def test_drift_of_given_forces():
    """The equation itself, for random weights and forces."""
    rng = np.random.default_rng(0)
    E, f = rng.normal(size=(3, P.d_model)), rng.normal(size=(3, P.d_h))
    W = rng.normal(size=(P.d_h, P.d_model))
    moved_E, moved_W = E + P.eta * f @ W, W + P.eta * f.T @ E
    change = moved_E.T @ moved_E - moved_W.T @ moved_W - (E.T @ E - W.T @ W)
    found = lowered("embedding_drift", embedding=E, head_weights=W, token_force=f)
    np.testing.assert_allclose(found, change, atol=1e-13)


def test_a_token_answers_to_its_own_force():
    """n times what it answers to the mean force; Gram matrices of drawn embeddings say the same."""
    assert embeddings.equations()["own_share"].rhs == embeddings.tokens
    p = P.replace(d_model=4000)
    E = task.draw_weights(p, np.random.default_rng(0))["embedding"][p.d_g :]
    gram = E @ E.T
    assert gram.diagonal().mean() / gram.mean() == pytest.approx(p.N, rel=0.1)


def test_trained_students_keep_it(tmp_path):
    """Columns of embeddings and weights grow together: what they should keep moves by far less than
    they do, and half as much at half the step.
    """
    drifts, grown = {}, {}
    for eta, epochs in ((0.2, 400), (0.1, 800)):
        p = P.replace(eta=eta, epochs=epochs, eval_every=epochs)
        runs = train(p, [0], keep=True, store=tmp_path, progress=False, workers=1, dtype="float64")
        drift, growth = [], []
        start = task.draw_weights(p, task.streams(0)["initialisation"])
        end = {n: runs[f"{n}_end"].sel(seed=0).values for n in ("embedding", "W_Q", "W_K")}
        for name in HEADS:
            drift.append(np.abs(kept(end, name) - kept(start, name)).max())
            growth.append(np.abs(end[name].T @ end[name] - start[name].T @ start[name]).max())
        drifts[eta], grown[eta] = np.array(drift), np.array(growth)
    assert (drifts[0.1] < 0.1 * grown[0.1]).all()
    assert drifts[0.2].mean() / drifts[0.1].mean() == pytest.approx(2, rel=0.15)
