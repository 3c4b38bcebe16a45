"""How many samples each path needs: the feed-forward one O(1/a), the value memory of the order of
N.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import scipy.stats
import sympy as sp

from theory import sweep
from theory.algebra import written_as
from theory.associative_memory.noisy_bigram.parameters import Parameters
from theory.associative_memory.symbols import DERIVED, N, T, ref
from theory.equation import Equation
from theory.notation import symbol

a = symbol("a_noise", "a", positive=True)
n = symbol("n_samples", "n", integer=True, positive=True)
rate = symbol("lambda_labels", r"\lambda", positive=True)  # samples with a given clean label
others = symbol(
    "Lambda_chance", r"\Lambda", positive=True
)  # chance occurrences of a token with other labels
fail = symbol("p_fail", r"P_{\mathrm{fail}}", positive=True)
recovered = symbol("recovered", r"\varrho", positive=True)
count = symbol("c_count", "c", integer=True, nonnegative=True)
STATEMENT = "Chen et al. 2024: feed-forward part after O(1) samples, attention after order N; model and formula derived here"
STEP = "one gradient step from zero"


def poisson(mean: sp.Expr, value: sp.Expr) -> sp.Expr:
    """Probability that a Poisson variable takes a value."""
    return mean**value * sp.exp(-mean) / sp.factorial(value)


@cache
def equations() -> dict[str, Equation]:
    """Failure of the feed-forward path, its sample size, and the recovered part of the value
    memory.
    """
    # All other labels are counted at most once while n << sqrt(N): the noise token must be counted
    # twice.
    binomial = sp.binomial(n, count) * a**count * (1 - a) ** (n - count)
    failing = sum(binomial.subs(count, sp.Integer(c)) for c in (0, 1))
    failing = written_as((1 - a) ** n + n * a * (1 - a) ** (n - 1), failing)
    small = symbol("x_na", "x", positive=True)  # n a, fixed as a -> 0
    limit = sp.simplify(sp.limit(failing.subs(n, small / a), a, 0))
    # Association z -> z collects the Poisson(lambda) samples labelled z; any other label collects z
    # by chance, once at most as N grows: one own sample ties with the Poisson(Lambda) chance ones,
    # of which the best is drawn evenly.
    at_least_two = 1 - poisson(rate, sp.Integer(0)) - poisson(rate, sp.Integer(1))
    tie = sp.simplify(sp.summation(poisson(others, count) / (count + 1), (count, 0, sp.oo)))
    share = sp.expand(at_least_two) + poisson(rate, sp.Integer(1)) * written_as(
        (1 - sp.exp(-others)) / others, tie
    )
    share = share.subs(others, rate * (T - 1))
    found = [
        Equation(
            "bigram_fail",
            fail,
            failing,
            ref(STATEMENT),
            "leading order",
            (STEP, "n well below sqrt(N)"),
        ),
        Equation(
            "bigram_fail_scaled",
            fail,
            limit.subs(small, n * a),
            ref(DERIVED),
            "leading order",
            (STEP, "a -> 0 at fixed n a: the sample size is O(1/a), whatever N"),
        ),
        Equation("labels_per_answer", rate, n * (1 - a) / N, ref(DERIVED)),
        Equation(
            "value_recovered",
            recovered,
            share,
            ref(STATEMENT),
            "leading order",
            (
                STEP,
                "N -> infinity at fixed n/N: depends on n and N through their ratio alone",
                "part of the tokens z whose largest value entry is z",
            ),
        ),
    ]
    return {e.name: e for e in found}


@sweep.over_fields
def feed_forward_success(p: Parameters) -> float:
    """Probability that the noise token has strictly the largest count among n labels, exactly.

    For j noise labels, the n - j others must all fall below j: the multinomial coefficient sum is a
    power of a truncated exponential series, raised term by term in floating point (all terms
    positive).
    """
    total = 0.0
    for j in range(1, p.n + 1):
        rest = p.n - j
        if rest == 0:
            inside = 1.0
        elif rest > (j - 1) * p.N:
            inside = 0.0
        else:  # (n-j)! N^-(n-j) [x^(n-j)] (sum_{i<j} x^i / i!)^N, with x scaled to keep terms near one
            scale = rest / p.N
            series = np.array(
                [
                    math.exp(i * math.log(scale) - math.lgamma(i + 1) - scale)
                    for i in range(min(j, rest + 1))
                ]
            )
            coefficient = _power(series, p.N, rest)
            inside = (
                coefficient * math.exp(math.lgamma(rest + 1) + rest - rest * math.log(rest))
                if coefficient > 0
                else 0.0
            )
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


@sweep.over_fields
def value_recovered(p: Parameters) -> float:
    """Recovered part of the value memory at finite N, ties broken evenly.

    Exact laws of the count of token z under its own label and under another one; the N - 1 other
    labels are taken as independent, which they are up to their common number of samples.
    """
    labelled = np.arange(int(scipy.stats.binom.isf(1e-14, p.n, (1 - p.a) / p.N)) + 2)
    weight = scipy.stats.binom.pmf(
        labelled, p.n, (1 - p.a) / p.N
    )  # samples that carry a given label
    top = int(scipy.stats.binom.isf(1e-14, (p.T - 1) * labelled[-1], 1 / p.N)) + 2
    c = np.arange(labelled[-1] + top)
    by_chance = scipy.stats.binom.pmf(
        c[:, None], (p.T - 1) * labelled, 1 / p.N
    )  # occurrences at the T - 1 random places
    here = by_chance @ weight
    own = np.zeros(len(c))
    for number, w in zip(
        labelled, weight, strict=True
    ):  # under its own label each sample holds z once more
        own[number:] += w * by_chance[: len(c) - number, number]
    at_most = np.cumsum(here)
    below = np.append(0.0, at_most[:-1])
    # Ties with j of N - 1 others are won with probability 1/(j + 1): the mean of a binomial
    # expansion.
    win = np.where(
        here > 1e-12,
        (at_most**p.N - below**p.N) / (p.N * np.maximum(here, 1e-300)),
        below ** (p.N - 1),
    )
    return float(own @ win)
