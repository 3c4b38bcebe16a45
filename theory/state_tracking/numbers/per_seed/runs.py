"""Curves and times of single seeds by the per-seed theory."""

import copy
from collections.abc import Iterable
from typing import Annotated

import numpy as np
import xarray as xr

from theory.arguments import Positive, checked
from theory.parameters import Allowed, ParameterError
from theory.runtime import memory
from theory.state_tracking import dressed
from theory.state_tracking.numbers.per_seed.cavity import Cavity
from theory.state_tracking.numbers.per_seed.dressed import Dressed
from theory.state_tracking.numbers.per_seed.fixed_disorder import FixedDisorder
from theory.state_tracking.numbers.per_seed.observables import accuracies
from theory.state_tracking.numbers.per_seed.rewarded import Rewarded
from theory.state_tracking.numbers.per_seed.start import Start
from theory.state_tracking.numbers.per_seed.strides import TOLERANCE, Single, Strides
from theory.state_tracking.numbers.per_seed.trained import Trained
from theory.state_tracking.parameters import Parameters

System = Dressed | Cavity | FixedDisorder
Tolerance = Annotated[float, Allowed(above=0, high=1)]


def members(system: System, size: int = 1) -> list[System]:
    """Every seed on its own, so that its strides do not depend on others; or so many together,
    which is faster.
    """
    alone = []
    for k in range(0, len(system.state[0]), size):
        one, one_seed = copy.copy(system), slice(k, k + size)
        one.state = [x[one_seed] for x in system.state]
        for name in system.BY_SEED:
            value = getattr(system, name)
            setattr(one, name, None if value is None else value[one_seed])
        alone.append(one)
    return alone


@checked
def solve(system: System, epochs: Iterable[int], tolerance: Tolerance = TOLERANCE) -> xr.Dataset:
    """Integrate a system up to the last of the given epochs; returns the observables over ``(seed,
    alpha)`` at these epochs. ``tolerance`` is explained at `strides.TOLERANCE`; steps with a memory
    are taken one by one.

    Raises
    ------
    ParameterError
        Unless the epochs are increasing non-negative integers.
    """
    epochs = np.asarray(epochs)
    if (epochs != epochs.astype(int)).any() or epochs[0] < 0 or (np.diff(epochs) <= 0).any():
        raise ParameterError(f"epochs = {epochs}: must be whole numbers >= 0, increasing")
    parts = []
    for path in _paths(system, tolerance):
        records = []
        for epoch in epochs.astype(int):
            while path.epoch + path.length < epoch:
                path.advance()
            path.system.state = path.at(epoch)
            records.append(path.system.observe())
        parts.append({name: np.stack([f[name] for f in records], 1) for name in records[0]})
    every = {name: np.concatenate([f[name] for f in parts]) for name in parts[0]}
    every = (
        accuracies(system.p, every.pop("steps")) | every
    )  # some levels have rollouts of their own
    data = {name: (("seed", "alpha"), x) for name, x in every.items()}
    return xr.Dataset(data, coords={"alpha": system.p.alpha(epochs), "epoch": ("alpha", epochs)})


def _paths(system: System, tolerance: float, size: int = 1) -> Iterable[Strides | Single]:
    """Descent of a system: as `members`, where seeds are independent of each other."""
    if isinstance(system, Trained):
        return [Single(system)]
    alone = [system] if isinstance(system, Rewarded) else members(system, size)
    return (Strides(one, tolerance) for one in alone)


@checked
def half_times(
    system: System,
    epochs: Annotated[int, Allowed(low=0)],
    tolerance: Tolerance = TOLERANCE,
    size: Annotated[int, Allowed(low=1)] = 1,
) -> np.ndarray:
    """Time of A = 1/2 per seed, in alpha; NaN if it is not reached within the given epochs.
    ``tolerance`` as for `solve`, ``size`` as for `members`.
    """
    half = [half_epochs(path, epochs) for path in _paths(system, tolerance, size)]
    return system.p.alpha(np.concatenate(half))


def half_epochs(path: Strides | Single, epochs: int) -> np.ndarray:
    """Epoch of A = 1/2 of every member of a path, linear between epochs."""
    system = path.system

    def A(epoch: int) -> np.ndarray:
        attention = system.attention.forward(*path.at(epoch)[:2])
        return np.einsum("bii->b", attention) / system.p.L

    times = np.where(A(0) >= 0.5, 0.0, np.nan)
    while np.isnan(times).any() and path.epoch + path.length < epochs:
        path.advance()
        end = min(path.epoch + path.length, epochs)
        for k in np.flatnonzero(np.isnan(times) & (A(end) >= 0.5)):
            low, high = path.epoch, end
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if A(middle)[k] >= 0.5 else (middle, high)
            below, above = A(low)[k], A(high)[k]
            times[k] = low + (0.5 - below) / (above - below)
    return times


@checked
@np.errstate(over="ignore", invalid="ignore")  # diverging descent does not reach it
def data_scatter(
    p: Parameters,
    start: Start,
    draws: Annotated[int, Allowed(low=2, high=10**6)],
    rng: np.random.Generator,
    alpha: Positive,
) -> np.ndarray:
    """Relative standard deviation of the time of A = 1/2 over draws of the training set alone, per
    seed.

    A training set of n sequences adds a constant Gaussian force of variance ``force_noise`` to
    every attention entry. Its effect on the time is found by running the dressed theory ``draws``
    times.

    Parameters
    ----------
    p : Parameters
        With ``n_train``.
    start : Start
        Initial values of the seeds.
    draws : int
        Training sets per seed.
    rng : Generator
        Random generator for the forces.
    alpha : float
        Longest time to integrate to.

    Returns
    -------
    ndarray, shape (B,)
        NaN if a draw does not reach A = 1/2 by then.
    """
    memory.require(
        lambda q: 8 * draws * len(start.R) * q.L**2, p, "forces on all attention entries"
    )
    many = Start(*(np.repeat(x, draws, axis=0) for x in vars(start).values()))
    size = dressed.equations()["force_noise"].evaluate(
        {"V_M": p.initial_variance, "N": p.N, "n_train": p.n_train}
    )
    pull = rng.normal(scale=np.sqrt(size), size=(len(many.R), p.L, p.L))
    path = Strides(Dressed(p, many, pull=pull))  # in strides of all
    times = half_epochs(path, p.run_to(alpha).epochs).reshape(-1, draws)
    return times.std(1, ddof=1) / times.mean(1)
