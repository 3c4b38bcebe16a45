"""A copy does what the module does, or the module is refused; and a call changes
nothing that others see.
"""

import threading

import pytest
import torch
from torch import nn

from simulate.discover import discover
from simulate.ensemble import ensemble
from theory.call.refusal import ParameterError

INPUTS = torch.tensor([-1.0, 1.0])
QUIET = dict(progress=False, workers=1, steps=4, seeds=2)


class Sum(nn.Module):
    """Two weights, of which only the sum counts."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(2))

    def loss(self, x):
        return 0.5 * ((self.w.sum() * x - x) ** 2).mean()


def masked():
    """The second weight is frozen by a hook on gradients."""
    made = Sum()
    made.w.register_hook(lambda g: g * torch.tensor([1.0, 0.0]))
    return made


def clipped():
    """Gradients are clipped, which is silent near the start."""
    made = Sum()
    made.w.register_hook(lambda g: g.clamp(-2, 2))
    return made


def accumulated():
    """A hook that changes gradients once they are accumulated."""
    made = Sum()

    def double(p):
        p.grad.mul_(2)

    made.w.register_post_accumulate_grad_hook(double)
    return made


def stepping():
    """Every backward pass is a step."""
    made = Sum()

    def step(p):
        with torch.no_grad():
            p -= 0.1 * p.grad

    made.w.register_post_accumulate_grad_hook(step)
    return made


class Own(Sum):
    """A copy is made in a way of its own."""

    def __deepcopy__(self, memo):
        made = Own()
        made.w.data += 1
        return made


class Bounded(nn.Module):
    """An embedding whose norm is kept below one, in place."""

    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(1, 1, max_norm=1.0)
        nn.init.zeros_(self.e.weight)

    def loss(self, x):
        return 0.5 * (self.e(torch.tensor([0])) - 3).square().mean()


@pytest.mark.parametrize("kind", [masked, clipped, accumulated, stepping, Own, Bounded])
def test_what_a_copy_does_not_do_is_refused(kind, tmp_path):
    inputs = INPUTS
    with pytest.raises(ParameterError, match="w|weight"):
        discover(kind(), inputs)
    with pytest.raises(ParameterError, match="w|weight"):
        ensemble(kind, inputs, store=tmp_path, batch=2, **QUIET)


def test_a_module_that_is_copied_stays_as_it_is():
    """Weights, gradients, buffers, attributes and precision."""
    made = nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 1))
    made[0].register_buffer("b", torch.ones(1))
    made(torch.ones(1, 1)).sum().backward()
    before = {k: x.clone() for k, x in made.state_dict().items()}
    pointers = [x.data_ptr() for x in made.parameters()]
    grads = [x.grad.clone() for x in made.parameters()]

    def loss(net, x):
        return (net(x[:, None]) - x[:, None]).square().mean()

    discover(made, INPUTS, loss_fn=loss, start=0.1)
    after = made.state_dict()
    assert all(torch.equal(x, after[k]) for k, x in before.items())
    assert [x.data_ptr() for x in made.parameters()] == pointers
    assert {x.dtype for x in made.parameters()} == {torch.float32}
    for x, g in zip(made.parameters(), grads, strict=True):
        assert torch.equal(x.grad, g)


def test_calls_in_threads_leave_torch_as_it_is(tmp_path):
    """And give what they give alone."""
    usual = torch.get_default_dtype()
    alone = discover(Sum(), INPUTS).to_dict()
    found, errors = [], []

    def search():
        try:
            found.append(discover(Sum(), INPUTS).to_dict())
        except Exception as error:
            errors.append(error)

    def train(k):
        try:
            ensemble(Sum, INPUTS, store=tmp_path / str(k), batch=2, **QUIET)
        except Exception as error:
            errors.append(error)

    for _ in range(3):
        threads = [threading.Thread(target=search) for _ in range(3)]
        threads += [threading.Thread(target=train, args=[k]) for k in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert torch.get_default_dtype() == usual
    assert not errors and all(x == alone for x in found)
