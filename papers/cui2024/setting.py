"""Sizes of the figures by scale, and what their panels share: students and theory curves."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from papers.source import Source
from simulate.positional_semantic import train
from theory.positional_semantic import Parameters, curve
from verify.positional_semantic import thresholds as check

ALPHA = r"sample complexity $\alpha = n/d$"


POINTS = 65  # points of a theory curve, enough for the square root at the end of a branch


STARTS = ("positional", "semantic")


COLOURS = {"positional": "C0", "semantic": "C1", "random": "C3", "mixed": "C4", "agnostic": "C5"}


@dataclass(frozen=True)
class Setting:
    """Sizes of all figures at one scale: students and grids."""

    p: Parameters
    alphas: tuple[float, ...]
    sizes: tuple[int, ...]
    map_omegas: tuple[float, ...]
    map_alphas: tuple[float, ...]
    map_seeds: int
    extension_alphas: tuple[float, ...]
    theory_order: int
    lines: tuple[float, ...]
    adam: Parameters
    adam_seeds: int
    limit: Parameters
    limit_seeds: int


# Theory curves next to students use the branch of the proximal operator that informed descent
# follows (docs/models/selections.md).
GRID = tuple(np.linspace(0.01, 2, 25).round(6))


SETTINGS = {
    "small": Setting(
        p=Parameters(d=150, steps=200, n_test=2000, prox="local"),
        alphas=(0.3, 0.6, 0.9, 1.2, 1.6, 2.0),
        sizes=(30, 60, 120, 240),
        map_omegas=(0.02, 0.1, 0.2, 0.3, 0.4, 0.5),
        map_alphas=tuple(np.arange(0.2, 2.1, 0.2).round(1)),
        map_seeds=3,
        extension_alphas=(0.6, 1.0, 1.4, 1.8, 2.2, 2.6, 3.2),
        theory_order=8,
        lines=(0.0, 0.05, 0.1, 0.2, 0.3, 0.4),
        adam=Parameters(
            d=100, alpha=2.0, start="random", optimizer="adam", eta=0.01, steps=1000, n_test=500
        ),
        adam_seeds=30,
        limit=check.DEMO,
        limit_seeds=32,
    ),
    "paper": Setting(
        p=Parameters(polish=False, teacher="gaussian", prox="local"),
        alphas=GRID,
        sizes=(10, 15, 23, 36, 56, 87, 135, 209, 323, 500),
        map_omegas=tuple(np.arange(0.02, 0.51, 0.02).round(2)),
        map_alphas=GRID,
        map_seeds=24,
        extension_alphas=GRID + tuple(np.linspace(2, 4, 25).round(6)[1:]),
        theory_order=16,
        lines=tuple(np.arange(0, 0.46, 0.025).round(3)),
        adam=Parameters(
            d=100,
            alpha=2.0,
            start="random",
            optimizer="adam",
            eta=0.01,
            steps=2500,
            polish=False,
            teacher="gaussian",
        ),
        adam_seeds=140,
        limit=check.DEMO,
        limit_seeds=int(check.SEEDS),
    ),
}


def sized(draw: Callable[[Source, Setting], Any]) -> Callable[[Source], Any]:
    """Drawing at the sizes of the source's scale."""
    return lambda source: draw(source, SETTINGS[source.scale])


def students(source: Source, p: Parameters, alphas: Any, seeds: Any = None) -> xr.Dataset:
    """Ensemble over (seed, alpha)."""
    return source.train(
        functools.partial(train, alpha=list(np.atleast_1d(alphas))), p.replace(alpha=None), seeds
    )


def both(source: Source, p: Parameters, alphas: Any, seeds: Any = None) -> dict[str, xr.Dataset]:
    """Students from the positional and from the semantic start, on the same sentences."""
    return {k: students(source, p.replace(start=k), alphas, seeds) for k in STARTS}


def between(alphas: tuple[float, ...]) -> np.ndarray:
    """Points of a smooth theory curve over the range of ``alphas``."""
    return np.linspace(min(alphas), max(alphas), POINTS)


def branches(
    p: Parameters, setting: Setting, alphas: tuple[float, ...] = ()
) -> dict[str, xr.Dataset]:
    """Theory curves of both branches, over the range of ``alphas``."""
    grid = between(alphas or setting.alphas)
    return {k: curve(p.replace(order=setting.theory_order, alpha=None), k, grid) for k in STARTS}
