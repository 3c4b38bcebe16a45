"""Settings of students on orthonormal data, and events in runs of any."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from theory.induction_heads import Parameters
from verify.emergence import Times, first_crossing

QUERIES = {"last": "q = N", "uniform": "uniform q"}
LEVELS = {"T_gamma": "gamma", "T_beta": "beta", "T_alpha": "alpha"}
HALF = 0.5


def orthonormal(
    N: int, query: str, trained: str, rate: float, steps: int, batch: int = 1, right: int = 1
) -> Parameters:
    """Parameters of students that take steps of ``rate`` in t on orthonormal data.

    In the nineteen directions, all that a batch could average over is the queried pair: each one in
    turn for a uniform query.
    """
    p = Parameters(
        N=N,
        D=2 * N,
        trained=trained,
        data="orthonormal",
        query=query,
        eta=rate * (2 * N) ** 2,
        batch_size=batch,
        steps=steps,
        eval_every=max(1, steps // 400),
        B=right,
    )
    if trained != "nineteen":
        return p
    return p.replace(batch_size=1) if query == "last" else p.replace(query="each", batch_size=N)


def drop(runs: xr.Dataset) -> Times:
    """Time of loss 1/2 per seed."""
    return first_crossing(-runs.loss, -HALF)


def crossings(runs: xr.Dataset, level: float = HALF) -> dict[str, np.ndarray]:
    """Emergence times per seed; NaN if not reached within the run."""
    times = {name: first_crossing(runs[of], level).values for name, of in LEVELS.items()}
    return times | {"T_drop": drop(runs).values}


def limit(sizes: Sequence[float], values: Sequence[Any]) -> Any:
    """Value at infinite size from those at two sizes: a term of order 1/size is removed."""
    (small, large), (first, second) = sizes, values
    return (large * second - small * first) / (large - small)


def power(sizes: Sequence[float], times: Sequence[np.ndarray]) -> np.ndarray:
    """Exponents of times in a size, by least squares of logarithms, seed by seed; NaN where a time
    is.
    """
    x = np.log(sizes)
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    return weights @ np.log(times)
