"""Rates of convergence, an exponent in place of a tolerance:
``python -m verify.rates [MODEL]``.
"""

import argparse
import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from theory import ParameterError, plugins, registry
from theory.arguments import listed
from theory.parameters import Allowed, number, shown
from theory.runtime import cli, progress
from verify.check import Check, estimated, together, with_notes
from verify.report import Report, gathered, merged
from verify.verdict import Z_MAX, detectable_effect, normal_z, samples_needed

ROUNDING = 1e-9  # relative error of a solved flow, at its usual tolerances
APART = 0.5  # orders differ by as much
CLOSE = APART / 8  # never another order
NEARER = 0.8  # refined exponents of a right theory are nearer to the order at least by this
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
        Largest distance of the exponent from the order: by chance, as far as next orders are seen
        to take it, or 1/16.
    offset : float
        Smallest constant error of the theory, in the units of `differences`, with which the verdict
        would not have been *agrees*; infinite if it is not.
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
        if self.order is None:
            far = float(np.max(np.array(self.differences) / self.errors))
            return "none" if normal_z(far, self.seeds) <= Z_MAX else "FAIL"
        if not any(d > e / 2 for d, e in zip(self.differences, self.errors, strict=True)):
            return "none"
        if abs(self.exponent - self.order) > self.allowed:
            return "FAIL"
        sharp = detectable_effect(self.seeds) * self.error <= APART
        near = abs(self.exponent - self.order) <= APART / 2
        return "agrees" if sharp and near else "undecided"

    def check(self, name: str, equation: str = "") -> Check:
        """A row of a report."""
        if self.order is None:
            worst = max(zip(self.differences, self.errors, strict=True))
            return estimated(name, equation, 0.0, *worst, self.seeds, scale=1.0)
        spread = self.error * np.sqrt(self.seeds)
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
            samples_needed=samples_needed(spread, APART) if np.isfinite(spread) else None,
        )

    def __str__(self) -> str:
        """Steps with their differences, and the result in a line."""
        rows = zip(self.steps, self.differences, (np.nan, *self.local), strict=True)
        seen = f"; a constant error of {self.offset:.1e} would have been noticed"
        lines = [f"{h:<12.6g}{d:<12.3e}{q:.4f}".removesuffix("nan") for h, d, q in rows]
        return "\n".join(
            [
                "step        difference  exponent",
                *lines,
                f"{self.exponent:.4f} +- {self.error:.1e}, expected {self.order}: {self.verdict}"
                + seen * bool(np.isfinite(self.offset)),
            ]
        )


def rates(
    theory: Any,
    measured: Any,
    steps: Sequence[float] | np.ndarray,
    order: float | None = 1,
    *,
    rounding: float = ROUNDING,
) -> Rate:
    """Measure with which power of a step the difference between a theory and a measurement shrinks.

    Parameters
    ----------
    theory, measured : callable, sequence, or a single value
        A function of the step, one value per step, or a number, DataArray or Dataset for all steps.
        A value may also be an array. Curves are compared at the times of ``measured`` at the
        largest step; between others they are interpolated, and the error of that counts as an
        error of theirs. Of ``theory = 0`` the exponent of ``measured`` itself is found. A dimension
        ``seed``, as long at every step, gives standard errors.
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
    at once. Of a right theory the extrapolation comes nearer to the order; of a wrong one, whose
    difference stays, it leads away. Four steps are better than three.
    """
    h = listed("steps", steps, Allowed(above=0))
    if len(set(h)) < max(3, len(h)):
        raise ParameterError(f"steps = {shown(steps)}: must be three or more different sizes")
    order = None if order is None else number("order", order)
    rounding = number("rounding", rounding, Allowed(above=0, below=1))
    falling = np.argsort(-h)
    values = [_values(*side, h) for side in (("theory", theory), ("measured", measured))]
    return _fitted(h[falling], order, *_gaps([[v[k] for v in values] for k in falling], rounding))


def _values(name: str, side: Any, h: np.ndarray) -> list[xr.DataArray]:
    """One array per step; the variables of a dataset become a dimension."""
    if callable(side):
        side = [side(float(step)) for step in h]
    elif isinstance(side, xr.Dataset | xr.DataArray | int | float | np.generic) or (
        isinstance(side, np.ndarray) and not side.ndim
    ):
        side = [side] * len(h)
    if not hasattr(side, "__len__") or len(side) != len(h):
        raise ParameterError(
            f"{name}: must be a function of the step, or {len(h)} values, one each"
        )
    return [x.to_dataarray() if isinstance(x, xr.Dataset) else xr.DataArray(x) for x in side]


def _gaps(pairs: list[list[xr.DataArray]], rounding: float) -> tuple[list[np.ndarray], np.ndarray]:
    """Differences over seeds and values, in units of each variable's largest value; and their
    rounding errors.
    """
    every = [x for pair in pairs for x in pair]
    for pair in pairs:
        one, other = ({*x.dims} - {"seed"} for x in pair)
        if not (one <= other or other <= one) or any(np.iscomplexobj(x) for x in pair):
            raise ParameterError(
                f"theory, measured: dimensions {shown(sorted(map(str, one)))} and "
                f"{shown(sorted(map(str, other)))}: must be the same, and values real"
            )
    times = {d for d in every[0].dims if all(d in x.indexes for x in every)} - {"seed", "variable"}
    between = np.zeros(len(pairs))
    for time in times:
        ends = [x[time].values[[0, -1]] for x in every]
        at = np.unique(pairs[0][1][time].clip(max(e[0] for e in ends), min(e[1] for e in ends)))
        between += [max(_between(x, time, at) for x in pair) for pair in pairs]
        pairs = [[_at(x, time, at) for x in pair] for pair in pairs]
    sizes = [[abs(x).max({*x.dims} - {"variable"}) for x in pair] for pair in pairs]
    try:
        with xr.set_options(arithmetic_join="exact"):
            unit, other = (functools.reduce(np.maximum, of) for of in zip(*sizes, strict=True))
            unit = unit.where(unit > 0, other.where(other > 0, 1.0))
            apart = [(b - a) / unit for a, b in pairs]
    except ValueError as error:
        raise ParameterError(f"theory, measured: {str(error).splitlines()[0]}") from None
    seeds = {x.sizes.get("seed", 0) for x in apart}
    if len(seeds) > 1 or 1 in seeds:
        raise ParameterError("measured: seeds must be two or more, as many at every step")
    if not all(np.isfinite(x).all() for x in apart):
        raise ParameterError("theory, measured: must be finite, at all times and of all seeds")
    rows = [x.transpose("seed", ..., missing_dims="ignore").values for x in apart]
    floors = [rounding * max(float((x / unit).max()) for x in pair) for pair in sizes]
    if between[0] > np.sqrt((rows[0] ** 2).mean()):
        raise ParameterError(
            "theory, measured: too few times to interpolate between; give both at the same ones, "
            "as flow.solve(p, at=runs.t, ...)"
        )
    return [x.reshape(max(*seeds, 1), -1) for x in rows], np.array(floors) + between


def _at(x: xr.DataArray, time: Any, at: np.ndarray) -> xr.DataArray:
    """A curve at times, between its own by cubic interpolation."""
    return x.interp({time: at}, "cubic" if x[time].size > 3 and len(at) > 3 else "linear")


def _between(x: xr.DataArray, time: Any, at: np.ndarray) -> float:
    """Error of `_at`, relative to the largest value: what every second time would add, which is
    more than the error of all.
    """
    if np.isin(at, x[time]).all():
        return 0.0
    fewer = x.isel({time: sorted({*range(0, x[time].size, 2), x[time].size - 1})})
    apart = abs(_at(fewer, time, x[time].values) - x)
    return float(apart.max() / max(float(abs(x).max()), np.finfo(float).tiny))


def _fitted(h: np.ndarray, order: float | None, gaps: list[np.ndarray], floors: np.ndarray) -> Rate:
    """The exponent of differences."""
    n, seeds = len(h), len(gaps[0])
    samples = float(seeds) if seeds > 1 else np.inf

    def logs(parts: list[np.ndarray]) -> np.ndarray:
        """Logarithms of root mean squares."""
        return np.log(
            [
                max(np.sqrt((x.mean(0) ** 2).mean()), y / 2)
                for x, y in zip(parts, floors, strict=True)
            ]
        )

    without = range(seeds if seeds > 1 else 0)
    fewer = np.array([logs([np.delete(x, k, 0) for x in gaps]) for k in without] or [logs(gaps)])
    whole = seeds * logs(gaps) - (seeds - 1) * fewer.mean(0)  # without the share of noise
    sizes = np.exp(whole)

    def scatter(of: np.ndarray) -> np.ndarray:
        """Standard errors of linear combinations of the logarithms."""
        scattered = (1 - 1 / len(fewer)) * (((fewer - fewer.mean(0)) @ of.T) ** 2).sum(0)
        return np.sqrt(scattered + ((of * floors / sizes) ** 2).sum(1))

    noise = [x.var(0, ddof=min(1, seeds - 1)).mean() / seeds for x in gaps]
    fits = np.zeros((n - 1, n))  # of the exponent: so many next orders, as combinations
    for k in range(n - 1):
        used = slice(0 if seeds > 1 else n - k - 2, None)
        columns = [np.ones(n), np.log(h), *((h / h[0]) ** j for j in range(1, k + 1))]
        w = 1 / scatter(np.eye(n))[used] if seeds > 1 else np.ones(k + 2)
        fits[k, used] = np.linalg.pinv(np.stack(columns, 1)[used] * w[:, None])[1] * w
    best = int(np.argmin(np.hypot(scatter(fits)[1:], np.diff(fits @ whole)))) + 1
    chance = float(scatter(fits)[best])

    def found(x: np.ndarray) -> Rate:
        local = np.diff(x) / np.diff(np.log(h))
        first, power = (float(fits[k] @ x) for k in (0, best))
        spread = abs(power - first) if seeds > 1 else abs(float(local[-1] - local[-2]))
        nearer = NEARER * abs(first - (order or 0))
        further = (1 + (seeds < 2)) * spread
        allowed = max(detectable_effect(samples) * chance, nearer, further, CLOSE)
        columns = h, np.exp(logs(gaps)), np.sqrt(floors**2 + noise), local
        steps, apart, errors, between = (tuple(map(float, column)) for column in columns)
        error = float(np.hypot(chance, spread))
        return Rate(order, power, error, steps, apart, errors, between, allowed, np.inf, samples)

    rate, unseen = found(whole), [0.0]
    for x in sizes.max() * np.geomspace(1e-9, 1, 361):
        moved = (found(np.log(np.maximum(abs(sizes + y), floors))) for y in (x, -x))
        unseen += [x] * any(y.verdict == "agrees" for y in moved)
    return replace(rate, offset=max(unseen)) if rate.verdict == "agrees" else rate


def report(model: registry.Model) -> Report:
    """Rows of a model: its flows against descent, and orders that its theory states besides."""
    from verify import descent

    systems = model.systems or [model]
    modules = {x.wing("verify", "rates") for x in systems if x.has("verify", "rates")}
    groups = [getattr(module, "GROUPS", None) or module.rates for module in modules]
    flows = [with_notes(descent.rows)(system) for system in systems]
    return Report(*together([*flows, *((gathered(m), []) for m in groups)]))


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    what = "With which power of a step a theory is approached: flows by descent, laws by what they leave out."
    args = cli.parser("verify.rates", what, "json", "wide", "quiet", model="all").parse_args(argv)
    every = [m for m in registry.TABLE.values() if m.beside or not m.family]
    models, reports = [args.model] if args.model else every, []
    with progress.bar("verify.rates", show=not args.quiet):
        for model in progress.each(models, "models", lambda m: m.name):
            with plugins.skip_on_error(model):
                reports.append(report(model))
    found = merged(reports)
    if not (found.checks or found.notes):
        raise ParameterError(f"verify.rates: {models[0].name} has no flow, and states no order")
    args.model = args.model or argparse.Namespace(name="all")
    return found.printed(args)


if __name__ == "__main__":
    cli.run(main)
