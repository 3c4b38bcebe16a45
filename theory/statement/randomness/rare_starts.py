"""Shares of starts that end in a rare way, by importance sampling: draws are moved to
where the rare ones were, and counted by their density.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.stats
import xarray as xr

from theory.numbers.streams import keyed
from theory.statement.randomness import passage, random_starts

RARE = 100  # fewer of the drawn starts than this: their share is sampled anew
DRAWS = 10_000  # of a round
ROUNDS = 5  # the first without moving the draws
TAILS = 4  # degrees of freedom of moved draws: what few hits tell may be too narrow
OWN = 0.2  # part of the draws that is not moved: none counts more than five times
STREAM = 5  # of a seed


def share(
    made: Any,
    p: Any,
    drawn: xr.Dataset,
    happens: Callable[[Any], np.ndarray],
    seed: int = 0,
) -> tuple[float, float]:
    """Share of starts at which something happens, and its standard error.

    Parameters
    ----------
    made : Derived
        At sizes, if sums have to be written out.
    p : Parameters
    drawn : Dataset
        Times of drawn starts (`theory.statement.randomness.random_starts.times`), whose
        levels of the loss and length of run are taken over.
    happens : callable
        Of such times and observables, whether it does, per start.
    seed : int
        Of the further draws.
    """
    seen = happens(drawn)
    few = min(seen.sum(), (~seen).sum())
    plain = float(seen.mean()), float(seen.std() / np.sqrt(seen.size))
    laws = random_starts.laws(made).values()
    if not 0 < few < RARE or any(law.kind != "gaussian" for law in laws):
        return plain
    if 2 * seen.sum() > seen.size:
        value, error = share(made, p, drawn, lambda x: ~happens(x), seed)
        return 1 - value, error
    bulk, rng = random_starts.Bulk(made.flow, p), keyed(seed, STREAM)
    levels = random_starts.falling(drawn.attrs["loss_start"], drawn.attrs["loss_end"])
    steps = round(drawn.attrs["run"] / p.eta)
    middle = random_starts.middle(made, p)
    sizes, axes = np.linalg.eigh(passage.covariance(made, p))
    root = (axes * np.sqrt(np.maximum(sizes, 0)))[
        :, sizes > sizes.max() * passage.STILL
    ]
    z = rng.normal(size=(DRAWS, root.shape[1]))
    normal = scipy.stats.multivariate_normal(np.zeros(root.shape[1]))
    weight = np.ones(DRAWS)
    for left in reversed(range(ROUNDS)):
        times, ends = bulk.crossings(middle + root @ z.T, levels, steps)
        hits = (
            happens(dict(zip(random_starts.EVENTS, times, strict=True)) | ends) * weight
        )
        if not hits.any():
            return plain
        if not left:
            break
        # the fewer hits, the more of the law that they were drawn from
        known = hits.sum() ** 2 / (hits**2).sum()
        spread = np.atleast_2d(np.cov(z.T, aweights=hits, ddof=0))
        spread = (1 + 2 * z.shape[1] / known) * spread + np.eye(z.shape[1]) / (
            known + 1
        ) ** 2
        moved = scipy.stats.multivariate_t(
            np.average(z, axis=0, weights=hits), spread, df=TAILS
        )
        away = rng.random(DRAWS) > OWN
        z = np.where(
            away[:, None],
            moved.rvs(DRAWS, random_state=rng).reshape(z.shape),
            rng.normal(size=z.shape),
        )
        ratio = np.exp(np.minimum(moved.logpdf(z) - normal.logpdf(z), 700.0))
        weight = 1 / (OWN + (1 - OWN) * ratio)
    return float(hits.mean()), float(hits.std() / np.sqrt(DRAWS))
