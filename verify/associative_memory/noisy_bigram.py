"""Noisy bigrams: sample sizes of both paths against formula, collapse on n/N, and the
ablation.
"""

from collections.abc import Iterator

from simulate.associative_memory.noisy_bigram import Learner, Parameters, one_step
from theory.associative_memory.noisy_bigram import (
    equations,
    feed_forward_success,
    value_recovered,
)
from verify.checks.check import Band, Check, identity, listed, near, sampled
from verify.checks.report import reporting

# Noisy bigrams

SIZES = (64, 256)
RATIOS = (1, 4, 16)


@listed
def feed_forward() -> Iterator[Check]:
    """Probability of the noise token having the largest logit after one step: exact
    formula, leading order, and independence of N.
    """
    for N in SIZES:
        p = Parameters(N=N, n=8, draws=4000)
        yield sampled(
            f"feed-forward path, n = 8, N = {N}",
            "feed_forward_success",
            feed_forward_success(p),
            one_step(p, seed=N)["feed_forward"],
        )
    large = Parameters(N=10**6, n=8)
    yield identity(
        "  exact against leading order at N = 1e6",
        "bigram_fail",
        1 - equations()["bigram_fail"].number(large.values()),
        feed_forward_success(large),
        1e-4,
        "n^2/N = 6e-5",
    )


@listed
def value_memory() -> Iterator[Check]:
    """Recovered fraction of the value memory at finite N, and its limit, which depends
    on n/N only.
    """
    for N in SIZES:
        for ratio in RATIOS:
            p = Parameters(N=N, n=ratio * N, draws=120)
            measured = one_step(p, seed=ratio)["value"]
            predicted = value_recovered(p)
            limit = 1 / N / predicted
            shared = Band(
                -limit, limit, "wrong labels share their samples, of order 1/N"
            )
            name = f"value memory, n = {ratio} N, N = {N}"
            yield sampled(name, "value_recovered", predicted, measured, band=shared)
    for N in (10**5, 10**7):
        large = Parameters(N=N, n=4 * N)
        yield identity(
            f"  finite N against the limit, n = 4 N, N = {N:.0e}",
            "value_recovered",
            equations()["value_recovered"].number(large.values()),
            value_recovered(large),
            100 / N,
            "collapse on n/N: the distance is measured to be 30/N to 50/N",
        )


@listed
def ablation() -> Iterator[Check]:
    """Students with both paths predict the noise token; without the feed-forward path
    they predict the clean answer.
    """
    learner = Learner(Parameters.ablation(), seed=0)
    for number in range(1200):
        learner.step(number)
    measured = learner.measure()
    a = learner.p.a
    yield near(
        "whole model predicts the noise token",
        "slides",
        1.0,
        measured["distributional"],
        0.02,
        "noise is the more frequent label",
    )
    yield near(
        "whole model predicts the noise token with its probability a",
        "slides",
        a,
        measured["p_noise"],
        0.02 / a,
        "two standard errors of the last batches, 0.04 each",
    )
    yield near(
        "clean answer without the feed-forward path",
        "slides",
        1.0,
        measured["in_context_ablated"],
        0.01,
        "4096 samples",
    )


laws = reporting(feed_forward, value_memory, ablation)
