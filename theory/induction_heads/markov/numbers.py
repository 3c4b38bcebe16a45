"""Times of unigrams and bigrams as numbers."""

from functools import cache
from typing import Any

import numpy as np
from scipy.optimize import brentq

from theory import Limit, Scope, numeric, scope, sweep
from theory.associative_memory import ramp
from theory.induction_heads.markov import emergence
from theory.induction_heads.markov.emergence import W, c, v
from theory.induction_heads.markov.statement import D, U, k, m, rho

GAIN = 0.1  # share of the bigrams that has to be left to learn when the previous token is found
LARGEST = 40.0  # read-out over m up to which a root is sought


@cache
def compiled() -> list[Any]:
    """Score of content, rate of the score of position, time and clock of the read-out."""
    sizes = (k, m, D, U, rho)
    return [
        numeric.function(x, (c, v, W, *sizes))
        for x in (emergence.law(), emergence.flow().rhs[v], emergence.seconds(), emergence.ticks())
    ]


def along(p: Any, x: Any, y: float) -> Any:
    """Rate of the score of position over the read-out, at scores ``x`` on the balance and a
    read-out ``m y``.
    """
    c_now, given = p.m * y, (p.k, p.m, p.D, p.U, p.rho)
    square, rate, *_ = compiled()
    return rate(c_now, x, np.sqrt(square(c_now, x, 0.0, *given)), *given) / c_now


def read_out(p: Any) -> float:
    """Read-out over m when half of the first layer's attention is on the previous token: there its
    clock equals that of the scores; NaN if it never does.
    """
    end = np.array([np.log(p.D - 1)])

    def missing(y: float) -> float:
        shown = compiled()[3](p.m * y, 0.0, 0.0, p.k, p.m, p.D, p.U, p.rho)
        return float(np.log(shown / ramp.over_root(lambda x: 1 / along(p, x, y), end[0])))

    least = GAIN * along(p, end, 1e-6)[0]

    def valid(y: float) -> float:
        return float(along(p, end, y)[0] - least)

    ys = np.geomspace(1e-3, LARGEST, 60)
    signs = np.array([valid(y) > 0 for y in ys])
    if not signs.any():
        return float("nan")
    last_valid = np.flatnonzero(signs)[-1]
    last = (
        ys[last_valid]
        if last_valid == ys.size - 1
        else brentq(valid, ys[last_valid], ys[last_valid + 1])
    )
    return float(brentq(missing, ys[0], last)) if missing(last) > 0 else float("nan")


def bigrams(p: Any) -> float:
    """`emergence_time`, NaN where bigrams do not emerge."""
    return float(compiled()[2](p.m * read_out(p), 0.0, 0.0, p.k, p.m, p.D, p.U, p.rho))


def unigrams(p: Any) -> float:
    """`unigram_time`."""
    return float(emergence.equations()["markov_unigram"].evaluate(p))


GIVEN = (
    Limit("rho", "from 0.05 to 1", lambda p, runs: 0.05 <= p.rho <= 1),
    Limit("m", "at least 4", lambda p, runs: p.m >= 4),
    Limit("k", "at least 2 m", lambda p, runs: p.k >= 2 * p.m, reads=("m",)),
    Limit("D", "at least 8", lambda p, runs: p.D >= 8),
)


def fits(p: Any) -> bool:
    """Whether sizes and probability are allowed."""
    return all(limit.holds(p, None) for limit in GIVEN)


FOUND = Limit(
    "rho",
    "such that bigrams are not learnt before half of the first layer is on the previous token",
    lambda p, runs: not fits(p) or bool(np.isfinite(bigrams(p))),
    reads=("k", "m", "D", "U"),
)
APART = Limit(
    "D",
    "so large that unigrams take at most half the time of bigrams",
    lambda p, runs: not fits(p) or not unigrams(p) > bigrams(p) / 2,
    reads=("k", "m", "U", "rho"),
)
STUDENTS = "gradient descent in small steps from zero, lags beyond the chain's memory"
FREE = ("eta", "steps", "eval_every", "batch_size")
SCOPE = Scope("markov_time", STUDENTS, (*GIVEN, FOUND), free=FREE)
PLATEAU = Scope("markov_unigram", STUDENTS, (*GIVEN, FOUND, APART), free=FREE)
applies = scope.applies({"emergence": SCOPE, "plateau": PLATEAU})


@scope.guard(SCOPE)
@sweep.over_fields
def emergence_time(p: Any) -> float:
    """Time at which half of the first layer's attention is on the previous token: `markov_time` at
    the read-out whose clock equals the integral of the exact rate along the balance.

    In time of the flow, at any learning rate; `emergence_times` refuses those with few steps.
    """
    return bigrams(p)


@scope.guard(PLATEAU)
@sweep.over_fields
def unigram_time(p: Any) -> float:
    """Time at which half the probability is on the chain's states, `markov_unigram`."""
    return unigrams(p)


@scope.guard(PLATEAU)
@sweep.over_fields
def plateau_length(p: Any) -> float:
    """Time between both: the loss is near ln m, or falls to it."""
    return bigrams(p) - unigrams(p)


TIMES = {
    "T_unigram": (unigram_time, "time at which half the probability is on states of the chain"),
    "T_bigram": (emergence_time, "time at which half of the first layer is on the previous token"),
}
