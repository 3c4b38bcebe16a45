"""Statements of the slides on the students themselves: residual stream, attention
scores, readout, remapped tokens, key ideas.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from simulate.associative_memory import noisy_bigram, superposition
from simulate.associative_memory.gradient_steps import (
    InductionHead,
    Parameters,
    run,
    sample,
)
from simulate.associative_memory.trigger_task import Parameters as Task
from simulate.associative_memory.trigger_task.student import (
    Block,
    Simplified,
    Transformer,
)
from theory.associative_memory import gradient_memory, symbols
from theory.associative_memory import superposition as superposed
from theory.associative_memory.gradient_memory import equations as memory_equations
from theory.associative_memory.gradient_steps import equations
from theory.numbers.lowered import entry_by_entry
from theory.symbols.special import gaussian_accuracy


def test_block_is_attention_then_mlp_on_a_residual_stream():
    """x + sum_s beta_s W_O W_V x_s with beta the causal softmax of x_s W_K W_Q x_t,
    then x + V sigma(U x), position by position; before it e + p, after it u_j x_t.
    """
    torch.manual_seed(0)
    d, length = 6, 5
    block = Block(d).double()
    x = torch.randn(1, length, d, dtype=torch.float64)
    found = block(x)[0]
    W_Q, W_K, W_V = block.qkv.weight.chunk(3)
    first, second, last = block.mlp
    for t in range(length):
        h = torch.nn.functional.layer_norm(
            x[0], (d,), block.norm_1.weight, block.norm_1.bias
        )
        scores = torch.stack([h[s] @ W_K.T @ W_Q @ h[t] for s in range(t + 1)]) / d**0.5
        beta = scores.exp() / scores.exp().sum()
        y = x[0, t] + sum(beta[s] * block.out.weight @ W_V @ h[s] for s in range(t + 1))
        g = torch.nn.functional.layer_norm(
            y, (d,), block.norm_2.weight, block.norm_2.bias
        )
        hidden = first.weight @ g + first.bias
        sigma = hidden * (1 + torch.erf(hidden / 2**0.5)) / 2
        z = y + last.weight @ sigma + last.bias
        torch.testing.assert_close(z, found[t], rtol=1e-12, atol=1e-12)
    whole = Transformer(
        Task(N=7, K=2, T=length, d=d, student="transformer", layers=1)
    ).double()
    tokens = torch.tensor([3, 1, 6, 3, 0])
    start = [
        whole.tokens.weight[k] + whole.positions.weight[t] for t, k in enumerate(tokens)
    ]
    last = whole.blocks[0](torch.stack(start)[None])[0]
    for t, logits in enumerate(whole(tokens[None])[0]):
        read = whole.head.weight @ torch.nn.functional.layer_norm(last[t], (d,))
        torch.testing.assert_close(read, logits, rtol=1e-12, atol=1e-12)


def test_simplified_student_written_out():
    """Embedding e + p, layer 1 adds remapped tokens W_OV e~, layer 2 adds W_O W_V of
    what it attends to, readout u_j x_t.
    """
    p = Task(N=7, K=2, T=5, d=8)
    student = Simplified(p, np.random.default_rng(0)).double()
    torch.manual_seed(1)
    for w in student.parameters():
        torch.nn.init.normal_(w, std=0.2)
    tokens = torch.tensor([[3, 1, 6, 3, 0]])
    x = [student.tokens[k] + student.positions[t] for t, k in enumerate(tokens[0])]
    vectors, W = torch.stack(x).detach().numpy(), student.W_K1.detach().numpy()
    values = {"u": vectors, "W": W, "e": vectors, "d": p.d, "k": 5, "z": 3}
    read = gradient_memory.lemma_equations()["score"].evaluate(values)
    assert read == pytest.approx(vectors[4] @ W @ vectors[2], rel=1e-12)  # rounding
    for W, out in (
        (student.W_K1, student.W_OV1),
        (student.W_K2, student.W_O2 @ student.W_V2),
    ):
        added = []
        for t in range(p.T):
            scores = torch.stack([x[t] @ W @ x[s] for s in range(t + 1)]) / p.d**0.5
            beta = scores.exp() / scores.exp().sum()
            added.append(sum(beta[s] * out @ x[s] for s in range(t + 1)))
        x = [a + b for a, b in zip(x, added, strict=True)]
    logits = torch.stack(
        [torch.stack([student.unembedding[j] @ y for j in range(p.N)]) for y in x]
    )
    torch.testing.assert_close(student(tokens)[0], logits, rtol=1e-10, atol=1e-10)


def test_attention_is_uniform_at_first():
    """Key idea 1: with zero weights every layer attends to all it sees alike, and its
    output is the mean of embeddings.
    """
    p = Parameters(N=6, K=2, T=6)
    tokens, _, _ = sample(p, 20, np.random.default_rng(0))
    model = InductionHead(p, torch.float64)
    _, seen = model(torch.as_tensor(tokens))
    assert (seen == 1 / p.T).all()
    student = Simplified(Task(N=6, K=2, T=6, d=4), np.random.default_rng(0))
    attention = student.attend(torch.randn(2, 6, 4), student.W_K1)
    torch.testing.assert_close(
        attention[0],
        torch.tril(torch.ones(6, 6)) / torch.arange(1, 7)[:, None],
        rtol=1e-6,
        atol=0,
    )
    # Read out block by block: mean of the tokens, and of the means of tokens up to each
    # position.
    one = torch.nn.functional.one_hot(torch.as_tensor(tokens), p.N).double()
    before = one.cumsum(1) / torch.arange(1, p.T + 1)[:, None]
    for block, mean in enumerate((one.mean(1), before.mean(1))):
        with torch.no_grad():
            model.W_O.zero_()
            model.W_O[:, block * p.N : (block + 1) * p.N] = torch.eye(p.N)
        torch.testing.assert_close(model(torch.as_tensor(tokens))[0], mean)


def test_the_right_output_is_always_in_the_context():
    """Key idea 2: the answer occurs for sure, any other plain token by chance; their
    difference is 1/T in the mean input.
    """
    p = Parameters(N=8, K=2, T=7)
    tokens, answer, _ = sample(p, 20_000, np.random.default_rng(0))
    own = (tokens == answer[:, None]).sum(1)
    assert own.min() >= 1
    other = p.K + (answer - p.K + 1) % (p.N - p.K)
    counts = (tokens == other[:, None]).sum(1)
    assert counts.min() == 0
    for count, same in ((own, 1.0), (counts, 0.0)):
        exact = equations()["token_mean_given"].evaluate(
            p.values() | {"delta_kz": same}
        )
        mean = count / p.T
        assert abs(mean.mean() - exact) < 4 * mean.std() / np.sqrt(mean.size)


def test_other_tokens_do_not_depend_on_the_trigger():
    """Key idea 2: given z_T, each plain token but the answer occurs as often as
    without; 5% are six standard errors.
    """
    p = Parameters(N=8, K=2, T=7)
    tokens, answer, _ = sample(p, 120_000, np.random.default_rng(1))
    exact = equations()["token_mean_given"].evaluate(p.values() | {"delta_kz": 0.0})
    for trigger, z in itertools.product(range(p.K), range(p.K, p.N)):
        rows = (tokens[:, -1] == trigger) & (answer != z)
        mean = (tokens[rows] == z).mean(1)
        error = mean.std() / np.sqrt(mean.size)
        assert abs(mean.mean() - exact) < 4 * error and 6 * error < 0.05 * exact


def test_attention_focuses_step_by_step():
    """Key idea 3: each association makes attention on the answer grow: from 1/T, by the
    second step, to nearly 1 by the third.
    """
    p = Parameters(N=10, K=2, T=10, samples=8000, first_step=1.0)
    out = run(p)
    assert out.attention[0] == out.attention[1] == pytest.approx(1 / p.T, rel=1e-6)
    assert out.attention[2] > 1.5 / p.T and out.attention[3] > 0.9


def test_readout_of_nearly_orthonormal_embeddings():
    """u_y W e_z is the stored weight up to an error that falls as d^-1/2."""
    rng = np.random.default_rng(0)
    errors = []
    for d in (64, 1024):
        e, u = (
            q / np.linalg.norm(q, axis=1, keepdims=True)
            for q in rng.normal(size=(2, 30, d))
        )
        weights = rng.uniform(1, 2, size=30)
        scores = u @ superposition.hebbian(e, u, np.arange(30), weights) @ e.T
        errors.append(np.sqrt(((scores - np.diag(weights)) ** 2).mean()))
    # 870 wrong scores of variance 2/d and more: a few percent of scatter, and N/d^2
    # beside 2/d at d = 64.
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.2) and errors[1] < 0.1


def test_one_step_of_nearly_orthonormal_embeddings():
    """Autograd of the population loss, 50 keys, a random bijection: at d = 64 all are
    right, at 16, where 50 ln 50 is beyond d^2/2, most are not; logits are those of the
    step, off as d^-1/2.
    """
    size, off = 50, []
    for dimension in (16, 64, 256, 1024):
        rng = np.random.default_rng(0)
        e, u = (
            torch.tensor(superposition.unit_vectors(size, dimension, rng)) for _ in "eu"
        )
        target = torch.tensor(rng.permutation(size))
        W = torch.zeros(dimension, dimension, dtype=torch.float64, requires_grad=True)
        loss = torch.nn.functional.cross_entropy(e @ W.T @ u.T, target)
        (slope,) = torch.autograd.grad(loss, W)
        scores = e @ (-slope).T @ u.T
        right = (scores.argmax(1) == target).double().mean().item()
        assert right < 0.5 if dimension == 16 else right == 1
        hit = torch.nn.functional.one_hot(target, size).bool()
        at, known = {"N": size, "K": size, "eta": 1.0}, memory_equations()
        exact = [known[f"step_{which}"].evaluate(at) for which in ("right", "wrong")]
        gap = scores - torch.where(hit, *(torch.tensor(x) for x in exact))
        off.append(size * gap.square().mean().sqrt().item())
    # 2500 scores whose errors share their embeddings: a few per cent; 1/d beside d^-1/2
    # at d = 64.
    assert off[1] / off[2] == pytest.approx(2, rel=0.2)
    assert off[2] / off[3] == pytest.approx(2, rel=0.1) and off[3] < 0.05


def test_gradient_of_noisy_inputs():
    """Four noisy copies of each of three keys, none alike, labels by a law of each
    input: autograd against the class means, entry by entry.
    """
    rng, dimension, classes = np.random.default_rng(0), 4, 3
    x = np.repeat(rng.normal(size=(3, dimension)), 4, 0) + 0.5 * rng.normal(
        size=(12, dimension)
    )
    share, law = rng.dirichlet(np.ones(12)), rng.dirichlet(np.ones(classes), size=12)
    u = rng.normal(size=(classes, dimension))
    W = torch.tensor(rng.normal(size=(dimension, dimension)), requires_grad=True)
    log = torch.log_softmax(torch.tensor(x) @ W.T @ torch.tensor(u).T, 1)
    (measured,) = torch.autograd.grad(
        -(torch.tensor(share[:, None] * law) * log).sum(), W
    )
    predicted, prior = log.exp().detach().numpy(), share @ law
    arrays = {"u": u, "p_class": prior}
    for name, shares in (("mu_class", law), ("mu_class_hat", predicted)):
        arrays[name] = np.array(
            [
                sum(share[n] * shares[n, k] * x[n] for n in range(12)) / prior[k]
                for k in range(classes)
            ]
        )
    form = memory_equations()["gradient_noisy"].rhs.subs(symbols.K, classes).doit()
    for i, j in np.ndindex(dimension, dimension):
        found = entry_by_entry(form, {**arrays, "i": i + 1, "j": j + 1})
        assert found == pytest.approx(measured[i, j].item(), rel=1e-12, abs=1e-14)


def test_capacity_of_few_outputs():
    """Keys of which random memories recall 70%: twice as many for twice the dimension,
    more for more outputs; what Gaussian scores with the exact variances allow is met
    better as d grows.
    """
    eq = superposed.equations()

    def by_students(size, outputs, dimension):
        p = superposition.Parameters(d=dimension, N=int(size), M=outputs, draws=30)
        return superposition.recall(p)["accuracy"].mean()

    def by_theory(size, outputs, dimension):
        at = (size, outputs, dimension)
        spread = [
            math.sqrt(
                eq[f"classes_{q}"].lambdify(symbols.N, superposed.M, symbols.d)(*at)
            )
            for q in ("right", "wrong")
        ]
        return gaussian_accuracy(1.0, *spread, outputs)

    def capacity(recalled, outputs, dimension):
        low, high = 0.1 * outputs * dimension, 0.4 * outputs * dimension
        for _ in range(8):
            middle = math.sqrt(low * high)
            more = recalled(middle, outputs, dimension) > 0.7
            low, high = (middle, high) if more else (low, middle)
        return low

    small, large, more = ((8, 32), (8, 64), (16, 64))
    held = {at: capacity(by_students, *at) for at in (small, large, more)}
    off = [held[at] / capacity(by_theory, *at) - 1 for at in (small, large)]
    assert (
        off[0] > 2 * off[1] > 0 and off[1] < 0.08
    )  # leaks between keys that share an output
    assert held[large] / held[small] == pytest.approx(2, rel=0.08)
    assert 1.2 < held[more] / held[large] < 1.5  # the latter M / ln M, at leading order


def test_one_step_of_the_noisy_bigram_counts_labels():
    """One step of autograd from zero weights, entry by entry, on the data sets of
    `one_step`: with C[k, z] counting tokens z under label k, W_V is (C - column sums/(N
    + 1))/(n T); and what both paths recover is what `one_step` counts.
    """
    p = noisy_bigram.Parameters(N=6, T=4, n=16, a=0.3, draws=8)
    found = noisy_bigram.one_step(p, seed=3)
    for k, rng in enumerate(np.random.default_rng(3).spawn(p.draws)):
        context, _, label = noisy_bigram.sample(p, p.n, rng)
        learner = noisy_bigram.Learner(p, 0, dtype=torch.float64)
        logits = learner.logits(torch.as_tensor(context))
        loss = torch.nn.functional.cross_entropy(logits, torch.as_tensor(label))
        weights = [learner.student[name] for name in ("feed_forward", "value")]
        row, W_V = (-slope.numpy() for slope in torch.autograd.grad(loss, weights))
        C = np.zeros((p.N + 1, p.N))
        np.add.at(C, (label[:, None], context), 1)
        counts = np.bincount(label, minlength=p.N + 1)
        # Rounding of at most n terms of 1/n.
        np.testing.assert_allclose(
            W_V, (C - C.sum(0) / (p.N + 1)) / (p.n * p.T), atol=1e-15
        )
        np.testing.assert_allclose(row, counts / p.n - 1 / (p.N + 1), atol=1e-15)
        assert (row[-1] > row[:-1].max() + 1e-12) == found["feed_forward"][k]
        best = W_V[: p.N] > W_V[: p.N].max(0) - 1e-12  # ties are exact up to rounding
        assert (best.diagonal() / best.sum(0)).mean() == pytest.approx(
            found["value"][k], rel=1e-12
        )
    assert 0 < found["feed_forward"].mean() < 1 and 0 < found["value"].mean() < 1
