"""The memory of Nguyen and Reddy (arXiv:2412.00104, their published code): a perceptron with two
hidden layers that learns the labels of random items. Its clock is the integral of the residual.
"""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import logsigmoid

from simulate.induction_heads import task

# Of items; residual at which a run ends (it starts at 1/2); most steps.
DIMENSION, LEFT, MOST = 63, 2e-3, 50_000


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
        Integral of the residual until it is half of its start (``half``), and until it is `LEFT`
        (``whole``). Beyond that the integral grows very slowly: the late residual of a network
        homogeneous of degree 3 is 1/(t (ln t)^{4/3}) (Lyu and Li 2019, arXiv:1906.05890).

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
    return {
        "whole": float(eta * left.sum()),
        "half": float(eta * left[: int(np.argmax(left < 0.25))].sum()),
    }
