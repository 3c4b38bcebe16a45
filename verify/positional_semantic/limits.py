"""Statistics for thresholds from samples over seeds: extrapolation in d, sign change of a mean,
jackknife errors.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr


def over_d(runs: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Ensembles of several sizes joined along a dimension ``d``."""
    return xr.concat(
        runs,
        xr.Variable("d", list(sizes)),
        combine_attrs="drop",
        coords="minimal",
        compat="override",
    )


def at_infinity(samples: xr.DataArray) -> xr.DataArray:
    """Samples extrapolated to d = infinity seed by seed, linearly in 1/d, weighted for a scatter of
    order d^(-1/2).
    """
    d = samples.d.values
    weight = np.sqrt(d)
    value_and_slope = np.linalg.pinv(np.stack([weight, weight / d], 1)) * weight
    return samples @ xr.DataArray(value_and_slope[0], dims="d")


def jackknife(estimate: Callable[[np.ndarray], float], seeds: int) -> tuple[float, float]:
    """Jackknife: an estimate from given seeds and its standard error; NaN if the estimate fails
    without one of them.
    """
    every = np.arange(seeds)
    left_out = np.array([estimate(np.delete(every, k)) for k in every])
    return float(estimate(every)), float(np.sqrt((seeds - 1) * left_out.var()))


def root(gap: xr.DataArray, seeds: np.ndarray) -> float:
    """Point at which the mean over some seeds rises through zero; NaN if it does not, or is not
    monotonic.
    """
    mean = gap.transpose("seed", "alpha").values[seeds].mean(0)
    rises = (np.diff(mean) > 0).all()
    return float(np.interp(0, mean, gap.alpha, np.nan, np.nan)) if rises else np.nan


def crossing(gap: xr.DataArray) -> tuple[float, float]:
    """Point at which the mean over seeds rises through zero, and its standard error; NaN if it does
    not.
    """
    return jackknife(lambda kept: root(gap, kept), gap.sizes["seed"])


def shift(gap: xr.DataArray, other: xr.DataArray) -> tuple[float, float]:
    """Ratio of the points at which two means over the same seeds rise through zero, and its
    standard error.
    """
    return jackknife(lambda kept: root(gap, kept) / root(other, kept), gap.sizes["seed"])
