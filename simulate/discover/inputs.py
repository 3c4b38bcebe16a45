"""Whether listed inputs are all inputs, or a sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulate.discover.loss import tensors


def columns(inputs: Any) -> np.ndarray | None:
    """Inputs as whole numbers, one row each; one-hot vectors become the place of their one. None
    for other reals, and for tensors of different lengths.
    """
    parts = []
    for x in tensors(inputs):
        if x.ndim == 0:
            continue
        values = x.numpy()
        if values.ndim > 1 and values.shape[-1] > 1:
            hot = (values == 1).sum(-1, keepdims=True) == 1
            if (hot & ((values == 0).sum(-1, keepdims=True) == values.shape[-1] - 1)).all():
                values = values.argmax(-1)
        if values.dtype.kind == "c" or not (values == np.round(values)).all():
            return None
        parts.append(values.reshape(len(values), -1).astype(int))
    if not parts or len({len(x) for x in parts}) > 1:
        return None
    return np.hstack(parts)


def complete(inputs: Any) -> bool:
    """Whether all inputs are there, each once: all combinations of the values of those columns that
    determine the others, or a list that stays the same when any two values change places.
    """
    table = columns(inputs)
    if table is None or len(np.unique(table, axis=0)) < len(table):
        return False
    return _product(table) or _symmetric(table)


def _product(table: np.ndarray) -> bool:
    rows, free = 1, list[int]()
    for c in range(table.shape[1]):
        many = len(np.unique(table[:, [*free, c]], axis=0))
        if many > rows:
            rows, free = many, [*free, c]
    sizes = [np.unique(table[:, c]) for c in free]
    # values from 0 on, and more than one column: a sample may show every value of one column
    whole = all(len(s) == s.max() + 1 and s.min() == 0 for s in sizes)
    single = len(free) == 1 and (table == table[:, :1]).all()
    counts = np.prod([float(len(s)) for s in sizes])
    return bool(whole and counts == len(table) and (len(free) > 1 or single or len(sizes) == 0))


def _symmetric(table: np.ndarray) -> bool:
    alphabets = {tuple(np.unique(c)) for c in table.T}
    if max(map(len, alphabets)) < 2:
        return False
    ordered = np.unique(table, axis=0)
    for values in alphabets:
        of = [tuple(np.unique(c)) == values for c in table.T]
        for a, b in zip(values, values[1:], strict=False):
            turned = table.copy()
            turned[:, of] = np.where(
                table[:, of] == a, b, np.where(table[:, of] == b, a, table[:, of])
            )
            if not np.array_equal(np.unique(turned, axis=0), ordered):
                return False
    return True
