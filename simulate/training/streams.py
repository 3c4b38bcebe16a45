"""Random streams of students: those of `theory.numbers.streams`,
and torch generators.
"""

from __future__ import annotations

import numpy as np
import torch

from theory.numbers.streams import keyed, spawned

__all__ = ["keyed", "of_torch", "spawned"]


def of_torch(seed: int, purpose: int, step: int = 0) -> torch.Generator:
    """Torch CPU generator for a seed, a purpose and a step."""
    state = np.random.SeedSequence([seed, purpose, step]).generate_state(1, np.uint64)[
        0
    ]
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))
