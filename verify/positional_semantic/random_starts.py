"""Which minimum full-batch descent reaches from random weights, compared with the population's
flow.

Students of one seed share their sentences: two from random weights (descent, Adam) and one from
each informed start. A random student ends in a minimum if its training loss is that of the
informed student there (App. E.4; `extensions.ends`), else in neither.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
import torch
import xarray as xr

from simulate import pool
from simulate import runs as store
from simulate.positional_semantic.learner import Learner
from theory.positional_semantic import Parameters, online
from verify.admission import admitted
from verify.positional_semantic.extensions import ADAM, BASE, SAME

PLACE = Path(__file__).with_name("ensembles") / "random_starts.nc"
COMMAND = 'python -c "from verify.positional_semantic import random_starts as r; r.renew()"'
SEEDS = range(7000, 7048)  # a share has a standard error of at most 0.072
OMEGAS = (0.1, 0.3, 0.5)
ALPHAS = (0.5, 2.0, 8.0)
SIZES = (100, 200)
BRANCHES = ("semantic", "positional")
ENDS = (*BRANCHES, "neither")
OPTIMISERS = ("descent", "Adam")
RANDOM = BASE.replace(start="random", steps=600)
STUDENTS = {"descent": RANDOM, "Adam": ADAM.replace(alpha=None)} | {
    name: BASE.replace(start=name) for name in BRANCHES
}
SCALE = 0.1  # of random initial weights, entry by entry
KEPT = ("q", "m", "theta", "train_loss", "gradient")
CACHED = 2**18  # numbers of the sentences of one stack: they stay in a processor's cache
SETTLED = 1e-5  # largest gradient of a minimum, per sqrt(d)


def train(p: Parameters, seeds: Sequence[int]) -> xr.Dataset:
    """Students of one kind, sample complexity and size, in stacks."""
    size = max(1, CACHED // (2 * p.n * p.d))
    device = torch.device("cpu")
    rows = []
    with pool.one_thread():
        for k in range(0, len(seeds), size):
            learner = Learner(p, seeds[k : k + size], device, torch.float32)
            for number in range(p.steps):
                learner.step(number)
            rows += [learner.finish(b) for b in range(len(learner.seeds))]
    variables = {name: ("seed", [float(r[name][1]) for r in rows]) for name in KEPT}
    return xr.Dataset(variables, {"seed": [*seeds]})


def ensemble(
    seeds: Iterable[int] = SEEDS,
    omegas: Iterable[float] = OMEGAS,
    alphas: Iterable[float] = ALPHAS,
    sizes: Iterable[int] = SIZES,
) -> xr.Dataset:
    """All students, over ``(student, d, omega, alpha, seed)``."""
    places: dict[str, list[Any]] = {"d": [*sizes], "omega": [*omegas], "alpha": [*alphas]}
    cells = [
        train(of.replace(d=d, omega=omega, alpha=alpha), [*seeds]).assign_coords(
            student=name, d=d, omega=omega, alpha=alpha
        )
        for name, of in STUDENTS.items()
        for d in places["d"]
        for omega in places["omega"]
        for alpha in places["alpha"]
    ]
    rows = [c.expand_dims(["student", *places]) for c in cells]
    whole = xr.merge([xr.combine_by_coords(rows, combine_attrs="drop")])
    return whole.sel(student=[*STUDENTS])


def renew() -> None:
    """Train the shipped ensemble again."""
    runs = ensemble().astype(np.float32)
    told = json.dumps({name: p.stored() for name, p in STUDENTS.items()})
    runs.attrs = {"kind": store.KIND, "parameters": told, "command": COMMAND}
    PLACE.parent.mkdir(exist_ok=True)
    store.write(runs, PLACE)


def shipped() -> xr.Dataset:
    """The ensemble that comes with the code."""
    return admitted(PLACE, store.read(PLACE))


def ends(runs: xr.Dataset) -> xr.DataArray:
    """Whether students from random weights end in either minimum, or in neither, over ``(end,
    student, ...)``: one or zero.

    Where both informed starts lead to one minimum, it is named by the larger of the cosines with
    the teacher and with the positions.
    """
    loss = runs.train_loss
    of_semantic, of_positional = (loss.sel(student=name, drop=True) for name in BRANCHES)
    random = runs.sel(student=[*OPTIMISERS])
    there = [np.abs(random.train_loss / of - 1) < SAME for of in (of_semantic, of_positional)]
    teacher = random.theta / BASE.sigma > BASE.sigma * random.m  # cosines times sqrt(q)
    one = np.abs(of_semantic / of_positional - 1) < SAME
    semantic, positional = (
        (of & ~one) | (of & one & kind) for of, kind in zip(there, (teacher, ~teacher), strict=True)
    )
    ends = xr.concat([semantic, positional & ~semantic, ~(semantic | positional)], "end")
    return ends.assign_coords(end=[*ENDS]).astype(float)


def settled(runs: xr.Dataset) -> xr.DataArray:
    """Share of students whose gradient vanishes, by kind."""
    return (runs.gradient < SETTLED).mean([x for x in runs.gradient.dims if x != "student"])


def interval(count: int, n: int) -> tuple[float, float]:
    """95% interval of a share (Clopper and Pearson)."""
    between = scipy.stats.binomtest(count, n).proportion_ci()
    return float(between.low), float(between.high)


def flow(omega: float, alpha: float, d: int) -> online.Parameters:
    """Population's gradient from random weights, with the decay that the ridge is for a full
    batch, ``lambda / alpha``.
    """
    return online.Parameters(
        omega=omega,
        sigma=BASE.sigma,
        target=BASE.target,
        scale=SCALE,
        decay=BASE.lam / alpha,
        d=d,
        batch=None,
    )


def predicted(omega: float, alpha: float, d: int) -> dict[str, Any]:
    """Shares of the ends by the population's flow."""
    return online.shares(flow(omega, alpha, d))
