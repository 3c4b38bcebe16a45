"""Whether listed inputs are all inputs, or a sample."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor
from torch.utils._pytree import tree_leaves


def columns(inputs: Any) -> list[np.ndarray]:
    """A row of values per input, of every tensor; one-hot vectors become the place of their one."""
    made = []
    for x in (x.numpy() for x in tree_leaves(inputs) if isinstance(x, Tensor) and x.ndim):
        hot = x.ndim > 1 and x.shape[-1] > 1 and ((x == 0) | (x == 1)).all()
        x = x.argmax(-1) if hot and (x.sum(-1) == 1).all() else x
        made.append(x.reshape(len(x), -1))
    return made


def complete(inputs: Any) -> bool:
    """Whether all inputs are there, each once: the list stays the same when any two values change
    places, in the tensors that earlier ones do not determine.
    """
    table, rows = np.empty((0, 0)), 1
    for x in columns(inputs):
        if len(table) not in (0, len(x)) or not (x == x.round()).all():
            return False
        both = np.hstack([table, x]) if len(table) else x
        if (many := len(np.unique(both, axis=0))) > rows:
            table, rows = both, many
    if not len(table) or rows < len(table):
        return False
    kinds = [np.unique(c).tolist() for c in table.T]
    every = np.unique(table, axis=0)
    for of in kinds:
        where = [kind == of for kind in kinds]
        for a, b in zip(of, of[1:], strict=False):
            turned = np.where(where & (table == a), b, np.where(where & (table == b), a, table))
            if not np.array_equal(np.unique(turned, axis=0), every):
                return False
    return len(kinds) > 1 or kinds == [[*range(rows)]]
