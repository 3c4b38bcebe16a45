"""The histogram task: data, what is frozen, and that both solutions learn and last."""

from __future__ import annotations

import pytest
import torch

from simulate.positional_semantic import histogram as h
from theory.parameters import ParameterError
from theory.positional_semantic.parameters import HistogramParameters

TINY = HistogramParameters(
    length=4, alphabet=4, samples=400, width=16, hidden=64, epochs=40, unfrozen_epochs=2, eta=3e-3
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
    """Positional attention does not see tokens, semantic attention no positions."""
    torch.manual_seed(0)
    model = h.Counter(TINY, kind)
    a, b = model.attention(torch.tensor([[0, 1, 2, 3], [3, 1, 0, 2]])).detach()
    assert torch.allclose(a, b) == (kind == "positional")
    if kind == "semantic":
        order = [3, 1, 0, 2]
        assert torch.allclose(a[order][:, order], b, atol=1e-6)


def test_solutions_learn_and_last():
    """Better than guessing the commonest count; frozen entries stay zero; unfreezing moves
    little.
    """
    found = h.solutions(TINY, 0, device="cpu", progress=False)
    _, test = h.sample(TINY)
    guess = h.count(test).flatten().bincount().max().item() / test.numel()
    for row in found.values():
        assert row["accuracy"] > guess + 0.2
        assert row["frozen_to_unfrozen"] < 0.1 * row["start_to_frozen"]
        assert 0 < row["formerly_zero"] < row["frozen_to_unfrozen"]
    assert found["positional"]["dependence"] < 1e-6 < 0.01 < found["semantic"]["dependence"]


def test_unknown_kind():
    """One line."""
    with pytest.raises(ParameterError, match="kind"):
        h.Counter(TINY, "both")
