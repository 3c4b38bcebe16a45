"""Hebbian and trained memories, kernels, noisy bigrams:
small cases with known answers.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from simulate.associative_memory import k_hop, noisy_bigram, superposition
from simulate.associative_memory.gradient_steps import InductionHead, run
from simulate.associative_memory.gradient_steps import Parameters as StepParameters
from simulate.associative_memory.gradient_steps import sample as sample_steps
from simulate.associative_memory.k_hop import PointerLearner as Pointing
from theory.associative_memory.gradient_steps import equations as step_equations
from theory.associative_memory.k_hop import direct_time


def test_hebbian_of_orthonormal_vectors():
    """No interference: scores are the weights on the
    right outputs and zero elsewhere.
    """
    answer, weights = np.array([1, 0, 2, 1]), np.array([1.0, 2.0, 0.5, 3.0])
    W = superposition.hebbian(np.eye(4), np.eye(3, 4), answer, weights)
    scores = np.eye(3, 4) @ W
    np.testing.assert_allclose(
        scores, np.where(np.arange(3)[:, None] == answer, weights, 0), atol=0
    )


def test_trained_matrix_holds_more_than_hebbian():
    """d = 8: trained by Adam it holds 20 keys, of which the Hebbian matrix recalls
    about half.
    """
    assert superposition.train_linear(20, 8, seed=0, steps=1500) >= 0.99
    hebbian = superposition.recall(superposition.Parameters(d=8, N=20, draws=20))[
        "accuracy"
    ].mean()
    assert hebbian < 0.8
    assert superposition.train_mlp(20, 8, 16, seed=0, steps=400) >= 0.99


def test_capacity_of_an_mlp_grows_with_its_parameters():
    """d = 8: 60 keys, N ln N = 246, are too many for MLPs of 64 and 128 weights and for
    the matrix of 64, not for an MLP of 256; 120 keys, 574, are too many for that.
    """
    held = {
        width: superposition.train_mlp(60, 8, width, seed=0, steps=400)
        for width in (4, 8, 16)
    }
    assert held[4] < 0.5 and held[8] < 0.7 and held[16] >= 0.99
    assert superposition.train_linear(60, 8, seed=0, steps=400) < 0.5
    assert superposition.train_mlp(120, 8, 16, seed=0, steps=400) < 0.7


def test_capacity_by_bisection():
    """The largest number that is good enough, and the ends of the bracket."""
    assert superposition.capacity(lambda n: 1.0 if n <= 77 else 0.5, 10, 100, 0.0) == 77
    assert (
        superposition.capacity(lambda n: 0.0, 10, 100) == 9
        and superposition.capacity(lambda n: 1.0, 10, 100) == 100
    )


def test_kernels_of_permutations_answer_right():
    """Kernels that are the hidden permutations put all mass on the answer."""
    rng = np.random.default_rng(0)
    hidden = k_hop.draw_permutations((3,), 5, rng)
    given, start = k_hop.draw_permutations((50, 3), 5, rng), rng.integers(5, size=50)
    matrices = torch.tensor(np.eye(5)[:, hidden].transpose(1, 0, 2))
    right = k_hop.answer(hidden, given, start)
    found = k_hop.apply(matrices, torch.as_tensor(given), torch.as_tensor(start))
    np.testing.assert_array_equal(found.argmax(1), right)
    np.testing.assert_allclose(found.max(1).values, 1, atol=0)
    x = start[0]
    for j in range(3):
        x = given[0, j][hidden[j][x]]
    assert x == right[0]


def test_kernel_learner_meets_its_time(tmp_path):
    """Two hops: product 1/2 at the predicted flow time; with the curriculum the second
    hop waits.
    """
    p = k_hop.Parameters(N=4, k=2)
    time = direct_time(p, 0.5, "softmax")
    p = p.replace(eta=time / 200, steps=260, eval_every=4)
    found = k_hop.train(p, [0], store=tmp_path, workers=1, progress=False)
    at = float(found.t[int((found["product"].values[0] >= 0.5).argmax())])
    assert at == pytest.approx(time, rel=0.1)  # 200 steps of 256 samples
    waiting = k_hop.train(
        p.replace(curriculum=True, steps=40),
        [0],
        store=tmp_path,
        workers=1,
        progress=False,
    )
    assert float(waiting.hops[0, -1]) == 1 and float(
        waiting.overlap[0, -1, 1]
    ) == pytest.approx(p.m_0, rel=1e-12)


def test_noisy_labels():
    """Labels are the answer or the noise token; the ablated model still sees the
    context.
    """
    p = noisy_bigram.Parameters(N=6, T=4, a=0.3)
    context, clean, label = noisy_bigram.sample(p, 20000, np.random.default_rng(0))
    assert (context[:, 0] == clean).all() and set(np.unique(label)) == set(range(7))
    assert (label == p.N).mean() == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / 20000))
    learner = noisy_bigram.Learner(p, 0)
    with torch.no_grad():
        learner.student["score"].fill_(20.0)
        learner.student["value"][:6] = 5 * torch.eye(6)
        learner.student["feed_forward"][6] = 9.0
    assert learner.predictions(1.0) == (0.0, 1.0) and learner.predictions(0.0) == (
        1.0,
        0.0,
    )


def test_one_step_of_one_sample():
    """A single noiseless sample: the answer's own token is recovered unless a context
    token ties with it.
    """
    found = noisy_bigram.one_step(
        noisy_bigram.Parameters(N=3, T=2, a=0.01, n=400, draws=20)
    )
    assert found["value"].mean() > 0.95 and found["feed_forward"].mean() == 0


def test_first_gradient_by_exact_enumeration():
    """All sequences of a tiny task: gradient of the output matrix at zero weights, to
    rounding.
    """
    p = StepParameters(N=4, K=1, T=5)
    model = InductionHead(p, torch.float64)
    plain, rows = range(1, 4), []
    for place in range(p.T - 2):
        free = [s for s in range(p.T - 1) if s not in (place, place + 1)]
        for y in plain:
            for others in np.ndindex(*(3,) * len(free)):
                tokens = np.zeros(p.T, dtype=int)
                tokens[place + 1] = y
                tokens[free] = np.array(others) + 1
                rows.append((tokens, y))
    logits, _ = model(torch.tensor(np.array([t for t, _ in rows])))
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor([y for _, y in rows]))
    slope = torch.autograd.grad(loss, model.W_O)[0].numpy()
    v, eq = p.values(), step_equations()
    for k, z in np.ndindex(3, 3):
        exact = eq["first_gradient"].evaluate(v | {"delta_kz": float(k == z)})
        assert slope[1 + k, 1 + z] == pytest.approx(exact, abs=1e-15)
    assert slope[1, 2] - slope[1, 1] == pytest.approx(
        eq["first_gain"].evaluate(v), abs=1e-15
    )
    remap = slope[1:, p.N + 1 :]
    assert remap[0, 1] - remap[0, 0] == pytest.approx(
        eq["first_gain_remap"].evaluate(v), abs=1e-15
    )


def test_three_steps_small():
    """A small task in seconds: probes right after their steps, accuracy near one after
    the third.
    """
    p = StepParameters(N=10, K=2, T=10, samples=8000, first_step=1.0)
    tokens, answer, place = sample_steps(p, 100, np.random.default_rng(0))
    rows = np.arange(100)
    assert (tokens[rows, place] == tokens[:, -1]).all() and (
        tokens[rows, place + 1] == answer
    ).all()
    assert (tokens[:, -1] < p.K).all() and (answer >= p.K).all()
    out = run(p)
    assert out.probes == {"W_O": 1.0, "W_2": 1.0, "W_1": 1.0}
    assert out.accuracy[-1] > 0.97 and out.accuracy[2] < 0.6


def test_pointers_jump_layer_by_layer(tmp_path):
    """Identity scores double the hops exactly; trained on a mixture, 2 hops come before
    4 (extension).
    """
    p = k_hop.Pointers(N=6, layers=2, steps=260, batch_size=64)
    learner = Pointing(p, 0)
    with torch.no_grad():
        learner.student["scores"][:] = 60 * torch.eye(6)
        learner.student["mixture"][:] = torch.eye(3)
    assert (
        learner.measure()["accuracy"].min() == 1
        and learner.measure()["jump"].min() > 0.999
    )
    found = k_hop.train_pointers(p, [0], store=tmp_path, workers=1, progress=False)
    first = [int((found.accuracy.values[0, :, j] > 0.95).argmax()) for j in range(3)]
    assert first[0] <= first[1] < first[2] and found.accuracy.values[0, -1].min() > 0.95


def test_hops_are_learned_one_after_the_other(tmp_path):
    """1, 2, 4 and 8 hops of a mixture: whenever one is learned, its layer has left
    uniform attention, and no later layer has.
    """
    p = k_hop.Pointers(N=10, layers=3, steps=90, batch_size=32, eta=0.05, eval_every=5)
    found = k_hop.train_pointers(p, [0, 1], store=tmp_path, workers=1, progress=False)
    # Jumps are 1 at first, in units of 1/N.
    for accuracy, jump in zip(
        found.accuracy.values, p.N * found.jump.values, strict=True
    ):
        assert accuracy[-1].min() > 0.95
        first = [int((accuracy[:, j] > 0.95).argmax()) for j in range(4)]
        assert first[0] < first[1] < first[2] < first[3]
        for j in (1, 2, 3):
            own, later = jump[first[j], j - 1], jump[first[j], j:]
            assert (
                own > 2 or own < 0.5
            )  # the last layer avoids the right position instead
            assert (np.abs(later - 1) < 0.5).all()
