"""The fixed-disorder theory with one of its terms left out, and the quantities of state tracking
whose times are compared.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from theory.state_tracking import Parameters
from theory.state_tracking.numbers.per_seed import FixedDisorder, Realisation, Start


def times(p: Parameters) -> dict[str, tuple[str, float]]:
    """Timed variables and their levels; with two actions, A = 1/2 is the chance level."""
    return {
        "half_time": ("A", 0.5 if p.L > 2 else 0.75),
        "rollout_half_time": ("rollout_accuracy", 0.5),
    }


def _left(system: FixedDisorder, left: np.ndarray | float) -> FixedDisorder:
    """Variant with another share of the scatter within groups."""
    system.left = left + 0 * system.left
    return system


def _uniform(known: Realisation) -> Realisation:
    """Variant with the same number of rows in each group."""
    return replace(known, share=np.full_like(known.share, 1 / known.share[0].size), pairs=None)


# Fixed-disorder theory without one of its terms; the last three omissions are cumulative.
TERMS: dict[str, Callable[[Parameters, Start, Realisation], FixedDisorder]] = {
    "whole": FixedDisorder,
    "no scatter within groups": lambda p, s, g: _left(FixedDisorder(p, s, g), 0.0),
    "variance about the true mean": lambda p, s, g: _left(FixedDisorder(p, s, g), g.share),
    "no pairs": lambda p, s, g: FixedDisorder(p, s, g.without_pairs()),
    "no counts": lambda p, s, g: FixedDisorder(p, s, _uniform(g)),
    "no M": lambda p, s, g: FixedDisorder(p, s, _uniform(g).redrawn(s, np.random.default_rng(0))),
}
