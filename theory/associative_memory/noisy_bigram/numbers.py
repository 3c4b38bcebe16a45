"""Probabilities that memories are recovered from finite samples."""

import numpy as np
import scipy

from theory import Allowed, ParameterError, number, scope, sweep
from theory.associative_memory.noisy_bigram.parameters import ONE_STEP, Parameters

MOST = 2 * 10**8  # pairs of counts: 1.5 GB and a minute


@scope.guard(ONE_STEP)
@sweep.over_fields
def feed_forward_success(p: Parameters) -> float:
    """Probability that the noise token has strictly the largest count among n labels, exactly.

    With j noise labels, the counts of all other labels among the remaining n - j must be below j.
    Multinomial counts are Poisson counts, given their sum: the probability is a coefficient in a
    power of a truncated series, computed in floating point (all terms are positive).

    Raises
    ------
    ParameterError
        For so many samples that the sums take more than half a minute.
    """
    number("n", p.n, Allowed(high=4096), int)
    total = 0.0
    for j in range(1, p.n + 1):
        others = p.n - j
        if others == 0:
            inside = 1.0
        elif others > (j - 1) * p.N:
            inside = 0.0
        else:  # N Poisson counts, each below j, given that they add up to n - j
            scale = others / p.N
            series = scipy.stats.poisson.pmf(np.arange(min(j, others + 1)), scale)
            inside = _power(series, p.N, others) / scipy.stats.poisson.pmf(others, others)
        total += scipy.stats.binom.pmf(j, p.n, p.a) * inside
    return float(total)


def _power(series: np.ndarray, exponent: int, order: int) -> float:
    """Coefficient of x^order in a power of a polynomial with positive coefficients, by repeated
    squaring.
    """
    result, base = np.ones(1), series
    while exponent:
        if exponent & 1:
            result = np.convolve(result, base)[: order + 1]
        exponent >>= 1
        if exponent:
            base = np.convolve(base, base)[: order + 1]
    return float(result[order]) if len(result) > order else 0.0


@scope.guard(ONE_STEP)
@sweep.over_fields
def value_recovered(p: Parameters) -> float:
    """Recovered fraction of the value memory at finite N, with ties broken evenly: of the tokens z
    whose largest value entry among the N answers is z. The row of the noise token is
    excluded.

    Uses the exact distributions of the count of token z under its own label and under another one.
    The N - 1 other labels are treated as independent, although their numbers of samples add up to a
    constant.

    Raises
    ------
    ParameterError
        For more samples or tokens than the arrays of counts can hold.
    """
    number("n", p.n, Allowed(high=10**9), int)
    number("T", p.T, Allowed(high=10**7), int)
    labelled = np.arange(int(scipy.stats.binom.isf(1e-14, p.n, (1 - p.a) / p.N)) + 2)
    weight = scipy.stats.binom.pmf(labelled, p.n, (1 - p.a) / p.N)  # samples with a given label
    top = int(scipy.stats.binom.isf(1e-14, (p.T - 1) * labelled[-1], 1 / p.N)) + 2
    if labelled.size * (labelled[-1] + top) > MOST:
        raise ParameterError(
            f"n = {p.n}, T = {p.T}: too many counts, must be smaller for N = {p.N}"
        )
    c = np.arange(labelled[-1] + top)
    # Occurrences at the T - 1 random places.
    by_chance = scipy.stats.binom.pmf(c[:, None], (p.T - 1) * labelled, 1 / p.N)
    here = by_chance @ weight
    under_own_label = np.zeros(len(c))
    for count, w in zip(labelled, weight, strict=True):  # there each sample has z once more
        under_own_label[count:] += w * by_chance[: len(c) - count, count]
    at_most = np.cumsum(here)
    below = np.append(0.0, at_most[:-1])
    # Ties with j of N - 1 others are won with probability 1/(j + 1), averaged over a binomial.
    win = np.where(
        here > 1e-12,
        (at_most**p.N - below**p.N) / (p.N * np.maximum(here, 1e-300)),
        below ** (p.N - 1),
    )
    return float(under_own_label @ win)
