"""Whether listed inputs are all inputs, or a sample."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor
from torch.utils._pytree import tree_leaves


def columns(inputs: Any) -> list[np.ndarray]:
    """Columns of all tensors; one-hot vectors become the place of their one."""
    made: list[np.ndarray] = []
    for x in (x.numpy() for x in tree_leaves(inputs) if isinstance(x, Tensor) and x.ndim):
        hot = x.ndim > 1 and x.shape[-1] > 1 and ((x == 0) | (x == 1)).all()
        if hot and (x.sum(-1) == 1).all():
            x = x.argmax(-1)
        made += [*x.reshape(len(x), -1).T]
    return made


def complete(inputs: Any) -> bool:
    """Whether all inputs are there, each once: the list stays the same when any two values change
    places, in the columns that earlier ones do not determine.
    """
    rows, free = 1, list[np.ndarray]()
    for column in columns(inputs):
        if free and len(column) != len(free[0]) or not (column == column.round()).all():
            return False
        many = len(np.unique([*free, column], axis=1).T)
        if many > rows:
            rows, free = many, [*free, column]
    if not free or rows < len(free[0]):
        return False
    table = np.array(free, int)
    kinds = [np.unique(c).tolist() for c in table]
    every = np.unique(table, axis=1)
    for of in kinds:
        where = [[kind == of] for kind in kinds]
        for a, b in zip(of, of[1:], strict=False):
            turned = np.where(where & (table == a), b, np.where(where & (table == b), a, table))
            if not np.array_equal(np.unique(turned, axis=1), every):
                return False
    return len(free) > 1 or kinds == [[*range(rows)]]
