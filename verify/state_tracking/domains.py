"""Where the levels of theory hold: a map over sizes and optimisers. Largest deviations of A, seed
by seed, of the default level from students, and of levels that know no training sets from it.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from simulate.state_tracking import train
from theory.state_tracking import Parameters, emergence_times, predict
from theory.state_tracking import levels as state_tracking_levels
from theory.state_tracking.arrivals import emergence_steps
from theory.state_tracking.integrate import solve
from theory.state_tracking.levels import LEVELS
from theory.state_tracking.predict import BEST
from theory.state_tracking.realisation import Realisation, Start
from theory.state_tracking.scope import MANY
from theory.state_tracking.trained import system
from verify.check import Check, at_most, identity, listed, near
from verify.emergence import first_crossing
from verify.measured import arguments, measured
from verify.state_tracking.optimisers import AIM

SEEDS = (1, 2, 3)
STARTS = range(1, 6)
CHOSEN = 56  # settings on which the limits of entries by arrivals were chosen
SIZES = tuple(state_tracking_levels.RANGES)
EVALUATIONS = 60
WAYS: dict[str, dict[str, Any]] = {
    "descent": {},
    "momentum": dict(momentum=0.9, eta=0.05),
    "Adam": dict(optimizer="adam", eta=0.003),
    "AdamW": dict(optimizer="adamw", eta=0.006, weight_decay=0.1),
    "batches n/8": dict(unit="step", eta=0.25),
}
BAR = 0.01  # of A, for nine in ten students: set beforehand


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
    """Per student (rows) of plain descent: largest deviation of A of the levels in `levels.OFF`
    from the default, and the logarithm of its time of A = 1/2 over that of the flow.
    """
    p = setting(sizes, "descent", 1.6).replace(n_test=8)
    start = Start.of_seeds(p, SEEDS)
    known = Realisation.of_seeds(p, SEEDS)
    epochs = np.unique(np.linspace(0, p.epochs, EVALUATIONS + 1).astype(int))
    ours = solve(system(p, start, known, False), epochs)
    ours = ours.assign_coords(seed=list(SEEDS)).assign(zeta=("seed", start.zeta))
    curves = {}
    for name in state_tracking_levels.OFF:
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


@measured
def arrivals(sizes: list[int], eta: float) -> np.ndarray:
    """Steps of Adam until A = 1/2 for five starts (rows): by entries by arrivals, and by the theory
    of single students; NaN where a run ends before.
    """
    p = Parameters(optimizer="adam", eta=eta, n_test=8, unit="step", eval_every=1)
    p = p.replace(**dict(zip(SIZES, sizes, strict=True)), epochs=int(4 / eta))
    start = Start.of_seeds(p, STARTS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        law = emergence_steps(p, start, beyond=True)
    last = min(p.epochs, int(2.5 * max([100.0, *law[np.isfinite(law)]])))
    given = Realisation.of_seeds(p, STARTS)
    curves = solve(system(p, start, given, False), np.arange(last + 1))
    return np.stack([law, first_crossing(curves.A, 0.5).values * p.d_g * p.N], 1)


def table() -> list[tuple[list[int], np.ndarray]]:
    """Sizes and deviations of `levels` of the map."""
    return [(sizes, levels(sizes)) for (sizes,) in arguments(levels)]


@listed
def checks(**training: Any) -> Iterator[Check]:
    """The default level within its bars, and the constants of `theory.state_tracking.levels`."""
    off: dict[str, list[float]] = {way: [] for way in WAYS}
    alike: dict[float, list[float]] = {}
    for sizes, way in arguments(students):
        off[way] += (found := students(sizes, way, **training).tolist())
        alike.setdefault(state_tracking_levels.bound(setting(sizes, way)), []).extend(found)
    for way, values in off.items():
        name = f"A of nine in ten students off by, {way} ({len(values)} students)"
        worst = f"bar set beforehand; the worst is off by {max(values):.3f}"
        yield at_most(name, LEVELS[BEST].title, BAR, float(np.quantile(values, 0.9)), worst)
    for most, values in sorted(alike.items()):
        name = f"A of every one of {len(values)} students, of which predict says at most {most}"
        more = f"off by more than {BAR}: {sum(x > BAR for x in values)}"
        yield at_most(name, LEVELS[BEST].title, most, max(values), more)
    yield from fit_checks()
    yield from arrival_checks()


@listed
def arrival_checks() -> Iterator[Check]:
    """Entries by arrivals beside the theory of single students. The limits of their scope were
    chosen on the first `CHOSEN` settings; those after them were drawn inside of it to judge.
    """
    known = [(sizes, *arrivals(sizes, eta).T) for sizes, eta in arguments(arrivals)]
    seen, unseen = known[:CHOSEN], known[CHOSEN:]
    inside, outside = ([x for x in seen if described(x[0]) is where] for where in (True, False))
    (mean, single, agree), (of_seen, *_), (beyond, *_) = map(_apart, (unseen, inside, outside))
    worst = (
        f"the worst {mean.max():.3f}, single starts {np.quantile(single, 0.9):.3f} (nine in ten), "
        f"{single.max():.2f} (worst); {len(inside)} settings that chose the scope: up to "
        f"{of_seen.max():.3f}; {len(outside)} beyond it: up to {beyond.max():.2f}"
    )
    name = f"steps of Adam by arrivals off by, mean of five starts, nine in ten of {len(unseen)} settings"
    yield at_most(name, "entry_answer", AIM, float(np.quantile(mean, 0.9)), worst)
    every = np.concatenate([agree, _apart(inside)[2]])
    wrong = int((~_apart(outside)[2]).sum())
    why = f"beyond the scope {wrong} of {5 * len(outside)} starts are told wrong"
    yield identity(
        "starts that arrive, or not, as told", "entry_answer", every.size, every.sum(), 0, why
    )


def described(sizes: list[int]) -> bool:
    """Whether entries by arrivals describe students of these sizes."""
    return all(size >= MANY.get(name, 0) for name, size in zip(SIZES, sizes, strict=True))


def _apart(known: list[tuple]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Errors of the mean steps of settings, and of single starts; and whether these arrive as the
    law says.
    """
    both = [
        (law[on], steps[on]) for _, law, steps in known if (on := (law > 0) & (steps > 0)).any()
    ]
    mean = [abs(law.mean() / steps.mean() - 1) for law, steps in both]
    single = [abs(law / steps - 1) for law, steps in both]
    agree = [np.isfinite(law) == np.isfinite(steps) for _, law, steps in known]
    return np.array(mean), np.concatenate(single), np.concatenate(agree)


@listed
def fit_checks() -> Iterator[Check]:
    """The constants of `theory.state_tracking.levels`, fitted to the map again."""
    known = table()
    x = np.array([state_tracking_levels.features(setting(sizes, "descent")) for sizes, _ in known])
    every = np.array([found for _, found in known])
    for k, (name, ours) in enumerate(state_tracking_levels.OFF.items()):
        mean = np.clip(every[:, :, k].mean(1), 1e-4, 0.999)
        found = np.linalg.lstsq(x, np.log(mean / (1 - mean)), rcond=None)[0]
        yield from _compared(
            name, found, ours, mean * (1 + np.exp(-x @ found)), state_tracking_levels.SPREAD[name]
        )
    rows = np.isfinite(every[:, :, -1]).all(1)
    x, late = x[rows], every[rows, :, -1]
    found = least_squares(
        lambda b: np.exp(x @ b) + late.mean(1), state_tracking_levels.EARLY, loss="soft_l1"
    ).x
    ratio = np.exp(late + np.exp(x @ found)[:, None])
    yield from _compared(
        "time", found, state_tracking_levels.EARLY, ratio, state_tracking_levels.EARLY_SPREAD
    )
    sequences = np.array([sizes[-1] for sizes, _ in known])
    waited = np.array([emerges(sizes) for sizes, _ in known])
    never, low = ~np.isfinite(every[:, :, -1]), 0
    for high, share in state_tracking_levels.NEVER.items():
        some = (low <= sequences) & (sequences < high) & waited
        name = f"students that do not reach A = 1/2, n_train from {low} to {high}"
        yield near(name, "share", share, never[some].mean(), 0.01, "rounding", 1.0)
        low = high


def emerges(sizes: list[int]) -> bool:
    """Whether A of the flow crosses 1/2."""
    return float(emergence_times(setting(sizes, "descent"), beyond=True).alpha_half) > 0


def _compared(
    name: str, found: np.ndarray, ours: tuple[float, ...], ratio: np.ndarray, spread: float
) -> Iterator[Check]:
    """Constants of a fit, and the factor within which two of three are."""
    why = "rounding of the constants"
    yield near(f"domain of {name}, coefficients", "fit", 0.0, found - ours, 0.006, why, 1.0)
    factor = float(np.exp(np.quantile(np.abs(np.log(ratio)), 2 / 3)))
    yield near(f"domain of {name}, factor", "fit", spread, factor, 0.05, why)


# Rows by title.
GROUPS = {"domains of the levels": checks}
