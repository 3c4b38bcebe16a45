"""Random number streams that depend only on seed, purpose and step, not on earlier
draws.

A resumed run therefore draws the same numbers as an uninterrupted one, a seed does not
depend on the other seeds of an ensemble, and the theory can reproduce a student's data.
New students use `keyed`; older ones keep their own rule, so that stored runs remain
reproducible bit for bit.
"""

from collections.abc import Sequence

import numpy as np


def keyed(seed: int, purpose: int, *step: int) -> np.random.Generator:
    """Stream for a seed, the number of a purpose and, for draws at every step, the
    step.
    """
    return np.random.default_rng([seed, purpose, *step])


def spawned(
    seed: int, purposes: Sequence[str], **more: int
) -> dict[str, np.random.Generator]:
    """One stream per purpose, spawned from the seed's sequence. ``more`` selects
    another draw for single purposes and leaves the others unchanged.
    """
    keys = [
        (k, more[name]) if more.get(name) else (k,) for k, name in enumerate(purposes)
    ]
    return {
        name: np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
        for name, key in zip(purposes, keys, strict=True)
    }
