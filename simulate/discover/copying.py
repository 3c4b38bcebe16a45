"""Copies of a module do what the module does: the module itself computes one gradient
with the weights of its copy, at several places, and is left as it was.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from theory.call.refusal import ParameterError, error_summary
from theory.statement.words.tree import require

if TYPE_CHECKING:
    from simulate.discover.loss import Loss

# Distances from the start at which gradients are compared: some are changed only where
# they, or weights, are large.
PLACES = (0.0, 0.1, 1.0, 10.0)
SAME = {torch.float64: 1e-9, torch.float32: 1e-4}  # of what is computed twice
BUT = "is not what its copies would be trained with"
ADVICE = (
    "hooks and constraints on weights belong into the loss, as"
    " (self.w * self.mask).sum(); of what is frozen, requires_grad_(False)"
)


@contextlib.contextmanager
def lent(module: nn.Module, copy: nn.Module) -> Iterator[None]:
    """A module with the numbers of its copy. Afterwards its weights, gradients, buffers
    and attributes are as before.
    """
    pairs = [*zip(module.parameters(), copy.parameters(), strict=True)]
    parts = [*zip(module.modules(), copy.modules(), strict=True)]
    usual = [(own, own.data, own.grad) for own, _ in pairs]
    held = [
        (part, dict(vars(part)), dict(part._buffers), dict(part._parameters))
        for part, _ in parts
    ]
    try:
        for own, other in pairs:
            own.grad, own.data = None, other.detach().clone()
        for part, copy in parts:
            for name, x in vars(copy).items():
                if isinstance(x, Tensor):
                    vars(part)[name] = x
            for name, buffer in copy._buffers.items():
                part._buffers[name] = None if buffer is None else buffer.clone()
        yield
    finally:
        for part, attributes, buffers, weights in held:
            part._buffers.clear()
            part._buffers.update(buffers)
            part._parameters.clear()
            part._parameters.update(weights)
            vars(part).clear()
            vars(part).update(attributes)
        for own, numbers, gradient in usual:
            own.grad, own.data = None, numbers
            own.grad = gradient


def gradient(module: nn.Module, loss: Callable[[], Any], names: Any) -> Any:
    """Loss and gradients of a module's own weights after ``backward()``; an error if
    that moves them.
    """
    weights = dict(module.named_parameters())
    before = {k: weights[k].detach().clone() for k in names}
    value = loss()
    value.backward()
    for k, x in before.items():
        same = torch.equal(x, weights[k].detach())
        require(same, f"{k}: is changed when the loss or its gradient is computed")
    zero = functools.partial(torch.zeros_like, dtype=value.dtype)
    return float(value.detach()), {
        k: zero(x) if (g := weights[k].grad) is None else g.to_dense().clone()
        for k, x in before.items()
    }


def compare(loss: Loss, module: nn.Module, function: Callable | None) -> None:
    """Compare the loss and one ``backward()`` of a module with those of its copy.

    Raises
    ------
    ParameterError
        Naming the weight whose gradient is another.
    """
    if any(x.device.type != "cpu" for x in module.parameters()):
        hooked = [k for k, x in module.named_parameters() if x._backward_hooks]
        require(not hooked, f"{', '.join(hooked)}: the gradient {BUT}; {ADVICE}")
        return
    weights = dict(module.named_parameters())
    begun = loss.flat({k: weights[k].detach().to(loss.dtype) for k in loss.shapes})
    say = "module: its weights are not those of copy.deepcopy(module)"
    require(np.array_equal(begun, loss.own), say)
    close = SAME[loss.dtype]
    away = np.random.default_rng(2).normal(size=loss.size)
    own: Any = functools.partial(function, module) if function else module.loss
    for distance in PLACES:
        loss.load(loss.start + distance * away)
        theta = loss.flat(loss.leaves)  # as rounded
        try:
            value, slopes = loss.slopes(theta)
        except Exception:  # of a stranger's code, far away from the start
            continue
        if not (torch.isfinite(value).all() and torch.isfinite(slopes).all()):
            continue
        same = np.array_equal(loss.flat(loss.leaves), theta)
        require(same, "loss: changes weights; it must only compute")
        called = functools.partial(loss.call, loss.inputs, own)
        try:
            with lent(module, loss.module):
                theirs, gradients = gradient(module, called, loss.shapes)
        except ParameterError:
            raise
        except Exception as error:  # a stranger's code may raise anything
            raise ParameterError(f"module: {error_summary(error)}") from error
        expected, scale = loss.named(slopes.detach().numpy()), float(slopes.abs().max())
        ours = float(value.detach())
        equal = abs(theirs - ours) <= close * max(abs(ours), scale)
        require(equal, f"module: its loss {BUT}, with the same weights; {ADVICE}")
        for k, g in gradients.items():
            off = np.abs(g.numpy() - expected[k]).max(initial=0)
            require(off <= close * scale, f"{k}: the gradient {BUT}; {ADVICE}")
    loss.load(loss.start)
