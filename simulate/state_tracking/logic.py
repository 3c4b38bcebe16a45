"""The logic module: training rows grouped by current state and step; its gradients and moments on
the CPU, one thread per range of states, and on other devices, all groups at once.

For one state the logic matrices are a table of d_g columns that fits into the first-level cache,
and a row's logits are L scaled lookups. On the CPU the rows' errors are summed by (position of the
action, action). Both gradients follow from these sums, ``dM[a] = sum_j pi_j E[j, a]`` and ``dpi_j =
sum_a M[a] . E[j, a]``, once per group instead of once per row. A row's logits, softmax and error
stay in registers (`rows`). Every sum has a fixed order, on every device.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from simulate.state_tracking.rows import LANES, LARGEST, _gradients, _moments
from theory.compiled import njit
from theory.state_tracking.task import Sequences


@dataclass(frozen=True)
class Groups:
    """Training rows (sequence, step) of B students, sorted by current state, then step.

    Attributes
    ----------
    actions : ndarray, shape (B, n L, L)
        All actions of the row's sequence.
    targets : ndarray, shape (B, n L)
        Next states.
    bounds : ndarray, shape (B, N L + 1)
        Rows ``bounds[s L + t]`` up to ``bounds[s L + t + 1]`` have state s and step t.
    N : int
        Number of states.
    """

    actions: np.ndarray
    targets: np.ndarray
    bounds: np.ndarray
    N: int

    @classmethod
    def of(cls, data: list[Sequences], N: int, chosen: Sequence[np.ndarray] | None = None) -> Self:
        """Group all sequences, or those ``chosen`` by number; once for the same ones, as
        current states are fixed under teacher forcing.
        """
        if chosen is None:
            chosen = [np.arange(len(d.actions)) for d in data]
        n = len(chosen[0])
        L = data[0].actions.shape[1]
        B = len(data)
        actions = np.empty((B, n * L, L), np.uint16)
        targets = np.empty((B, n * L), np.uint16)
        bounds = np.zeros((B, N * L + 1), np.int64)
        for b, d in enumerate(data):
            _sort(chosen[b], d.actions, d.states, actions[b], targets[b], bounds[b])
        return cls(actions, targets, bounds, N)


@njit(cache=True, nogil=True)
def _sort(chosen, actions, states, rows, targets, bounds):
    """Count the rows of every group, then write each row to the next place of its own."""
    L = actions.shape[1]
    for i in chosen:
        for t in range(L):
            bounds[states[i, t] * L + t + 1] += 1
    for k in range(1, len(bounds)):
        bounds[k] += bounds[k - 1]
    free = bounds.copy()
    for i in chosen:
        for t in range(L):
            group = states[i, t] * L + t
            k = free[group]
            free[group], targets[k] = k + 1, states[i, t + 1]
            for j in range(L):
                rows[k, j] = actions[i, j]


_threads = functools.cache(ThreadPoolExecutor)
if hasattr(os, "register_at_fork"):  # a forked process has none of its parent's threads
    os.register_at_fork(after_in_child=_threads.cache_clear)


class OnCPU:
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
        g = self.groups
        large = ~(columns.abs().amax((1, 2, 3)) <= LARGEST)
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
        d_pi = pi.new_empty(B, N, L, L)
        d_columns = torch.zeros_like(columns)
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


class OnDevice:
    """Gradients and moments of the logic module on any device, in torch alone.

    Parameters
    ----------
    groups : Groups
        Training rows of every student.
    device : torch.device
        Device of the data.
    """

    def __init__(self, groups: Groups, device: torch.device) -> None:
        B, self.rows, L = groups.actions.shape
        ends = groups.bounds.reshape(B, -1, 1)
        # Groups side by side, filled up to the largest one by rows that do not count.
        place = ends[:, :-1] + np.arange(np.diff(groups.bounds).max())
        here = (place < ends[:, 1:]).reshape(B, groups.N, L, -1)
        place = np.minimum(place, self.rows - 1).reshape(here.shape)
        student = np.arange(B)[:, None, None, None]
        self.here, self.actions, self.targets = (
            torch.as_tensor(x, device=device)
            for x in (
                here[..., None],
                groups.actions[student, place].astype(np.int64),
                groups.targets[student, place].astype(np.int64)[..., None],
            )
        )

    def _mixed(self, b: int, pi: Tensor, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of one student: weights of actions in every row, ``(N, L, row, d_g)``, the tables of the
        states, and the logits.
        """
        actions, table = self.actions[b], columns[b][:, None]
        every = torch.arange(table.shape[2], device=pi.device)
        weights = pi.new_zeros(*actions.shape[:3], len(every))
        for j in range(actions.shape[3]):
            weights += pi[b, :, j, None, None] * (actions[..., j, None] == every)
        return weights, table, weights @ table

    def gradients(self, pi: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of the summed loss for attention ``(B, L, L)`` and columns
        ``(B, N, d_g, N)``.
        """
        d_pi = torch.empty_like(pi)
        d_columns = torch.empty_like(columns)
        for b in range(len(pi)):
            weights, table, logits = self._mixed(b, pi, columns)
            right = self.targets[b] == torch.arange(logits.shape[3], device=pi.device)
            error = (torch.softmax(logits, 3) - right.to(logits)) * self.here[b]
            d_columns[b] = weights.flatten(1, 2).mT @ error.flatten(1, 2)
            d_pi[b] = (error @ table.mT).gather(3, self.actions[b]).sum((0, 2))
        return d_pi, d_columns

    def moments(self, pi: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Summed loss ``(B,)`` and sums of powers of logits ``(B, 2, 4)``: correct, all."""
        loss = pi.new_empty(len(pi), dtype=torch.float64)
        powers = loss.new_empty(len(pi), 2, 4)
        for b in range(len(pi)):
            logits = self._mixed(b, pi, columns)[2].double() * self.here[b]
            right = logits.gather(3, self.targets[b])
            norm = torch.logsumexp(logits, 3, keepdim=True) * self.here[b]
            loss[b] = (norm - right).sum()
            for kind, x in enumerate((right, logits)):
                powers[b, kind] = torch.stack([x.pow(k).sum() for k in range(1, 5)])
        return loss, powers
