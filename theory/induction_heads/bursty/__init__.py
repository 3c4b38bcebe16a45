"""Induction heads on a burst of right pairs (Musat et al., Sec. 7.2): what bursts do to
the context length; derived from a statement (`theory.statement`).
"""

from functools import cache
from typing import Annotated, Any

import numpy as np
import sympy as sp

from theory import Allowed, Limit, ParameterError, Scope, gauss_legendre
from theory.call import scope
from theory.induction_heads.bursty import emergence, ramp
from theory.induction_heads.bursty.emergence import B, N, alpha, beta, gamma, stated
from theory.numbers import numeric
from theory.runtime import memory
from theory.statement.derivation import remedies
from theory.statement.model import package_theory

__all__ = [
    "Parameters",
    "applies",
    "derived",
    "effective_length",
    "emergence_time",
    "emergence_times",
    "equations",
    "flow",
    "flows",
    "onset",
    "predict",
    "random_time",
    "sections",
    "spread_time",
    "stated",
]


# Times and effective context lengths as numbers

THETA = 0.5  # of Theorem 2

LARGE_N = Limit("N", "at least 16", lambda p, runs: p.N >= 16)
SMALL_B = Limit(
    "B", "at most sqrt(N/2)", lambda p, runs: 2 * p.B**2 <= p.N, reads=("N",)
)
SCOPE = Scope(
    "burst_time",
    "gradient descent in small steps from zero, three numbers",
    (LARGE_N, SMALL_B),
    free=("eta", "steps", "eval_every", "batch_size"),
)
applies = scope.applies({"emergence": SCOPE})


@cache
def compiled() -> list[Any]:
    """Beta of alpha, rate of alpha at the best gamma, delay; at (alpha, N, B).

    The loss is a polynomial of second degree in gamma, so that all three come from the
    flow.
    """
    loss = remedies.derived(stated).loss
    square = sp.diff(loss, gamma, 2) / 2
    linear = sp.diff(loss, gamma).subs(gamma, 0)
    root = sp.sqrt(emergence.law())
    best = -linear / square / 2
    slope = -sp.diff(square, alpha) * best**2 - sp.diff(linear, alpha) * best
    return [
        numeric.function(root, (alpha, N, B)),
        numeric.function(slope, (alpha, beta, N, B)),
        numeric.function(emergence.delay(), (N, B)),
    ]


@scope.pointwise(SCOPE)
def emergence_time(p: Any) -> float:
    """Time at which alpha is 1/2: `burst_time`, with the rate of the exact flow on its
    path.

    In time of the flow, at any learning rate; `emergence_times` refuses those with few
    steps.
    """
    of_alpha, slope, delay = compiled()

    def slowness(x: np.ndarray) -> np.ndarray:
        return 1 / slope(x, of_alpha(x, p.N, p.B), p.N, p.B)

    return ramp.over_root(slowness, THETA) + float(delay(p.N, p.B))


@scope.pointwise(SCOPE)
def effective_length(p: Any) -> float:
    """Effective context length, `burst_effective_length` at threshold 1/2."""
    equation = emergence.equations()["burst_effective_length"]
    return equation.number({"N": p.N, "B": p.B, "theta": THETA})


NUMBERS = {
    "T_alpha": (emergence_time, "time at which alpha is 1/2"),
    "N_eff": (effective_length, "context length at which one right pair takes as long"),
}


# Emergence times of one head on a mixture of contexts, with right pairs at any places

TINY = 1e-30  # of complex steps
STEP = 1e-4  # of differences
ARRAYS = 16 * 10  # bytes, of complex numbers, by row of a context
OUTER = 16  # Gauss nodes of the time, over the root of alpha
INNER = 6  # and of beta


def bursts(N: int, sizes: Any) -> np.ndarray:
    """Contexts that end in bursts of given sizes: 1 at right pairs, shape (contexts,
    N).
    """
    return (np.arange(N) >= N - np.asarray(sizes)[:, None]).astype(float)


def zipf(largest: int, exponent: float) -> np.ndarray:
    """Chances of B = 1, ..., largest, proportional to B^(-exponent)."""
    chances = np.arange(1.0, largest + 1) ** -exponent
    return chances / chances.sum()


def spread(N: int, B: int, window: float, draws: int) -> np.ndarray:
    """Contexts with B right pairs at random places among the last ``window * N``."""
    last = round(window * N)
    rng = np.random.default_rng(0)
    right = np.zeros((draws, N))
    for row in right:
        row[N - 1 - rng.permutation(last)[:B]] = 1
    return right


Share = Annotated[
    float, Allowed(above=0, high=0.75)
]  # first rows see much: 13% off at 1
Exponent = Annotated[float, Allowed(low=0, high=50)]
Draws = Annotated[int, Allowed(low=1, high=10**5)]


class Mixture:
    """Contexts, one a row of zeros and ones, and their chances."""

    def __init__(self, right: np.ndarray, chances: np.ndarray) -> None:
        self.right = right
        self.chances = chances
        self.before = np.cumsum(right, axis=1) - right
        self.rows = 2.0 * np.arange(right.shape[1])

    def parts(self, alpha: complex, beta: complex) -> np.ndarray:
        """Mean weight of the right label, and of the squared output: the loss is 1 - 2
        gamma times the one, and gamma^2 times the other.

        A label retrieved ``e^alpha`` of its own item, and items before it; an item
        those before it. Right labels are one token, right items another, and all others
        differ.
        """
        grown = np.exp(alpha)
        label = (self.right * grown + self.before) / (grown + self.rows)
        item = self.before / np.maximum(self.rows, 1)
        on_label = np.exp(beta * label)
        on_item = np.exp(beta * item)
        labels = (self.right * on_label).sum(1)
        items = (self.right * on_item).sum(1)
        squares = labels**2 + items**2
        squares = squares + ((1 - self.right) * (on_label**2 + on_item**2)).sum(1)
        normaliser = (on_label + on_item).sum(1)
        mean_label = self.chances @ (labels / normaliser)
        return np.array([mean_label, self.chances @ (squares / normaliser**2)])

    def slopes(
        self, alpha: float, beta: float, share: float = 1.0
    ) -> tuple[np.ndarray, float]:
        """Rates of alpha and beta at a share of the best gamma; the rate at which gamma
        relaxes.
        """
        label, square = self.parts(alpha, beta)
        best = share * label / square
        by_alpha = self.parts(alpha + 1j * TINY, beta).imag
        by_beta = self.parts(alpha, beta + 1j * TINY).imag
        rates = [2 * best * a - best**2 * b for a, b in (by_alpha, by_beta)]
        return np.array(rates) / TINY, 2 * square

    def drive(self, alpha: float) -> float:
        """Rate of beta at beta = 0; the rate of alpha is beta times its slope, to first
        order.
        """
        return float(self.slopes(alpha, 0.0)[0][1])

    def beta(self, alpha: float) -> float:
        """Beta on the path, from the ratio of both rates."""
        points, weights = gauss_legendre(INNER, 0, alpha)
        ratios = []
        for x in points:
            slope = (self.drive(x + STEP) - self.drive(x - STEP)) / (2 * STEP)
            ratios.append(self.drive(x) / slope)
        return float(np.sqrt(2 * weights @ np.array(ratios)))

    def delay(self) -> float:
        """Time lost while gamma relaxes: the rate of beta has linear and quadratic
        parts in it.
        """
        (_, full), relaxing = self.slopes(0.0, 0.0)
        linear = 4 * self.slopes(0.0, 0.0, 0.5)[0][1] / full - 1
        return float((linear + 1.5 * (1 - linear)) / relaxing)

    def time(self) -> float:
        """Time at which alpha is 1/2, as `emergence_time` for a burst of one size."""
        root, weights = gauss_legendre(OUTER, 0, np.sqrt(THETA))
        rates = [self.slopes(x, self.beta(x))[0][0] for x in root**2]
        return float((2 * weights * root / rates).sum() + self.delay())


@scope.pointwise(SCOPE)
def random_time(p: Any, exponent: Exponent = 2.0) -> float:
    """Time at which alpha is 1/2 where a context ends in B right pairs, B = 1 ..
    ``p.B`` drawn with chances B^(-exponent).
    """
    memory.require(lambda q: ARRAYS * q.B * q.N, p, "contexts")
    return Mixture(bursts(p.N, np.arange(1, p.B + 1)), zipf(p.B, exponent)).time()


@scope.pointwise(SCOPE)
def spread_time(p: Any, window: Share = 0.5, draws: Draws = 256) -> float:
    """Time at which alpha is 1/2 where the B right pairs are at random places among the
    last ``window * N`` pairs; mean rates over drawn contexts.

    Raises
    ------
    ParameterError
        If the window holds fewer pairs than B.
    """
    memory.require(lambda q: ARRAYS * draws * q.N, p, "contexts")
    if round(window * p.N) < p.B:
        raise ParameterError(
            f"window = {window:g}: must hold B = {p.B} of N = {p.N} pairs"
        )
    return Mixture(spread(p.N, p.B, window, draws), np.full(draws, 1 / draws)).time()


(
    Parameters,
    derived,
    flow,
    flows,
    sections,
    equations,
    onset,
    emergence_times,
    predict,
) = package_theory(
    stated,
    {
        "Burst of right pairs: emergence": [emergence],
        "Bursts of random size": [emergence.mixture_equations],
    },
    NUMBERS,
)
