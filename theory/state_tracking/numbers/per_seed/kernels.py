"""Machine code of the fixed-disorder theory: groups of rows, a current state at a time, so that
what belongs to a state stays in the cache; matrix products go to BLAS.

Arrays are those of `fixed_disorder`, without the axis over students; ``pairs`` without entries
stands for an infinite training set.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

# Sums are reordered, NaN is preserved, and no division checks for zero.
HOW: dict[str, Any] = {
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},
    "error_model": "numpy",
    "cache": True,
    "nogil": True,
}
LOG2E = 1 / math.log(2)
# Series of 2^f for |f| <= 1/2: the next term is 4e-18.
DEGREE = 13
SERIES = np.array([math.log(2) ** k / math.factorial(k) for k in range(DEGREE + 1)])
MOST = 1e290  # sums of e^z beyond, or below its inverse, are of descent that diverges


@njit(inline="always", **HOW)
def _exp(x):
    """``e^x`` to 3e-15, and beyond |x| = 20 to 2e-16 |x|, the rounding of the exponent, in
    instructions on several numbers at once; the library's takes one.
    """
    y = min(
        max(x * LOG2E, -1000.0), 1023.0
    )  # far from numbers without leading digit, which are slow
    k = np.floor(y + 0.5)
    f, power = y - k, SERIES[DEGREE]
    for n in range(DEGREE - 1, -1, -1):
        power = SERIES[n] + f * power
    return power * np.int64((np.int64(k) + 1023) << 52).view(np.float64)


@njit(**HOW)
def _exponentials(z):
    """Replace logits by ``e^z``, without a shift, which numbers of double precision do not need."""
    flat = z.reshape(-1)
    for k in range(len(flat)):
        flat[k] = _exp(flat[k])


@njit(**HOW)
def _inverse(total):
    """One over a sum of exponentials; NaN where descent has diverged."""
    return 1 / total if 1 / MOST < total < MOST else math.nan


@njit(**HOW)
def _moments(M):
    """Mean and deviations of the entries of one state over actions."""
    d, N = M.shape
    mean = np.zeros(N)
    for a in range(d):
        for r in range(N):
            mean[r] += M[a, r] / d
    return mean, M - mean


@njit(**HOW)
def _weights(at, pairs, share, O):
    """Mean weights of actions in the groups of one state, rows over step and correct action."""
    L, d = share.shape
    O[:] = 0
    for i in range(L):
        block = O[i * d : (i + 1) * d].reshape(-1)
        if pairs.size == 0:
            for a in range(d):
                for b in range(d):
                    block[a * d + b] = (1 - at[i, i]) / d
                block[a * d + a] += at[i, i]
            continue
        for j in range(L):
            weight, count = at[i, j], pairs[i, j].reshape(-1)
            for k in range(d * d):
                block[k] += weight * count[k]
        for a in range(d):
            scale = 1 / share[i, a] if share[i, a] > 0 else 0.0
            for b in range(d):
                block[a * d + b] *= scale


@njit(**HOW)
def weights(at, pairs, share):
    """Mean weights ``(s, i a, b)`` of actions in the groups of one student."""
    N, L, d = share.shape
    O = np.empty((N, L * d, d))
    for s in range(N):
        _weights(at, pairs[s], share[s], O[s])
    return O


@njit(**HOW)
def _variances(at, share, left):
    """Variance of logits per variance of M of the groups of one state."""
    L, d = share.shape
    spread = np.zeros(L * d)
    for i in range(L):
        squares = 0.0
        for j in range(L):
            squares += at[i, j] ** 2 if j != i else 0.0
        for a in range(d):
            if share[i, a] > 0:
                spread[i * d + a] = squares * left[i, a] / share[i, a]
    return spread


@njit(**HOW)
def _table(M):
    """Entries of one state, their variances over actions, and ones, in rows and in columns: one
    matrix product of either with weights, or probabilities, gives all sums of a group.
    """
    d, N = M.shape
    deviation = _moments(M)[1]
    rows = np.ones((d + 2, N))
    rows[:d], rows[d] = M, (deviation**2).sum(0) / d
    return rows, rows.T.copy(), deviation


@njit(**HOW)
def _averages(e, columns, sums):
    """From exponentials of logits to means of the entries of M under the softmax, less their mean
    over actions; ``sums`` has these means themselves, then of variances, then the normaliser.
    """
    np.dot(e, columns, sums)
    groups, d = len(sums), sums.shape[1] - 2
    centred = np.empty((groups, d))
    for g in range(groups):
        scale, mean = _inverse(sums[g, d + 1]), 0.0
        for c in range(d + 1):
            sums[g, c] *= scale
        for c in range(d):
            mean += sums[g, c] / d
        for c in range(d):
            centred[g, c] = sums[g, c] - mean
    return centred


@njit(**HOW)
def _force(pairs, share, met, out):
    """Add derivatives by attention of one state's groups, from those by the weights of a row."""
    L, d = share.shape
    for i in range(L):
        gain = met[i * d : (i + 1) * d].reshape(-1)
        for j in range(L):
            total = 0.0
            if pairs.size == 0:
                for a in range(d):
                    one = gain[a * d : (a + 1) * d]
                    total += share[i, a] * (one[a] if i == j else one.sum() / d)
            else:
                count = pairs[i, j].reshape(-1)
                for k in range(d * d):
                    total += count[k] * gain[k]
            out[i, j] += total


@njit(**HOW)
def force(pairs, share, met):
    """Derivatives of one student's loss by attention, at fixed scatter within groups; ``met[s, i a,
    b]`` is that of a row by the weight of action b.
    """
    out = np.zeros((share.shape[1], share.shape[1]))
    for s in range(len(share)):
        _force(pairs[s], share[s], met[s], out)
    return out


@njit(**HOW)
def gradients(at, pairs, share, left, M, target, keep):
    """Derivatives of one student's loss by M, ``(s, a, r)``, and by attention. ``keep`` is 1 for
    actions that occur beside a state, and 0 for others.
    """
    N, L, d = share.shape
    d_M, by_at, cost = np.empty(M.shape), np.zeros((L, L)), np.zeros(L)
    O, z, sums = np.empty((L * d, d)), np.empty((L * d, N)), np.empty((L * d, d + 2))
    lifted, met, grown = np.empty((L * d, d + 1)), np.empty((L * d, d)), np.empty((d + 1, N))
    for s in range(N):
        rows, columns, deviation = _table(M[s])
        _weights(at, pairs[s], share[s], O)
        spread = _variances(at, share[s], left[s])
        np.dot(O, M[s], z)
        _exponentials(z)
        along = _averages(z, columns, sums)
        # The lift of logits by their variance is linear in M and in its variances.
        for g in range(L * d):
            for c in range(d):
                lifted[g, c] = O[g, c] - spread[g] / d * along[g, c]
            lifted[g, d] = spread[g] / 2
        np.dot(lifted, rows[: d + 1], z)
        _exponentials(z)
        along = _averages(z, columns, sums)
        asked = np.zeros((d, d))
        for i in range(L):
            for a in range(d):
                g = i * d + a
                right, scale = columns[target[s, a]], _inverse(sums[g, d + 1])
                weight, noisy = share[s, i, a] * scale, spread[g] * share[s, i, a] / d * scale
                # The loss due to the variance of logits: how probabilities spread along actions.
                # In loops of few arrays, which the compiler takes several numbers at once.
                price = sums[g, d]
                for c in range(d):
                    price -= along[g, c] ** 2 / d
                for c in range(d):
                    met[g, c] = sums[g, c] - right[c]
                for c in range(d):
                    lifted[g, c] = weight * O[g, c] - noisy * keep[s, c] * along[g, c]
                for c in range(d):
                    asked[a, c] += share[s, i, a] * O[g, c]
                lifted[g, d] = noisy
                cost[i] += left[s, i, a] * price
        np.dot(lifted.T, z, grown)
        for c in range(d):
            for r in range(N):
                d_M[s, c, r] = grown[c, r] + keep[s, c] * grown[d, r] * deviation[c, r]
            for a in range(d):
                d_M[s, c, target[s, a]] -= asked[a, c]
        _force(pairs[s], share[s], met, by_at)
    for i in range(L):
        for j in range(L):
            if i != j:
                by_at[i, j] += at[i, j] * cost[i]
    return d_M, by_at


@njit(**HOW)
def observed(at, pairs, share, left, M, target):
    """Per step: first and second moments of the correct and of all logits, and the loss."""
    N, L, d = share.shape
    totals = np.zeros((5, L))
    O, z, sums = np.empty((L * d, d)), np.empty((L * d, N)), np.empty((L * d, d + 2))
    for s in range(N):
        rows, columns, _ = _table(M[s])
        square, all_squares = rows[d], rows[d].sum()
        _weights(at, pairs[s], share[s], O)
        spread = _variances(at, share[s], left[s])
        np.dot(O, M[s], z)
        for i in range(L):
            for a in range(d):
                g, y = i * d + a, target[s, a]
                weight, right = share[s, i, a], z[g, y]
                one, two = 0.0, spread[g] * all_squares
                for r in range(N):
                    one += z[g, r]
                    two += z[g, r] ** 2
                totals[0, i] += weight * right
                totals[1, i] += weight * (right**2 + spread[g] * square[y])
                totals[2, i] += weight * one
                totals[3, i] += weight * two
                totals[4, i] -= weight * right
        _exponentials(z)
        along = _averages(z, columns, sums)
        for i in range(L):
            for a in range(d):
                g = i * d + a
                price = sums[g, d]
                for c in range(d):
                    price -= along[g, c] ** 2 / d
                totals[4, i] += share[s, i, a] * (math.log(sums[g, d + 1]) + spread[g] * price / 2)
    return totals
