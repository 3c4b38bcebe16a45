"""The logic module on the CPU: one thread per range of states, every sum in a fixed order.

Rows are grouped by (state, step), see `Groups`. For one state the logic matrices are a table of d_g
columns that fits into the first-level cache, and a row's logits are L scaled lookups. In the
backward pass the rows' errors are summed by (position of the action, action). Both gradients follow
from these sums, ``dM[a] = sum_j pi_j E[j, a]`` and ``dpi_j = sum_a M[a] . E[j, a]``, once per group
instead of once per row. A row's logits, softmax and error stay in registers (`rows`).
"""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simulate.state_tracking.groups import Groups
from simulate.state_tracking.rows import LANES, LARGEST, _gradients, _moments

_threads = functools.cache(ThreadPoolExecutor)
if hasattr(os, "register_at_fork"):  # a forked process has none of its parent's threads
    os.register_at_fork(after_in_child=_threads.cache_clear)


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
        N, many = groups.N, min(threads, groups.N)
        self.ranges = [(N * k // many, N * (k + 1) // many) for k in range(many)]
        self.parts = (0,) * -(-N // LANES)
        self.lanes = LANES * len(self.parts)
        kind = np.min_scalar_type(int(groups.actions.max()) * self.lanes)
        places = np.multiply(groups.actions, self.lanes, dtype=np.result_type(kind, np.uint16))
        self.groups, self.rows = replace(groups, actions=places), places.shape[1]

    def _over_states(self, kernel: Any, pi: Tensor, columns: Tensor, *results: Tensor) -> None:
        g, large = self.groups, ~(columns.abs().amax((1, 2, 3)) <= LARGEST)
        for b in range(len(pi)):
            given = (pi[b].numpy(), columns[b].numpy(), g.actions[b], g.targets[b], g.bounds[b])
            more = (self.parts, bool(large[b]), *(x[b].numpy() for x in results))
            first, *rest = [(*states, *given, *more) for states in self.ranges]
            others = [_threads(len(rest)).submit(kernel, *call) for call in rest]
            kernel(*first)
            for other in others:
                other.result()

    def gradients(self, pi: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of the summed loss for attention ``(B, L, L)`` and columns
        ``(B, N, d_g, N)``.
        """
        (B, N), L = columns.shape[:2], pi.shape[1]
        columns = self._filled(columns)
        d_pi, d_columns = pi.new_empty(B, N, L, L), torch.zeros_like(columns)
        self._over_states(_gradients, pi, columns, d_pi, d_columns)
        return d_pi.sum(1, dtype=torch.float64).to(pi.dtype), d_columns[..., :N]

    def moments(self, pi: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Summed loss ``(B,)`` and sums of powers of logits ``(B, 2, 4)``: correct, all."""
        loss = pi.new_empty(*columns.shape[:2], dtype=torch.float64)
        powers = loss.new_empty(*loss.shape, 2, 4)
        self._over_states(_moments, pi, self._filled(columns), loss, powers)
        return loss.sum(1), powers.sum(1)

    def _filled(self, columns: Tensor) -> Tensor:
        """Columns filled up to whole vectors."""
        B, N, d_g = columns.shape[:3]
        filled = columns.new_zeros(B, N, d_g, self.lanes)
        filled[..., :N] = columns
        return filled
