"""Machine code of the fixed-disorder theory: groups of rows, a current state at a time,
so that what belongs to a state stays in the cache; matrix products go to BLAS. The
groups of a state, step and correct action, are the last axis of all arrays, over which
the compiler takes several at once.

Arrays are those of `fixed_disorder`, without the axis over students. Pairs stand as
``pairs[s, j, b, i a]``, in shares of ``unit``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.polynomial.chebyshev import cheb2poly, poly2cheb

from theory.numbers.compiled import njit

# Sums are reordered, NaN is preserved, and no division checks for zero.
HOW: dict[str, Any] = {
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},
    "error_model": "numpy",
    "cache": True,
    "nogil": True,
}
LOG2E = 1 / math.log(2)
# Chebyshev series of 2^f for |f| <= 1/2, by powers of f: the next term is 3e-18.
DEGREE = 11
TAYLOR = [
    (math.log(2) / 2) ** k / math.factorial(k) for k in range(2 * DEGREE)
]  # in 2 f
SERIES = cheb2poly(poly2cheb(TAYLOR)[: DEGREE + 1]) * 2.0 ** np.arange(DEGREE + 1)
MOST = 1e290  # sums of e^z beyond, or below its inverse, are of descent that diverges


@intrinsic
def _wide(context):
    """Lets the compiler use the widest registers of the machine in the loops of a
    function; on some machines it takes half of them if not asked.
    """

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        # llvmlite lists the attributes that it knows, without those that have values.
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.none(), emit


@njit(inline="always", **HOW)
def _exp(x):
    """``e^x`` to 3e-15, and beyond |x| = 20 to 2e-16 |x|, the rounding of the exponent,
    in instructions on several numbers at once; the library's takes one.
    """
    y = min(
        max(x * LOG2E, -1000.0), 1023.0
    )  # far from numbers without leading digit, which are slow
    k = np.floor(y + 0.5)
    f = y - k
    power = SERIES[DEGREE]
    for n in range(DEGREE - 1, -1, -1):
        power = SERIES[n] + f * power
    return power * np.int64((np.int64(k) + 1023) << 52).view(np.float64)


@njit(**HOW)
def _exponentials(z):
    """Replace logits by ``e^z``, without a shift, which numbers of double precision do
    not need.
    """
    _wide()
    flat = z.reshape(-1)
    for k in range(len(flat)):
        flat[k] = _exp(flat[k])


@njit(**HOW)
def _attended(at, d):
    """Attention of the groups of a state to every place, and the sum of its squares
    elsewhere.
    """
    L = len(at)
    to = np.empty((L, L * d))
    rest = np.zeros(L * d)
    for i in range(L):
        own = slice(i * d, (i + 1) * d)
        for j in range(L):
            to[j, own] = at[i, j]
            if j != i:
                rest[own] += at[i, j] ** 2
    return to, rest


@njit(**HOW)
def _weights(to, pairs, unit, share, O):
    """Mean weights of actions in the groups of one state; returns the inverse shares of
    these, 0 for groups without rows.
    """
    _wide()
    (L, groups), d = to.shape, len(O)
    inverse = np.empty(groups)
    for g in range(groups):
        inverse[g] = 1 / share[g] if share[g] > 0 else 0.0
    for b in range(d):
        row = O[b]
        row[:] = 0
        for j in range(L):
            one = to[j]
            count = pairs[j, b]
            for g in range(groups):
                row[g] += one[g] * count[g]
        for g in range(groups):
            row[g] *= inverse[g] * unit
    return inverse


@njit(**HOW)
def weights(at, pairs, unit, share):
    """Mean weights ``(s, b, i a)`` of actions in the groups of one student."""
    N, L, d = share.shape
    O = np.empty((N, d, L * d))
    to = _attended(at, d)[0]
    for s in range(N):
        _weights(to, pairs[s], unit, share[s].reshape(-1), O[s])
    return O


@njit(**HOW)
def _table(M):
    """Of one state: entries, their variance over actions, their deviations from the
    mean, ones, and the mean. A matrix product of some of these rows with weights, or
    probabilities, gives the sums of a group.
    """
    d, N = M.shape
    rows = np.ones((2 * d + 3, N))
    variance = rows[d]
    mean = rows[2 * d + 2]
    variance[:], mean[:] = 0, 0
    for a in range(d):
        for r in range(N):
            rows[a, r] = M[a, r]
            mean[r] += M[a, r] / d
    for a in range(d):
        apart = rows[d + 1 + a]
        for r in range(N):
            apart[r] = M[a, r] - mean[r]
            variance[r] += apart[r] ** 2 / d
    return rows


@njit(**HOW)
def _scales(totals):
    """Inverse sums of exponentials of groups;
    NaN if they are of descent that diverges.
    """
    scale = np.empty(len(totals))
    for g in range(len(scale)):
        scale[g] = 1 / totals[g] if 1 / MOST < totals[g] < MOST else math.nan
    return scale


@njit(**HOW)
def _variance(sums, scale):
    """Of the logits of a row under the softmax, per variance of M, by group."""
    _wide()
    d = len(sums) - 2
    price = sums[0] * scale
    for c in range(1, d + 1):
        along = sums[c]
        for g in range(len(scale)):
            price[g] -= (along[g] * scale[g]) ** 2 / d
    return price


@njit(**HOW)
def _lifted(O, along, slope, keep, scale, out):
    """Weights of a group less what correlates with its logits, times a scale."""
    _wide()
    for c in range(len(O)):
        weight = O[c]
        met = along[c]
        lifted = out[c]
        kept = keep[c]
        for g in range(len(slope)):
            lifted[g] = scale[g] * (weight[g] - kept * slope[g] * met[g])


@njit(**HOW)
def _met(along, scale, level, right, out):
    """Derivatives of the loss of a row by its weights; ``right`` are entries at the
    right states, ``level`` what all actions have in common.
    """
    _wide()
    d = len(right)
    for b in range(d):
        met = out[b]
        sums = along[b]
        row = right[b]
        for g in range(len(scale)):
            met[g] = sums[g] * scale[g] + level[g]
        for g in range(0, len(scale), d):
            for a in range(d):
                met[g + a] -= row[a]


@njit(**HOW)
def _over_steps(O, share, out):
    """Sums over steps of the weights of actions, times the shares of groups."""
    _wide()
    d = len(O)
    for b in range(d):
        total = out[b]
        weight = O[b]
        total[:] = 0
        for g in range(0, len(share), d):
            for a in range(d):
                total[a] += share[g + a] * weight[g + a]


@njit(**HOW)
def _force(pairs, met, out):
    """Add derivatives by attention of one state's groups to every place, from those by
    the weights of a row.
    """
    _wide()
    d, groups = met.shape
    for j in range(len(out)):
        total = out[j]
        for b in range(d):
            one = met[b]
            count = pairs[j, b]
            for g in range(groups):
                total[g] += one[g] * count[g]


@njit(**HOW)
def _by_step(found, d):
    """Sums over correct actions, ``(i, ...)``, of what is per group."""
    many, groups = found.shape
    out = np.empty((groups // d, many))
    for k in range(many):
        for i in range(groups // d):
            out[i, k] = found[k, i * d : (i + 1) * d].sum()
    return out


@njit(**HOW)
def force(pairs, unit, share, met):
    """Derivatives of one student's loss by attention, at fixed scatter within groups;
    ``met[s, b, i a]`` is that of a row by the weight of action b.
    """
    N, L, d = share.shape
    by_group = np.zeros((L, L * d))
    for s in range(N):
        _force(pairs[s], met[s], by_group)
    return unit * _by_step(by_group, d)


@njit(**HOW)
def gradients(at, pairs, unit, share, left, M, target, keep, d_M):
    """Derivatives of one student's loss by attention, and by M, ``(s, a, r)``, which
    are written to ``d_M``. ``keep`` is 1 for actions that occur beside a state, and 0
    for others.
    """
    N, L, d = share.shape
    groups, (to, rest) = L * d, _attended(at, d)
    by_group = np.zeros((L, groups))
    cost = np.zeros((1, groups))
    O = np.empty((d, groups))
    z = np.empty((N, groups))
    sums = np.empty((d + 3, groups))
    lifted = np.empty((d + 1, groups))
    met = np.empty((d, groups))
    grown = np.empty((d + 1, N))
    level = np.empty(groups)
    asked = np.empty((d, d))
    ones = np.ones(groups)
    every = np.ones(d)
    for s in range(N):
        rows = _table(M[s])
        part = share[s].reshape(-1)
        mean = rows[2 * d + 2]
        apart = rows[d + 1 : 2 * d + 1]
        along = sums[1 : d + 1]
        spread = rest * left[s].reshape(-1) * _weights(to, pairs[s], unit, part, O)
        np.dot(rows[:d].T, O, z)
        _exponentials(z)
        np.dot(rows[d : 2 * d + 2], z, sums[: d + 2])
        scale = _scales(sums[d + 1])
        # The lift of logits by their variance is linear in M and in its variances.
        _lifted(O, along, spread / d * scale, every, ones, lifted)
        lifted[d] = spread / 2
        np.dot(rows[: d + 1].T, lifted, z)
        _exponentials(z)
        np.dot(rows[d:], z, sums)
        scale = _scales(sums[d + 1])
        price = _variance(sums[: d + 2], scale)
        right = apart[:, target[s]]
        for g in range(groups):
            level[g] = sums[d + 2, g] * scale[g] - mean[target[s, g % d]]
            cost[0, g] += left[s, g // d, g % d] * price[g]
        _met(along, scale, level, right, met)
        _force(pairs[s], met, by_group)
        _lifted(O, along, spread / d * scale, keep[s], part * scale, lifted)
        lifted[d] = spread / d * part * scale
        np.dot(lifted, z.T, grown)
        _over_steps(O, part, asked)
        for c in range(d):
            for r in range(N):
                d_M[s, c, r] = grown[c, r] + keep[s, c] * grown[d, r] * apart[c, r]
            for a in range(d):
                d_M[s, c, target[s, a]] -= asked[c, a]
    by_at = unit * _by_step(by_group, d)
    price_of = _by_step(cost, d)
    for i in range(L):
        for j in range(L):
            if i != j:
                by_at[i, j] += at[i, j] * price_of[i, 0]
    return by_at


@njit(**HOW)
def observed(at, pairs, unit, share, left, M, target):
    """Per step: first and second moments of the correct and of all logits, and the
    loss; sums of entries at the states of their own action, and of any.
    """
    _wide()
    N, L, d = share.shape
    groups, (to, rest) = L * d, _attended(at, d)
    found = np.zeros((5, groups))
    one = np.empty(groups)
    two = np.empty(groups)
    overlap = 0.0
    every = 0.0
    O = np.empty((d, groups))
    z = np.empty((N, groups))
    sums = np.empty((d + 2, groups))
    for s in range(N):
        rows = _table(M[s])
        part = share[s].reshape(-1)
        square = rows[d]
        mean = rows[2 * d + 2]
        for a in range(d):
            overlap += M[s, a, target[s, a]]
            every += d * mean[target[s, a]]
        spread = rest * left[s].reshape(-1) * _weights(to, pairs[s], unit, part, O)
        np.dot(rows[:d].T, O, z)
        one[:], two[:] = 0, spread * square.sum()
        for r in range(N):
            logit = z[r]
            for g in range(groups):
                one[g] += logit[g]
                two[g] += logit[g] ** 2
        for g in range(groups):
            y = target[s, g % d]
            right = z[y, g]
            found[0, g] += part[g] * right
            found[1, g] += part[g] * (right**2 + spread[g] * square[y])
            found[2, g] += part[g] * one[g]
            found[3, g] += part[g] * two[g]
            found[4, g] -= part[g] * right
        _exponentials(z)
        np.dot(rows[d : 2 * d + 2], z, sums)
        price = _variance(sums, _scales(sums[d + 1]))
        for g in range(groups):
            found[4, g] += part[g] * (
                math.log(sums[d + 1, g]) + spread[g] * price[g] / 2
            )
    return _by_step(found, d).T, (overlap, every)
