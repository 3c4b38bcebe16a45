"""Where the levels of theory hold: a map over sizes and optimisers. Largest deviations of A, seed
by seed, of the default level from students, and of levels that know no training sets from it.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from simulate.state_tracking import train
from theory.state_tracking import Parameters, domains, emergence_times, predict
from theory.state_tracking.levels import LEVELS
from theory.state_tracking.numbers.per_seed import Realisation, Start, solve, system
from theory.state_tracking.predict import BEST
from verify.check import Check, at_most, listed, near
from verify.emergence import first_crossing
from verify.measured import arguments, measured

SEEDS = (1, 2, 3)
SIZES = tuple(domains.RANGES)
EVALUATIONS = 60
WAYS: dict[str, dict[str, Any]] = {
    "descent": {},
    "momentum": dict(momentum=0.9, eta=0.05),
    "Adam": dict(optimizer="adam", eta=0.003),
    "AdamW": dict(optimizer="adamw", eta=0.006, weight_decay=0.1),
    "batches n/8": dict(unit="step", eta=0.25),
}
# Largest deviation of A of nine in ten students; bars set after the first half of the map.
BARS = {"descent": 0.01, "momentum": 0.01, "Adam": 0.02, "AdamW": 0.1, "batches n/8": 0.01}


def setting(sizes: list[int], way: str, lengths: float = 2.0) -> Parameters:
    """Parameters of a run that lasts so many times of A = 1/2 by the flow; 600 steps of Adam."""
    p = Parameters(n_test=4096).replace(**dict(zip(SIZES, sizes, strict=True)))
    half = float(emergence_times(p, beyond=True).alpha_half) * p.d_g * p.N
    fields = WAYS[way] | ({"batch_size": max(16, p.n_train // 8)} if "unit" in WAYS[way] else {})
    p = p.replace(**fields)
    steps = 600
    if p.optimizer == "sgd":
        steps = max(int(half * lengths * 0.5 / p.eta * (1 - p.momentum)), 100)
    return p.replace(epochs=steps, eval_every=max(steps // EVALUATIONS, 1))


@measured
def students(sizes: list[int], way: str, **training: Any) -> np.ndarray:
    """Largest deviation of A of the default level, per student."""
    p = setting(sizes, way)
    runs = train(p, SEEDS, **training)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = predict(p, runs, accuracies=False)
    return np.round(abs(ours.A - runs.A).max("alpha").values, 5)


@measured
def levels(sizes: list[int]) -> np.ndarray:
    """Per student (rows) of plain descent: largest deviation of A of the levels in `domains.OFF`
    from the default, and the logarithm of its time of A = 1/2 over that of the flow.
    """
    p = setting(sizes, "descent", 1.6).replace(n_test=8)
    start, known = Start.of_seeds(p, SEEDS), Realisation.of_seeds(p, SEEDS)
    epochs = np.unique(np.linspace(0, p.epochs, EVALUATIONS + 1).astype(int))
    ours = solve(system(p, start, known, False), epochs)
    ours = ours.assign_coords(seed=list(SEEDS)).assign(zeta=("seed", start.zeta))
    curves = {}
    for name in domains.OFF:
        level = LEVELS[name]
        curves[name] = (
            level.flow(p, ours)
            if level.flow
            else solve(level.system(p, start, None, False), epochs)
        )
    columns = [abs(x.A.values - ours.A.values).max(1) for x in curves.values()]
    times = [first_crossing(x.A, 0.5).values for x in (ours, curves["flow"])]
    with np.errstate(divide="ignore", invalid="ignore"):
        late = np.log(times[0] / times[1])
    return np.round(np.stack([*columns, np.where(np.isfinite(late), late, np.nan)], 1), 4)


def table() -> list[tuple[list[int], np.ndarray]]:
    """Sizes and deviations of `levels` of the map."""
    return [(sizes, levels(sizes)) for (sizes,) in arguments(levels)]


@listed
def checks(**training: Any) -> Iterator[Check]:
    """The default level within its bars, and the constants of `theory.state_tracking.domains`."""
    off: dict[str, list[float]] = {way: [] for way in WAYS}
    for sizes, way in arguments(students):
        off[way] += students(sizes, way, **training).tolist()
    for way, values in off.items():
        name = f"A of nine in ten students off by, {way} ({len(values)} students)"
        why = "bar set after the first half of the map"
        yield at_most(name, LEVELS[BEST].title, BARS[way], float(np.quantile(values, 0.9)), why)
    yield from fit_checks()


@listed
def fit_checks() -> Iterator[Check]:
    """The constants of `theory.state_tracking.domains`, fitted to the map again."""
    coefficients, spreads = fits()
    for name, found in coefficients.items():
        ours, spread = (
            (domains.TIME, domains.TIME_SPREAD)
            if name == "time"
            else (domains.OFF[name], domains.SPREAD[name])
        )
        why = "rounding of the constants"
        yield near(f"domain of {name}, coefficients", "fit", 0.0, found - ours, 0.006, why, 1.0)
        yield near(f"domain of {name}, factor", "fit", spread, spreads[name], 0.05, why)


def fits() -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Coefficients and spreads of the map, by level and for the ``time``."""
    known = table()
    x = np.array([domains.features(setting(sizes, "descent")) for sizes, _ in known])
    every = np.array([found for _, found in known])
    coefficients, spreads = {}, {}
    for k, name in enumerate((*domains.OFF, "time")):
        y = every[:, :, k]
        if name == "time":
            rows = np.isfinite(y).all(1)
            b = np.linalg.lstsq(x[rows], y[rows].mean(1), rcond=None)[0]
            off = np.abs(y[rows] - (x[rows] @ b)[:, None])
        else:
            mean = np.clip(y.mean(1), 1e-4, 0.999)
            b = np.linalg.lstsq(x, np.log(mean / (1 - mean)), rcond=None)[0]
            off = np.abs(np.log(mean * (1 + np.exp(-x @ b))))
        coefficients[name], spreads[name] = b, float(np.exp(np.quantile(off, 2 / 3)))
    return coefficients, spreads


# Rows by title.
GROUPS = {"domains of the levels": checks}
