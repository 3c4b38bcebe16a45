"""Code of chains of definitions with running sums: each operation and its transpose,
and the gradient of every loss that is such a chain.

Could see: a transposed sum from the wrong end, an entry too many or too few, a mean
that is a sum, entries put back in other places, a slope by a number that is not summed
over pairs.
"""

import numpy as np
import pytest
import sympy as sp
from scipy.special import digamma

from theory.induction_heads import dynamics
from theory.induction_heads.all_weights import burst, law, recent, running
from theory.induction_heads.all_weights.running import (
    after,
    before,
    mean,
    picked,
    total,
    with_gradient,
)

a, b, x, asked = sp.symbols("a b x asked")
line, later, earlier, alone, whole, some, value = sp.symbols(
    "line later earlier alone whole some value"
)
# `alone` enters only a plain sum: the slope by it is one number for all pairs.
OPERATIONS = {
    line: a * x + b,
    later: after(b * line**2),
    earlier: before(a * later + x),
    alone: a**2 * x + b,
    whole: total(alone),
    some: picked(earlier * line, asked),
    value: mean(some**2 + a * whole + sp.sin(b) * some),
}


def by_loops(at, xs, where):
    """The same chain entry by entry."""
    a, b = at
    n = range(len(xs))
    line = [a * x + b for x in xs]
    later = [sum(b * line[j] ** 2 for j in n if j > k) for k in n]
    earlier = [sum(a * later[j] + xs[j] for j in n if j < k) for k in n]
    whole = sum(a**2 * x + b for x in xs)
    some = [earlier[k] * line[k] for k in n][where]
    return sum(s**2 + a * whole + np.sin(b) * s for s in some) / len(some)


@pytest.mark.parametrize("where", [slice(None), slice(2, 3), slice(1, 4)])
def test_operations(where):
    """Value by loops, gradient by complex steps through them."""
    xs, at = np.array([0.3, -1.1, 0.7, 0.2, 1.9]), np.array([0.6, -0.4])
    told, slopes = with_gradient(OPERATIONS, [a, b], (x,), (x, asked))(at, xs, where)
    assert told == pytest.approx(by_loops(at, xs, where), rel=1e-13)
    steps = [by_loops(at + 1e-30j * e, xs, where).imag / 1e-30 for e in np.eye(2)]
    np.testing.assert_allclose(slopes, steps, rtol=1e-13)  # rounding


@pytest.mark.parametrize("of", [after, before])
def test_one_slope_for_all_pairs(of):
    """Of a plain sum of a running sum: the number of entries that each one is counted
    in.
    """
    xs = np.array([2.0, 3.0, 5.0, 7.0])
    chain = {later: of(a * x + b), value: total(later)}
    times = np.arange(4) if of == after else np.arange(4)[::-1]
    told, slopes = with_gradient(chain, [a, b], (x,), (x,))(np.array([0.5, 0.2]), xs)
    assert slopes == pytest.approx([times @ xs, times.sum()], rel=1e-14)
    assert told == pytest.approx(slopes @ [0.5, 0.2], rel=1e-14)


PLACES = np.array([6.0, 7.0, 8.0])
LOSSES = {
    "burst": lambda at: burst.loss_and_gradient(at, 7, 3),
    "burst, inclusive": lambda at: burst.loss_and_gradient(at, 7, 3, "inclusive"),
    "uniform query, three numbers": lambda at: dynamics.loss_and_gradient(at[:3], 6),
    "five numbers, last": lambda at: law.loss_and_gradient(at, 8),
    "five numbers, uniform": lambda at: law.loss_and_gradient(at, 8, "uniform"),
    "eight numbers, burst": lambda at: law.loss_and_gradient(at, 8, right=3),
    "recent": lambda at: recent.compiled()(
        at, 8.0, PLACES, digamma(8) - digamma(PLACES)
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_is_the_slope_of_every_loss(name):
    """Central differences; those of all weights are in test_induction_all_weights."""
    of, at, step = (
        LOSSES[name],
        0.5 * np.random.default_rng(4).standard_normal(19),
        1e-5,
    )
    gradient = of(at)[1]
    slopes = [
        (of(at + step * e)[0] - of(at - step * e)[0]) / (2 * step)
        for e in np.eye(19)[: len(gradient)]
    ]
    assert np.count_nonzero(gradient) >= 3
    np.testing.assert_allclose(
        gradient, slopes, atol=1e-9
    )  # step^2, and rounding over the step


def test_three_numbers_are_three_of_nineteen():
    """Uniform query: the loss of three numbers is that of all weights where the others
    are zero, from the scores of another derivation; so is its gradient.
    """
    state = np.array([0.7, 1.9, 0.6])
    places = [running.NAMES.index(n) for n in ("alpha_3", "beta_2", "gamma_3")]
    theta = np.zeros(len(running.NAMES))
    theta[places] = state
    for N in (1, 2, 7):
        told, slopes = dynamics.loss_and_gradient(state, N)
        loss, every = running.loss_and_gradient(theta, N, "uniform")
        assert told == pytest.approx(loss, rel=1e-13)
        np.testing.assert_allclose(slopes, every[places], atol=1e-14)
