"""Random streams: what is drawn depends on the seed, the purpose and the step, never on what was
drawn before.

So a resumed run draws what the uninterrupted one would, seeds do not depend on their company, and a
theory can draw again what a student was given. New students take `keyed`; those that came before it
keep their rule, and with it the bits of every stored run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def keyed(seed: int, purpose: int, *step: int) -> np.random.Generator:
    """Stream of a seed, the number of a purpose and, where every step draws anew, the step."""
    return np.random.default_rng([seed, purpose, *step])


def spawned(seed: int, purposes: Sequence[str], **more: int) -> dict[str, np.random.Generator]:
    """One stream per purpose, children of the seed's sequence; ``more`` redraws some of them and
    leaves the others.
    """
    keys = [(k, more[name]) if more.get(name) else (k,) for k, name in enumerate(purposes)]
    return {
        name: np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
        for name, key in zip(purposes, keys, strict=True)
    }
