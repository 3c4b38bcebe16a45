"""Certified solutions of a flow: Taylor steps in ball arithmetic, with a proved bound for all that
they leave out, and events of which none is missed.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import sympy as sp

from theory import solution, sweep, unified
from theory.balls import Balls, Interval, ball, library
from theory.parameters import Allowed, ParameterError, number, shown
from theory.scope import allow_beyond

if TYPE_CHECKING:
    from theory.flow import Flow

GUARD = 6  # digits of the first attempt beyond those asked for
ATTEMPTS = 6
SPARE = 2.0**-10  # by which a box is wider than the path in it, in widths of the path
TINY = 2.0**-1000
STEPS = 20_000
TRIES = 60  # lengths of a step
HALVINGS = 60  # of a part of a step in which an event is looked for
CUTS = (0.481, 0.523, 0.437)  # where a part is cut: an event is not met exactly


class Lost(Exception):
    """No proof at this precision."""


def certify(
    flow: Flow,
    parameters: Any,
    *,
    event: Any = None,
    digits: int = 15,
    beyond: bool = False,
    **end: Any,
) -> Any:
    """Prove between which numbers the solution lies at a time, or between which times an event
    happens first.

    Parameters
    ----------
    parameters : Parameters or mapping
        Parameters, or numbers by symbol name; doubles count as the exact fractions that they are.
    event : str or Expr, optional
        As for `solve`: an expression that crosses zero, or the name of a quantity that does.
    digits : int
        Significant digits at least; of an order parameter, relative to its largest size.
    beyond : bool
        Also for students that the flow does not describe, with a warning.
    **end : float
        Final time, as ``until`` or under the name of the flow's time.

    Returns
    -------
    Interval or dict of str to Interval
        Time of the first crossing, later than the final time if there is none before; without an
        event, order parameters and observables at the final time, by name.

    Raises
    ------
    ParameterError
        As `solve`; for a function that has no certified value; if these digits cannot be proved, or
        an event touches zero without crossing it.
    """
    digits, name = number("digits", digits, Allowed(low=1, high=300), int), flow.time.name
    with allow_beyond(beyond):
        end = {name if key == "until" else key: value for key, value in end.items()}
        solution._refuse(flow, parameters, end)
        if len(end) > 1:
            raise ParameterError(f"{[*end][-1]}: one point at a time; use parameters.replace")
        flow._ask(parameters)
    goal = [] if event is None else [*unified.quantities(flow, {"event": event}).values()]
    observed = {} if goal else {x: flow._spell(e) for x, e in flow.observables.items()}
    exprs = [*flow.expanded.values(), *flow.initial.values(), *goal, *observed.values()]
    used = {s.name for e in exprs for s in e.free_symbols} - {name, *map(str, flow.state)}
    values, more = sweep.numbers(parameters, sorted(used)), GUARD
    for _ in range(ATTEMPTS):
        bits = math.ceil((digits + more) * math.log2(10))
        with library().ctx.workprec(bits + 64):
            path = Path(flow, values, bits, goal or [*observed.values()])
            try:
                found, sizes = path.first(end[name]) if goal else path.last(end[name])
            except Lost as error:
                why, more = str(error), 2 * more + digits
                continue
            if found is None:
                return Interval(Decimal(end[name]), Decimal("inf"))
            lacking = digits + max(
                (_log(x.rad()) - _log(s)) / math.log(10) for x, s in zip(found, sizes, strict=False)
            )
            if lacking <= 0:
                intervals = [*map(Interval.of, found)]
                labels = [*map(str, flow.state), *observed]
                return intervals[0] if goal else dict(zip(labels, intervals, strict=True))
            why, more = "errors grow too fast", more + math.ceil(lacking) + 2
    raise ParameterError(
        f"digits = {digits}: {flow.name}: {why}; take fewer digits, or a shorter run"
    )


def _log(x: Any) -> float:
    """Logarithm of the largest size in a ball."""
    return float(x.abs_upper().log()) if x.abs_upper() > 0 else -1e6


class Path:
    """Steps of a solution that starts at the initial values.

    Parameters
    ----------
    flow : Flow
        The flow.
    values : mapping
        Numbers of its parameters.
    bits : int
        Accuracy of a step, relative to every order parameter.
    more : sequence of Expr
        What is evaluated along the way.
    """

    def __init__(
        self, flow: Flow, values: Mapping[str, Any], bits: int, more: Sequence[sp.Expr]
    ) -> None:
        moving, self.flint = [flow.time, *flow.state], library()
        self.order, self.small = bits // 3, self.flint.arb(2) ** -bits
        self.rates = Balls(flow.expanded.values(), moving, values)
        self.more = Balls(more, moving, values)
        self.t, self.y = self.flint.arb(0), Balls(flow.initial.values(), (), values)()
        self.sizes, self.share, self.steps, self.name = self.y, 1.0, 0, flow.time.name
        self.unit = self.flint.arb(0, 1)

    def lost(self, why: str) -> Lost:
        """Error at the present time."""
        return Lost(f"{why} near {self.name} = {float(self.t):.6g}")

    def series(self, t: Any, box: Iterable[Any], order: int) -> list[list[Any]]:
        """Taylor coefficients of the solutions through a box."""
        found, arb_series = [[x] for x in box], self.flint.arb_series
        for k in range(order):
            self.flint.ctx.cap = k + 1
            rates = self.rates(arb_series([t, 1]), *map(arb_series, found))
            for x, rate in zip(found, rates, strict=True):
                x.append(arb_series(rate)[k] / (k + 1))
        return found

    def slopes(self, of: Balls, t: Any, box: Sequence[Any], along: Sequence[Any]) -> list[Any]:
        """Values of expressions in a box as series whose second term is the slope in a
        direction.
        """
        self.flint.ctx.cap, arb_series = 2, self.flint.arb_series
        pairs = zip((t, *box), along, strict=True)
        return [arb_series(x) for x in of(*(arb_series([*pair]) for pair in pairs))]

    def growth(self, t: Any, box: Sequence[Any]) -> list[list[Any]]:
        """Matrix M with ``d|e|/dt <= M |e|``, entry by entry, for the difference e of two paths in
        a box: slopes, on the diagonal with their signs.
        """
        rows = range(len(box))
        columns = [
            self.slopes(self.rates, t, box, [0, *(int(j == k) for j in rows)]) for k in rows
        ]
        return [
            [columns[k][j][1].upper() if j == k else columns[k][j][1].abs_upper() for k in rows]
            for j in rows
        ]

    def spread(self, rates: list[list[Any]], h: Any, errors: Sequence[Any]) -> list[Any]:
        """Errors after a time."""
        arb_mat = self.flint.arb_mat
        grown = arb_mat([[h * x for x in row] for row in rates]).exp() * arb_mat(
            [[e] for e in errors]
        )
        return [x.upper() for x in grown.entries()]

    def step(self, end: Any) -> bool:
        """Go one step towards a time; whether that is the last.

        Raises
        ------
        Lost
            If no box holds the paths.
        """
        self.steps += 1
        if self.steps > STEPS:
            raise self.lost(f"more than {STEPS} steps")
        arb, poly = self.flint.arb, self.flint.arb_poly
        radius = [x.rad() for x in self.y]
        thin = self.series(self.t, [x.mid() for x in self.y], self.order - 1)
        sizes, goal = [[*map(_log, x)] for x in thin], _log(self.small)
        usual = min(
            max((goal + x[j] - x[k]) / (k - j) for j in range(k))
            for x in sizes
            for k in (len(x) - 1, len(x) - 2)
        )
        first = h = arb(math.exp(min(usual, 500.0)) * self.share)
        spare = [4 * r for r in radius]
        for _ in range(TRIES):
            last = not self.t + h < end
            h = end - self.t if last else h
            span = arb(0).union(h)
            paths = [poly(x)(span) for x in thin]
            small = [self.small * p.abs_upper() + TINY for p in paths]
            room = [
                SPARE * p.rad() + s + 2 * e for p, s, e in zip(paths, spare, small, strict=True)
            ]
            box = [p + self.unit * r for p, r in zip(paths, room, strict=True)]
            with contextlib.suppress(ValueError, ZeroDivisionError):
                rest = [
                    (x[-1] * span**self.order).abs_upper()
                    for x in self.series(self.t + span, box, self.order)
                ]
                rates = self.growth(self.t + span, box)
                rising = [[x.max(arb(0)) for x in row] for row in rates]
                spread = self.spread(rising, span.upper(), radius)
                errors = [r + s for r, s in zip(rest, spread, strict=True)]
                if all(r <= s for r, s in zip(rest, small, strict=True)) and all(
                    e <= r for e, r in zip(errors, room, strict=True)
                ):
                    break
                if all(e.is_finite() for e in errors):
                    spare = [2 * s for s in spread]
            h = h * 0.8
        else:
            raise self.lost("there is no enclosure, as of a solution that ends")
        self.piece = self.t, h, [*map(poly, thin)], errors
        ends = zip(thin, rest, self.spread(rates, h, radius), strict=True)
        self.y = [poly(x)(h) + self.unit * (r + s) for x, r, s in ends]
        self.t, self.share = self.t + h, self.share if last else min(1.1 * self.share * float(h / first), 1)
        self.sizes = [a.max(abs(b)) for a, b in zip(self.sizes, self.y, strict=True)]
        return last

    def last(self, end: float) -> tuple[list[Any], list[Any]]:
        """State and further quantities at a time, and the largest sizes of the state before."""
        while not self.step(ball(end)):
            pass
        return [*self.y, *self.more(self.t, *self.y)], self.sizes

    def first(self, end: float) -> tuple[Any, Any]:
        """Time of the first crossing; None if there is none."""
        if self.more(self.t, *self.y)[0] == 0:
            return [self.t], [self.t]
        ended = False
        while not ended:
            ended = self.step(ball(end))
            t, h = self.piece[:2]
            part = self.signed((h, h * 0.9, h * 0.8))
            if (found := self.crossing(self.flint.arb(0), part, HALVINGS)) is not None:
                return [t + found], [t + found]
            if part is not h:
                self.t, self.y, ended = t + part, self.along(part), False
        return None, None

    def along(self, part: Any) -> list[Any]:
        """Order parameters in a part of the last step."""
        return [x(part) + self.unit * e for x, e in zip(*self.piece[2:], strict=True)]

    def sign(self, part: Any) -> int:
        """Sign of the event in a part of the last step, 0 if unknown."""
        (value,) = self.more(self.piece[0] + part, *self.along(part))
        return (value > 0) - (value < 0)

    def signed(self, parts: Iterable[Any]) -> Any:
        """The first time at which the sign is known."""
        found = next((x for x in parts if self.sign(x)), None)
        if found is None:
            raise self.lost("the event comes too close to zero")
        return found

    def crossing(self, low: Any, high: Any, halvings: int) -> Any:
        """The first crossing in a part of the last step, at whose ends signs are known; None if
        there is none.
        """
        part = low.union(high)
        value, slope = self.sloped(part)
        mean = self.more(self.piece[0] + part.mid(), *self.along(part.mid()))[0] + slope * (
            part - part.mid()
        )
        if not (value.contains(0) and mean.contains(0)):
            return None
        if not slope.contains(0):
            if self.sign(low) == self.sign(high):
                return None
            return self.refined(part)
        if not halvings:
            raise self.lost("the event touches zero")
        cut = self.signed(low + c * (high - low) for c in CUTS)
        found = self.crossing(low, cut, halvings - 1)
        return self.crossing(cut, high, halvings - 1) if found is None else found

    def sloped(self, part: Any) -> tuple[Any, Any]:
        """Value and slope of the event in a part of the last step."""
        t, box = self.piece[0] + part, self.along(part)
        (series,) = self.slopes(self.more, t, box, [1, *self.rates(t, *box)])
        return series[0], series[1]

    def refined(self, part: Any) -> Any:
        """The one zero in a part, by Newton's method on intervals."""
        while True:
            middle = part.mid()
            (value,) = self.more(self.piece[0] + middle, *self.along(middle))
            new = (middle - value / self.sloped(part)[1]).intersection(part)
            if not new.rad() < part.rad() / 2:
                return new
            part = new
