"""Word problems in the format of the public suites: a CSV file with the columns ``input`` (a word
of actions) and ``target`` (the state after each), both as whole numbers separated by spaces.
"""

import csv
import hashlib
import io
import itertools
from dataclasses import dataclass

import numpy as np

from theory.parameters import ParameterError
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.task import Sequences

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
        parts = (self.train.actions, self.train.states, self.test.actions, self.test.states)
        return hashlib.sha256(b"".join(x.tobytes() for x in parts)).hexdigest()[:16]


def read(p: Parameters, content: str, file: str = "data") -> tuple[Parameters, Words]:
    """Parameters with the sizes of a file, and its first n_train and next n_test words.

    Raises
    ------
    ParameterError
        In one line, for content that is no word problem, has too few words, or does not show where
        every action leads from every state; or for parameters that name other teachers.
    """
    if p.permutations != "iid":
        raise ParameterError(f"permutations = {p.permutations!r}: must be iid, {file} has its own")
    rows = csv.DictReader(io.StringIO(content))
    missing = [c for c in COLUMNS if c not in (rows.fieldnames or ())]
    if missing:
        raise ParameterError(f"{file}: column {missing[0]} is missing")
    asked = p.n_train + p.n_test
    try:
        kept = [[row[c].split() for c in COLUMNS] for row in itertools.islice(rows, asked)]
        both = np.array(kept, dtype=np.int64)
    except (AttributeError, ValueError, OverflowError, csv.Error):
        raise ParameterError(
            f"{file}: input and target must be as many whole numbers in every row, separated by spaces"
        ) from None
    if len(both) < asked or both.ndim != 3 or both.shape[2] == 0:
        raise ParameterError(
            f"{file}: has {len(both)} words, must have n_train + n_test = {asked} at least"
        )
    actions = both[:, 0]
    states = np.pad(both[:, 1], ((0, 0), (1, 0)), constant_values=START)
    teachers = _teachers(actions, states, file)
    d_g, N = teachers.shape
    first, second = slice(p.n_train), slice(p.n_train, None)
    parts = (Sequences(actions[part], states[part]) for part in (first, second))
    return p.replace(N=N, d_g=d_g, L=actions.shape[1]), Words(teachers, *parts)


def _teachers(actions: np.ndarray, states: np.ndarray, file: str) -> np.ndarray:
    """Where actions lead, read off the sequences."""
    if min(actions.min(), states.min()) < 0 or max(actions.max(), states.max()) > 10**4:
        raise ParameterError(f"{file}: actions and states must be numbers from 0 to 10000")
    before, after = states[:, :-1], states[:, 1:]
    tables = np.full((actions.max() + 1, states.max() + 1), -1)
    tables[actions, before] = after
    if (tables[actions, before] != after).any():
        raise ParameterError(f"{file}: an action leads from one state to different states")
    if (tables < 0).any():
        a, s = np.argwhere(tables < 0)[0]
        raise ParameterError(f"{file}: never shows where action {a} leads from state {s}")
    if not (np.sort(tables, axis=1) == np.arange(tables.shape[1])).all():
        raise ParameterError(f"{file}: an action leads from different states to the same state")
    return tables
