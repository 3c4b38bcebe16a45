"""Permutation-chain task: teachers, sequences and initial weights, from independent
random streams of a seed (Sec. 3.1, App. B).
"""

import csv
import functools
import hashlib
import io
import itertools
import math
from dataclasses import dataclass

import numpy as np

from theory.call.refusal import ParameterError
from theory.numbers.streams import keyed, spawned
from theory.state_tracking.model import groups
from theory.state_tracking.model.parameters import Parameters

STREAMS = ("task", "train", "test", "initialisation", "batches")


def streams(seed: int, data_draw: int = 0) -> dict[str, np.random.Generator]:
    """Independent generators of one seed. Changing n_train or data_draw does not change
    teachers, weights or test data.
    """
    return spawned(seed, STREAMS, train=data_draw)


@dataclass(frozen=True)
class Sequences:
    """Actions ``(n, L)`` in 0..d_g-1 and the visited states ``(n, L+1)`` in 0..N-1
    (Eqs. 1-2).
    """

    actions: np.ndarray
    states: np.ndarray

    def tokens(self, d_g: int) -> np.ndarray:
        """Token sequences ``(n, 2L+1)``: actions 0..d_g-1, then states d_g..d_g+N-1."""
        return np.concatenate([self.actions, self.states + d_g], axis=1)


def draw_permutations(p: Parameters, rng: np.random.Generator) -> np.ndarray:
    """Teachers, shape ``(d_g, N)``: ``perms[a, s]`` is the state that action a leads to
    from s. A group's are not drawn.
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
        raise ParameterError(
            "permutations: must be an array of whole numbers"
        ) from None
    if array.shape != (p.d_g, p.N):
        raise ParameterError(
            f"permutations: shape {array.shape}, must be (d_g, N) = ({p.d_g}, {p.N})"
        )
    if not (np.sort(array, axis=1) == np.arange(p.N)).all():
        raise ParameterError(
            f"permutations: every row must be a permutation of 0..{p.N - 1}"
        )
    return array.astype(np.int64)


def draw_sequences(
    perms: np.ndarray, n: int, L: int, rng: np.random.Generator
) -> Sequences:
    """Draw ``n`` sequences: actions and first state uniform, later states by applying
    the actions.
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
    """Order in which an epoch visits the training sequences of a seed, batch after
    batch.
    """
    return keyed(seed, STREAMS.index("batches"), epoch).permutation(n)


def batch(p: Parameters, seed: int, step: int) -> np.ndarray:
    """Sequences of a step, by number; the last batch of an epoch may be smaller."""
    size = p.batch_size or p.n_train
    epoch = step // p.batches
    first = step % p.batches * size
    return batch_order(seed, epoch, p.n_train)[first : first + size]


def teacher_matrices(perms: np.ndarray) -> np.ndarray:
    """Permutation matrices ``(d_g, N, N)``: ``M*[a, sigma_a(s), s] = 1``."""
    d_g, N = perms.shape
    matrices = np.zeros((d_g, N, N))
    matrices[np.arange(d_g)[:, None], perms, np.arange(N)] = 1
    return matrices


def teacher_overlap(perms: np.ndarray) -> float:
    """Mean normalised overlap tau of distinct teachers (Eq. 57); NaN for a single
    teacher.
    """
    d_g, N = perms.shape
    if d_g == 1:
        return math.nan
    agree = sum(
        np.square(np.bincount(perms[:, s], minlength=N)).sum() for s in range(N)
    )
    return float((agree - d_g * N) / (d_g * (d_g - 1) * N))


def draw_weights(p: Parameters, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Initial weights: W_Q, W_K as ``nn.Linear`` would, M uniform on (-1, 1), a learned
    embedding normal.
    """
    bound = 1 / np.sqrt(p.d_model)
    weights = {
        name: rng.uniform(-bound, bound, (p.d_h, p.d_model)) for name in ("W_Q", "W_K")
    }
    weights["M"] = rng.uniform(-1, 1, (p.d_g, p.N, p.N))
    if not p.fix_embedding:
        weights["embedding"] = rng.normal(size=(p.d_g + p.N, p.d_model))
    return weights


# Word problems in the format of the public suites
#
# A CSV file with columns ``input`` (a word of actions) and ``target`` (the state after
# each), whole numbers separated by spaces.

COLUMNS = ("input", "target")
START = 0  # the identity, which the files leave out


@dataclass(frozen=True)
class Words:
    """Teachers ``(d_g, N)``, training and test set of a file."""

    permutations: np.ndarray
    train: Sequences
    test: Sequences

    def fits(self, p: Parameters) -> None:
        """Raise an error for parameters of other sizes.

        Raises
        ------
        ParameterError
            Naming the field.
        """
        sizes = dict(zip(("d_g", "N"), self.permutations.shape, strict=True))
        sizes |= {"n_train": len(self.train.actions), "n_test": len(self.test.actions)}
        for field, size in (sizes | {"L": self.train.actions.shape[1]}).items():
            if getattr(p, field) != size:
                raise ParameterError(
                    f"{field} = {getattr(p, field)}: must be {size}, as in the words"
                )

    @property
    def digest(self) -> str:
        """What identifies the data in the store."""
        parts = (
            self.train.actions,
            self.train.states,
            self.test.actions,
            self.test.states,
        )
        return hashlib.sha256(b"".join(x.tobytes() for x in parts)).hexdigest()[:16]


def read(p: Parameters, content: str, file: str = "data") -> tuple[Parameters, Words]:
    """Parameters with the sizes of a file, and its first n_train and next n_test words.

    Raises
    ------
    ParameterError
        In one line, for content that is no word problem, has too few words, or does not
        show where every action leads from every state; or for parameters that name
        other teachers.
    """
    if p.permutations != "iid":
        raise ParameterError(
            f"permutations = {p.permutations!r}: must be iid, {file} has its own"
        )
    rows = csv.DictReader(io.StringIO(content))
    missing = [c for c in COLUMNS if c not in (rows.fieldnames or ())]
    if missing:
        raise ParameterError(f"{file}: column {missing[0]} is missing")
    asked = p.n_train + p.n_test
    try:
        words = []
        for row in itertools.islice(rows, asked):
            words.append([row[c].split() for c in COLUMNS])
        both = np.array(words, dtype=np.int64)
    except (AttributeError, ValueError, OverflowError, csv.Error):
        raise ParameterError(
            f"{file}: input and target must be as many whole numbers in every row,"
            " separated by spaces"
        ) from None
    if len(both) < asked or both.ndim != 3 or both.shape[2] == 0:
        raise ParameterError(
            f"{file}: has {len(both)} words, must have n_train + n_test = {asked} at"
            " least"
        )
    actions = both[:, 0]
    states = np.pad(both[:, 1], ((0, 0), (1, 0)), constant_values=START)
    teachers = _teachers(actions, states, file)
    d_g, N = teachers.shape
    first = slice(p.n_train)
    second = slice(p.n_train, None)
    train = Sequences(actions[first], states[first])
    test = Sequences(actions[second], states[second])
    sized = p.replace(N=N, d_g=d_g, L=actions.shape[1])
    return sized, Words(teachers, train, test)


def _teachers(actions: np.ndarray, states: np.ndarray, file: str) -> np.ndarray:
    """Where actions lead, read off the sequences."""
    if min(actions.min(), states.min()) < 0 or max(actions.max(), states.max()) > 10**4:
        raise ParameterError(
            f"{file}: actions and states must be numbers from 0 to 10000"
        )
    before = states[:, :-1]
    after = states[:, 1:]
    tables = np.full((actions.max() + 1, states.max() + 1), -1)
    tables[actions, before] = after
    if (tables[actions, before] != after).any():
        raise ParameterError(
            f"{file}: an action leads from one state to different states"
        )
    if (tables < 0).any():
        a, s = np.argwhere(tables < 0)[0]
        raise ParameterError(
            f"{file}: never shows where action {a} leads from state {s}"
        )
    if not (np.sort(tables, axis=1) == np.arange(tables.shape[1])).all():
        raise ParameterError(
            f"{file}: an action leads from different states to the same state"
        )
    return tables
