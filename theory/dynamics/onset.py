"""When a mechanism emerges: the result of a model's onset calculation, with its table,
its figure and its times.
"""

from __future__ import annotations

import functools
import html
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import xarray as xr

from theory.call import scope, sweep
from theory.call.arguments import misfit
from theory.call.parameters import BaseParameters, Stepped, stated
from theory.call.refusal import ParameterError, most_extreme
from theory.call.scope import FEWEST
from theory.dynamics.sensitivities import elasticities
from theory.equations.equation import Equation
from theory.runtime import output


@dataclass(frozen=True, repr=False)
class Onset:
    """Result of a model's onset calculation: numbers, and functions that compute
    curves, equations and the figure on demand.

    Attributes
    ----------
    numbers : dict
        Results by the theory's names; NaN or infinite where the quantity does not
        exist.
    labels : dict
        Description of each number.
    absent : dict
        Text to print if a number is not finite.
    notes : list of str
        Remarks, one line each.
    curves : callable
        ``curves()`` gives the datasets to draw, by name.
    equations : callable
        ``equations()`` gives the equations behind the numbers and curves.
    plot : callable
        ``plot(onset, axes)`` draws into two axes.
    details : dict
        Further nested results for ``--json``.
    setting : dict
        Parameters behind the results, for the title of the figure.
    times : dict
        Units of those numbers that are times of an event: what ``emergence_times``
        returns.
    crossings : dict
        Flow, parameters and event behind those numbers that are times along a flow.
    falls : dict
        For those events that are a share of a fall: the `Fall`, and the length of the
        run that ends it.
    """

    numbers: dict[str, float]
    labels: dict[str, str]
    absent: dict[str, str]
    notes: list[str]
    curves: Callable[[], dict[str, Any]] = field(repr=False)
    equations: Callable[[], list[Equation]] = field(repr=False)
    plot: Callable[[Onset, Any], None] = field(repr=False)
    details: dict[str, Any] = field(default_factory=dict)
    setting: dict[str, Any] = field(default_factory=dict)
    times: dict[str, str] = field(default_factory=dict)
    crossings: dict[str, tuple[Any, Any, Any]] = field(default_factory=dict)
    falls: dict[str, tuple[Any, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise an error for a number that is not finite and has no text in ``absent``.

        Raises
        ------
        ParameterError
            Naming the number.
        """
        for name, value in self.numbers.items():
            if name in self.absent or math.isfinite(value):
                continue
            if math.isnan(value):
                raise ParameterError(f"{name}: does not happen at these parameters")
            extreme = f" ({most_extreme(self.setting)})" if self.setting else ""
            raise ParameterError(
                f"{name} = {value}: at these parameters{extreme} it lies beyond double"
                " precision (1.8e308); take them less extreme"
            )

    def draw(self) -> Any:
        """Figure with two panels, titled with the parameters."""
        from theory.runtime import plotting  # loads matplotlib: for figures alone

        figure, axes = plotting.figure(1, 2)
        self.plot(self, axes)
        plotting.legends_below(figure)
        plotting.headline(figure, stated(self.setting))
        return figure

    def summary(self) -> dict[str, float]:
        """The numbers, as stacked by a sweep."""
        return self.numbers

    def __repr__(self) -> str:
        """The numbers."""
        numbers = (f"{name}={v:.6g}" for name, v in self.numbers.items())
        return f"Onset({', '.join(numbers)})"

    def _repr_html_(self) -> str:
        """The table, as notebooks show it."""
        return f"<pre>{html.escape(self.table())}</pre>"

    def certified(self, digits: int = 15) -> dict[str, Any]:
        """Intervals between which those times are proved to lie that an event of a flow
        defines.

        Parameters
        ----------
        digits : int
            As for `Flow.certify`.

        Raises
        ------
        ParameterError
            If there is none, or one cannot be proved.
        """
        intervals = {}
        for name, (flow, p, event) in self.crossings.items():
            time = self.numbers[name]
            if 0 < time < math.inf:
                intervals[name] = flow.certify(
                    p, event=event, until=1.02 * time, digits=digits
                )
        if not intervals:
            raise ParameterError(
                "certified numbers: none of these numbers is the time of an event of a"
                " flow; order parameters after a time: flow.certify(p, until=...)"
            )
        return intervals

    def sensitivities(self, *parameters: str) -> xr.Dataset:
        """Derivatives of those times that an event of a flow defines.

        Parameters
        ----------
        *parameters : str
            As of `Flow.sensitivities`; all by default.

        Returns
        -------
        Dataset
            Times ``T``, and over ``parameter`` their derivatives ``d_T`` and
            elasticities ``e_T`` = d ln T / d ln x.

        Raises
        ------
        ParameterError
            If there is none.
        """
        parts = []
        for name, (flow, p, event) in self.crossings.items():
            if not 0 < self.numbers[name] < math.inf:
                continue
            event, end = self.falls.get(name, (event, 1.02 * self.numbers[name]))
            result = flow.sensitivities(
                p, *parameters, until=end, at=[0.0], events={name: event}
            )
            part = result[[name, f"d_{name}", "value"]]
            part[f"e_{name}"] = elasticities(result, name)
            common = ("left_out", "status", "assumptions")
            part.attrs = {k: v for k, v in result.attrs.items() if k in common}
            parts.append(part.drop_vars(flow.time.name, errors="ignore"))
        if not parts:
            raise ParameterError(
                "sensitivities: none of these numbers is the time of an event of a flow"
            )
        return xr.merge(
            parts, join="outer", compat="no_conflicts", combine_attrs="override"
        )

    def table(
        self, *, wide: bool = False, certified: Mapping[str, Any] | None = None
    ) -> str:
        """Numbers as a text table, fitted to the terminal unless ``wide``; with
        intervals by name in place of those numbers that are certified.
        """
        proved = certified or {}
        rows = []
        for name, number in self.numbers.items():
            value = f"{number:.10g}"
            if name in proved:
                value = str(proved[name])
            elif not math.isfinite(number):
                value = self.absent.get(name, "none")
            rows.append((name, value, self.times.get(name, ""), self.labels[name]))
        return output.table(("quantity", "value", "unit", "meaning"), rows, wide=wide)


def sensitivity_table(found: xr.Dataset, *, wide: bool = False) -> str:
    """Derivatives of times as a text table.

    Parameters
    ----------
    found : Dataset
        From `Onset.sensitivities`.
    wide : bool
        Do not fit it to the terminal.
    """
    times = [str(x) for x in found.data_vars if f"e_{x}" in found]
    rows = []
    for name in times:
        for x in found.parameter.values:
            slope, ratio, value = (
                float(found[y].sel(parameter=x))
                for y in (f"d_{name}", f"e_{name}", "value")
            )
            relative = f"{ratio:.6g}" if math.isfinite(ratio) else ""
            if math.isfinite(slope):
                rows.append((name, str(x), f"{value:.6g}", f"{slope:.6g}", relative))
    header = ("T", "x", "value of x", "dT/dx", "d ln T/d ln x")
    return output.table(header, rows, wide=wide)


def sensitivity_numbers(found: xr.Dataset) -> dict[str, Any]:
    """Derivatives of times by time and parameter, for JSON."""
    times = [str(x) for x in found.data_vars if f"e_{x}" in found]

    def of(name: str, x: Any) -> dict[str, float]:
        """Value of a parameter, and the derivatives of a time in it."""
        slopes = {"value": "value", "slope": f"d_{name}", "elasticity": f"e_{name}"}
        return {k: float(found[y].sel(parameter=x)) for k, y in slopes.items()}

    numbers = {}
    for name in times:
        numbers[name] = {str(x): of(name, x) for x in found.parameter.values}
    return numbers


def tabulated(
    rows: Mapping[str, tuple[Any, ...]],
    curves: Callable[[], dict[str, Any]],
    equations: Callable[[], list[Equation]],
    plot: Callable[[Onset, Any], None] | None = None,
    **more: Any,
) -> Onset:
    """The `Onset` of a table.

    Parameters
    ----------
    rows : mapping of str to tuple
        By name: number, description, and the unit if it is the time of an event.
    curves, equations : callable
        As in `Onset`.
    plot : callable, optional
        `draw` by default.
    **more
        Further fields of `Onset`.
    """
    return Onset(
        numbers={name: row[0] for name, row in rows.items()},
        labels={name: row[1] for name, row in rows.items()},
        times={name: row[2] for name, row in rows.items() if len(row) > 2},
        curves=curves,
        equations=equations,
        plot=plot or draw,
        **{"absent": {}, "notes": [], **more},
    )


def draw(result: Onset, axes: Any) -> None:
    """Two curves over time in a panel each; of one, the loss on the left and all else
    on the right.

    Dotted lines are times, thin ones other numbers: those that the attribute ``marks``
    of a curve names, all times by default.
    """
    from theory.runtime import plotting  # loads matplotlib: for figures alone

    panels = []
    for title, curve in result.curves().items():
        names = list(map(str, curve.data_vars))
        panels.append((title, curve, names, curve.attrs.get("marks", result.times)))
    if len(panels) == 1:
        ((_, curve, names, marks),) = panels
        first = "loss" if "loss" in names else names[0]
        others = [x for x in names if x != first]
        title = "order parameters" if others else f"{first}, logarithmic"
        panels = [(first, curve, [first], marks), (title, curve, others or names, ())]
        axes[1].set_yscale("linear" if others else "log")
    for axis, (title, curve, names, marks) in zip(axes, panels, strict=True):
        time = str(curve[names[0]].dims[0])
        for name in (x for x in names if not x.endswith(("_bias", "_sd"))):
            axis.plot(curve[time], curve[name], label=name)
            plotting.errors(axis, curve, name)
        for event, line, style in (
            (True, axis.axvline, ":"),
            (False, axis.axhline, "-"),
        ):
            marked = [k for k in marks if (k in result.times) == event]
            values = {k: result.numbers[k] for k in marked}
            values = {k: v for k, v in values.items() if math.isfinite(v)}
            ordered = sorted(values.items(), key=lambda item: item[1])
            words = (f"{k} = {v:.4g}" if event else k for k, v in ordered)
            label: str | None = "; ".join(words)  # as from left to right
            for _, value in ordered:
                line(value, color="0.6", lw=0.8, ls=style, zorder=0, label=label)
                label = None
        axis.set(xlabel=f"${time}$", title=title, xlim=(0, float(curve[time][-1])))
        plotting.below(axis)


def in_few_steps(p: Any, result: Onset) -> list[str]:
    """A note if descent takes few steps until the last of the times: theory takes it as
    a flow.
    """
    times = {n: result.numbers[n] for n in result.times}
    times = {n: time for n, time in times.items() if 0 < time < math.inf}
    if not times or not hasattr(p, "run_to"):
        return []
    last = max(times, key=times.__getitem__)
    steps = round(times[last])
    if result.times[last] != "steps":
        try:
            run = p.run_to(times[last])
        except ParameterError:  # more steps than a run may have
            return []
        steps = run.steps if hasattr(run, "steps") else run.epochs
    few = (
        f"eta = {p.eta:g}: {last} is after {steps} steps of descent, the flow is for"
        " small steps"
    )
    return [few] if steps < FEWEST else []


def until(*aliases: str) -> Callable[[Callable], Callable]:
    """Decorator: let the keyword ``until``, the length of a run, also be given under
    the name of the model's time.

    Parameters
    ----------
    *aliases : str
        Names of the time, e.g. ``alpha``.
    """

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*given: Any, **more: Any) -> Any:
            for alias in aliases:
                if alias in more:
                    if "until" in more:
                        raise ParameterError(
                            f"{alias} = {more[alias]}: is the same as until"
                        )
                    more["until"] = more.pop(alias)
            return function(*given, **more)

        return call

    return decorate


def of_onset(onset: Callable[..., Onset]) -> Callable[..., xr.Dataset]:
    """Make a model's ``emergence_times`` from its onset."""
    scopes: Mapping[str, scope.Scope] = getattr(onset, "scopes", {})

    @sweep.over_fields
    def at_a_point(p: BaseParameters, fluctuations: bool = False) -> xr.Dataset:
        result = onset(p, fluctuations=True) if fluctuations else onset(p)
        if not result.times:  # of a grid, perhaps at some points only
            return xr.Dataset(
                attrs={"absent": "; ".join(["nothing emerges", *result.notes])}
            )
        scope.refuse(in_few_steps(p, result))
        unit_of = p.unit_of_time if isinstance(p, Stepped) else str
        times = {}
        for (event, unit), error in itertools.product(
            result.times.items(), ("", "_bias", "_sd")
        ):
            name = event + error
            if name not in result.numbers:
                continue
            about = {"long_name": result.labels[name], "units": unit_of(unit)}
            if name in result.absent and not math.isfinite(result.numbers[name]):
                about["absent"] = result.absent[name]
            times[name] = ((), result.numbers[name], about)
        found = xr.Dataset(times)
        return p.timed(found) if isinstance(p, Stepped) else found

    def emergence_times(
        p: Any = None, *, beyond: bool = False, **fields: Any
    ) -> xr.Dataset:
        """Times at which a mechanism emerges, the times among the numbers of `onset`.

        Parameters
        ----------
        p : Parameters
            Parameters of the model.
        beyond : bool
            Also answer for students that the theory does not describe, with a warning.
        **fields
            Arrays of fields, which become dimensions of the result; lists as long as
            each other are read as pairs, DataArrays of different dimensions give a
            table. Of a statement also ``fluctuations=True``, which adds ``t_bias`` and
            ``t_sd`` to every time ``t``.

        Returns
        -------
        Dataset
            One variable per event, with description and unit as attributes; infinite or
            NaN if it never happens, also at single points of a grid, or for the reason
            in the attribute ``absent``.

        Raises
        ------
        ParameterError
            If the theory does not describe these students (descent in few steps is no
            flow), if nothing emerges, or a field is unknown.
        """
        if not isinstance(p, BaseParameters):
            given = fields or None if p is None else p
            kind = next((s.parameters for s in scopes.values()), None)
            raise misfit("p", given, kind)
        with scope.allow_beyond(beyond):
            found = scope.marked(at_a_point(p, **fields))
        if not found.data_vars:
            raise ParameterError(f"p: {found.attrs['absent']}")
        return found

    emergence_times.scopes = scopes  # type: ignore[attr-defined]
    return emergence_times
