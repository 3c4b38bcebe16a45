"""Fit parameters of a flow to students, a table or means: ``python -m verify.fit MODEL
--free NAME,...``.
"""

from __future__ import annotations

import html
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.optimize
import scipy.stats
import sympy as sp
import xarray as xr

from theory import Flow, ParameterError
from theory.call.parameters import BaseParameters
from theory.call.refusal import Allowed, number
from theory.call.scope import allow_beyond
from theory.dynamics import sensitivities
from theory.dynamics.dependence import Dependence
from theory.dynamics.solution import NO_PARAMETERS
from theory.explorer.curves import word
from theory.models import command_line
from theory.runtime import cli, output
from verify.checks import command, ensemble_source
from verify.checks.check import failed
from verify.compare import tables, time_axes
from verify.compare.comparison import Comparison
from verify.compare.curves import compare

TOLERANCE = 1e-10  # of the minimum, relative
BAD = 1e6  # residual where there is no curve, in standard errors
SINGULAR = 1e-6  # ratio of singular values below which a direction is not seen
PART = 1e-2  # of a parameter in such a direction
INSIDE = 1e-6  # distance of a start from the end of its range, relative
FEW_SEEDS = 5  # below, intervals are those of the curvature
LEVEL = 0.95
FORM = ("value", "curvature", "seeds", "low", "high")


@dataclass(frozen=True, repr=False)
class Fit:
    """Parameters of a flow fitted to data; prints as a table.

    Attributes
    ----------
    parameters : Dataset
        Over ``parameter``: ``value``; its standard error from the ``curvature`` of the
        squared deviations and from leaving out single ``seeds`` (NaN without seeds);
        ``low`` and ``high``, ends of the interval of `level`. Of parameters that the
        data do not determine, NaN.
    correlation : DataArray
        Correlations of the estimates, from the curvature.
    comparison : Comparison
        The fitted curve against the data, and its verdict.
    curve : Dataset
        The fitted curve.
    data : Dataset
        What was fitted.
    chi2 : float
        Squared deviations in standard errors, per degree of freedom; NaN if the
        scatter of the data is not known.
    undetermined : list of str
        Changes of parameters that leave the curve as it is.
    level : float
        Probability of the intervals.
    """

    parameters: xr.Dataset
    correlation: xr.DataArray
    comparison: Comparison
    curve: xr.Dataset
    data: xr.Dataset
    chi2: float
    undetermined: list[str]
    level: float = LEVEL
    notes: list[str] = field(default_factory=list)

    @property
    def values(self) -> dict[str, float]:
        """Fitted values of those parameters that the data determine."""
        found = self.parameters.value
        pairs = zip(found.parameter.values, found.values, strict=True)
        return {str(name): float(v) for name, v in pairs if np.isfinite(v)}

    @property
    def verdict(self) -> str:
        """*FAIL* if the fitted curve is off somewhere, *undecided* if the data are too
        few to see it, otherwise *agrees*.
        """
        verdicts = {c.verdict for c in self.comparison.checks}
        return next((v for v in ("FAIL", "undecided") if v in verdicts), "agrees")

    def __str__(self) -> str:
        """Parameters, verdict, notes, and the comparison."""
        rows = []
        for name in self.parameters.parameter.values:
            row = self.parameters.sel(parameter=name)
            numbers = [float(row[x]) for x in FORM]
            shown = [f"{v:.6g}" if math.isfinite(v) else "" for v in numbers]
            rows.append((str(name), *shown))
        inside = f"{self.level:.0%}"
        header = (
            "parameter",
            "fitted",
            "+- curvature",
            "+- seeds",
            f"{inside} from",
            f"{inside} to",
        )
        lines = [output.table(header, rows, wide=True)]
        chi2 = f", chi2 per degree of freedom {self.chi2:.2f}"
        lines.append(f"fit: {self.verdict}" + chi2 * math.isfinite(self.chi2))
        lines += [f"not determined: {line}" for line in self.undetermined]
        return "\n".join([*lines, *self.notes, "", str(self.comparison)])

    def __repr__(self) -> str:
        """The values."""
        values = ", ".join(f"{n} = {v:.4g}" for n, v in self.values.items())
        return f"<Fit: {values or 'nothing determined'}; {self.verdict}>"

    def _repr_html_(self) -> str:
        """The table, as notebooks show it."""
        return f"<pre>{html.escape(str(self))}</pre>"

    def as_dict(self) -> dict[str, Any]:
        """Dictionary for JSON."""
        rows = {}
        for name in self.parameters.parameter.values:
            row = self.parameters.sel(parameter=name)
            rows[str(name)] = {x: float(row[x]) for x in FORM}
        checks = [c.as_dict() for c in self.comparison.checks]
        return {
            "parameters": rows,
            "level": self.level,
            "chi2": self.chi2,
            "verdict": self.verdict,
            "undetermined": self.undetermined,
            "notes": self.notes,
            "correlation": self.correlation.values.tolist(),
            "checks": checks,
        }

    def draw(self) -> Any:
        """Figure: data and fitted curve above, their difference below."""
        from theory.runtime import plotting  # loads matplotlib: for figures alone

        names = list(self.comparison.deviations.data_vars)
        time = str(self.curve[names[0]].dims[0])
        figure, axes = plotting.figure(2, len(names))
        axes = np.reshape(axes, (2, len(names)))
        for name, (above, below) in zip(names, axes.T, strict=True):
            plotting.band(above, self.data[name], "C0", "data")
            above.plot(self.curve[time], self.curve[name], "k--", label="fitted curve")
            mean = self.data[name]
            gap = mean - time_axes.at(self.curve[name], time, mean[time].values)
            plotting.band(below, gap, "C0")
            below.axhline(0, color="k", lw=0.8, ls="--")
            label = f"training time {word(time)}"
            above.set(ylabel=word(str(name)), xlabel=label)
            below.set(ylabel="data - fitted curve", xlabel=label)
        plotting.legends_below(figure)
        plotting.headline(
            figure, "; ".join(f"{n} = {v:.4g}" for n, v in self.values.items())
        )
        return figure


@dataclass(frozen=True)
class _Series:
    """One variable of the data.

    Attributes
    ----------
    name : str
    expr : Expr
        The variable in the flow.
    each : ndarray, shape (seeds, times)
        Values; NaN is blank.
    count : ndarray
        Number of students behind each mean.
    spread : ndarray
        Standard deviation over students, one for all times if it is estimated.
    known : bool
        Whether the spread is known or estimated from students.
    """

    name: str
    expr: sp.Expr
    each: np.ndarray
    count: np.ndarray
    spread: np.ndarray
    known: bool

    def mean(self, without: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Means over students, or all but one, and their weights."""
        each = self.each if without is None else np.delete(self.each, without, 0)
        present = np.isfinite(each)
        count = present.sum(0)
        total = np.where(present, each, 0.0).sum(0)
        mean = total / np.maximum(count, 1)
        behind = count if len(self.each) > 1 else self.count * (count > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            weight = np.sqrt(behind) / self.spread
        return mean, np.where(np.isfinite(weight), weight, 0.0)


class _Problem:
    """Weighted deviations of a flow's curves from data, as functions of parameters."""

    def __init__(
        self,
        flow: Flow,
        p: Any,
        free: Sequence[str],
        series: Sequence[_Series],
        times: np.ndarray,
    ) -> None:
        self.flow, self.free, self.series, self.times = flow, list(free), series, times
        self.quantities = [x.expr for x in series]
        read = sensitivities.others(flow, self.quantities)
        self.variations = sensitivities.Variations.of(flow, read)
        symbols = [s.name for s in self.variations.symbols]
        self.depends = Dependence(p, symbols)
        self.end = float(times[-1])
        self._solved: tuple[bytes, Any] | None = None

    def solved(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Curves and their derivatives."""
        key = np.asarray(u, float).tobytes()
        if self._solved is None or self._solved[0] != key:
            depends = self.depends.moved(dict(zip(self.free, u.tolist(), strict=True)))
            found = sensitivities.curves(
                self.flow, depends, self.free, self.quantities, self.end, self.times
            )
            self._solved = key, found
        return self._solved[1]

    def weighted(
        self, values: np.ndarray, without: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Deviations, and the weights that they have."""
        both = [x.mean(without) for x in self.series]
        mean, weight = (np.array(part) for part in zip(*both, strict=True))
        return (weight * (values - mean)).ravel(), weight.ravel()

    def residual(self, u: np.ndarray) -> np.ndarray:
        """Deviations in standard errors."""
        try:
            values, _ = self.solved(u)
        except ParameterError:
            return np.full(len(self.series) * len(self.times), BAD)
        deviation, _ = self.weighted(values)
        return np.nan_to_num(deviation, nan=BAD, posinf=BAD, neginf=-BAD)

    def slopes(self, u: np.ndarray) -> np.ndarray:
        """Their derivatives."""
        values, slopes = self.solved(u)
        _, weight = self.weighted(values)
        return weight[:, None] * slopes.reshape(len(weight), len(self.free))


def fit(
    flow: Flow,
    p: Any = NO_PARAMETERS,
    data: Any = None,
    *free: str,
    of: Sequence[str] | None = None,
    time: str | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    level: float = LEVEL,
    beyond: bool = False,
) -> Fit:
    """Fit fields or derived constants of a flow to data, by least squares.

    Parameters
    ----------
    flow : Flow
    p : Parameters or mapping
        Parameters, or numbers by symbol name; free ones start from there.
    data : Dataset
        Students over ``(seed, time)``, or one curve, with variables named as in the
        flow; or means with ``x_std`` and ``x_n`` (`verify.compare.tables.published`).
    *free : str
        What is fitted: fields of the parameters or derived constants, sizes as
        continuous numbers.
    of : sequence of str, optional
        Variables to fit; by default all that the flow has, too.
    time : str, optional
        Name of the time in the data, if it differs from the flow's.
    bounds : mapping, optional
        Lowest and highest values by name, in place of the allowed ones.
    level : float
        Probability of the intervals.
    beyond : bool
        Also fit students that the flow does not describe, with a warning.

    Returns
    -------
    Fit

    Raises
    ------
    ParameterError
        If there is nothing to fit, a name is unknown, the data determine none of the
        parameters, or the flow has no solution where the fit starts.

    Notes
    -----
    Every variable is weighted with its mean variance over students. Errors from the
    curvature take times as independent; errors from leaving out seeds do not, and make
    the intervals where there are five seeds or more.
    """
    with allow_beyond(beyond):
        return _fit(flow, p, data, free, of, time, bounds or {}, level)


def _fit(
    flow: Flow,
    p: Any,
    data: Any,
    free: Sequence[str],
    of: Sequence[str] | None,
    time: str | None,
    bounds: Mapping[str, tuple[float, float]],
    level: float,
) -> Fit:
    level = number("level", level, Allowed(above=0, below=1))
    if not free:
        raise ParameterError("free: name what to fit, as fit(flow, p, data, 'eta')")
    if len({*free}) < len(free):
        raise ParameterError(f"free: {', '.join(free)}: each once")
    if not isinstance(data, xr.Dataset):
        raise ParameterError(
            "data: must be a Dataset; of a file verify.compare.tables.read makes one"
        )
    flow._ask(p)
    data, names = _read(flow, p, data, of, time)
    clock = flow.time.name
    times = data[clock].values
    series = [_series(flow, data, name) for name in names]
    problem = _Problem(flow, p, free, series, times)
    start, low, high = _range(problem.depends, free, bounds)
    for name in free:
        if not problem.depends.direction(name).any():
            raise ParameterError(
                f"{name}: nothing in {flow.name} depends on it; that depends on"
                f" {', '.join(problem.depends.names)}"
            )
    problem.solved(start)  # an error where there is no curve
    scale = np.where(start != 0, np.abs(start), 1.0)
    found = scipy.optimize.least_squares(
        problem.residual,
        start,
        problem.slopes,
        (low, high),
        xtol=TOLERANCE,
        ftol=TOLERANCE,
        gtol=TOLERANCE,
        x_scale=scale,
    )
    return _result(problem, found.x, data, level, (low, high))


def _read(
    flow: Flow, p: Any, data: xr.Dataset, of: Sequence[str] | None, time: str | None
) -> tuple[xr.Dataset, list[str]]:
    """Data over the flow's time, and the variables to fit."""
    clock = flow.time.name
    known = [*(x.name for x in flow.state), *flow.observables]
    renamed = clock if time is None else time
    if renamed not in data.dims:
        raise ParameterError(
            f"data: no dimension {renamed}; say which of"
            f" {', '.join(map(str, data.dims))} is the time, in the unit of {clock}:"
            " time=..."
        )
    last = float(data[renamed].max()) if renamed in data.coords else 1.0
    length: dict[str, Any] = {clock: last}
    ends = flow.solve(p, at=[0.0, last], **length)
    _, data, _ = time_axes.pair(ends, data, time)
    data = data.sel({clock: slice(0, None)})
    shared = [n for n in known if n in data and clock in data[n].dims]
    names = list(of or shared)
    for name in names:
        if name not in shared:
            raise ParameterError(
                f"{name}: not over {clock} in both data and flow; both have"
                f" {', '.join(shared) or 'none'}"
            )
    if not names:
        raise ParameterError(
            f"data: no variable in common with {flow.name}; that has"
            f" {', '.join(known)}, the data have {', '.join(map(str, data.data_vars))}"
        )
    beside = time_axes.companions(data, names, ("std", "n"))
    for name in names:
        if more := {*data[name].dims} - {clock, "seed"}:
            raise ParameterError(
                f"{name}: is over {', '.join(map(str, more))}, too: pick one: .sel(...)"
            )
    return time_axes.numbers("data", data, [*names, *beside]), names


def _series(flow: Flow, data: xr.Dataset, name: str) -> _Series:
    """One variable with the spread of its values."""
    states = {x.name: x for x in flow.state}
    expr = states[name] if name in states else flow._spell(flow.observables[name])
    clock = flow.time.name
    values = data[name].transpose("seed", clock) if "seed" in data[name].dims else None
    each = data[name].values[None] if values is None else values.values
    if not np.isfinite(each).any():
        raise ParameterError(f"{name}: has no values")
    count = np.isfinite(each).sum(0).astype(float)
    several = count > 1
    size = float(np.nanmax(np.abs(each))) or 1.0
    if f"{name}_std" in data and f"{name}_n" in data:
        given = data[f"{name}_std"].values
        spreads = np.where(given > 0, given, np.inf)
        return _Series(name, expr, each, data[f"{name}_n"].values, spreads, True)
    if several.any():
        variance = float(np.nanvar(each[:, several], axis=0, ddof=1).mean())
        known = variance > 0
        spread = math.sqrt(variance) if known else size
    else:
        known, spread = False, size
    return _Series(name, expr, each, count, np.full(len(count), spread), known)


def _range(
    depends: Dependence, free: Sequence[str], bounds: Mapping[str, tuple[float, float]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start, lowest and highest values."""
    if unknown := [name for name in bounds if name not in free]:
        raise ParameterError(f"bounds: {unknown[0]} is not free")
    start, low, high = [], [], []
    for name in free:
        value = depends.value(name)
        first, last = bounds.get(name) or _allowed(depends.p, name)
        if not first < last or not first <= value <= last:
            raise ParameterError(
                f"{name} = {value:g}: must start between {first:g} and {last:g}"
            )
        room = INSIDE * min(last - first, abs(value) or 1.0)
        start.append(min(max(value, first + room), last - room))
        low.append(first)
        high.append(last)
    return np.array(start), np.array(low), np.array(high)


def _allowed(p: BaseParameters | None, name: str) -> tuple[float, float]:
    """Range of a field or constant."""
    allowed = Allowed()
    if p is not None and name in p._fields():
        allowed = p._allowed(name)
    elif p is not None and name in p.CONSTANTS:
        allowed = p.CONSTANTS[name].allowed
    lowest = [x for x in (allowed.low, allowed.above) if x is not None]
    highest = [x for x in (allowed.high, allowed.below) if x is not None]
    first, last = max(lowest, default=-np.inf), min(highest, default=np.inf)
    if allowed.above == first:
        first = np.nextafter(first, np.inf) if first else 1e-300
    if allowed.below == last:
        last = np.nextafter(last, -np.inf)
    return float(first), float(last)


def _result(
    problem: _Problem,
    best: np.ndarray,
    data: xr.Dataset,
    level: float,
    ends: tuple[np.ndarray, np.ndarray],
) -> Fit:
    """Errors, intervals and verdict at the minimum."""
    free = problem.free
    values, _ = problem.solved(best)
    deviation, weight = problem.weighted(values)
    slopes = problem.slopes(best)
    scale = np.where(best != 0, np.abs(best), 1.0)
    _, sizes, directions = np.linalg.svd(slopes * scale, full_matrices=False)
    seen = sizes > SINGULAR * sizes.max()
    unseen = directions[~seen]
    determined = (
        ~(np.abs(unseen) > PART).any(0) if len(unseen) else np.full(len(free), True)
    )
    undetermined = [_said(free, v, best) for v in unseen]
    if not determined.any():
        raise ParameterError(
            f"the data determine none of {', '.join(free)}: {'; '.join(undetermined)}"
        )
    # inverse of the curvature, in the directions that are seen
    inverse = directions[seen] / sizes[seen, None]
    covariance = scale[:, None] * (inverse.T @ inverse) * scale
    freedom = int((weight > 0).sum()) - int(seen.sum())
    if freedom <= 0:
        raise ParameterError(
            f"data: {int((weight > 0).sum())} values do not suffice for"
            f" {len(free)} parameters"
        )
    chi2 = float(deviation @ deviation) / freedom
    known = all(x.known for x in problem.series)
    curvature = np.sqrt(np.diag(covariance) * (1.0 if known else chi2))
    by_seeds, seeds = _left_out(problem, values, slopes, covariance)
    error, samples = by_seeds, seeds - 1
    if seeds < FEW_SEEDS:
        factor = math.sqrt(max(1.0, chi2)) if known else 1.0
        error, samples = factor * curvature, freedom
    half = scipy.stats.t.ppf((1 + level) / 2, samples) * error
    table = {
        "value": best,
        "curvature": curvature,
        "seeds": by_seeds,
        "low": np.maximum(best - half, ends[0]),
        "high": np.minimum(best + half, ends[1]),
    }
    parameters = xr.Dataset(
        {x: ("parameter", np.where(determined, v, np.nan)) for x, v in table.items()},
        {"parameter": list(free)},
    )
    width = np.sqrt(np.diag(covariance))
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = covariance / np.outer(width, width)
    both = np.outer(determined, determined)
    correlation = xr.DataArray(
        np.where(both, correlation, np.nan),
        [("parameter", list(free)), ("other", list(free))],
    )
    curve = _curve(problem, best, data)
    comparison = compare(curve, data[[x.name for x in problem.series] + _beside(data)])
    notes = []
    at_end = np.isclose(best, ends[0]) | np.isclose(best, ends[1])
    if at_end.any():
        named = ", ".join(np.array(free)[at_end])
        notes.append(f"{named}: at the end of what is allowed; no interval holds there")
    if 1 < seeds < FEW_SEEDS:
        notes.append(
            f"{seeds} seeds are too few for errors by leaving seeds out; intervals are"
            " from the curvature, widened by the deviations"
        )
    return Fit(
        parameters,
        correlation,
        comparison,
        curve,
        data,
        chi2 if known else math.nan,
        undetermined,
        level,
        notes,
    )


def _beside(data: xr.Dataset) -> list[str]:
    return [str(n) for n in data if str(n).endswith(("_std", "_n"))]


def _said(free: Sequence[str], direction: np.ndarray, best: np.ndarray) -> str:
    """A direction that the data do not see, in words."""
    direction = direction / direction[np.abs(direction).argmax()]
    parts = []
    for name, part, value in zip(free, direction, best, strict=True):
        if abs(part) > PART:
            unit = "%" if value else ""
            parts.append(f"{name} {part:+.2g}{unit}")
    if len(parts) == 1:
        return f"{parts[0].split()[0]} does not change the curve"
    return f"the same curve with {', '.join(parts)}"


def _left_out(
    problem: _Problem, values: np.ndarray, slopes: np.ndarray, covariance: np.ndarray
) -> tuple[np.ndarray, int]:
    """Standard errors from fits without one seed each, by one Gauss-Newton step from
    the minimum, and the number of seeds.
    """
    seeds = max(len(x.each) for x in problem.series)
    if seeds < 2:
        return np.full(len(problem.free), np.nan), seeds
    _, weight = problem.weighted(values)
    plain = np.divide(
        slopes, weight[:, None], where=weight[:, None] > 0, out=0 * slopes
    )
    moved = []
    for k in range(seeds):
        deviation, weighted = problem.weighted(values, k)
        fewer = plain * weighted[:, None]
        curvature = fewer.T @ fewer
        change, *_ = np.linalg.lstsq(curvature, fewer.T @ deviation, rcond=1e-12)
        moved.append(-change)
    apart = np.array(moved) - np.mean(moved, 0)
    return np.sqrt((seeds - 1) / seeds * (apart**2).sum(0)), seeds


def _curve(problem: _Problem, best: np.ndarray, data: xr.Dataset) -> xr.Dataset:
    """The fitted curve, with points between those of the data."""
    flow, clock = problem.flow, problem.flow.time.name
    depends = problem.depends.moved(dict(zip(problem.free, best.tolist(), strict=True)))
    between = np.linspace(0, problem.end, 301)
    times = np.union1d(between, problem.times)
    length: dict[str, Any] = {clock: problem.end}
    curve = flow.solve(dict(depends.of_symbols()), at=times, **length)
    curve.attrs.pop("parameters", None)
    return curve[[x.name for x in problem.series]]


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    flags = ("json", *ensemble_source.FLAGS, *tables.FLAGS)
    parser = command_line.parser(
        "verify.fit", "Fit parameters of a flow to data.", *flags
    )
    parser.add_argument(
        "--free",
        metavar="NAME,...",
        required=True,
        help="fields or derived constants to fit, e.g. c_omega,R_0",
    )
    parser.add_argument(
        "--of", metavar="NAME,...", help="variables to fit (default: all in common)"
    )
    parser.add_argument(
        "--start",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="where a free parameter starts (default: its value)",
    )
    args = parser.parse_args(argv)
    command_line.check_plot(args.plot)
    flows = args.model.wing("theory").flows()
    if not flows:
        raise ParameterError(f"{args.model.name}: has no flow to fit")
    flow: Flow = next(iter(flows.values()))
    p, data = _data(args)
    p = p.parse(args.start)
    free = [name.strip() for name in args.free.split(",") if name.strip()]
    of = args.of.split(",") if args.of else None
    found = fit(flow, p, data, *free, of=of)
    print(output.to_json(found.as_dict()) if args.json else found)
    if args.plot is not None:
        from theory.runtime import plotting

        plotting.deliver(
            found.draw(),
            args.plot,
            f"fit_{args.model.name}.png",
            stream=sys.stderr if args.json else None,
        )
    return int(failed(found.comparison.checks))


def _data(args: Any) -> tuple[Any, xr.Dataset]:
    """Parameters and data that the arguments name."""
    if args.columns is None:
        if args.rows:
            raise ParameterError("--rows: needs --columns and --runs FILE.csv")
        return ensemble_source.get(command.request(args))
    if args.runs is None:
        raise ParameterError("--columns NAME=COLUMN,...: needs --runs FILE.csv")
    rows = command.mapped("--rows", args.rows) if args.rows else {}
    data = tables.read(args.runs, command.mapped("--columns", args.columns), rows)
    return command.request(args).parameters(), data


if __name__ == "__main__":
    cli.run(main)
