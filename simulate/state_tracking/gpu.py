"""Triton kernels of the logic module: one program per (student, state, step), no atomics, sums in a
fixed order.

A program holds the d_g x N table of its state, builds the retrieved mixtures of a block of rows in
registers by comparing action numbers, and computes the three products (logits and both gradients)
on the matrix units in single precision. No array of the size of the data is written.
"""

import os

import torch
from torch import Tensor

from simulate.state_tracking.groups import Groups
from simulate.state_tracking.student import Students

try:
    import triton
    import triton.language as tl
except ImportError:  # included in torch builds for CUDA
    triton = None

BLOCK = 32  # rows per block
# Shared memory of a program as compiled (`tests/simulate/test_engine.py`): upper bound in bytes per
# entry of the padded table, and the limit assumed if the device does not report one (as since
# Volta).
BYTES, SHARED = 24, 96 * 2**10


def padded(size: int) -> int:
    """Side of a table, padded for the matrix units."""
    return max(16, 1 << (size - 1).bit_length())


def serves(students: Students) -> bool:
    """Whether these kernels can train the students: single precision, and tables that fit into
    shared memory.
    """
    device, p, shared = students.M.device, students.p, SHARED
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        shared = getattr(properties, "shared_memory_per_block_optin", SHARED)
    here = device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"
    fits = BYTES * max(padded(p.N) * padded(p.d_g), 512) <= shared
    return triton is not None and here and fits and students.M.dtype == torch.float32


if triton is not None:

    @triton.jit
    def _mixture(
        pi, actions, row, here, g_ids, L: tl.constexpr, BLOCK: tl.constexpr, PG: tl.constexpr
    ):
        """Retrieved weights of a block of rows, ``(BLOCK, PG)``."""
        o = tl.zeros((BLOCK, PG), tl.float32)
        for j in tl.static_range(L):
            a = tl.load(actions + row * L + j, mask=here, other=-1).to(tl.int32)
            o += tl.where(a[:, None] == g_ids[None, :], tl.load(pi + j), 0.0)
        return o

    @triton.jit
    def _gradients(
        pi,
        columns,
        actions,
        targets,
        bounds,
        d_pi,
        d_columns,
        N,
        d_g,
        rows,
        L: tl.constexpr,
        PL: tl.constexpr,
        PN: tl.constexpr,
        PG: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        group, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
        s, t = group // L, group % L
        states, n_ids, g_ids, places = N, tl.arange(0, PN), tl.arange(0, PG), tl.arange(0, PL)
        cell = g_ids[:, None] * N + n_ids[None, :]
        inside = (g_ids[:, None] < d_g) & (n_ids[None, :] < N)
        M = tl.load(columns + (b * states + s) * d_g * N + cell, mask=inside, other=0.0)
        attention = pi + (b * L + t) * L
        low = tl.load(bounds + b * (states * L + 1) + group)
        high = tl.load(bounds + b * (states * L + 1) + group + 1)
        d_M = tl.zeros((PG, PN), tl.float32)
        slopes = tl.zeros((PL,), tl.float32)
        for start in range(low, high, BLOCK):
            row = start + tl.arange(0, BLOCK)
            here = row < high
            o = _mixture(attention, actions + b * rows * L, row, here, g_ids, L, BLOCK, PG)
            z = tl.dot(o, M, input_precision="tf32x3")
            z = tl.where(n_ids[None, :] < N, z, float("-inf"))
            e = tl.exp(z - tl.max(z, 1)[:, None])
            e = e / tl.sum(e, 1)[:, None]
            target = tl.load(targets + b * rows + row, mask=here, other=0).to(tl.int32)
            e = tl.where(
                here[:, None], e - tl.where(target[:, None] == n_ids[None, :], 1.0, 0.0), 0.0
            )
            d_M += tl.dot(tl.trans(o), e, input_precision="tf32x3")
            d_o = tl.dot(e, tl.trans(M), input_precision="tf32x3")
            for j in tl.static_range(L):
                a = tl.load(actions + (b * rows + row) * L + j, mask=here, other=-1).to(tl.int32)
                hit = tl.sum(tl.where(a[:, None] == g_ids[None, :], d_o, 0.0))
                slopes += tl.where(places == j, hit, 0.0)
        tl.store(d_columns + ((b * states + s) * L + t) * d_g * N + cell, d_M, mask=inside)
        tl.store(d_pi + ((b * states + s) * L + t) * L + places, slopes, mask=places < L)

    @triton.jit
    def _moments(
        pi,
        columns,
        actions,
        targets,
        bounds,
        sums,
        N,
        d_g,
        rows,
        L: tl.constexpr,
        PN: tl.constexpr,
        PG: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        group, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
        s, t = group // L, group % L
        n_ids, g_ids, which = tl.arange(0, PN), tl.arange(0, PG), tl.arange(0, 16)
        cell = g_ids[:, None] * N + n_ids[None, :]
        inside = (g_ids[:, None] < d_g) & (n_ids[None, :] < N)
        M = tl.load(columns + (b * N + s) * d_g * N + cell, mask=inside, other=0.0)
        low = tl.load(bounds + b * (N * L + 1) + group)
        high = tl.load(bounds + b * (N * L + 1) + group + 1)
        total = tl.zeros((16,), tl.float64)
        for start in range(low, high, BLOCK):
            row = start + tl.arange(0, BLOCK)
            here = row < high
            o = _mixture(
                pi + (b * L + t) * L, actions + b * rows * L, row, here, g_ids, L, BLOCK, PG
            )
            logits = tl.dot(o, M, input_precision="tf32x3")
            real = (n_ids[None, :] < N) & here[:, None]
            z = tl.where(n_ids[None, :] < N, logits, float("-inf"))
            top = tl.max(z, 1)
            norm = top + tl.log(tl.sum(tl.exp(z - top[:, None]), 1))
            target = tl.load(targets + b * rows + row, mask=here, other=0).to(tl.int32)
            hit = (target[:, None] == n_ids[None, :]) & real
            loss = tl.where(here, norm, 0.0) - tl.sum(tl.where(hit, logits, 0.0), 1)
            total += tl.where(which == 0, tl.sum(loss.to(tl.float64)), 0.0)
            for kind in tl.static_range(2):
                x = tl.where(hit if kind == 0 else real, logits, 0.0).to(tl.float64)
                power = x
                for k in tl.static_range(4):
                    total += tl.where(which == 1 + 4 * kind + k, tl.sum(power), 0.0)
                    power = power * x
        tl.store(sums + (b * N * L + group) * 9 + which, total, mask=which < 9)


class Logic:
    """Gradients and moments of the logic module on a GPU.

    Parameters
    ----------
    groups : Groups
        Training rows of every student.
    device : torch.device
        Device of the data.
    """

    def __init__(self, groups: Groups, device: torch.device) -> None:
        self.N, self.rows = groups.N, groups.targets.shape[1]
        self.actions, self.targets = (
            torch.as_tensor(x.astype("int16"), device=device)
            for x in (groups.actions, groups.targets)
        )
        self.bounds = torch.as_tensor(groups.bounds.astype("int32"), device=device)

    def _sizes(
        self, pi: Tensor, columns: Tensor
    ) -> tuple[tuple[int, int], tuple[int, int, int], dict[str, int]]:
        (B, L), d_g = pi.shape[:2], columns.shape[2]
        powers = {"L": L, "PN": padded(self.N), "PG": padded(d_g), "BLOCK": BLOCK}
        return (self.N * L, B), (self.N, d_g, self.rows), powers

    def gradients(self, pi: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of the summed loss for attention ``(B, L, L)`` and columns
        ``(B, N, d_g, N)``.
        """
        grid, sizes, powers = self._sizes(pi, columns)
        (B, L), (N, d_g, _) = pi.shape[:2], sizes
        d_pi, d_columns = pi.new_empty(B, N, L, L), columns.new_empty(B, N, L, d_g, N)
        with torch.cuda.device_of(
            pi
        ):  # kernels start on the current device, not on that of the data
            _gradients[grid](
                pi.contiguous(),
                columns.contiguous(),
                self.actions,
                self.targets,
                self.bounds,
                d_pi,
                d_columns,
                *sizes,
                PL=triton.next_power_of_2(L),
                **powers,
            )
        return d_pi.sum(1), d_columns.sum(2)

    def moments(self, pi: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Summed loss ``(B,)`` and sums of powers of logits ``(B, 2, 4)``: correct, all."""
        grid, sizes, powers = self._sizes(pi, columns)
        sums = pi.new_empty(len(pi), grid[0], 9, dtype=torch.float64)
        with torch.cuda.device_of(pi):
            _moments[grid](
                pi.contiguous(),
                columns.contiguous(),
                self.actions,
                self.targets,
                self.bounds,
                sums,
                *sizes,
                **powers,
            )
        total = sums.sum(1)
        return total[:, 0], total[:, 1:].reshape(-1, 2, 4)
