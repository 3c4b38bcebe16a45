"""Our gradient descent against torch's."""

import pytest
import torch

from simulate.training.learner import Descent


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_descent_is_that_of_torch_to_the_last_bit(decay):
    """Three steps on two matrices,
    one of them without a gradient in the second step.
    """

    def path(kind):
        torch.manual_seed(5)
        weights = [
            torch.randn(3, 4, requires_grad=True),
            torch.randn(4, requires_grad=True),
        ]
        optimizer = kind(weights, lr=0.3, weight_decay=decay)
        for number in range(3):
            optimizer.zero_grad()
            out = (weights[0].sin() ** 2).sum()
            (
                out if number == 1 else out + (weights[0] @ weights[1]).exp().sum()
            ).backward()
            optimizer.step()
        return torch.cat([w.detach().flatten() for w in weights])

    assert torch.equal(path(Descent), path(torch.optim.SGD))
