"""Certified solutions of a flow: Taylor steps in ball arithmetic, with a proved bound
for all that they leave out, and events of which none is missed.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import sympy as sp

from theory.call import sweep
from theory.call.refusal import Allowed, ParameterError, number, shown
from theory.call.scope import allow_beyond
from theory.dynamics import solution
from theory.numbers.balls import Balls, Interval, ball, fraction, library

if TYPE_CHECKING:
    from theory.dynamics.flow import Flow

GUARD = 6  # digits of the first attempt beyond those asked for
FAR = 500.0  # logarithm of a step's length: a longer one means that the series ends
ATTEMPTS = 5  # with more and more digits
SLOPES = 6  # order in time of slopes of rates
PARTS = 5  # of a step, in which slopes of rates are bounded
STEPS = 20_000
SHORTEST = 1e-10  # step, in units of the run that is left
TRIES = 60  # times that a step is shortened
HALVINGS = 60  # of a part of a step in which an event is looked for
CUTS = (0.481, 0.523, 0.437)  # where a part is cut: an event is not met exactly


class Lost(Exception):
    """No proof at this precision."""


def certify(
    flow: Flow,
    parameters: Any,
    until: float | None = None,
    *,
    event: Any = None,
    digits: int = 15,
    beyond: bool = False,
    **end: Any,
) -> Any:
    """Prove between which numbers the solution lies at a time, or between which times
    an event happens first.

    Parameters
    ----------
    parameters : Parameters or mapping
        Parameters, or numbers by symbol name; doubles count as the exact fractions that
        they are.
    until : float
        Final time, also under the name of the flow's time.
    event : str or Expr, optional
        As for `solve`: an expression that crosses zero, or the name of a quantity that
        does.
    digits : int
        Significant digits at least; of an order parameter relative to its largest size,
        or to ``10**-digits`` if that is smaller.
    beyond : bool
        Also for students that the flow does not describe, with a warning.

    Returns
    -------
    Interval or dict of str to Interval
        Time of the first crossing, later than the final time if there is none before;
        without an event, order parameters and observables at the final time, by name.

    Raises
    ------
    ParameterError
        As `solve`; for a function that has no certified value; if these digits cannot
        be proved, or an event touches zero without crossing it.
    """
    digits = number("digits", digits, Allowed(low=1, high=300), int)
    name = flow.time.name
    if until is not None:
        end["until"] = until
    goal = []
    with allow_beyond(beyond):
        if {"until", name} <= {*end} and name != "until":
            raise ParameterError(f"{name} = {shown(end[name])}: is the same as until")
        end = {name if key == "until" else key: value for key, value in end.items()}
        for unknown in end.keys() - {name}:
            words = f"known are {name}, until, event, digits, beyond"
            raise ParameterError(
                f"{unknown}: unknown keyword; {words}; one point at a time"
            )
        if event is not None:
            goal = [*solution.quantities(flow, {"event": event}).values()]
        solution._refuse(flow, parameters, end, goal)
        flow._ask(parameters)
    observed = {} if goal else {x: flow._spell(e) for x, e in flow.observables.items()}
    exprs = [*flow.expanded.values(), *flow.initial.values(), *goal, *observed.values()]
    free = set().union(*(e.free_symbols for e in exprs))
    moving = {name, *map(str, flow.state)}
    values = sweep.numbers(parameters, sorted({s.name for s in free} - moving))
    for expr in goal:
        start = expr.subs({**flow.initial, flow.time: 0})
        known = {x: fraction(values[x.name], x.name) for x in start.free_symbols}
        if start.xreplace(known) == 0:
            return Interval(Decimal(0), Decimal(0))
    more = GUARD
    why = ""
    for _ in range(ATTEMPTS):
        bits = math.ceil((digits + more) * math.log2(10))
        with library().ctx.workprec(bits + 64):
            path = Path(flow, values, bits, goal or [*observed.values()])
            try:
                proved, sizes = path.first(end[name]) if goal else path.last(end[name])
            except Lost as error:
                if why == str(error):
                    break
                why = str(error)
                more = 2 * more + 6
                continue
            except (ValueError, ZeroDivisionError) as error:
                raise ParameterError(
                    f"{flow.name}: {error}: a rate or event has no value"
                ) from None
            if proved is None:
                return Interval(Decimal(end[name]), Decimal("inf"))
            if not all(x.is_finite() for x in proved):
                raise ParameterError(
                    f"{flow.name}: a quantity is no real number at the end"
                )
            lacking = _lacking(proved, sizes, digits)
            if lacking <= 0:
                intervals = [*map(Interval.of, proved)]
                if goal:
                    return intervals[0]
                labels = [*map(str, flow.state), *observed]
                return dict(zip(labels, intervals, strict=True))
            why = "errors grow too fast"
            more = more + math.ceil(lacking) + 2
    raise ParameterError(
        f"digits = {digits}: {flow.name}: {why}; take fewer digits, or a shorter run"
    )


def _lacking(balls: Iterable[Any], sizes: Iterable[Any], digits: int) -> float:
    """How many digits the worst of some balls lacks."""
    lost = []
    for x, size in zip(balls, sizes, strict=False):
        if x.rad() > 0:
            scale = max(_log(size) / math.log(10), -digits)
            lost.append(_log(x.rad()) / math.log(10) - scale)
    return digits + max(lost, default=-math.inf)


def taylor(poly: Any, at: Any, terms: int) -> list[Any]:
    """Coefficients of a polynomial about a ball."""
    coefficients = []
    for k in range(terms):
        coefficients.append(poly(at))
        poly = poly.derivative() * library().fmpq(1, k + 1)
    return coefficients


def _log(x: Any) -> float:
    """Logarithm of the largest size in a ball."""
    return float(x.abs_upper().log()) if x.abs_upper() > 0 else -1e6


def each(function: Callable[[Any], Any], rows: list[list[Any]]) -> list[list[Any]]:
    """A function of every entry of a matrix."""
    return [[*map(function, row)] for row in rows]


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
        What is evaluated along the way. Attributes ``t``, ``y`` are time and order
        parameters, ``sizes`` their largest sizes so far.
    """

    def __init__(
        self, flow: Flow, values: Mapping[str, Any], bits: int, more: Sequence[sp.Expr]
    ) -> None:
        moving = [flow.time, *flow.state]
        self.flint = library()
        self.order = bits // 4 + 10
        self.small = self.flint.arb(2) ** -bits
        self.rates = Balls(flow.expanded.values(), moving, values)
        self.more = Balls(more, moving, values)
        self.t = self.flint.arb(0)
        self.y = Balls(flow.initial.values(), (), values)()
        self.sizes = [abs(x) for x in self.y]
        self.share = 1.0
        self.steps = 0
        self.name = flow.time.name
        self.unit = self.flint.arb(0, 1)

    def lost(self, why: str) -> Lost:
        """Error at the present time."""
        return Lost(f"{why} near {self.name} = {float(self.t):.6g}")

    def series(self, t: Any, box: Iterable[Any], order: int) -> list[list[Any]]:
        """Taylor coefficients of the solutions through a box."""
        coefficients = [[x] for x in box]
        arb_series = self.flint.arb_series
        for k in range(order):
            self.flint.ctx.cap = k + 1
            rates = self.rates(arb_series([t, 1]), *map(arb_series, coefficients))
            for x, rate in zip(coefficients, rates, strict=True):
                x.append(arb_series(rate)[k] / (k + 1))
        return coefficients

    def slopes(
        self, t: Any, paths: Sequence[Any], part: Any, room: Sequence[Any]
    ) -> list[list[Any]]:
        """Slopes of rates, by each order parameter, along paths with errors no larger
        than ``room``, as polynomials in time over a part: of series in time s, the
        rates of ``path + s^n e_k`` have them from the power n to 2 n - 1.
        """
        flint = self.flint
        n = SLOPES + 1
        rows = range(len(paths))
        size = part.abs_upper() ** -n

        def terms(about: Any) -> list[list[Any]]:
            flint.ctx.cap = 2 * n
            more = flint.arb_series([0] * n + [size])
            along = [
                flint.arb_series(taylor(p, about, 2 * n)) + self.unit * r
                for p, r in zip(paths, room, strict=True)
            ]

            def rates(lifted: int) -> list[Any]:
                """Rates, with one of the order parameters lifted."""
                state = [x + more * (j == lifted) for j, x in enumerate(along)]
                return self.rates(flint.arb_series([t + about, 1]), *state)

            still, *moved = map(rates, (-1, *rows))
            slopes = []
            for j in rows:
                change = [flint.arb_series(x[j]) - still[j] for x in moved]
                slopes.append([x / size for x in change])
            return slopes

        def polynomial(near: Any, rest: Any) -> Any:
            """A slope about the middle, its last term over the part."""
            first = [near[n + k] for k in range(SLOPES)]
            return flint.arb_poly([*first, rest[n + SLOPES]])

        slopes = []
        for near, rest in zip(terms(flint.arb(0)), terms(part), strict=True):
            slopes.append([*map(polynomial, near, rest)])
        return slopes

    def spread(
        self, rates: list[list[Any]], h: Any, errors: Sequence[Any]
    ) -> list[Any]:
        """Errors after a time."""
        arb_mat = self.flint.arb_mat
        grown = arb_mat(each(lambda x: h * x, rates)).exp()
        column = arb_mat([[e] for e in errors])
        return [x.upper() for x in (grown * column).entries()]

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
        poly = self.flint.arb_poly
        radius = [x.rad() for x in self.y]
        thin = self.series(self.t, [x.mid() for x in self.y], self.order - 1)
        sizes = [[*map(_log, x)] for x in thin]
        goal = _log(self.small)
        lengths = []
        for x in sizes:
            for k in (len(x) - 1, len(x) - 2):
                lengths.append(max((goal + x[j] - x[k]) / (k - j) for j in range(k)))
        usual = min(lengths)
        first = h = self.flint.arb(math.exp(min(usual, FAR)) * self.share)
        spare = [4 * r for r in radius]
        for _ in range(TRIES if self.t + h / SHORTEST > end else 0):
            last = not self.t + h < end
            h = end - self.t if last else h
            paths = [poly(x)(poly([h / 2, 1])) for x in thin]
            ranges = [p(self.unit * (h / 2)) for p in paths]
            small = [self.small * (p.abs_upper() + self.small) for p in ranges]
            room = [s + 2 * e for s, e in zip(spare, small, strict=True)]
            with contextlib.suppress(ValueError, ZeroDivisionError):
                missed = self.defect(self.t + h / 2, paths, self.unit * (h / 2))
                missed = [h.upper() * d for d in missed]
                most, errors = self.errors(h, paths, room, radius, missed)
                exact = all(m <= s for m, s in zip(missed, small, strict=True))
                if exact and all(e < r for e, r in zip(most, room, strict=True)):
                    break
                if all(e.is_finite() for e in most):
                    pairs = zip(most, room, strict=True)
                    spare = [(2 * e).min(4 * r) for e, r in pairs]
            h = h * 0.9
        else:
            raise self.lost("there is no enclosure, as of a solution that ends")
        self.piece = self.t + h / 2, paths, most, h / 2
        self.y = [p(h / 2) + self.unit * e for p, e in zip(paths, errors, strict=True)]
        self.t = self.t + h
        if not last and usual <= FAR:
            self.share = min(1.03 * self.share * float(h / first), 2)
        self.sizes = [a.max(abs(b)) for a, b in zip(self.sizes, self.y, strict=True)]
        return last

    def errors(
        self,
        h: Any,
        paths: Sequence[Any],
        room: Sequence[Any],
        errors: Any,
        missed: Sequence[Any],
    ) -> tuple[list[Any], list[Any]]:
        """Errors of paths in a step, at most and at its end, as long as they are no
        larger than ``room``.
        """
        most = errors
        length = h / PARTS
        part = self.unit * (length / 2)
        poly = self.flint.arb_poly
        slopes = self.slopes(self.t + h / 2, paths, self.unit * (h / 2), room)
        for k in range(PARTS):
            middle = poly([length * (k + 0.5 - PARTS / 2), 1])
            here = [[x(middle)(part) for x in row] for row in slopes]
            rates = each(lambda x: x.abs_upper(), here)
            for j, row in enumerate(here):  # those of themselves with their signs
                rates[j][j] = row[j].upper()
            rising = each(lambda x: x.max(self.flint.arb(0)), rates)
            new = self.spread(rising, length.upper(), [m / PARTS for m in missed])
            ends = self.spread(rising, length.upper(), errors)
            most = [a.max(b + c) for a, b, c in zip(most, ends, new, strict=True)]
            errors = self.spread(rates, length, errors)
            errors = [(a + b).upper() for a, b in zip(errors, new, strict=True)]
        return most, errors

    def defect(self, t: Any, paths: Sequence[Any], part: Any) -> list[Any]:
        """Largest difference between the slope of a path and its rate, over a part of
        time.
        """
        arb_poly = self.flint.arb_poly
        arb_series = self.flint.arb_series

        def rates(about: Any, terms: int) -> list[Any]:
            self.flint.ctx.cap = terms
            along = [arb_series(taylor(p, about, terms)) for p in paths]
            values = self.rates(arb_series([t + about, 1]), *along)
            return [arb_series(r) for r in values]

        n = self.order
        rest = rates(part, n + 1)
        near = rates(self.flint.arb(0), n)
        size = part.abs_upper() ** n
        defects = []
        for p, r, x in zip(paths, near, rest, strict=True):
            followed = arb_poly([r[k] for k in range(n)])
            difference = (p.derivative() - followed)(part)
            beyond = (x[n].abs_upper() * size).upper()
            defects.append(difference.abs_upper() + beyond)
        return defects

    def last(self, end: float) -> tuple[list[Any], list[Any]]:
        """State and further quantities at a time, and the largest sizes of the state
        before.
        """
        while not self.step(ball(end)):
            pass
        return [*self.y, *self.more(self.t, *self.y)], self.sizes

    def first(self, end: float) -> tuple[Any, Any]:
        """Time and size of the first crossing, each as a list; (None, None) if there is
        none.
        """
        if self.more(self.t, *self.y)[0].contains(0):
            raise self.lost("the event comes too close to zero")
        ended = False
        while not ended:
            ended = self.step(ball(end))
            t, *_, half = self.piece
            high = self.signed((half, half * 0.9, half * 0.8))
            crossing = self.crossing(-half, high, HALVINGS)
            if crossing is not None:
                return [t + crossing], [t + crossing]
            if high is not half:
                self.t = t + high
                self.y = self.along(high)
                ended = False
        return None, None

    def along(self, part: Any) -> list[Any]:
        """Order parameters in a part of the last step."""
        return [x(part) + self.unit * e for x, e in zip(*self.piece[1:3], strict=True)]

    def sign(self, part: Any) -> int:
        """Sign of the event in a part of the last step, 0 if unknown."""
        (value,) = self.more(self.piece[0] + part, *self.along(part))
        return (value > 0) - (value < 0)

    def signed(self, parts: Iterable[Any]) -> Any:
        """The first time at which the sign is known."""
        signed = next((x for x in parts if self.sign(x)), None)
        if signed is None:
            raise self.lost("the event comes too close to zero")
        return signed

    def crossing(self, low: Any, high: Any, halvings: int) -> Any:
        """The first crossing in a part of the last step, at whose ends signs are known;
        None if there is none.
        """
        part = low.union(high)
        value, slope = self.sloped(part)
        middle = part.mid()
        (at_middle,) = self.more(self.piece[0] + middle, *self.along(middle))
        mean = at_middle + slope * (part - middle)
        if not (value.contains(0) and mean.contains(0)):
            return None
        if not slope.contains(0):
            if self.sign(low) == self.sign(high):
                return None
            return self.refined(part)
        if not halvings:
            raise self.lost("the event touches zero")
        cut = self.signed(low + c * (high - low) for c in CUTS)
        first = self.crossing(low, cut, halvings - 1)
        return self.crossing(cut, high, halvings - 1) if first is None else first

    def sloped(self, part: Any) -> tuple[Any, Any]:
        """Value and slope of the event in a part of the last step."""
        self.flint.ctx.cap = 2
        arb_series = self.flint.arb_series
        now = [self.piece[0] + part, *self.along(part)]
        pairs = zip(now, [1, *self.rates(*now)], strict=True)
        value = arb_series(self.more(*(arb_series([*pair]) for pair in pairs))[0])
        return value[0], value[1]

    def refined(self, part: Any) -> Any:
        """The one zero in a part, by Newton's method on intervals."""
        while True:
            middle = part.mid()
            (value,) = self.more(self.piece[0] + middle, *self.along(middle))
            new = (middle - value / self.sloped(part)[1]).intersection(part)
            if not new.rad() < part.rad() / 2:
                return new
            part = new
