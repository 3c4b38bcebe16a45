"""The logic module: training rows grouped by current state and step; its gradients and
moments on the CPU, one thread per range of states, and on other devices, all groups at
once.

For one state the logic matrices are a table of d_g columns that fits into the
first-level cache, and a row's logits are L scaled lookups. On the CPU the rows' errors
are summed by (position of the action, action). Both gradients follow from these sums,
``dM[a] = sum_j pi_j E[j, a]`` and ``dpi_j = sum_a M[a] . E[j, a]``, once per group
instead of once per row. A row's logits, softmax and error stay in registers (`rows`).
Every sum has a fixed order, on every device.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from simulate.state_tracking.rows import LANES, LARGEST, _gradients, _moments
from theory.numbers.compiled import njit
from theory.state_tracking.model.task import Sequences

WORKSPACE = 2**31  # bytes, about, that students trained at once may take on a device


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
    def of(
        cls, data: list[Sequences], N: int, chosen: Sequence[np.ndarray] | None = None
    ) -> Self:
        """Group all sequences, or those ``chosen`` by number; once for the same ones,
        as current states are fixed under teacher forcing.
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
    """Count the rows of every group,
    then write each row to the next place of its own.
    """
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
        places = np.multiply(
            groups.actions, self.lanes, dtype=np.result_type(kind, np.uint16)
        )
        self.groups, self.rows = replace(groups, actions=places), places.shape[1]

    def _over_states(
        self, kernel: Any, pi: Tensor, columns: Tensor, *results: Tensor
    ) -> None:
        g = self.groups
        large = ~(columns.abs().amax((1, 2, 3)) <= LARGEST)
        for b in range(len(pi)):
            given = (
                pi[b].numpy(),
                columns[b].numpy(),
                g.actions[b],
                g.targets[b],
                g.bounds[b],
            )
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
        """Summed loss ``(B,)`` and sums of powers of logits ``(B, 2, 4)``: correct,
        all.
        """
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
    """Gradients and moments of the logic module on any device, in torch alone; on a
    GPU, where there is a compiler of C, compiled.

    Parameters
    ----------
    groups : Groups
        Training rows of every student.
    device : torch.device
        Device of the data.
    compiled : bool, optional
        Whether to compile; the first call of a shape then takes seconds.
    """

    def __init__(
        self, groups: Groups, device: torch.device, compiled: bool | None = None
    ) -> None:
        B, self.rows, L = groups.actions.shape
        ends = groups.bounds.reshape(B, -1, 1)
        # Groups side by side, filled up to the largest one, rounded up so that stacks
        # of a setting share what is compiled, by rows that do not count.
        most = int(np.diff(groups.bounds).max())
        unit = 1 << max(0, most.bit_length() - 4)
        place = ends[:, :-1] + np.arange(-(-most // unit) * unit)
        here = (place < ends[:, 1:]).reshape(B, groups.N, L, -1)
        place = np.minimum(place, self.rows - 1).reshape(here.shape)
        student = np.arange(B)[:, None, None, None]
        self.data = [
            torch.as_tensor(x, device=device)
            for x in (
                groups.actions[student, place].astype(np.int32),
                groups.targets[student, place].astype(np.int32)[..., None],
                here[..., None],
            )
        ]
        if compiled is None:
            compiled = device.type == "cuda" and any(
                map(shutil.which, ("gcc", "clang", "cc"))
            )
        self.compiled = compiled

    def _over_students(
        self, work: Any, pi: Tensor, columns: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Results of all students, as many at once as `WORKSPACE` holds."""
        work = _compiled(work) if self.compiled else work
        _, N, d_g, _ = columns.shape
        each = 2 * self.data[2][0].numel() * (d_g + N) * columns.element_size()
        given = (pi, columns.contiguous(), *self.data)
        parts = zip(*(x.split(max(1, WORKSPACE // each)) for x in given), strict=True)
        first, second = zip(*(work(*part) for part in parts), strict=True)
        return torch.cat(first), torch.cat(second)

    def gradients(self, pi: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of the summed loss for attention ``(B, L, L)`` and columns
        ``(B, N, d_g, N)``.
        """
        return self._over_students(_gradients_at_once, pi, columns)

    def moments(self, pi: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Summed loss ``(B,)`` and sums of powers of logits ``(B, 2, 4)``: correct,
        all.
        """
        return self._over_students(_moments_at_once, pi, columns)


@functools.cache
def _compiled(work: Any) -> Any:
    torch._dynamo.config.recompile_limit = 2**12  # else, after 8 shapes, not compiled
    return torch.compile(work, dynamic=False)


def _mixed(
    pi: Tensor, columns: Tensor, actions: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights of actions in every row, tables, and logits; students and states in one
    axis, steps and rows in the next.
    """
    every = torch.arange(columns.shape[2], device=pi.device)
    weights = pi.new_zeros(*actions.shape[:4], len(every))
    for j in range(actions.shape[4]):
        weights = weights + pi[:, None, :, j, None, None] * (
            actions[..., j, None] == every
        )
    weights, table = weights.flatten(0, 1).flatten(1, 2), columns.flatten(0, 1)
    return weights, table, torch.bmm(weights, table)


def _gradients_at_once(
    pi: Tensor, columns: Tensor, actions: Tensor, targets: Tensor, here: Tensor
) -> tuple[Tensor, Tensor]:
    weights, table, logits = _mixed(pi, columns, actions)
    targets, here = (x.flatten(0, 1).flatten(1, 2) for x in (targets, here))
    right = targets == torch.arange(logits.shape[2], device=pi.device)
    error = (torch.softmax(logits, 2) - right.to(logits)) * here
    d_weights = torch.bmm(error, table.mT).view(*actions.shape[:4], -1)
    d_pi = d_weights.gather(4, actions.long()).sum((1, 3))
    return d_pi, torch.bmm(weights.mT, error).view(columns.shape)


def _moments_at_once(
    pi: Tensor, columns: Tensor, actions: Tensor, targets: Tensor, here: Tensor
) -> tuple[Tensor, Tensor]:
    logits = (
        _mixed(pi, columns, actions)[2].view(*actions.shape[:4], -1).double() * here
    )
    right = logits.gather(4, targets.long())
    loss = (torch.logsumexp(logits, 4, keepdim=True) * here - right).flatten(1).sum(1)
    powers = [
        y.flatten(1).sum(1)
        for x in (right, logits)
        for y in (x, x * x, x * x * x, (x * x) ** 2)
    ]
    return loss, torch.stack(powers, 1).view(-1, 2, 4)
