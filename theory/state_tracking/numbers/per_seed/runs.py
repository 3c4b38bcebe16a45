"""Runs of the per-seed theory: one step per epoch, as descent takes it; the steps' size shows in
emergence times.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from theory.parameters import ParameterError
from theory.state_tracking import dressed
from theory.state_tracking.numbers.per_seed.columns import Columns
from theory.state_tracking.numbers.per_seed.dressed import Dressed
from theory.state_tracking.numbers.per_seed.start import Start
from theory.state_tracking.parameters import Parameters


def solve(system: Dressed | Columns, epochs: Any) -> xr.Dataset:
    """Run a system, once, to the last of the given epochs; observables over ``(seed, alpha)`` at
    each of them.

    Raises
    ------
    ParameterError
        Unless the epochs are whole, increasing and not negative.
    """
    epochs = np.asarray(epochs)
    if (
        epochs.ndim != 1
        or not epochs.size
        or (epochs != epochs.astype(int)).any()
        or epochs[0] < 0
        or (np.diff(epochs) <= 0).any()
    ):
        raise ParameterError(f"epochs = {epochs}: must be whole numbers >= 0, increasing")
    found = []
    for epoch in range(int(epochs[-1]) + 1):
        if epoch in epochs:
            found.append(system.observe())
        if epoch < epochs[-1]:
            system.state = [x + rate for x, rate in zip(system.state, system.rates(), strict=True)]
    data = {name: (("seed", "alpha"), np.stack([f[name] for f in found], 1)) for name in found[0]}
    return xr.Dataset(data, coords={"alpha": system.p.alpha(epochs), "epoch": ("alpha", epochs)})


def half_times(system: Dressed | Columns, epochs: int) -> np.ndarray:
    """Time of A = 1/2 per seed, in alpha; NaN where it is not reached within the given epochs."""
    found = []
    for _ in range(epochs + 1):
        W_Q, W_K = system.state[:2]
        found.append(np.einsum("bii->b", system.attention.forward(W_Q, W_K)) / system.p.L)
        if len(found) > 1 and (found[-1] > 0.5).all():
            break
        system.state = [x + rate for x, rate in zip(system.state, system.rates(), strict=True)]
    A = np.array(found)
    after = (A >= 0.5).argmax(0)
    before, k = np.maximum(after - 1, 0), np.arange(A.shape[1])
    share = (0.5 - A[before, k]) / np.where(after > 0, A[after, k] - A[before, k], 1)
    return np.where(
        (A >= 0.5).any(0), system.p.alpha(before + np.where(after > 0, share, 0)), np.nan
    )


def data_scatter(
    p: Parameters, start: Start, draws: int, rng: np.random.Generator, alpha: float
) -> np.ndarray:
    """Relative standard deviation of the time of A = 1/2 over draws of the training set alone, per
    seed.

    A training set of n sequences adds a constant Gaussian force to every attention entry, of the
    variance ``force_noise``; its effect on the time is found by running the dressed theory
    ``draws`` times.

    Parameters
    ----------
    p : Parameters
        With ``n_train``.
    start : Start
        Seeds.
    draws : int
        Training sets per seed.
    rng : Generator
        For the forces.
    alpha : float
        When to give up.
    """
    many = Start(*(np.repeat(x, draws, axis=0) for x in vars(start).values()))
    size = dressed.equations()["force_noise"].evaluate(
        {"V_M": p.initial_variance, "N": p.N, "n_train": p.n_train}
    )
    pull = rng.normal(scale=np.sqrt(size), size=(len(many.R), p.L, p.L))
    times = half_times(Dressed(p, many, pull=pull), p.run_to(alpha).epochs).reshape(-1, draws)
    return times.std(1, ddof=1) / times.mean(1)
