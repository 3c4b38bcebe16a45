"""Batches: how the order in which an epoch visits the training set moves emergence times.

An epoch visits every sequence once, so that the noise of its batches cancels over the epoch. What
is left of it is the epoch in which attention emerges, and how responses change within an epoch.
The mean time moves because a sequence that is met once per epoch has not yet acted on itself, as it
does at every step of full-batch descent.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import sympy as sp

from theory import (
    Allowed,
    Equation,
    ParameterError,
    arguments,
    array,
    scope,
    symbol,
    table,
    written_as,
)
from theory.runtime import memory
from theory.state_tracking.dressed import Dressed, V, forms
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.realisation import Start, started
from theory.state_tracking.scope import BATCHES
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


# Numerical theory of the order of batches

SMALL = 1e-4  # of finite differences, in weights of size one


@dataclass(frozen=True)
class Orders:
    """Steps until A = 1/2 over orders of the batches; arrays over starts, NaN where a run ends
    before.

    Attributes
    ----------
    half : ndarray
        Of full-batch descent; 0 from a start with A at or above 1/2, as are the other two.
    half_bias : ndarray
        Mean over orders, less that.
    half_sd : ndarray
        Standard deviation over orders.
    """

    half: np.ndarray
    half_bias: np.ndarray
    half_sd: np.ndarray


class Never(Exception):
    """Attention does not emerge within a run."""


class Path:
    """Full-batch path of one start until A = 1/2 by the dressed theory, and the linear response of
    that time to perturbations on the way.

    Parameters
    ----------
    p : Parameters
        Sizes, learning rate, and the longest run.
    start : Start
        One start.

    Raises
    ------
    Never
        If attention does not emerge within the run.
    """

    def __init__(self, p: Parameters, start: Start) -> None:
        self.p, self.start = p, start
        self.heads, self.size = 2 * p.d_h, 2 * p.d_h + 3
        self.system = Dressed(p, start)
        self.states, A = [_packed(self.system.state)], [self._A()]
        while A[-1] < 0.5:
            if len(A) > p.updates or not np.isfinite(A[-1]):
                raise Never
            self.states.append(self.states[-1] + _packed(self.system.rates()))
            self.system.state = self._unpacked(self.states[-1])
            A.append(self._A())
        self.steps, self.half = len(A) - 1, 0.0
        if not self.steps:
            return
        self.half = self.steps - 1 + (0.5 - A[-2]) / (A[-1] - A[-2])
        self.jacobians = [self._jacobian(n) for n in range(self.steps)]
        rise = np.eye(p.L).ravel() @ self.slopes(self.states[-1]) / p.L
        self.answers = [-rise / (A[-1] - A[-2])]  # responses of the time to a change of the state
        for J in reversed(self.jacobians):
            self.answers.insert(0, self.answers[0] + J @ self.answers[0])

    def _unpacked(self, x: np.ndarray) -> list[np.ndarray]:
        W_Q, W_K, *others = np.split(x, [self.p.d_h, *range(self.heads, self.size)], 1)
        return [W_Q, W_K, *(y[:, 0] for y in others)]

    def _A(self) -> float:
        return float(self.system.attention.parts(*self.system.state[:2])[1].mean())

    def attention(self, n: int) -> np.ndarray:
        """Attention at a step."""
        return self.system.attention.forward(*self._unpacked(self.states[n])[:2])[0]

    def _jacobian(self, n: int) -> np.ndarray:
        """Derivatives of the rates; first index the variable, second the rate."""
        eye = SMALL * np.eye(self.size)
        system = Dressed(self.p, self.start)
        system.zeta = np.repeat(self.start.zeta[:, None], 2 * self.size, 0)
        system.state = self._unpacked(np.concatenate([self.states[n] + eye, self.states[n] - eye]))
        up, down = np.split(_packed(system.rates()), 2)
        return (up - down) / (2 * SMALL)

    def errors(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Probability of wrong states by position at a step, and variance of the force of a
        sequence.
        """
        p = self.p
        self.system.state = self._unpacked(self.states[n])
        wrong = forms()["g"](self.system._means()[-1], p.N)[0]
        of_wrong = equations()["force_variance"].lambdify(g, V, N, d_g)
        return wrong, of_wrong(wrong, self.system.state[4], p.N, p.d_g)

    def slopes(self, state: np.ndarray) -> np.ndarray:
        """Derivatives of all attention entries by the state, shape (L^2, state)."""
        L, attention = self.p.L, self.system.attention
        W_Q, W_K, *_ = self._unpacked(state)
        one = np.eye(L**2).reshape(-1, L, L)
        by_heads = attention.backward(W_Q, W_K, attention.forward(W_Q, W_K), one)
        return np.pad(np.concatenate(by_heads, 1), ((0, 0), (0, self.size - self.heads)))

    def to_force(self, n: int, slopes: np.ndarray) -> np.ndarray:
        """Response of the time to a force on attention at a step."""
        L = self.p.L
        return -self.p.eta / L * (slopes @ self.answers[n + 1]).reshape(L, L)

    def bend(self, n: int, along: np.ndarray) -> np.ndarray:
        """Mixed second derivative of every attention entry, along the vector of the time's response
        and along a direction given for each entry.
        """
        answer = self.answers[n + 1]
        step = SMALL / np.linalg.norm(answer)
        up, down = (self.slopes(self.states[n] + h * answer) for h in (step, -step))
        return ((up - down) * along).sum(1) / (2 * step)


def _packed(state: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([x.reshape(len(x), -1) for x in state], 1)


def _path_memory(p: Parameters) -> float:
    """Peak memory in bytes: derivatives of all attention entries, and of the state at all steps."""
    return 8.0 * (6 * p.L**4 + 8 * p.L**2 * p.d_h + p.updates * (2 * p.d_h + 3) ** 2)


@scope.guard(BATCHES)
def batch_times(p: Parameters, start: Start, half: Any = None) -> Orders:
    """Steps until A = 1/2 over orders of the batches; NaN where a run ends before.

    Parameters
    ----------
    p : Parameters
        With the batch size, a divisor of the training set; times are in steps.
    start : Start
        Initial values.
    half : array_like, optional
        Steps of full-batch descent by start, where known, as the place in the last epoch matters:
        the theory's own number is off by a few per cent.

    Raises
    ------
    ParameterError
        If batches have different sizes, or attention of all entries does not fit into memory.
    """
    started(p, start)
    if p.L < 2:
        raise ParameterError(
            f"L = {p.L}: must be at least 2, attention on one action never emerges"
        )
    if p.n_train % (p.batch_size or p.n_train):
        raise ParameterError(f"batch_size = {p.batch_size}: must divide n_train = {p.n_train}")
    memory.require(_path_memory, p, "answers of all attention entries")
    known: list[Any] = [None] * len(start.R)
    if half is not None:
        given = arguments.array("half", half, Allowed(above=0)).astype(float).reshape(-1)
        if given.size != len(known):
            raise ParameterError(f"half: has {given.size} times, must have {len(known)}")
        known = given.tolist()
    ones = (Start(*(x[[b]] for x in vars(start).values())) for b in range(len(known)))
    rows = [_one(p, one, time) for one, time in zip(ones, known, strict=True)]
    return Orders(*np.array(rows).T)


def _one(p: Parameters, start: Start, half: float | None) -> tuple[float, float, float]:
    """Full-batch time, shift and deviation of one start."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # diverging descent does not get there
            return _answered(p, start, half)
    except (Never, OverflowError):
        return (float("nan"),) * 3


def _answered(p: Parameters, start: Start, half: float | None) -> tuple[float, float, float]:
    path, L, m = Path(p, start), p.L, p.batches
    if path.half == 0:
        return 0.0, 0.0, 0.0
    if half is not None:  # as many steps by another learning rate
        p = p.replace(eta=p.eta * path.half / half)
        path = Path(p, start)
    variance = shift = 0.0
    for n in range(path.steps):
        if n % m == 0:
            squares, sums = 0.0, np.zeros((L, L))
            moved = np.zeros((L, L))
            carried = np.zeros((L**2, path.size))
            done = variance
        wrong, force = path.errors(n)
        slopes = path.slopes(path.states[n])
        answer, attention = path.to_force(n, slopes), path.attention(n)
        # Scatter: responses to the forces of single sequences.
        kernel = answer * np.sqrt(force)[:, None]
        squares, sums = squares + (kernel**2).sum(), sums + kernel
        variance = done + (m * squares - (sums**2).sum()) / (p.n_train - 1)
        # Mean: steps that sequences have not yet made in M, and in keys and queries.
        error = wrong * np.sqrt(p.N / (p.N - 1))
        shift += p.eta / (p.n_train * L) * (answer * moved * error[:, None]).sum()
        bend = (np.repeat(force, L) * path.bend(n, carried)).sum()
        shift -= (p.eta / L) ** 2 / p.n_train * bend
        moved += attention * error[:, None]
        carried += carried @ path.jacobians[n] + slopes
    return half or path.half, float(shift), float(np.sqrt(variance))
