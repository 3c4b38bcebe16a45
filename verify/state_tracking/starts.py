"""Starts of seeds without training them."""

from collections.abc import Iterable

import numpy as np

from theory.state_tracking import Parameters, task
from theory.state_tracking.numbers.per_seed import Start


def starts_of(p: Parameters, seeds: Iterable[int]) -> Start:
    """Starts of the students that training with these seeds produces."""
    return Start(*map(np.stack, zip(*(_start(p, int(seed)) for seed in seeds), strict=True)))


def _start(p: Parameters, seed: int) -> tuple[np.ndarray | float, ...]:
    """Keys, queries, R, S, zeta and both variances of one seed, in the order of `Start`."""
    stream = task.streams(seed, p.data_draw)
    right = task.draw_permutations(p, stream["task"])[:, None, :] == np.arange(p.N)[:, None]
    found, pairs = task.draw_weights(p, stream["initialisation"]), p.d_g * p.N
    M = found["M"]
    R = M[right].sum() / pairs
    S = ((right.sum(0) * M.sum(0)).sum() / pairs - R) / max(p.d_g - 1, 1)
    variances = M[right].var(), M[~right].var()
    return found["W_Q"][:, 0], found["W_K"][:, 0], R, S, M.sum() / pairs, *variances
