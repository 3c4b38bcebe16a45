"""Integration of the per-seed theory: steps of gradient descent with their finite size, several
steps at once while changes are small.
"""

from collections.abc import Iterable
from typing import Annotated

import numpy as np
import xarray as xr

from theory.arguments import Positive, checked
from theory.parameters import Allowed, ParameterError
from theory.runtime import memory
from theory.state_tracking import dressed
from theory.state_tracking.attention import c_omega
from theory.state_tracking.numbers.per_seed.cavity import Cavity
from theory.state_tracking.numbers.per_seed.dressed import Dressed
from theory.state_tracking.numbers.per_seed.fixed_disorder import FixedDisorder
from theory.state_tracking.numbers.per_seed.rewarded import Rewarded
from theory.state_tracking.numbers.per_seed.start import Start
from theory.state_tracking.numbers.per_seed.trained import Trained
from theory.state_tracking.parameters import Parameters

System = Dressed | Cavity | FixedDisorder
Step = Annotated[float, Allowed(above=0, high=1)]
STEP = 0.02  # share of the time scale of the order parameters; no time changes by 5e-4


def stride(p: Parameters, step: float = STEP) -> int:
    """Number of epochs taken at once."""
    return max(1, int(step * p.d_g * p.N / (p.eta * max(1.0, np.sqrt(c_omega(p))))))


def advance(system: System, epochs: int) -> None:
    """Advance a system by a number of epochs, ``x -> x + f(x)`` each, correct to second order in f.

    h steps add ``h f + h (h-1)/2 f' f``, where ``f' f`` is the change of f over a step of size h,
    divided by h. Systems whose steps remember earlier ones make each step by themselves.
    """
    if isinstance(system, Trained):
        for _ in range(epochs):
            system.epoch()
    elif isinstance(system, Rewarded):
        while epochs:
            some = system.until_change(epochs)
            _stride(system, some)
            epochs -= some
    else:
        _stride(system, epochs)


def _stride(system: Dressed | Cavity | FixedDisorder, epochs: int) -> None:
    at, rates = system.state, system.rates()
    system.state = [x + epochs * f for x, f in zip(at, rates, strict=True)]
    if epochs > 1:
        later = system.rates()
        system.state = [
            x + (epochs - 1) / 2 * (g - f)
            for x, f, g in zip(system.state, rates, later, strict=True)
        ]


@checked
def solve(system: System, epochs: Iterable[int], step: Step = STEP) -> xr.Dataset:
    """Integrate a system up to the last of the given epochs; returns the observables over ``(seed,
    alpha)`` at these epochs. ``step`` is explained at `STEP`.

    Raises
    ------
    ParameterError
        Unless the epochs are increasing non-negative integers.
    """
    epochs = np.asarray(epochs)
    if (epochs != epochs.astype(int)).any() or epochs[0] < 0 or (np.diff(epochs) <= 0).any():
        raise ParameterError(f"epochs = {epochs}: must be whole numbers >= 0, increasing")
    records, now, most = [], 0, stride(system.p, step)
    for epoch in epochs.astype(int):
        while now < epoch:
            some = min(most, int(epoch) - now)
            advance(system, some)
            now += some
        records.append(system.observe())
    data = {
        name: (("seed", "alpha"), np.stack([f[name] for f in records], 1)) for name in records[0]
    }
    return xr.Dataset(data, coords={"alpha": system.p.alpha(epochs), "epoch": ("alpha", epochs)})


@checked
def half_times(system: System, epochs: Annotated[int, Allowed(low=0)]) -> np.ndarray:
    """Time of A = 1/2 per seed, in alpha; NaN if it is not reached within the given epochs."""
    times, at = [], []
    most = 1 if isinstance(system, Trained) else stride(system.p)
    for now in range(0, epochs + 1, most):
        W_Q, W_K = system.state[:2]
        times.append(np.einsum("bii->b", system.attention.forward(W_Q, W_K)) / system.p.L)
        at.append(now)
        if len(times) > 1 and (times[-1] > 0.5).all():
            break
        advance(system, most)
    A = np.array(times)
    after = (A >= 0.5).argmax(0)
    before, k = np.maximum(after - 1, 0), np.arange(A.shape[1])
    share = (0.5 - A[before, k]) / np.where(after > 0, A[after, k] - A[before, k], 1)
    epoch = np.array(at)[before] + most * np.where(after > 0, share, 0)
    return np.where((A >= 0.5).any(0), system.p.alpha(epoch), np.nan)


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
    times = half_times(Dressed(p, many, pull=pull), p.run_to(alpha).epochs).reshape(-1, draws)
    return times.std(1, ddof=1) / times.mean(1)
