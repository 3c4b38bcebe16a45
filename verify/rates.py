"""Rates of convergence, an exponent in place of a tolerance:
``python -m verify.rates [MODEL]``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import ndtri

from theory import ParameterError, plugins, registry
from theory.arguments import listed
from theory.parameters import Allowed, number, shown
from theory.runtime import cli, progress
from verify import timed
from verify.check import Check, estimated, together, vanishing, with_notes
from verify.report import Report, gathered, merged
from verify.significance import POWER, Z_MAX, detectable_effect, normal_z, samples_needed

Side = Callable[[float], Any] | Sequence[Any]
ROUNDING = 1e-9  # relative error of a solved flow, at its usual tolerances
APART = 0.5  # error of an exponent that must be noticed: orders differ by as much
CLOSE = APART / 8  # never another order
NEARER = 0.8  # refined exponents are nearer to the order than others at least by this
WHY = "exponents between smaller steps approach the order"


@dataclass(frozen=True)
class Rate:
    """How a difference shrinks with a step: ``difference ~ step**exponent``.

    Attributes
    ----------
    order : float or None
        Expected exponent; None if there must be no difference.
    exponent, error : float
        At step zero: the next orders are fitted, too. NaN where every difference is zero.
    steps : tuple of float
        Falling.
    differences, errors : tuple of float
        Root mean square of measured - theory over all values, each in units of the largest value of
        its variable, and standard error: of rounding and of seeds.
    local : tuple of float
        Exponents between neighbouring steps.
    allowed : float
        Largest distance of the exponent from the order: of rounding and of seeds, as far as next
        orders are seen to take it, or 1/16.
    offset : float
        Smallest constant error of the theory, in the units of `differences`, with which the verdict
        would not have been *agrees*.
    seeds : float
        Number of seeds behind the errors; infinite where there are none.
    """

    order: float | None
    exponent: float
    error: float
    steps: tuple[float, ...]
    differences: tuple[float, ...]
    errors: tuple[float, ...]
    local: tuple[float, ...]
    allowed: float
    offset: float
    seeds: float

    @property
    def verdict(self) -> str:
        """*none*: no difference at all (or, without order, none beyond its errors). *FAIL*: the
        exponent is another one, or a difference should not be. *undecided*: the difference drowns
        in its errors, or steps are too large. Otherwise *agrees*.
        """
        if not any(self.differences):
            return "none"
        if self.order is None:
            far = max(d / e for d, e in zip(self.differences, self.errors, strict=True))
            return "none" if normal_z(far, self.seeds) <= Z_MAX else "FAIL"
        if abs(self.exponent - self.order) > self.allowed:
            return "FAIL"
        return "agrees" if np.isfinite(self.offset) else "undecided"

    def check(self, name: str, equation: str = "") -> Check:
        """A row of a report."""
        most = int(np.argmax(self.differences))
        size, error = self.differences[most], self.errors[most]
        if self.order is None and np.isinf(self.seeds):
            return vanishing(name, equation, size, Z_MAX * error, "rounding")
        if self.order is None:
            return estimated(name, equation, 0.0, size, error, self.seeds, scale=1.0)
        spread = self.error * np.sqrt(self.seeds)
        needed = samples_needed(spread, APART) if np.isfinite(spread) else None
        return Check(
            name,
            equation,
            self.order,
            self.exponent,
            abs(self.exponent - self.order) / self.error,
            self.allowed / self.error,
            WHY,
            standard_error=self.error,
            resolution=self.offset,
            samples_needed=needed,
        )

    def __str__(self) -> str:
        """Steps with their differences, and the result in a line."""
        local = ("", *(f"{q:.4f}" for q in self.local))
        rows = zip(self.steps, self.differences, local, strict=True)
        lines = [f"{h:<12.6g}{d:<12.3e}{q}" for h, d, q in rows]
        expected = "no difference" if self.order is None else f"exponent {self.order:g}"
        found = f"{self.exponent:.4f} +- {self.error:.1e}, " if np.isfinite(self.exponent) else ""
        seen = f"; a constant error of {self.offset:.1e} would have been noticed"
        head, end = f"{'step':12}{'difference':12}exponent", seen * (self.verdict == "agrees")
        return "\n".join([head, *lines, f"{found}expected {expected}: {self.verdict}{end}"])


def rates(
    theory: Any,
    measured: Side,
    steps: Sequence[float],
    order: float | None = 1,
    *,
    rounding: float = ROUNDING,
) -> Rate:
    """Measure with which power of a step the difference between a theory and a measurement shrinks.

    Parameters
    ----------
    theory : callable, sequence, or a single value
        What is predicted: a function of the step, one value per step, or a value for all steps. A
        value is a number, an array, a DataArray or a Dataset. Of zero the exponent of ``measured``
        itself is found.
    measured : callable or sequence
        The same of what is compared. Curves of different times are interpolated to those of the
        largest step. A dimension ``seed`` gives standard errors (`Rate.errors`).
    steps : sequence of float
        Three or more sizes of what is divided: learning rate, 1/N, 1/batch, ...
    order : float or None
        The power that the theory states; None if there must be no difference.
    rounding : float
        Relative numerical error of both sides.

    Returns
    -------
    Rate

    Raises
    ------
    ParameterError
        For fewer than three different steps, steps that are not positive, sides of another length,
        values that are not finite or do not fit together, and a single seed.

    Notes
    -----
    The logarithm of the difference is fitted as ``a + order log(step) + b step + ...``. Without
    seeds the exponent is Richardson's extrapolation of those between neighbouring steps, and its
    error the difference of the last two of these. With seeds it is least squares, and its error
    what the next orders change, and that of leaving out a seed at a time (jackknife), at all steps
    at once where seeds are the same. Of a right theory the extrapolation comes nearer to the order;
    of a wrong one, whose difference stays, it leads away. Four steps are better than three.
    """
    sizes = listed("steps", steps, Allowed(above=0))
    if len(set(sizes)) < max(3, len(sizes)):
        raise ParameterError(f"steps = {shown(steps)}: must be three or more different sizes")
    order = None if order is None else number("order", order)
    rounding = number("rounding", rounding, Allowed(above=0, below=1))
    falling = np.argsort(-sizes)
    both = [_side("theory", theory, sizes), _side("measured", measured, sizes)]
    pairs = [(both[0][k], both[1][k]) for k in falling]
    return _fitted(sizes[falling], order, *_gaps(pairs, rounding))


def _side(name: str, side: Any, sizes: np.ndarray) -> list[Any]:
    """Values of a side at all steps."""
    if callable(side):
        return [side(float(h)) for h in sizes]
    if name == "theory" and isinstance(side, xr.Dataset | xr.DataArray | int | float | np.number):
        return [side] * len(sizes)
    if not hasattr(side, "__len__") or isinstance(side, xr.Dataset) or len(side) != len(sizes):
        raise ParameterError(
            f"{name}: must be a function of the step, or one value for each of {len(sizes)} steps"
        )
    return list(side)


def _dataset(value: Any, beside: Any) -> xr.Dataset:
    """A value as a Dataset; a number is one for all variables beside it."""
    if isinstance(value, xr.DataArray):
        return value.to_dataset(name="value")
    if isinstance(value, xr.Dataset):
        return value
    array = np.asarray(value, dtype=float)
    if isinstance(beside, xr.Dataset | xr.DataArray):
        if array.ndim:
            raise ParameterError("theory, measured: an array has no names of dimensions, the other side has; give both the same")  # fmt: skip
        return 0 * _dataset(beside, None) + array.item()
    return xr.Dataset({"value": ([f"axis_{k}" for k in range(array.ndim)], array)})


def _gaps(pairs: list[Any], rounding: float) -> tuple[list[np.ndarray], np.ndarray, list[Any]]:
    """Differences of all pairs over seeds and values, in units of each variable's largest value;
    their rounding errors; and the seeds.
    """
    data = [(_dataset(a, b), _dataset(b, a)) for a, b in pairs]
    names = [n for n in data[0][0] if all(n in side for pair in data for side in pair)]
    if not names:
        raise ParameterError("theory, measured: have no variable in common")
    data = [(a[names], b[names]) for a, b in data]
    shared = [d for d in data[0][0].dims if d not in timed.UNTIMED and d in data[0][0].coords]
    if len(shared) == 1 and all(shared[0] in side.coords for pair in data for side in pair):
        data = _at_same_times(data, str(shared[0]))
    seeds = [b.seed.values.tolist() if "seed" in b.dims else [] for _, b in data]
    scale = {}
    for n in names:
        sizes = [max(float(abs(pair[k][n]).max()) for pair in data) for k in (0, 1)]
        if not np.isfinite(sizes).all() or any(x[n].isnull().any() for p in data for x in p):
            raise ParameterError(f"{n}: is not finite everywhere; take steps, times and seeds at which it is")  # fmt: skip
        scale[n] = sizes[0] or sizes[1] or 1.0
    if any(len(s) == 1 for s in seeds) or len({not s for s in seeds}) > 1:
        raise ParameterError("measured: one seed does not say how seeds scatter; isel(seed=0) takes it as exact")  # fmt: skip
    gaps, floors = [], []
    for (a, b), known in zip(data, seeds, strict=True):
        try:
            a, b = xr.align(a, b, join="exact")
        except ValueError as error:
            raise ParameterError(f"theory, measured: {error}") from None
        rows = [[x / scale[n] for x in (b[n] - a[n], a[n], b[n])] for n in names]
        gaps.append(np.concatenate([_rows(x[0], len(known)) for x in rows], 1))
        floors.append(rounding * max(np.sqrt(np.mean([float((x[k] ** 2).mean()) for x in rows])) for k in (1, 2)))  # fmt: skip
    return gaps, np.array(floors), seeds


def _rows(gap: xr.DataArray, seeds: int) -> np.ndarray:
    """Differences over seeds and values."""
    if seeds and "seed" in gap.dims:
        return gap.transpose("seed", ...).values.reshape(seeds, -1)
    return np.tile(np.ravel(gap.values), (max(1, seeds), 1))


def _at_same_times(data: list[Any], time: str) -> list[Any]:
    """Both sides at those times of the largest step that all have."""
    data = [tuple(timed.axis("theory, measured", x, time) for x in pair) for pair in data]
    ends = [x[time].values[[0, -1]] for pair in data for x in pair]
    first, last = max(e[0] for e in ends), min(e[1] for e in ends)
    times = data[0][1][time].values
    margin = 1e-9 * max(abs(first), abs(last))
    times = times[(times >= first - margin) & (times <= last + margin)]
    if not times.size:
        raise ParameterError(f"theory, measured: have no {time} in common")

    def moved(x: xr.Dataset) -> xr.Dataset:
        same = {n: timed.at(v, time, times) if time in v.dims else v for n, v in x.items()}
        return xr.Dataset(same).assign_coords({time: times})

    return [tuple(map(moved, pair)) for pair in data]


def _fitted(
    h: np.ndarray, order: float | None, gaps: list[np.ndarray], floors: np.ndarray, seeds: list[Any]
) -> Rate:
    """The exponent of differences."""

    def squares(parts: list[np.ndarray]) -> np.ndarray:
        """Mean squares of the differences, without the share of their noise."""
        noise = [x.var(0, ddof=1) / len(x) if len(x) > 1 else 0.0 for x in parts]
        return np.array([np.mean(x.mean(0) ** 2 - s) for x, s in zip(parts, noise, strict=True)])

    def logs(parts: list[np.ndarray]) -> np.ndarray:
        return np.log(np.maximum(squares(parts), floors**2 / 4)) / 2

    raw = np.array([np.mean(x.mean(0) ** 2) for x in gaps])
    errors = np.hypot(floors, np.sqrt(np.maximum(raw - squares(gaps), 0)))
    whole, n = logs(gaps), len(h)
    sizes = np.exp(whole)
    groups = [np.array([logs(x) for x in group]) for group in _without_one(gaps, seeds)]

    def scatter(of: np.ndarray) -> np.ndarray:
        """Standard errors of linear combinations of the logarithms."""
        each = [((x - x.mean(0)) @ of.T) ** 2 for x in groups]
        rounded = ((of * floors / sizes) ** 2).sum(1)
        return np.sqrt(rounded + sum((1 - 1 / len(x)) * x.sum(0) for x in each))

    weights = 1 / scatter(np.eye(n)) if groups else np.ones(n)
    fits = np.zeros((n - 1, n))  # of the exponent: so many next orders, as combinations
    for k in range(n - 1):
        used = slice(None) if groups else slice(n - k - 2, None)
        columns = [np.ones(n), np.log(h), *((h / h[0]) ** j for j in range(1, k + 1))]
        w = weights[used]
        fits[k, used] = np.linalg.pinv(np.stack(columns, 1)[used] * w[:, None])[1] * w
    powers = fits @ whole
    best = int(np.argmin(np.hypot(scatter(fits)[1:], np.diff(powers)))) + 1
    noise, samples = float(scatter(fits)[best]), float(min(map(len, seeds))) or np.inf
    effect = detectable_effect(samples)

    def local(logs: np.ndarray) -> np.ndarray:
        return np.diff(logs) / np.diff(np.log(h))

    def judged(logs: np.ndarray) -> tuple[float, float, float]:
        """Exponent, its error, and how far from the order it may be."""
        first, power = float(fits[0] @ logs), float(fits[best] @ logs)
        last = local(logs)[-2:]
        spread = abs(power - first) if groups else abs(float(last[1] - last[0]))
        nearer = NEARER * abs(first - (order or 0))
        chance = (effect + float(ndtri(1 - POWER))) * noise
        allowed = max(chance, nearer, spread if groups else 2 * spread, CLOSE)
        return power, float(np.hypot(noise, spread)), allowed

    def agrees(sizes: np.ndarray) -> bool:
        power, error, allowed = judged(np.log(np.maximum(sizes, floors / 2)))
        return abs(power - (order or 0)) <= min(allowed, APART / 2) and effect * error <= APART

    power, error, allowed = judged(whole)
    offsets = sizes.max() * np.geomspace(1e-9, 1, 361)
    unseen = [x for x in offsets if agrees(sizes + x) or agrees(abs(sizes - x))]
    return Rate(
        order,
        power if raw.any() else np.nan,
        error,
        tuple(h.tolist()),
        tuple(np.sqrt(raw).tolist()),
        tuple(errors.tolist()),
        tuple(local(whole).tolist()),
        allowed,
        max(unseen, default=float(offsets[0])) if agrees(sizes) else np.inf,
        samples,
    )


def _without_one(gaps: list[np.ndarray], seeds: list[Any]) -> Iterator[list[list[np.ndarray]]]:
    """Differences without a seed, for each seed: at all steps where seeds are the same, otherwise
    at one step, for each step.
    """
    if not seeds[0]:
        return
    if all(s == seeds[0] for s in seeds):
        yield [[np.delete(x, k, 0) for x in gaps] for k in range(len(seeds[0]))]
        return
    for i, of_step in enumerate(gaps):
        yield [
            [np.delete(x, k, 0) if j == i else x for j, x in enumerate(gaps)]
            for k in range(len(of_step))
        ]


def report(model: registry.Model) -> Report:
    """Rows of a model: its flows against descent, and orders that its theory states besides."""
    from verify import descent

    systems = model.systems or [model]
    parts = [with_notes(descent.rows)(system) for system in systems]
    modules = {x.wing("verify", "rates") for x in systems if x.has("verify", "rates")}
    parts += [(gathered(module.GROUPS), []) for module in modules]
    return Report(*together(parts))


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.parser(
        "verify.rates",
        "With which power of a step a theory is approached: flows by descent, leading orders by what they leave out.",
        "json",
        "wide",
        "quiet",
        model="all",
    )
    args = parser.parse_args(argv)
    every = [m for m in registry.TABLE.values() if m.beside or not m.family]
    models, reports = [args.model] if args.model else every, []
    with progress.bar("verify.rates", show=not args.quiet):
        for model in progress.each(models, "models", lambda m: m.name):
            with nullcontext() if args.model else plugins.skip_on_error(model):
                reports.append(report(model))
    found = merged(reports)
    if not (found.checks or found.notes):
        raise ParameterError(f"verify.rates: {models[0].name} has no flow, and states no order")
    args.model = args.model or argparse.Namespace(name="all")
    return found.printed(args)


if __name__ == "__main__":
    cli.run(main)
