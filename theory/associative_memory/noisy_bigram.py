"""Noisy bigrams: the global association is learned long before the in-context one
(slides; Chen et al. 2024).
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy
import sympy as sp
import xarray as xr

from theory import (
    Allowed,
    BaseParameters,
    Chapter,
    Equations,
    ParameterError,
    Preset,
    Scope,
    number,
    parameter,
    symbol,
    written_as,
)
from theory.associative_memory.symbols import DERIVED, N, T, ref
from theory.call import scope
from theory.dynamics.catalogue import catalogue
from theory.equations.charts import gridded
from theory.symbols.fractions import factored

__all__ = [
    "Parameters",
    "applies",
    "equations",
    "feed_forward_success",
    "flows",
    "sections",
    "value_recovered",
]


# Parameters of the noisy bigram task, and which learners its theory describes


@dataclass(frozen=True)
class Parameters(BaseParameters):
    """A trigger's answer occurs in the context, but the label is a fixed noise token
    with probability a.

    Raises
    ------
    ParameterError
        For an unknown name or a value out of range.
    """

    PRESETS = {
        "one_step": Preset("One gradient step from n samples."),
        "ablation": Preset(
            "Both paths trained; more noise than clean answers.", N=32, T=16, a=0.6
        ),
    }
    N: int = parameter(64, "possible answers; the noise token is one more", low=2)
    T: int = parameter(8, "context tokens: the answer and T - 1 random ones", low=2)
    a: float = parameter(
        0.5, "probability that the label is the noise token", above=0, high=0.99
    )
    n: int = parameter(256, "samples of the one gradient step", low=1)
    draws: int = parameter(200, "independent data sets", low=2)
    eta: float = parameter(1.0, "learning rate of the ablated model", above=0)
    batch_size: int = parameter(128, "samples per step of the ablated model", low=1)
    steps: int = parameter(3000, "length of a run of the ablated model", low=1)
    eval_every: int = parameter(50, "steps between measurements", low=1)

    def quantities(self) -> dict[str, Any]:
        """Numbers by symbol name."""
        return {
            "N": self.N,
            "T": self.T,
            "a_noise": self.a,
            "n_samples": self.n,
            "lambda_labels": self.n * (1 - self.a) / self.N,
        }


ONE_STEP = Scope(
    "recovery from samples",
    "one gradient step from n samples",
    (),
    ("draws", "eta", "batch_size", "steps", "eval_every"),
)
applies = scope.applies({"one step": ONE_STEP})


# Probabilities that memories are recovered from finite samples

MOST = 2 * 10**8  # pairs of counts: 1.5 GB and a minute


@scope.pointwise(ONE_STEP)
def feed_forward_success(p: Parameters) -> float:
    """Probability that the noise token has strictly the largest count among n labels,
    exactly.

    With j noise labels, the counts of all other labels among the remaining n - j must
    be below j. Multinomial counts are Poisson counts, given their sum: the probability
    is a coefficient in a power of a truncated series, computed in floating point (all
    terms are positive).

    Raises
    ------
    ParameterError
        For so many samples that the sums take more than half a minute.
    """
    number("n", p.n, Allowed(high=4096), int)
    pmf = scipy.stats.poisson.pmf
    total = 0.0
    for j in range(1, p.n + 1):
        others = p.n - j
        if others == 0:
            inside = 1.0
        elif others > (j - 1) * p.N:
            inside = 0.0
        else:  # N Poisson counts, each below j, given that they add up to n - j
            series = pmf(np.arange(min(j, others + 1)), others / p.N)
            inside = _power(series, p.N, others) / pmf(others, others)
        total += scipy.stats.binom.pmf(j, p.n, p.a) * inside
    return float(total)


def _power(series: np.ndarray, exponent: int, order: int) -> float:
    """Coefficient of x^order in a power of a polynomial with positive coefficients, by
    repeated squaring.
    """
    result = np.ones(1)
    base = series
    while exponent:
        if exponent & 1:
            result = np.convolve(result, base)[: order + 1]
        exponent >>= 1
        if exponent:
            base = np.convolve(base, base)[: order + 1]
    if len(result) <= order:
        return 0.0
    return float(result[order])


@scope.pointwise(ONE_STEP)
def value_recovered(p: Parameters) -> float:
    """Recovered fraction of the value memory at finite N, with ties broken evenly: of
    the tokens z whose largest value entry among the N answers is z. The row of the
    noise token is excluded.

    Uses the exact distributions of the count of token z under its own label and under
    another one. The N - 1 other labels are treated as independent, although their
    numbers of samples add up to a constant.

    Raises
    ------
    ParameterError
        For more samples or tokens than the arrays of counts can hold.
    """
    number("n", p.n, Allowed(high=10**9), int)
    number("T", p.T, Allowed(high=10**7), int)
    binomial = scipy.stats.binom
    chance = (1 - p.a) / p.N
    labelled = np.arange(int(binomial.isf(1e-14, p.n, chance)) + 2)
    weight = binomial.pmf(labelled, p.n, chance)  # samples with a given label
    top = int(binomial.isf(1e-14, (p.T - 1) * labelled[-1], 1 / p.N)) + 2
    if labelled.size * (labelled[-1] + top) > MOST:
        raise ParameterError(
            f"n = {p.n}, T = {p.T}: too many counts, must be smaller for N = {p.N}"
        )
    c = np.arange(labelled[-1] + top)
    # Occurrences at the T - 1 random places.
    by_chance = binomial.pmf(c[:, None], (p.T - 1) * labelled, 1 / p.N)
    here = by_chance @ weight
    under_own_label = np.zeros(len(c))
    # there each sample has z once more
    for count, w in zip(labelled, weight, strict=True):
        under_own_label[count:] += w * by_chance[: len(c) - count, count]
    at_most = np.cumsum(here)
    below = np.append(0.0, at_most[:-1])
    # Ties with j of N - 1 others are won with probability 1/(j + 1), averaged over a
    # binomial.
    with_ties = (at_most**p.N - below**p.N) / (p.N * np.maximum(here, 1e-300))
    win = np.where(here > 1e-12, with_ties, below ** (p.N - 1))
    return float(under_own_label @ win)


# Sample complexity of each path

a = symbol(
    "a_noise",
    "a",
    "probability that the token behind the trigger is noise",
    positive=True,
)
n = symbol("n_samples", "n", "samples", integer=True, positive=True)
rate = symbol(
    "lambda_labels", r"\lambda", "samples with a given clean label", positive=True
)
others = symbol(
    "Lambda_chance",
    r"\Lambda",
    "chance occurrences of a token with other labels",
    positive=True,
)
fail = symbol(
    "p_fail",
    r"P_{\mathrm{fail}}",
    "probability that the feed-forward part misses the noise",
    positive=True,
)
recovered = symbol(
    "recovered", r"\varrho", "part of the value memory that is recovered", positive=True
)
count = symbol("c_count", "c", integer=True, nonnegative=True)
STATEMENT = (
    "Chen et al. 2024: feed-forward part after O(1) samples, attention after order N;"
    " model and formula derived here"
)
STEP = "one gradient step from zero"


def poisson(mean: sp.Expr, value: sp.Expr) -> sp.Expr:
    """Probability that a Poisson variable takes a value."""
    return mean**value * sp.exp(-mean) / sp.factorial(value)


@cache
def samples_equations() -> Equations:
    """Failure probability of the feed-forward path, its sample size, and the recovered
    fraction of the value memory.
    """
    # For n << sqrt(N) all other labels occur at most once, so that the noise token must
    # occur twice.
    binomial = sp.binomial(n, count) * a**count * (1 - a) ** (n - count)
    zero = sp.Integer(0)
    one = sp.Integer(1)
    failing = binomial.subs(count, zero) + binomial.subs(count, one)
    failing = written_as((1 - a) ** n + n * a * (1 - a) ** (n - 1), failing)
    small = symbol("x_na", "x", positive=True)  # n a, fixed as a -> 0
    limit = factored(sp.limit(failing.subs(n, small / a), a, 0))
    # The association z -> z has a Poisson(lambda) number of samples labelled z. Any
    # other label has z by chance, at most once as N grows. A single own sample ties
    # with Poisson(Lambda) chance ones, and the winner is drawn evenly.
    exactly_one = poisson(rate, one)
    at_least_two = 1 - poisson(rate, zero) - exactly_one
    tie = sp.summation(poisson(others, count) / (count + 1), (count, 0, sp.oo))
    won = written_as((1 - sp.exp(-others)) / others, factored(tie))
    share = sp.expand(at_least_two) + exactly_one * won
    share = share.subs(others, rate * (T - 1))
    chapter = Chapter(ref, status="leading order")
    chapter.state("bigram_fail", fail, failing, STATEMENT, STEP, "n well below sqrt(N)")
    scaling = "a -> 0 at fixed n a: the sample size is O(1/a), whatever N"
    chapter.state(
        "bigram_fail_scaled", fail, limit.subs(small, n * a), DERIVED, STEP, scaling
    )
    chapter.state("labels_per_answer", rate, n * (1 - a) / N, DERIVED, "exact")
    chapter.state(
        "value_recovered",
        recovered,
        share,
        STATEMENT,
        STEP,
        "N -> infinity at fixed n/N: depends on n and N through their ratio alone",
        "part of the tokens z whose largest value entry among answers is z, noise row"
        " aside",
    )
    return chapter.equations


# No dynamics: one step.
flows, sections, equations = catalogue(
    {"Noisy bigrams: samples needed": [samples_equations]}
)


# Tables for the explorer

PLACES: dict[str, list[float]] = {
    "N": [16, 64, 256],
    "a": [0.1, 0.3, 0.5, 0.7, 0.9],
    "n": [round(2 ** (k / 2)) for k in range(2, 19)],  # up to 512
}
NOISE = "probability that the noise token is learned"
VALUE = "part of the value memory that is recovered"
KINDS = {
    "noise_answered": (feed_forward_success, NOISE),
    "value_recovered": (value_recovered, VALUE),
}
STATUS = "noise: exact; value memory: closure (other labels taken as independent)"


@scope.guard(ONE_STEP)
def charts(p: Parameters) -> dict[str, xr.Dataset]:
    """Recovery over (N, a, n) at the length of the context in the parameters."""
    note = f"computed beforehand at the places of the sliders, for finite N, T = {p.T}"
    equation = samples_equations()["value_recovered"]
    recovery = gridded(p, PLACES, KINDS, equation, note, status=STATUS)
    return {"recovery at finite N": recovery}
