"""The histogram task: data, frozen weights,
learning and stability of both solutions.
"""

from __future__ import annotations

import pytest
import torch

from simulate.positional_semantic import histogram as h
from theory.positional_semantic.model.parameters import HistogramParameters

TINY = HistogramParameters(
    length=4,
    alphabet=4,
    samples=400,
    width=16,
    hidden=64,
    epochs=40,
    unfrozen_epochs=2,
    eta=3e-3,
)


def test_counts():
    """Occurrences of each token in its own sequence."""
    assert h.count(torch.tensor([[0, 1, 0, 2]])).tolist() == [[2, 1, 2, 1]]


def test_data_has_no_repetitions():
    """Train and test are disjoint."""
    train, test = h.sample(TINY)
    assert not {tuple(r) for r in train.tolist()} & {tuple(r) for r in test.tolist()}


@pytest.mark.parametrize("kind", h.KINDS)
def test_attention_reads_one_half(kind):
    """Positional attention sees positions and no tokens, semantic attention tokens and
    no positions.
    """
    torch.manual_seed(0)
    model = h.Counter(TINY, kind)
    a, b = model.attention(torch.tensor([[0, 1, 2, 3], [3, 1, 0, 2]])).detach()
    assert torch.allclose(a, b) == (kind == "positional")
    order = [3, 1, 0, 2]
    moved = a[order][:, order]
    assert not torch.allclose(moved, a, atol=1e-3)
    if kind == "positional":
        with torch.no_grad():
            model.positions.copy_(model.positions[order])
        b = model.attention(torch.tensor([[0, 1, 2, 3]]))[0].detach()
    assert torch.allclose(moved, b, atol=1e-6)


@pytest.mark.parametrize("kind", h.KINDS)
def test_counter_written_out(kind):
    """(21)-(24), position by position: embeddings added, one head without a residual
    connection, normalised, hidden ReLU, logits of the counts.
    """
    torch.manual_seed(1)
    model = h.Counter(TINY, kind).double()
    sequence = torch.tensor([2, 0, 3, 2])
    found = model(sequence[None])[0]
    _, first, _, last = model.read
    x = [model.tokens[a] + model.positions[i] for i, a in enumerate(sequence)]
    for i, query in enumerate(x):
        scores = torch.stack([model.Q.weight @ query @ (model.K.weight @ y) for y in x])
        beta = (scores / TINY.width**0.5).exp()
        mixed = sum(
            b * (model.V.weight @ y) for b, y in zip(beta / beta.sum(), x, strict=True)
        )
        g = (mixed - mixed.mean()) / (mixed.var(correction=0) + 1e-5) ** 0.5
        hidden = (first.weight @ g + first.bias).clamp(min=0)
        logits = last.weight @ hidden + last.bias
        assert logits.shape == (TINY.length + 1,)
        torch.testing.assert_close(logits, found[i], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", h.KINDS)
def test_loss_is_the_mean_over_all_tokens(kind):
    """(25): the gradient of a first step on all sequences is that of -ln p(count),
    averaged over sequences and positions.
    """
    p = TINY.replace(batch=TINY.samples)
    student = h.Learner(p, 0, torch.device("cpu"), torch.float64)
    model, copy = student.models[kind], h.Counter(p, kind).double()
    copy.load_state_dict(model.state_dict())
    chance, loss = torch.softmax(copy(student.train), 2), 0.0
    for row, tokens in enumerate(student.train.tolist()):
        for i, token in enumerate(tokens):
            loss = loss - chance[row, i, tokens.count(token)].log()
    (loss / student.train.numel()).backward()
    student.step(0)
    for name, weight in model.named_parameters():
        torch.testing.assert_close(
            weight.grad, copy.get_parameter(name).grad, rtol=1e-9, atol=1e-13
        )


def test_solutions_learn_and_last():
    """Better than guessing the commonest count; unfreezing moves little, and leaves
    attention as it was: of tokens in one solution alone.
    """
    found = h.solutions(TINY, 0, device="cpu", progress=False)
    _, test = h.sample(TINY)
    guess = h.count(test).flatten().bincount().max().item() / test.numel()
    for row in found.values():
        assert row["accuracy"] > guess + 0.2 and row["accuracy_unfrozen"] > guess + 0.2
        assert row["frozen_to_unfrozen"] < 0.1 * row["start_to_frozen"]
        assert row["formerly_zero"] > 0
        # A tenth of what attention varies by from place to place.
        moved = abs(row["attention_unfrozen"] - row["attention"])
        assert moved.max() < 0.1 * row["attention"].std()
    positional, semantic = (
        [row["dependence"], row["dependence_unfrozen"]]
        for row in (found["positional"], found["semantic"])
    )
    assert positional[0] < 1e-6 and positional[1] < 0.01 < 0.05 < min(semantic)


@pytest.mark.parametrize("kind", h.KINDS)
def test_frozen_halves_stay_zero(kind):
    """(26)-(28): tokens keep the right half at zero, positions the left one, queries
    and keys read the half of their kind; the rest moves.
    """
    student = h.Learner(TINY.replace(epochs=3), 0, torch.device("cpu"), torch.float32)
    model, start = student.models[kind], student.start[kind]
    for k in range(2):
        student.step(k)
    left, right = slice(None, TINY.width // 2), slice(TINY.width // 2, None)
    read, unread = (right, left) if kind == "positional" else (left, right)
    for name, moving, zero in (
        ("tokens", left, right),
        ("positions", right, left),
        ("Q.weight", read, unread),
        ("K.weight", read, unread),
    ):
        now = dict(model.named_parameters())[name].detach()
        assert not start[name][:, zero].any() and not now[:, zero].any()
        assert (now[:, moving] != start[name][:, moving]).float().mean() > 0.9
    student.step(2)  # the last frozen one: all are perturbed
    assert all(model.get_parameter(name).all() for name in model.masks)
