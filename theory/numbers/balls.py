"""Expressions in ball arithmetic:
every value is an interval that holds the true one.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation
from typing import Any

import sympy as sp

from theory.call import sweep
from theory.call.refusal import Allowed, ParameterError, number, shown
from theory.numbers import numeric

PLACES = Context(prec=4000, Emin=MIN_EMIN, Emax=MAX_EMAX)  # digits of exact sums
NAMES = {
    **dict.fromkeys(
        (
            "exp",
            "log",
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
            "atan",
            "erf",
            "erfc",
            "erfi",
            "gamma",
        )
    ),
    "loggamma": "lgamma",
    "LambertW": "lambertw",
    "Ei": "ei",
    "Si": "si",
    "Ci": "ci",
    "Shi": "shi",
    "Chi": "chi",
}
OTHERWISE = {
    **dict.fromkeys((sp.sinh, sp.cosh, sp.tanh, sp.coth, sp.sech, sp.csch), sp.exp),
    **dict.fromkeys((sp.asinh, sp.acosh, sp.atanh, sp.acoth), sp.log),
    **dict.fromkeys((sp.factorial, sp.binomial, sp.beta), sp.gamma),
    sp.cot: sp.tan,
    sp.sec: sp.cos,
    sp.csc: sp.sin,
    numeric.wright_omega: sp.LambertW,
    numeric.dirichlet_kernel: sp.sin,
}
BY_SLOPE = {
    "polygamma": lambda n, x: library().acb(x).polygamma(n).real,
    "polylog": lambda s, x: x.polylog(s),
    "uppergamma": lambda s, x: x.gamma_upper(s),
    "lowergamma": lambda s, x: x.gamma_lower(s),
}
CONSTANTS = {
    sp.pi: "pi",
    sp.E: "const_e",
    sp.EulerGamma: "const_euler",
    sp.Catalan: "const_catalan",
}


def library() -> Any:
    """python-flint, imported at the first use.

    Raises
    ------
    ParameterError
        If it is not installed.
    """
    try:
        import flint
    except ImportError:
        raise ParameterError(
            "certified numbers: need python-flint; install it: pip install python-flint"
        ) from None
    return flint


@dataclass(frozen=True, repr=False)
class Interval:
    """Numbers between which a true value lies, proved.

    Attributes
    ----------
    low, high : Decimal
        Ends. A time that is proved to be later than a run has the end of the run as
        ``low`` and infinity as ``high``.
    """

    low: Decimal
    high: Decimal

    @classmethod
    def of(cls, ball: Any) -> Interval:
        """The interval of a ball of python-flint, rounded outward."""
        mid, rad, exponent = map(int, ball.mid_rad_10exp(library().ctx.dps))
        try:
            low = Decimal(f"{mid - rad}E{exponent}")
            high = Decimal(f"{mid + rad}E{exponent}")
            return cls(low, high)
        except InvalidOperation:
            raise ParameterError(
                f"10^{exponent}: is too large or too small a number"
            ) from None

    @property
    def mid(self) -> Decimal:
        """Middle."""
        return PLACES.divide(PLACES.add(self.low, self.high), Decimal(2))

    @property
    def never(self) -> bool:
        """Whether it is the time of an event that is proved not to happen within the
        run.
        """
        return self.high.is_infinite()

    def __contains__(self, value: Any) -> bool:
        """Whether a number lies inside."""
        return self.low <= value <= self.high

    def __float__(self) -> float:
        """Middle, in double precision."""
        return float(self.mid)

    def __repr__(self) -> str:
        """Middle with as many digits as are proved, and error."""
        if self.never:
            return f"later than {self.low:f}"
        if self.low == self.high:
            return f"{self.low.normalize(PLACES):f}"
        unit = Decimal(f"1E{PLACES.subtract(self.high, self.low).adjusted() + 1}")
        return f"{self.mid.quantize(unit, context=PLACES)} +- {unit:.0e}"

    def as_json(self) -> dict[str, str]:
        """Ends as text, which keeps their digits."""
        return {"low": str(self.low), "high": str(self.high)}


def fraction(value: Any, name: str = "value") -> sp.Rational:
    """A number as the exact fraction that it is stored as.

    Raises
    ------
    ParameterError
        If it is not one finite real number.
    """
    try:  # a fraction of nan is 0 where SymPy computes with python-flint
        plain = value.item() if hasattr(value, "item") else value
        exact = sp.Rational(plain) if math.isfinite(plain) else sp.nan
    except (TypeError, ValueError, OverflowError):
        exact = sp.nan
    if not exact.is_Rational:
        raise ParameterError(f"{name} = {shown(value)}: must be one finite number")
    return exact


def ball(value: Any, name: str = "value") -> Any:
    """Ball of a `fraction`."""
    exact = fraction(value, name)
    return library().arb(library().fmpq(int(exact.p), int(exact.q)))


def whole_power(x: Any, n: int) -> Any:
    """Power of a ball or series by products:
    python-flint has none of balls about zero.
    """
    if n < 0:
        return 1 / whole_power(x, -n)
    if n == 1:
        return x
    square = whole_power(x * x, n // 2)
    return square * x if n % 2 else square


class Balls:
    """Expressions as a list of instructions on balls, or on power series of balls.

    Parameters
    ----------
    exprs : sequence of Expr
        Expressions.
    moving : sequence of Symbol
        Arguments of a call.
    values : mapping
        Numbers of all other symbols, by name. What depends on them alone is computed
        once, at the precision of python-flint when this is made.

    Raises
    ------
    ParameterError
        Naming a function that has no ball, or a symbol without a number.
    """

    def __init__(
        self,
        exprs: Iterable[sp.Expr],
        moving: Sequence[sp.Symbol],
        values: Mapping[str, Any],
    ) -> None:
        self.moving, self.values = {*moving}, values
        self.code: list[tuple[int, Callable, list[int]]] = []
        self.known: list[Any] = [None for _ in moving]
        self.places: dict[sp.Expr, int] = {x: k for k, x in enumerate(moving)}
        self.results = [self._place(e) for e in exprs]

    def __call__(self, *arguments: Any) -> list[Any]:
        """Values at balls or series, one for each expression."""
        values = [*arguments, *self.known[len(arguments) :]]
        for place, work, parts in self.code:
            values[place] = work(*[values[k] for k in parts])
        return [values[k] for k in self.results]

    def _place(self, e: sp.Expr) -> int:
        if e not in self.places:
            work, args = self._rule(e)
            parts = [self._place(x) for x in args]
            place = self.places[e] = len(self.known)
            fixed = not e.free_symbols & self.moving
            self.known.append(work(*(self.known[k] for k in parts)) if fixed else None)
            if not fixed:
                self.code.append((place, work, parts))
        return self.places[e]

    def _rule(self, e: sp.Expr) -> tuple[Callable, Sequence[sp.Expr]]:
        """What to do with which parts."""
        if e.is_Symbol:
            return lambda: ball(self.values[e.name], e.name), ()
        if e.is_Rational or e.is_Float:
            return lambda: ball(e), ()
        if e in CONSTANTS:
            return getattr(library().arb, CONSTANTS[e]), ()
        if e.is_Add or e.is_Mul:
            parts = e.as_independent(*self.moving, as_Add=e.is_Add)
            parts = e.args if e in parts else parts
            work = operator.add if e.is_Add else operator.mul
            return (
                work if len(parts) == 2 else lambda *x: functools.reduce(work, x)
            ), parts
        if e.is_Pow:
            base, power = e.args
            if power.is_Integer:
                return lambda x: whole_power(x, int(power)), (base,)
            return operator.pow, e.args
        if type(e) in OTHERWISE:
            return lambda x: x, (e.rewrite(OTHERWISE[type(e)]),)
        name = type(e).__name__
        if name in NAMES and (len(e.args) == 1 or name == "LambertW"):
            call = NAMES[name] or name
            more = [int(k) for k in e.args[1:]]
            return lambda x: getattr(x, call)(*more), e.args[:1]
        fixed = not e.free_symbols & self.moving
        if name in BY_SLOPE and (
            fixed or (name != "polygamma" and e.args[0].is_number)
        ):
            slope = () if fixed else (sp.expand_func(e.fdiff(2)),)
            return functools.partial(of_slope, BY_SLOPE[name]), (*e.args, *slope)
        raise ParameterError(f"{shown(e)}: {name} has no certified value here")


def of_slope(function: Callable, order: Any, x: Any, *slope: Any) -> Any:
    """Function of a ball; of a series the integral of its slope."""
    if not slope:
        return function(order, x)
    return (slope[0] * x.derivative()).integral() + function(order, x[0])


def certify(equation: Any, values: Any, *, digits: int = 15) -> Interval:
    """Prove between which numbers the right-hand side lies, where it is a closed form.

    Parameters
    ----------
    values : Parameters or mapping
        Parameters, or numbers by symbol name; doubles count as the exact fractions that
        they are.
    digits : int
        Significant digits at least.

    Raises
    ------
    ParameterError
        If a symbol has no value; for a function that has no certified value, as a sum;
        if these digits cannot be proved, as of zero or of what is no real number.
    """
    digits = number("digits", digits, Allowed(low=1, high=300), int)
    rhs = equation.rhs
    numbers = sweep.numbers(values, sorted(s.name for s in rhs.free_symbols))
    for more in (32, 128, 1024):
        with library().ctx.workprec(more + math.ceil(digits * math.log2(10))):
            (value,) = Balls([rhs], (), numbers)()
            if value.rel_accuracy_bits() >= digits * math.log2(10):
                return Interval.of(value)
    raise ParameterError(
        f"digits = {digits}: {equation.name} = {value}: may be 0 or no real number;"
        " take other values"
    )
