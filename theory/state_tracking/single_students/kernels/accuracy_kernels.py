"""Machine code of accuracies of single students: on given words in the fixed-disorder
theory, by columns in the cavity equations.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic
from scipy.special import ndtr

from theory.numbers.compiled import njit
from theory.state_tracking.single_students.kernels.fixed_disorder_kernels import HOW

# Normal probabilities, and their integral, as polynomials in (x^2 - MIDDLE) / (x^2 +
# MIDDLE), exact to 5e-14; beyond FAR a probability is 0 or 1 to 1e-15.
MIDDLE, DEGREE, FAR = 60.0, 20, 8.0
# Where wrong entries span fewer standard deviations of the noise, ten Gauss nodes
# suffice (1e-10).
SMOOTH = 4.0


def _polynomial(*coefficients: float) -> Any:
    """A polynomial as machine code without a loop, so that the compiler can vectorise
    it. It is emitted directly, because one Python function per power would take seconds
    to compile.
    """

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        flags = sorted(HOW["fastmath"])
        total, *others = (ir.Constant(args[0].type, c) for c in reversed(coefficients))
        for constant in others:
            total = builder.fadd(
                constant, builder.fmul(args[0], total, flags=flags), flags=flags
            )
        return total

    return intrinsic(lambda context, x: (x(x), emit))


def _even(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[float], float]:
    """Machine code of an even function up to FAR."""
    end = (FAR**2 - MIDDLE) / (FAR**2 + MIDDLE)
    fitted = np.polynomial.Chebyshev.interpolate(
        lambda t: function(np.sqrt(MIDDLE * (1 + t) / (1 - t))),
        DEGREE,
        domain=[-1, end],
    )
    return _polynomial(
        *fitted.convert(kind=np.polynomial.Polynomial, domain=[-1, 1]).coef.tolist()
    )


_over_x = _even(lambda x: (ndtr(x) - 0.5) / x)
_integral = _even(
    lambda x: x * (ndtr(x) - 0.5) + np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
)


@njit(inline="always", **HOW)
def _normal(x):
    """Probability that a standard normal number is below x."""
    x = min(max(x, -FAR), FAR)
    return 0.5 + x * _over_x((x * x - MIDDLE) / (x * x + MIDDLE))


@njit(inline="always", **HOW)
def _ramp(x):
    """Integral of the normal probability up to x, ``x Phi(x) + phi(x)``, for x within
    FAR.
    """
    return x / 2 + _integral((x * x - MIDDLE) / (x * x + MIDDLE))


@njit(**HOW)
def _first_guesses(M):
    """Per state and action: the largest entry of M, and by how much it leads; per
    state: by how much two entries of an action differ at most.
    """
    N, d, _ = M.shape
    top = np.zeros((N, d), np.int64)
    lead = np.empty((N, d))
    apart = np.zeros(N)
    for s in range(N):
        for a in range(d):
            row = M[s, a]
            best = row[0]
            second = -np.inf
            least = row[0]
            for r in range(1, N):
                least = min(least, row[r])
                if row[r] > best:
                    top[s, a], second, best = r, best, row[r]
                else:
                    second = max(second, row[r])
            lead[s, a] = best - second
            apart[s] = max(apart[s], best - least)
    return top, lead, apart


@njit(inline="always", **HOW)
def _likeliest(row, step, word, M, first, z):
    """State of the largest logit at a step of a word: ``row`` is the attention of the
    step, and ``M``, ``first`` belong to the current state.
    """
    top, lead, apart = first
    own = row[step]
    action = word[step]
    if own * lead[action] > (1 - own) * apart:  # whatever the other actions are
        return top[action]
    z[:] = 0
    for j in range(len(row)):
        entries = M[word[j]]
        weight = row[j]
        for r in range(len(z)):
            z[r] += weight * entries[r]
    best = 0
    for r in range(1, len(z)):
        if z[r] > z[best]:
            best = r
    return best


@njit(**HOW)
def answers(at, M, words, states):
    """Which steps of words are answered rightly, beside the right states, and which
    rollouts by the likeliest next states end rightly.

    Parameters
    ----------
    at : ndarray, shape (L, L)
        Attention.
    M : ndarray, shape (N, d, N)
        Entries by state, action and next state.
    words, states : ndarray, shapes (n, L) and (n, L + 1)
        Actions, and the states that they lead to.

    Returns
    -------
    ndarray, shape (n,)
        Share of right steps.
    ndarray, shape (n,)
        1 where the rollout ends in the right state, else 0.
    """
    (n, L), z = words.shape, np.empty(len(M), M.dtype)
    top, lead, apart = _first_guesses(M)
    right = np.zeros(n)
    ends = np.zeros(n)
    for w in range(n):
        rolled = states[w, 0]
        for i in range(L):
            s = states[w, i]
            first = top[s], lead[s], apart[s]
            guess = _likeliest(at[i], i, words[w], M[s], first, z)
            if guess == states[w, i + 1]:
                right[w] += 1 / L
            if rolled == s:
                rolled = guess
            else:
                first = top[rolled], lead[rolled], apart[rolled]
                rolled = _likeliest(at[i], i, words[w], M[rolled], first, z)
        if rolled == states[w, L]:
            ends[w] = 1
    return right, ends


@njit(**HOW)
def _below(low, step, wrong, width, first):
    """Distribution function of a number that is uniform between neighbours in
    ``wrong``, plus Gaussian noise, at equally spaced points.
    """
    points = len(first)
    cells = len(wrong) - 1
    ramp = np.empty(points)
    last = np.empty(points)
    for m in range(cells + 1):
        # Far from the edge of a cell the integral is zero or a straight line.
        begin = low - wrong[m]
        reach = FAR * width
        start = int(min(max((-begin - reach) / step + 1, 0.0), points))
        stop = int(min(max((-begin + reach) / step + 1, 0.0), points))
        ramp[:start] = 0
        for n in range(start, stop):
            ramp[n] = width * _ramp((begin + n * step) / width)
        for n in range(stop, points):
            ramp[n] = begin + n * step
        if m > 0:
            scale = 1 / (cells * (wrong[m] - wrong[m - 1]))
            for n in range(points):
                first[n] += (last[n] - ramp[n]) * scale
        last, ramp = ramp, last


@njit(**HOW)
def column_accuracies(
    z_k, z_w, u_k, u_w, fine, middle, of_v, others, points, nodes, weight
):
    """Probability that a column's correct logit is above all others: (L, shares), by
    step and share of the column in the training set.

    Logits are polynomials in the initial value, given at its nodes of weight ``of_v``;
    ``fine`` and ``middle`` interpolate to edges and middles of cells. Wrong entries,
    ``z_w``, are uniform between edges, correct ones, ``z_k``, are equally likely at
    middles; to both Gaussian noise of variance ``u_w`` and ``u_k`` is added. The
    distribution function of a wrong logit is computed at equally spaced points.
    """
    L, shares, parts = z_k.shape
    out = np.empty((L, shares))
    first = np.empty(points)
    K = len(middle)
    right_of = np.dot(z_k.reshape(-1, parts), middle.T).reshape(L, shares, -1)
    wrong_of = np.dot(z_w.reshape(-1, parts), fine.T).reshape(L, shares, -1)
    for i in range(L):
        s_k = math.sqrt(u_k[i])
        s_w = math.sqrt(u_w[i])
        edge = 5 * max(s_k, s_w)
        width = max(s_w, 1e-9)
        for e in range(shares):
            right = right_of[i, e]
            wrong = wrong_of[i, e]
            low = min(right[0], wrong[0]) - edge
            step = (max(right[-1], wrong[-1]) + edge - low) / (points - 1)
            if not abs(step) < np.inf:  # descent has diverged
                out[i, e] = math.nan
                continue
            first[:] = 0
            if abs(wrong[-1] - wrong[0]) < SMOOTH * width:
                for q in range(len(of_v)):
                    for n in range(points):
                        first[n] += of_v[q] * _normal(
                            (low + n * step - z_w[i, e, q]) / width
                        )
            else:
                _below(low, step, wrong, width, first)
            for n in range(points):
                first[n] = max(first[n], 0.0) ** others
            total = 0.0
            for m in range(K):
                for n in range(len(nodes)):
                    place = min(
                        max((right[m] + s_k * nodes[n] - low) / step, 0.0), points - 1.0
                    )
                    k = min(int(place), points - 2)
                    total += weight[n] * (
                        first[k] + (place - k) * (first[k + 1] - first[k])
                    )
            out[i, e] = total / K
    return out
