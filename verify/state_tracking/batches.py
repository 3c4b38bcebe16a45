"""Order of batches: scatter and mean of the steps until A = 1/2 over orders in which students visit
one training set.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import torch
import xarray as xr

from simulate.state_tracking.gradients import Grouped
from simulate.state_tracking.learner import Learner
from theory.state_tracking import Parameters, task
from theory.state_tracking.attention import Attention
from theory.state_tracking.batches import Orders
from theory.state_tracking.batches import batch_times as predicted
from theory.state_tracking.realisation import Start
from verify.check import Check, at_least, estimated, listed, near
from verify.emergence import first_crossing
from verify.measured import measured

STUDENTS = Parameters.demo().replace(unit="step", n_test=16, eta=2.0, epochs=600)
SIZES, SEEDS, ORDERS = (128, 32, 8), range(200, 203), 120
SCATTER = 0.2  # forces of sequences independent; orders of three seeds alone give 0.04
MEAN = 0.5  # of the shift that a row must be able to see: the time itself moves by 1e-3
SEEN = 2.0  # scatter without the cancellation over an epoch, over the students'


@measured
def half_times(p: Parameters, seed: int, orders: int) -> np.ndarray:
    """Steps until A = 1/2 of students of one start and training set, one per order of it."""
    stack = Learner(p, [seed] * orders, torch.device("cpu"), torch.float64)
    for k, data in enumerate(stack.train_data):
        order = np.random.default_rng([seed, k]).permutation(p.n_train)
        stack.train_data[k] = task.Sequences(data.actions[order], data.states[order])
    stack.full = Grouped(stack.students, stack.train_data)  # what batches are taken from
    attention, A = Attention(p), []
    for step in range(p.epochs + 1):
        heads = (getattr(stack.students, name).detach().numpy() for name in ("W_Q", "W_K"))
        pi = attention.forward(*(w[..., 0].astype(float) for w in heads))
        A.append(np.einsum("bii->b", pi) / p.L)
        if (A[-1] > 0.5).all() or step == p.epochs:
            break
        stack.step(step)
    curves = xr.DataArray(np.array(A), dims=("step", "seed"), coords={"step": range(len(A))})
    return first_crossing(curves, 0.5).values


def compared(
    p: Parameters, seeds: Iterable[int], size: int, orders: int
) -> tuple[list[Orders], np.ndarray]:
    """Theory, and students less their full-batch time: one row per seed."""
    ours, theirs = [], []
    for seed in seeds:
        (whole,) = half_times(p, seed, 1)
        q = p.replace(batch_size=size)
        ours.append(predicted(q, Start.of_seeds(p, [seed]), half=float(whole)))
        theirs.append(half_times(q, seed, orders) - whole)
    return ours, np.array(theirs)


def uncancelled(p: Parameters, seed: int, size: int) -> float:
    """Scatter if every batch were drawn anew: the same sequences in an epoch that never ends."""
    endless = p.replace(batch_size=size, n_train=size * 10**5)
    return float(predicted(endless, Start.of_seeds(p, [seed])).half_sd[0])


@listed
def checks(
    p: Parameters = STUDENTS,
    seeds: Iterable[int] = SEEDS,
    sizes: Iterable[int] = SIZES,
    orders: int = ORDERS,
) -> Iterator[Check]:
    """Scatter and mean for every batch size, and what cancels over an epoch."""
    seeds, ratios = list(seeds), []
    for size in sizes:
        ours, theirs = compared(p, seeds, size, orders)
        title = f"batches of {size}"
        yield near(
            f"scatter of steps until A = 1/2 over orders, {title}",
            "time_variance",
            float(np.sqrt(np.mean([o.half_sd**2 for o in ours]))),
            float(np.sqrt(theirs.var(1, ddof=1).mean())),
            SCATTER,
            "forces of sequences independent; number of orders",
        )
        shift = float(np.mean([o.half_bias for o in ours]))
        error = np.sqrt((theirs.var(1, ddof=1) / orders).sum()) / len(seeds)
        ratios.append((theirs.mean() / shift, error / shift))
        if p.n_train // size < ours[0].half[0]:
            white = uncancelled(p, seeds[0], size)
            of_students = float(theirs[0].std(ddof=1))
            name = f"scatter without cancellation over students', {title}"
            yield at_least(
                name, "batch_covariance", SEEN, white / of_students, "the check can detect it"
            )
    shifts, errors = np.array(ratios).T
    weights = errors**-2 / (errors**-2).sum()
    yield estimated(
        "shift of the mean steps by batches, over theory",
        "missed_force",
        1.0,
        float(shifts @ weights),
        float((errors**-2).sum() ** -0.5),
        len(seeds) * orders * len(ratios),
        required=MEAN,
    )
