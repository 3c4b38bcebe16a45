"""Numba kernels of the logic module: one thread per range of states, every sum in a fixed order.

Rows are grouped by (state, step), see `Groups`. For one state the logic matrices are a table of d_g
columns that fits into the first-level cache, and a row's logits are L scaled lookups. In the
backward pass the rows' errors are summed by (position of the action, action). Both gradients follow
from these sums, ``dM[a] = sum_j pi_j E[j, a]`` and ``dpi_j = sum_a M[a] . E[j, a]``, once per group
instead of once per row. In training a row's logits, softmax and error stay in registers (`rows`).
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numba import njit, types
from numba.extending import overload
from torch import Tensor, from_numpy
from torch.nn.functional import pad

from simulate.state_tracking.groups import Groups
from simulate.state_tracking.rows import LANES, _gradients

NEVER = -1e30  # a logit whose softmax is 0
BLOCK = 64  # rows whose logits are stored at a time
SUMS = {
    "reassoc",
    "contract",
    "arcp",
    "nsz",
}  # sums are reordered at compile time only; NaN is preserved


def _exp(x):
    return np.exp(x)


@overload(_exp, inline="always")
def _exp_of(x):
    if x != types.float32:
        return lambda x: math.exp(x)
    ln2, log2e = math.log(2), np.float32(1 / math.log(2))
    c2, c3, c4, c5, c6 = (np.float32(ln2**k / math.factorial(k)) for k in range(2, 7))
    c1, one, half, lowest = np.float32(ln2), np.float32(1), np.float32(0.5), np.float32(-126)

    def exp(x):
        # 2^k e^(f ln 2) with |f| <= 1/2: the series to order 6 is exact to 1.2e-7, one unit in the
        # last place.
        y = max(x * log2e, lowest)
        k = np.floor(y + half)
        f = y - k
        series = one + f * (c1 + f * (c2 + f * (c3 + f * (c4 + f * (c5 + f * c6)))))
        return series * np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32)

    return exp


@njit(fastmath=SUMS, cache=True)
def _logits(weight, columns, actions, z):
    """Set ``z[i] = sum_j weight[j] columns[actions[i, j]]``, two places at a time."""
    rows, N = z.shape
    L = len(weight)
    for i in range(rows):
        zi = z[i]
        zi[:] = 0
        for j in range(0, L - 1, 2):
            u, v, a, b = (
                weight[j],
                weight[j + 1],
                columns[actions[i, j]],
                columns[actions[i, j + 1]],
            )
            for r in range(N):
                zi[r] += u * a[r] + v * b[r]
        if L % 2:
            u, a = weight[L - 1], columns[actions[i, L - 1]]
            for r in range(N):
                zi[r] += u * a[r]


@njit(fastmath=SUMS | {"nnan"}, cache=True)
def _largest(x):
    top = x[0]
    for r in range(1, len(x)):
        top = max(top, x[r])
    return top


@njit(fastmath=SUMS, cache=True)
def _exponentials(z):
    """Replace every row of logits by ``exp(z - max z)``."""
    rows, N = z.shape
    for i in range(rows):
        zi = z[i]
        top = _largest(zi)
        for r in range(N):
            zi[r] -= top
    flat = z.reshape(-1)
    for k in range(len(flat)):
        flat[k] = _exp(flat[k])


@njit(fastmath=SUMS, cache=True, nogil=True)
def _moments(first, last, pi, columns, actions, target, bounds, loss, powers):
    """Loss and sums of powers 1 to 4 of correct (0) and of all logits (1), per state."""
    N = columns.shape[2]
    L = len(pi)
    z = np.empty((BLOCK, N), columns.dtype)
    for s in range(first, last):
        loss[s] = 0
        powers[s] = 0
        for t in range(L):
            end = bounds[s * L + t + 1]
            for low in range(bounds[s * L + t], end, BLOCK):
                high = min(low + BLOCK, end)
                part = z[: high - low]
                _logits(pi[t], columns[s], actions[low:high], part)
                one, two, three, four = 0.0, 0.0, 0.0, 0.0
                for i in range(high - low):
                    x = np.float64(part[i, target[low + i]])
                    loss[s] += _largest(part[i]) - x
                    for k in range(4):
                        powers[s, 0, k] += x ** (k + 1)
                    for r in range(N):
                        x = np.float64(part[i, r])
                        one, two, three, four = (
                            one + x,
                            two + x * x,
                            three + x * x * x,
                            four + x * x * x * x,
                        )
                for k, part_power in enumerate((one, two, three, four)):
                    powers[s, 1, k] += part_power
                _exponentials(part)
                for i in range(high - low):
                    loss[s] += math.log(part[i].sum())


class Logic:
    """Gradients and moments of the logic module on the CPU.

    Parameters
    ----------
    groups : Groups
        Training rows of every student.
    threads : int
        Threads to share the states among; results do not depend on it.
    """

    def __init__(self, groups: Groups, threads: int = 1) -> None:
        self.groups = groups
        edges = np.linspace(0, groups.N, min(threads, groups.N) + 1).astype(int)
        self.ranges = list(zip(edges[:-1], edges[1:], strict=True))
        self.pool = ThreadPoolExecutor(len(self.ranges)) if len(self.ranges) > 1 else None
        self.parts = (0,) * -(-groups.N // LANES)
        self.fill = LANES * len(self.parts) - groups.N

    def _over_states(
        self, kernel, b: int, pi: Tensor, columns: Tensor, results: Any, scratch: Any = None
    ) -> None:
        g = self.groups
        given = (pi[b].numpy(), columns[b].numpy(), g.actions[b], g.targets[b], g.bounds[b])
        own = scratch or [()] * len(self.ranges)
        calls = [
            (*states, *given, *results, *more)
            for states, more in zip(self.ranges, own, strict=True)
        ]
        if self.pool is None:
            kernel(*calls[0])
        else:
            list(self.pool.map(lambda call: kernel(*call), calls))

    def gradients(self, pi: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of the summed loss for attention ``(B, L, L)`` and columns
        ``(B, N, d_g, N)``.
        """
        B, L = pi.shape[:2]
        N, d_g = columns.shape[1:3]
        columns = pad(columns, (0, self.fill))
        d_pi, d_columns = np.empty((B, N, L, L)), torch.empty_like(columns)
        start = columns.new_zeros(N + self.fill)
        start[N:] = NEVER
        # PyTorch's memory begins at a multiple of 64 bytes, so that no vector lies in two lines.
        scratch = [
            (self.parts, start.numpy(), columns.new_empty(L * d_g * len(start)).numpy())
            for _ in self.ranges
        ]
        for b in range(B):
            results = d_pi[b], d_columns[b].numpy()
            self._over_states(_gradients, b, pi, columns, results, scratch)
        return from_numpy(d_pi.sum(1)).to(pi.dtype), d_columns[..., :N]

    def moments(self, pi: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Summed loss ``(B,)`` and sums of powers of logits ``(B, 2, 4)``: correct, all."""
        B = len(pi)
        loss, powers = np.empty((B, self.groups.N)), np.empty((B, self.groups.N, 2, 4))
        for b in range(B):
            self._over_states(_moments, b, pi, columns, (loss[b], powers[b]))
        return from_numpy(loss.sum(1)), from_numpy(powers.sum(1))
