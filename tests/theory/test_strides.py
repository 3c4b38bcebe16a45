"""Descent in strides against descent epoch by epoch."""

import numpy as np
import pytest

from theory.state_tracking import Parameters
from theory.state_tracking.single_students.cavity import Cavity
from theory.state_tracking.single_students.fixed_disorder import FixedDisorder
from theory.state_tracking.single_students.integrate import (
    Strides,
    half_times,
    solve,
    sums,
)
from theory.state_tracking.single_students.realisation import Realisation, Start


class Plain:
    """Two members, ``x -> x + f(x)``."""

    def __init__(self, rate, *state):
        self.rate, self.state, self.calls = rate, list(state), 0

    def rates(self):
        self.calls += 1
        return self.rate(*self.state)


@pytest.mark.parametrize(
    "nodes", [[0.0], [5, 0], [3, 0, -1, -7], [40, 0, -11, -13, -14]], ids=str
)
def test_sums_are_exact_for_polynomials(nodes):
    """Whatever nodes and length: all powers below the number of nodes,
    and none beyond.
    """
    nodes = np.array(nodes, float)
    for many in (1, 2, 9, 40):
        weights = sums(nodes, np.ones(many))
        for power in range(len(nodes) + 1):
            exact = sum(float(k) ** power for k in range(many))
            found = weights @ nodes**power
            rounding = 1e-12 * many * max(many, np.abs(nodes).max()) ** power
            assert power == len(nodes) or abs(found - exact) <= rounding
        assert many == 1 or abs(found - exact) > 100 * rounding


def test_the_error_is_of_the_worst_member():
    """Of two seeds with three numbers each, and arrays of two shapes: neither hides the
    other.
    """
    rng = np.random.default_rng(0)
    state, size = [rng.normal(size=(2, 3)), rng.normal(size=(2, 2, 2))], [1e3, 1.0]
    rates = [[x * rng.normal(size=x.shape) for x in state] for _ in range(3)]

    def error(*members):
        def large(arrays):
            return [np.stack([size[b] * x[b] for b in members]) for x in arrays]

        system = Plain(None, *large(state))
        path = Strides(system)
        for place, found in enumerate(rates):
            system.rates = lambda found=found: large(found)
            path._rates(-place, place)
        return path._error([0, 1, 2], 5)

    assert error(0, 1) == pytest.approx(max(error(0), error(1)), rel=1e-12)
    assert min(error(0), error(1)) < 0.99 * error(0, 1)


def test_large_steps_are_descent_itself():
    """Where each epoch changes much, strides have one epoch, and nothing is left but
    rounding.
    """
    system = Plain(lambda x: [-1.7 * x * (1 - 0.1 * x)], np.array([[0.4], [0.2]]))
    path, x = Strides(system), system.state[0]
    for epoch in range(1, 41):
        x = x - 1.7 * x * (1 - 0.1 * x)
        while path.epoch + path.length < epoch:
            path.advance()
        if np.abs(x).max() > 1e-3:
            np.testing.assert_allclose(path.at(epoch)[0], x, rtol=5e-3)


def test_error_falls_with_the_tolerance():
    """A hundredth of the tolerance: at most a tenth of the error."""
    left = []
    for tolerance in (1e-3, 1e-5):
        path = Strides(
            Plain(lambda x: [0.03 * x * (1 - x)], np.array([[1e-3]])), tolerance
        )
        while path.epoch + path.length < 300:
            path.advance()
        x = 1e-3
        for _ in range(300):
            x += 0.03 * x * (1 - x)
        left.append(abs(path.at(300)[0][0, 0] / x - 1))
    assert 0 < left[1] < left[0] / 10


def test_divergence_ends():
    """Descent that diverges is followed to what is not finite, and stays there."""
    system = Plain(lambda x: [x**3], np.array([[2.0]]))
    path = Strides(system)
    with np.errstate(over="ignore", invalid="ignore"):
        while path.epoch + path.length < 10**6:
            path.advance()
    assert not np.isfinite(path.at(10**6)[0]).any() and system.calls < 100


P = Parameters(N=8, L=5, d_g=8, d_h=16, n_train=256, eta=0.7)


@pytest.mark.parametrize("kind", ["cavity", "disorder"])
def test_times_are_those_of_single_epochs(kind):
    """Time of A = 1/2 and curves against descent epoch by epoch: times to 2e-5, within
    what `TOLERANCE` claims, with a fifth of the calls.
    """
    start = Start.drawn(P, 1, np.random.default_rng(4))
    given = Realisation.drawn(P, start, np.random.default_rng(5))
    make = {
        "cavity": lambda: Cavity(P, start, accuracies=False),
        "disorder": lambda: FixedDisorder(P, start, given),
    }[kind]
    system, A = make(), []
    for _ in range(700):
        at = system.attention.forward(*system.state[:2])
        A.append(float(np.einsum("bii->", at)) / P.L)
        system.state = [
            x + f for x, f in zip(system.state, system.rates(), strict=True)
        ]
    k = int((np.array(A) >= 0.5).argmax())
    assert k > 50
    time = P.alpha(k - 1 + (0.5 - A[k - 1]) / (A[k] - A[k - 1]))
    assert half_times(make(), 699)[0] == pytest.approx(time, rel=2e-5)
    curve = solve(make(), range(0, 700, 13))
    np.testing.assert_allclose(
        curve.A[0], A[::13], atol=2e-4
    )  # A moves by 10 of itself at most
    one = make()
    path = Strides(one)
    calls, rates = [0], one.rates

    def counted():
        calls[0] += 1
        return rates()

    one.rates = counted
    while path.epoch + path.length < 699:
        path.advance()
    assert calls[0] < 140
