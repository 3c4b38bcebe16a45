"""Permutation-chain task: teachers, sequences and initial weights, from independent random streams
of a seed (Sec. 3.1, App. B).
"""

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np

from theory.parameters import ParameterError
from theory.state_tracking import groups
from theory.state_tracking.parameters import Parameters
from theory.streams import keyed, spawned

STREAMS = ("task", "train", "test", "initialisation", "batches", "rollouts")


def streams(seed: int, data_draw: int = 0) -> dict[str, np.random.Generator]:
    """Independent generators of one seed. Changing n_train or data_draw does not change teachers,
    weights or test data.
    """
    return spawned(seed, STREAMS, train=data_draw)


@dataclass(frozen=True)
class Sequences:
    """Actions ``(n, L)`` in 0..d_g-1 and the visited states ``(n, L+1)`` in 0..N-1 (Eqs. 1-2)."""

    actions: np.ndarray
    states: np.ndarray

    def tokens(self, d_g: int) -> np.ndarray:
        """Token sequences ``(n, 2L+1)``: actions 0..d_g-1, then states d_g..d_g+N-1."""
        return np.concatenate([self.actions, self.states + d_g], axis=1)


def draw_permutations(p: Parameters, rng: np.random.Generator) -> np.ndarray:
    """Teachers, shape ``(d_g, N)``: ``perms[a, s]`` is the state that action a leads to from s. A
    group's are not drawn.
    """
    if p.teachers == "group":
        return groups.table(p.permutations)
    if p.permutations == "iid":
        return np.stack([rng.permutation(p.N) for _ in range(p.d_g)])
    if p.N <= 7:  # few enough to enumerate, so that any vocabulary can be drawn
        every = np.array(list(itertools.permutations(range(p.N))))
        return every[rng.permutation(len(every))[: p.d_g]]
    teachers: dict[bytes, np.ndarray] = {}
    while len(teachers) < p.d_g:  # a repeat has probability below d_g/8! per draw
        sigma = rng.permutation(p.N)
        teachers.setdefault(sigma.tobytes(), sigma)
    return np.stack(list(teachers.values()))


def check_permutations(perms: np.ndarray, p: Parameters) -> np.ndarray:
    """Raise an error unless an array consists of d_g permutations of N states.

    Raises
    ------
    ParameterError
        Naming the problem.
    """
    try:
        array = np.asarray(perms, dtype=float)
    except (TypeError, ValueError):
        raise ParameterError("permutations: must be an array of whole numbers") from None
    if array.shape != (p.d_g, p.N):
        raise ParameterError(
            f"permutations: shape {array.shape}, must be (d_g, N) = ({p.d_g}, {p.N})"
        )
    if not (np.sort(array, axis=1) == np.arange(p.N)).all():
        raise ParameterError(f"permutations: every row must be a permutation of 0..{p.N - 1}")
    return array.astype(np.int64)


def cyclic_group(N: int) -> np.ndarray:
    """Z_N acting on itself, shape ``(N, N)``."""
    return groups.table(f"Z_{N}")


def symmetric_group(n: int) -> np.ndarray:
    """S_n acting on itself from the left, shape ``(n!, n!)``."""
    return groups.table(f"S_{n}_regular")


def draw_sequences(perms: np.ndarray, n: int, L: int, rng: np.random.Generator) -> Sequences:
    """Draw ``n`` sequences: actions and first state uniform, later states by applying the
    actions.
    """
    d_g, N = perms.shape
    actions = rng.integers(d_g, size=(n, L))
    return Sequences(actions, visited(perms, actions, rng.integers(N, size=n)))


def visited(perms: np.ndarray, actions: np.ndarray, first: np.ndarray) -> np.ndarray:
    """States ``(n, L+1)`` that actions ``(n, L)`` lead to from first states."""
    states = [first]
    for action in actions.T:
        states.append(perms[action, states[-1]])
    return np.stack(states, 1)


@functools.lru_cache(maxsize=64)
def batch_order(seed: int, epoch: int, n: int) -> np.ndarray:
    """Order in which an epoch visits the training sequences of a seed, batch after batch."""
    return keyed(seed, STREAMS.index("batches"), epoch).permutation(n)


def batch(p: Parameters, seed: int, step: int) -> np.ndarray:
    """Sequences of a step, by number; the last batch of an epoch may be smaller."""
    size = p.batch_size or p.n_train
    epoch, first = step // p.batches, step % p.batches * size
    return batch_order(seed, epoch, p.n_train)[first : first + size]


def teacher_matrices(perms: np.ndarray) -> np.ndarray:
    """Permutation matrices ``(d_g, N, N)``: ``M*[a, sigma_a(s), s] = 1``."""
    d_g, N = perms.shape
    matrices = np.zeros((d_g, N, N))
    matrices[np.arange(d_g)[:, None], perms, np.arange(N)] = 1
    return matrices


def teacher_overlap(perms: np.ndarray) -> float:
    """Mean normalised overlap tau of distinct teachers (Eq. 57); NaN for a single teacher."""
    d_g, N = perms.shape
    if d_g == 1:
        return math.nan
    agree = sum(np.square(np.bincount(perms[:, s], minlength=N)).sum() for s in range(N))
    return float((agree - d_g * N) / (d_g * (d_g - 1) * N))


def draw_weights(p: Parameters, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Initial weights: W_Q, W_K as ``nn.Linear`` would, M uniform on (-1, 1), a learned embedding
    normal.
    """
    bound = 1 / np.sqrt(p.d_model)
    weights = {name: rng.uniform(-bound, bound, (p.d_h, p.d_model)) for name in ("W_Q", "W_K")}
    weights["M"] = rng.uniform(-1, 1, (p.d_g, p.N, p.N))
    if not p.fix_embedding:
        weights["embedding"] = rng.normal(size=(p.d_g + p.N, p.d_model))
    return weights
