"""Batches: how the order in which an epoch visits the training set moves emergence times.

An epoch visits every sequence once, so that the noise of its batches cancels over the epoch. What
is left of it is the epoch in which attention emerges, and how responses change within an epoch.
The mean time moves because a sequence that is met once per epoch has not yet acted on itself, as it
does at every step of full-batch descent.
"""

from functools import cache

import sympy as sp

from theory import Equation, array, symbol, table, written_as
from theory.state_tracking.dressed import V
from theory.state_tracking.symbols import L, N, d_g, eta, g, i, j, n_train, ref

BEYOND = "beyond the paper: order of batches"
LINEAR = "linear response of the time"

B = symbol("B", "B", "sequences in a batch", integer=True, positive=True)
of_all = symbol("sigma_all", r"\sigma^{2}", "variance over the sequences of the set", positive=True)
batch_variance = symbol("batch_variance", r"\langle\xi^{2}\rangle", "variance of a batch mean")
batch_covariance = symbol(
    "batch_covariance", r"\langle\xi\xi'\rangle", "covariance of two batches of an epoch"
)
force_variance = symbol(
    "force_variance", r"s^{2}", "variance over sequences of the force on attention", positive=True
)
k, l = (
    symbol(f"{x}_step", rf"\mathsf{{{x}}}", "a step of an epoch", integer=True, positive=True)
    for x in ("k", "l")
)
e = symbol("epoch", "e", "an epoch", integer=True, positive=True)
epochs = symbol("epochs", "E", "epochs until attention emerges", integer=True, positive=True)
kernel = array(
    "kernel", r"\chi", "answer of the time to a force of one sequence, by epoch and step"
)
at = array("pi_step", r"\tilde\pi", "attention, by step of the epoch")
size = array("error_size", r"\epsilon", "size of the error of probabilities, by step and position")
time_variance = symbol(
    "time_variance",
    r"\langle\delta n^{2}\rangle",
    "variance of the steps until A = 1/2 over orders",
    nonnegative=True,
)
missed = array("missed", r"\delta f", "force on attention that sequences do not yet have on M")


def of_pairs() -> tuple[sp.Expr, sp.Expr]:
    """Variance of a batch mean, and covariance of the means of two batches of an epoch: deviations
    of all sequences sum to zero, so that any two have the same negative covariance.
    """
    pair = sp.Symbol("pair")
    (between,) = sp.solve(n_train * of_all + n_train * (n_train - 1) * pair, pair)
    variance = (B * of_all + B * (B - 1) * between) / B**2
    form = of_all * (1 / B - 1 / n_train) * n_train / (n_train - 1)
    return written_as(form, variance), between


def error_square() -> sp.Expr:
    """Squared error of the probabilities of a row with probability g of wrong states, all alike."""
    return written_as(g**2 * N / (N - 1), g**2 + (N - 1) * (g / (N - 1)) ** 2)


def over_orders() -> sp.Expr:
    """Variance of a sum over steps of responses to batch means."""
    x, y = sp.symbols("x y")  # sum of squares of answers; square of their sum
    variance, between = (f.subs(of_all, 1) for f in of_pairs())
    form = (n_train / B * x - y) / (n_train - 1)
    of_sums = written_as(form, variance * x + between * (y - x))
    last = n_train / B
    one = kernel[e, k, i, j]
    squares = sp.Sum(one**2, (k, 1, last), (i, 1, L), (j, 1, L))
    sums = sp.Sum(sp.Sum(one, (k, 1, last)) ** 2, (i, 1, L), (j, 1, L))
    return sp.Sum(of_sums.subs({x: squares, y: sums}), (e, 1, epochs))


def not_yet() -> sp.Expr:
    """Force on attention by which a sequence acts on itself in full-batch descent: every step moves
    M along the sequence's own gradient, over n, which changes its error at the same action at later
    steps. In an epoch of batches this move comes later, or came long before.
    """
    move = eta / (n_train * L) * at[l, i, j] * size[l, i]
    return size[k, i] * sp.Sum(move, (l, 1, k - 1))


@cache
def equations() -> dict[str, Equation]:
    """Noise of batches, variance of the time over orders, and the force that moves its mean."""
    variance, between = of_pairs()
    exact = table(
        ref(BEYOND),
        status="exact",
        batch_variance=(batch_variance, variance),
        batch_covariance=(batch_covariance, between),
    )
    closed = table(
        ref(BEYOND),
        status="leading order",
        force_variance=(
            force_variance,
            V * (1 - 1 / d_g) * error_square(),
            "entries of M independent with variance V_M",
            "what all actions share moves no attention",
        ),
        time_variance=(time_variance, over_orders(), LINEAR),
        missed_force=(missed[k, i, j], not_yet(), "sequences independent", LINEAR),
    )
    return exact | closed
