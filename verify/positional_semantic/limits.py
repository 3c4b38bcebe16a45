"""What thresholds need of samples over seeds: the limit of large d, where a mean changes sign, and
standard errors by leaving seeds out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr


def over_d(runs: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Ensembles of several sizes as one, with a dimension ``d``."""
    return xr.concat(
        runs,
        xr.Variable("d", list(sizes)),
        combine_attrs="drop",
        coords="minimal",
        compat="override",
    )


def at_infinity(samples: xr.DataArray) -> xr.DataArray:
    """Samples extrapolated to d = infinity seed by seed, linearly in 1/d; their scatter falls as
    d^(-1/2).
    """
    d = samples.d.values
    weight = np.sqrt(d)
    value_and_slope = np.linalg.pinv(np.stack([weight, weight / d], 1)) * weight
    return samples @ xr.DataArray(value_and_slope[0], dims="d")


def jackknife(estimate: Callable[[np.ndarray], float], seeds: int) -> tuple[float, float]:
    """An estimate from the seeds of the given numbers, and its standard error; NaN where it does
    not stand without one of them.
    """
    every = np.arange(seeds)
    left_out = np.array([estimate(np.delete(every, k)) for k in every])
    return float(estimate(every)), float(np.sqrt((seeds - 1) * left_out.var()))


def root(gap: xr.DataArray, seeds: np.ndarray) -> float:
    """Where the mean over some seeds rises through zero; NaN if it does not, or is not
    monotonic.
    """
    mean = gap.transpose("seed", "alpha").values[seeds].mean(0)
    rises = (np.diff(mean) > 0).all()
    return float(np.interp(0, mean, gap.alpha, np.nan, np.nan)) if rises else np.nan


def crossing(gap: xr.DataArray) -> tuple[float, float]:
    """Where the mean over seeds rises through zero, and its standard error; NaN if it does not."""
    return jackknife(lambda kept: root(gap, kept), gap.sizes["seed"])


def shift(gap: xr.DataArray, other: xr.DataArray) -> tuple[float, float]:
    """Ratio of the places where two means over the same seeds rise through zero, and its standard
    error.
    """
    return jackknife(lambda kept: root(gap, kept) / root(other, kept), gap.sizes["seed"])
