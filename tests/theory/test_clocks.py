"""The clock of momentum against steps of `torch.optim.SGD`."""

import numpy as np
import pytest
import torch

from theory.dynamics import clocks
from verify.rates import rates

RULES = {"heavy_ball": False, "nesterov": True}
BETA = 0.6
H = 1.0  # slope of a gradient
MANY = 200  # steps after which the slowest decay alone is left


def path(nesterov, eta, gradient, steps):
    """Weights before and after every step, from one."""
    w = torch.ones(1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=eta, momentum=BETA, nesterov=nesterov)
    seen = [1.0]
    for _ in range(steps):
        w.grad = gradient(w.detach())
        optimizer.step()
        seen.append(w.item())
    return np.array(seen)


@pytest.mark.parametrize("rule", RULES)
def test_distance_under_a_constant_gradient(rule):
    """After few and after many steps."""
    seen = path(RULES[rule], 0.3, torch.ones_like, 12)
    clock = clocks.equations()[f"clock_{rule}"]
    for steps in (1, 2, 5, 12):
        told = clock.number({"eta": 0.3, "beta": BETA, "steps": steps})
        assert 1 - seen[steps] == pytest.approx(told, rel=1e-13)


@pytest.mark.parametrize("rule", RULES)
def test_plain_descent_with_the_same_path(rule):
    """Decay per clock on a quadratic loss: with the rate of plain descent that is
    derived the two differ in second order of the learning rate, with another one in
    first.
    """
    equations = clocks.equations()
    age = equations[f"age_{rule}"].number({"beta": BETA})

    def measured(eta):
        seen = path(RULES[rule], eta, lambda w: H * w, MANY)
        rate = equations["rate_momentum"].number({"eta": eta, "beta": BETA})
        return np.log(seen[-2] / seen[-1]) / rate

    def plain(eta, factor=1.0):
        rate = equations["rate_momentum"].number({"eta": eta, "beta": BETA})
        same = equations["plain_rate"].number({"rate": rate, "age": age})
        return -np.log(1 - factor * same * H) / (factor * same)

    steps = [0.005, 0.0025, 0.00125, 0.000625]
    assert rates(plain, measured, steps, 2).verdict == "agrees"
    assert rates(lambda eta: plain(eta, 1.1), measured, steps, 2).verdict == "FAIL"
