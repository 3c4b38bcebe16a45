"""What batches do to the order parameters of somebody's own module: bias and spread, in
numbers.

As `theory.statement.randomness.minibatches`, but over all weights: their covariance is
followed step by step, with slopes and curvature from differences of gradients.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils._pytree import tree_leaves, tree_map

from simulate.discover.loss import Loss, spread
from simulate.discover.subspace import Subspace
from theory.call.refusal import ParameterError, error_summary
from theory.runtime import memory
from theory.statement.randomness.fluctuations import ORDER
from theory.statement.randomness.minibatches import Path
from theory.statement.randomness.recursion import ZERO
from theory.statement.words.tree import require

# of weights, in differences of slopes and curvature; their error is its square
STEP = 1e-3
SAME = 1e-9  # relative difference of the loss and its mean over single inputs
Array = np.ndarray


class Single(nn.Module):
    """Gradients at many weights at once, and of single inputs.

    Raises
    ------
    ParameterError
        If torch cannot compute them so, or the loss is not the mean over single inputs.
    """

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss, self.module = loss, loss.module
        rows = {
            len(x) if isinstance(x, Tensor) and x.ndim else 0
            for x in tree_leaves(loss.inputs)
        }
        say = (
            "inputs: a batch takes some of their rows; they must be tensors with as"
            " many rows each"
        )
        require(len(rows) == 1 and rows != {0}, say)
        (self.rows,) = rows
        self.each = tree_map(lambda x: x[:, None], loss.inputs)
        needed = loss.bytes * (2 * loss.size + 1)
        require(
            not memory.exceeds(needed),
            f"module: gradients along all {loss.size} weights at once need"
            f" {memory.amount(needed)}; take fewer inputs or weights",
        )
        start, whole = torch.from_numpy(loss.start), loss(loss.start)
        self.singly: Any = functools.partial(vmap, in_dims=(None, 0))
        try:
            self.scatter(loss.start)
        except (
            ParameterError
        ):  # some functions, such as one_hot, look at the values of inputs
            self.singly = self.looped
        means = self.computed(self.singly(self.at), start, self.each)
        require(
            abs(means.mean() - whole) <= SAME * max(abs(whole), SAME),
            "loss: is not the mean of the losses of single inputs, from which batches"
            " are drawn",
        )

    def forward(self, inputs: Any) -> Tensor:
        """Loss of the module, as `functional_call` takes it."""
        return spread(self.loss.function, inputs)

    def at(self, theta: Tensor, inputs: Any) -> Tensor:
        """Loss at weights."""
        shapes = self.loss.shapes.items()
        weights = {k: theta[self.loss.places[k]].view(shape) for k, shape in shapes}
        if not [*self.module.parameters()]:  # weights by name
            return spread(lambda *of: self.loss.function.func(weights, *of), inputs)
        return functional_call(
            self, {f"module.{k}": x for k, x in weights.items()}, (inputs,)
        )

    def looped(self, function: Any) -> Any:
        """A function at every single input, one after the other."""

        def one(theta: Tensor, inputs: Any, k: int) -> Tensor:
            return function(theta, tree_map(lambda x: x[k], inputs))

        return lambda theta, inputs: torch.stack(
            [one(theta, inputs, k) for k in range(self.rows)]
        )

    def computed(self, function: Any, *of: Any) -> Array:
        """Numbers of a function that torch has made for many at once."""
        try:
            with self.loss.exactly():
                return function(*of).detach().numpy()
        except Exception as error:  # a stranger's code may raise anything
            raise ParameterError(
                "module: cannot be computed for many weights at once:"
                f" {error_summary(error)}; use torch.where for if and masks, no .item()"
            ) from error

    def gradients(self, thetas: Array) -> Array:
        """Gradients of the mean loss, a row for every row of weights."""
        of = vmap(grad(self.at), (0, None))
        return self.computed(of, torch.from_numpy(thetas), self.loss.inputs)

    def scatter(self, theta: Array) -> Array:
        """Covariance of the gradients of single inputs."""
        each = self.computed(
            self.singly(grad(self.at)), torch.from_numpy(theta), self.each
        )
        return np.atleast_2d(np.cov(each.T, ddof=0))


def spreads(slopes: Array, moments: Array) -> Array:
    """Standard deviations of combinations of weights,
    zero where only rounding is left.
    """
    variance, terms = (
        ((a @ x) * a).sum(1)
        for a, x in ((slopes, moments), map(abs, (slopes, moments)))
    )
    return np.sqrt(np.where(variance > ZERO * terms, variance, 0))


def path(
    subspace: Subspace, names: list[str], eta: float, steps: Array, batch_size: int
) -> Path:
    """Order parameters and the loss along descent with batches drawn with replacement;
    times at which they cross a level are not claimed.

    Parameters
    ----------
    subspace : Subspace
    names : list of str
        Of the order parameters.
    eta : float
        Learning rate.
    steps : array
        After which to look; increasing.
    batch_size : int

    Raises
    ------
    ParameterError
        As `Single`; if the descent diverges.
    """
    loss, single = subspace.loss, Single(subspace.loss)
    theta, bias = loss.start.copy(), np.zeros(loss.size)
    moments = np.zeros((loss.size, loss.size))
    order = subspace.coordinates(np.eye(loss.size)).T
    known = {}
    for n in range(int(steps[-1]) + 1):
        # Along the axes of the scatter all that is needed are gradients.
        sizes, axes = np.linalg.eigh(moments)
        around = np.concatenate([0 * axes[:1], STEP * axes.T, -STEP * axes.T])
        (slope,), up, down = np.split(
            single.gradients(theta + around), [1, 1 + loss.size]
        )
        hessian = axes @ (up - down) / (2 * STEP)
        if n in steps:
            slopes = np.vstack([order, slope])
            shift = slopes @ bias
            shift[-1] += (hessian * moments).sum() / 2
            values = [*subspace.coordinates(theta), loss(theta)]
            known[n] = np.array(
                [values, shift, spreads(slopes, moments), np.nan * shift]
            )
        bent = sizes @ (up + down - 2 * slope) / STEP**2
        with np.errstate(all="ignore"):  # of descent that diverges
            bias = bias - eta * (hessian @ bias + bent / 2)
            left = moments - eta * hessian @ moments
            moments = (
                left
                - eta * left @ hessian
                + eta**2 / batch_size * single.scatter(theta)
            )
            theta = theta - eta * slope
        said = f"eta = {eta:g}: the descent diverges; take it smaller"
        require(np.isfinite(theta).all() and np.isfinite(moments).all(), said)
    table = np.stack([known[n] for n in steps], -1)
    return Path([*names, "loss"], len(order), eta * steps, table, np.nan, ORDER)
