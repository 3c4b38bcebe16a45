"""The memory of Nguyen and Reddy (arXiv:2412.00104, their published code): a perceptron with two
hidden layers that learns the labels of random items. Its clock is the integral of the residual.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn.functional import logsigmoid

from simulate.induction_heads import task

DIMENSION, LEFT, MOST = 63, 2e-3, 50_000  # of items; residual at which a run ends; steps


def clocks(items: int, width: int = 128, seed: int = 0, eta: float = 0.5) -> dict[str, float]:
    """Clock of a perceptron on ``items`` Gaussian items with two labels, by full-batch descent.

    Parameters
    ----------
    items, width, seed : int
    eta : float
        Length of steps, the unit of time.

    Returns
    -------
    dict
        ``whole``: integral of the residual over all time, the power law of the second half of the
        run continued; ``half``: the same until the residual is half of its start; ``power``: of the
        residual in 1/t.

    Raises
    ------
    ArithmeticError
        If the items are not learnt.
    """
    random = task.generator(seed, "initialisation")
    x = torch.randn(items, DIMENSION, generator=random) / DIMENSION**0.5
    y = torch.arange(items) % 2 * 2.0 - 1
    layers = [nn.Linear(m, n) for m, n in ((DIMENSION, width), (width, width), (width, 1))]
    for layer in layers:
        for weight in (layer.weight.data, layer.bias.data):
            weight.uniform_(-1, 1, generator=random).div_(layer.in_features**0.5)
    net = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    descent, residual = torch.optim.SGD(net.parameters(), lr=eta), [0.5]
    while residual[-1] > LEFT:
        if len(residual) > MOST:
            raise ArithmeticError(f"{items} items are not learnt by a width of {width}")
        descent.zero_grad()
        right = net(x)[:, 0] * y
        logsigmoid(right).mean().neg().backward()
        descent.step()
        residual.append(float(torch.sigmoid(-right.detach()).mean()))
    left = np.array(residual[1:])
    t, late = eta * np.arange(1, len(left) + 1), len(left) // 2
    power = float(-np.polyfit(np.log(t[late:]), np.log(left[late:]), 1)[0])
    if power <= 1:
        raise ArithmeticError("the integral of the residual does not converge")
    return {
        "whole": float(eta * left.sum() + left[-1] * t[-1] / (power - 1)),
        "half": float(eta * left[: int(np.argmax(left < 0.25))].sum()),
        "power": power,
    }
