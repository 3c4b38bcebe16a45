"""Numerical evaluation of expressions: the only wrapper around ``sympy.lambdify``."""

import ast
import builtins
import functools
import itertools
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import mpmath
import numpy as np
import scipy.special
import sympy as sp
from sympy.core.function import AppliedUndef
from sympy.logic.boolalg import BooleanFunction
from sympy.printing.codeprinter import PrintMethodNotImplementedError
from sympy.printing.numpy import SciPyPrinter
from sympy.printing.pycode import MpmathPrinter

from theory.call.refusal import ParameterError
from theory.symbols.algebra import nodes
from theory.symbols.reading import sympified

QUICK = 3000  # numbers of a function that neither NumPy nor SciPy has: a few seconds
MOST_DIGITS = 50  # of roots of polynomials
MOST_TERMS = (
    10**6
)  # terms of a sum evaluated term by term: about a second in double precision


class dirichlet_kernel(sp.Function):
    """Normalised Dirichlet kernel ``sin(n x/2) / (n sin(x/2))``, continued to its limit
    at multiples of 2 pi, where the ratio is 0/0 and some rotary frequencies lie.
    """

    @classmethod
    def eval(cls, x: sp.Expr, n: sp.Expr) -> sp.Expr | None:
        """Value at a whole multiple of 2 pi, and for a single term."""
        if n == 1:
            return sp.Integer(1)
        turns = x / (2 * sp.pi)
        if turns.is_integer:
            return sp.Integer(-1) ** (turns * (n - 1))
        return None

    def _eval_rewrite_as_sin(self, x: sp.Expr, n: sp.Expr, **_: Any) -> sp.Expr:
        return sp.sin(n * x / 2) / (n * sp.sin(x / 2))

    def _eval_evalf(self, prec: int) -> sp.Expr:
        return self.rewrite(sp.sin)._eval_evalf(prec)

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        x, n = self.args
        body = printer._print(self.rewrite(sp.sin))
        return rf"\left({body}\right)^{{{exp}}}" if exp else body


class wright_omega(sp.Function):
    """``W_0(e^x)``, the principal Lambert W of an exponential, without overflow of
    ``e^x``.
    """

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """Derivative."""
        return self / (1 + self)

    def _eval_is_positive(self) -> bool | None:
        return self.args[0].is_real

    def _eval_rewrite_as_LambertW(self, x: sp.Expr, **_: Any) -> sp.Expr:
        return sp.LambertW(sp.exp(x))

    def _eval_evalf(self, prec: int) -> sp.Expr:
        return self.rewrite(sp.LambertW)._eval_evalf(prec)

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        power = rf"^{{{exp}}}" if exp else ""
        return rf"W_{{0}}{power}\left(e^{{{printer._print(self.args[0])}}}\right)"


def _mpmath_dirichlet(x: Any, n: Any) -> Any:
    with mpmath.workprec(
        2 * mpmath.mp.prec + 20
    ):  # keeps the distance from a multiple of 2 pi
        half = mpmath.mpf(x) / 2
        below = n * mpmath.sin(
            half
        )  # zero at x = 0 alone: other multiples are no binary numbers
        value = mpmath.sin(n * half) / below if below else mpmath.mpf(1)
    return +value


def _real_lambert(z: Any, branch: Any = 0) -> Any:
    """Real branches of the Lambert function;
    NaN where it is complex beyond rounding.
    """
    found = scipy.special.lambertw(z, branch)
    return np.where(np.abs(found.imag) < 1e-7, found.real, np.nan)[()]


def _binomial(n: Any, k: Any) -> Any:
    """SymPy would print a ratio of gamma functions, which overflow at 171."""
    value = scipy.special.binom(n, k)
    if not np.isfinite(value).all():
        large = f"binomial({np.max(n):g}, k)"
        raise ParameterError(
            f"{large}: too large for double precision; evaluate by mpmath"
        )
    return value


_STRICT = {
    "numpy": SciPyPrinter({"allow_unknown_functions": False}),
    "mpmath": MpmathPrinter({"allow_unknown_functions": False}),
}
_CODE = SciPyPrinter(
    {"fully_qualified_modules": False, "allow_unknown_functions": True}
)
_IN_PART = (
    sp.uppergamma,
    sp.hermite,
    sp.factorial2,
    sp.subfactorial,
    sp.FallingFactorial,
    sp.RisingFactorial,
    sp.KroneckerDelta,
)  # SciPy's have other domains
MODULES: dict[str, list] = {
    "numpy": [
        {
            # SciPy's is zero below 0.
            "factorial": lambda n: scipy.special.gamma(np.add(n, 1)),
            "binomial": _binomial,
            "dirichlet_kernel": scipy.special.diric,
            "wright_omega": scipy.special.wrightomega,
            "LambertW": _real_lambert,
            # SymPy prints ratios of exponentials, which overflow.
            "coth": lambda x: 1 / np.tanh(x),
            "csch": lambda x: 1 / np.sinh(x),
            "sech": lambda x: 1 / np.cosh(x),
        },
        "scipy",
        "numpy",
    ],
    "mpmath": [{"dirichlet_kernel": _mpmath_dirichlet}, "mpmath"],
}


@functools.cache
def _printed(head: Any, arguments: int, modules: str) -> bool:
    """Whether NumPy with SciPy, or mpmath, evaluates a function, whose code has
    brackets.
    """
    try:
        text = _STRICT[modules].doprint(head(*sp.symbols(f"x:{arguments}")))
        open_, closed = (
            ast.dump(ast.parse(e)) for e in (f"-{text}**2", f"-({text})**2")
        )
    except (
        Exception
    ):  # whatever the function makes of plain symbols, or the printer of it
        return False
    return head not in _IN_PART and open_ == closed


def _special(part: sp.Expr, arguments: Sequence[sp.Symbol], modules: str) -> Callable:
    """Evaluate an expression by SymPy, for NumPy at every entry of arrays; NaN where it
    is not real, or not defined.
    """
    calls = itertools.count(1)

    def at_one(*values: Any) -> Any:
        if next(calls) == QUICK:
            warnings.warn(
                f"{part.func}: is slow, as SymPy finds number by number", stacklevel=2
            )
        digits = mpmath.mp.dps if modules == "mpmath" else 17
        exact = [
            sp.Integer(int(v)) if v % 1 == 0 else sp.Float(v, digits) for v in values
        ]
        try:
            found = part.subs(dict(zip(arguments, exact, strict=True))).evalf(digits)
        except (ValueError, TypeError):
            return np.nan
        if modules == "mpmath":
            return found._to_mpmath(mpmath.mp.prec)
        return float(found) if found.is_extended_real else np.nan

    return np.vectorize(at_one, otypes=[float]) if modules == "numpy" else at_one


def _renamed(
    arguments: Sequence[sp.Basic], parts: sp.Basic, special: Iterable[str]
) -> dict[sp.Basic, sp.Symbol]:
    """Other symbols for arguments that have names of the code's own, as ``pi``, or
    special ones.
    """
    named = {a.name: a for a in arguments if isinstance(a, sp.Symbol)}
    if named.keys().isdisjoint(
        [*dir(np), *dir(scipy.special), *dir(builtins), *special]
    ):
        return {}
    words = re.findall(
        r"\w+", _CODE.doprint(parts.xreplace({a: sp.Dummy() for a in named.values()}))
    )
    return {a: sp.Symbol(f"_{name}_") for name, a in named.items() if name in words}


def compiled(
    arguments: Sequence[sp.Basic],
    expressions: Any,
    modules: str = "numpy",
    cse: bool = True,
) -> Callable:
    """Code of one expression, a list of them, or a matrix, which share their common
    parts: the one call of ``sympy.lambdify``, with all functions that have numbers.
    What has none is refused.
    """
    table, *libraries = MODULES[modules]
    many = isinstance(expressions, list)
    parts = sp.Tuple(*map(sympified, expressions)) if many else sympified(expressions)
    distinct = nodes(parts)
    for part in distinct:
        if isinstance(part, AppliedUndef | sp.DiracDelta | sp.Derivative | sp.Subs):
            raise ParameterError(f"{part.func.__name__}: has no numerical value")
    special: dict[str, Any] = {}
    if roots := {
        x: x.evalf(MOST_DIGITS) for x in distinct if isinstance(x, sp.CRootOf)
    }:
        parts = parts.xreplace(roots)
        distinct = nodes(parts)

    def known(part: sp.Expr) -> bool:
        head, count = part.func, len(part.args)
        if head is sp.Piecewise and modules == "numpy":
            return not part.has(
                BooleanFunction
            )  # `and` of arrays of several shapes is SymPy's
        return (
            head.__name__ in table
            or hasattr(head, "_imp_")
            or _printed(head, count, modules)
        )

    calls = [part for part in distinct if isinstance(part, sp.Function | sp.Product)]
    for part in sorted(
        (x for x in calls if not known(x)), key=sp.count_ops, reverse=True
    ):
        used = sorted(part.free_symbols, key=str)
        special[name := f"special{len(special)}"] = _special(part, used, modules)
        parts = parts.xreplace({part: sp.Function(name)(*used)})
    other = _renamed(arguments, parts, special)
    arguments, parts = [other.get(a, a) for a in arguments], parts.xreplace(other)
    pieces = modules == "numpy" and any(isinstance(x, sp.Piecewise) for x in distinct)
    # Shared first, what lambdify reads and prints again is short.
    shared, rest = (
        sp.cse(list(parts) if many else parts, list=False) if cse else ((), parts)
    )
    heads = {x.func for x in calls if hasattr(x.func, "_imp_")}
    implemented = {head.__name__: head._imp_ for head in heads}
    if len(implemented) < len(heads):
        raise ParameterError(
            f"one name for two functions, of {', '.join(sorted(implemented))}"
        )
    names = [{**table, **implemented, **special}, *libraries]
    try:
        made = sp.lambdify(arguments, rest, names, cse=lambda _: (shared, rest))
    except PrintMethodNotImplementedError as error:
        name = str(error).partition("\n")[0].rpartition(".")[2].strip("'>")
        raise ParameterError(f"{name}: has no numerical value") from None
    # NumPy computes those pieces as well that are not taken.
    return np.errstate(divide="ignore", invalid="ignore")(made) if pieces else made


def system(arguments: Sequence[sp.Symbol], expressions: list[sp.Expr]) -> Callable:
    """Function that gives a list of values, as `function` does, made for integrators:
    without checks, common parts computed once.
    """
    if any(e.has(sp.Sum, sp.Product, sp.Integral) for e in expressions):
        return function(expressions, arguments)
    return compiled(arguments, expressions)


def real(name: str, value: Any) -> Any:
    """A value without the imaginary part of zero that it may have; a complex one is
    refused.
    """
    if not np.iscomplexobj(value):
        return value
    if np.any(np.imag(value) != 0):
        raise ParameterError(f"{name}: is complex, {np.ravel(value)[0]}; must be real")
    return np.real(value)


def function(
    expressions: Any, arguments: Sequence[sp.Basic], modules: str = "numpy"
) -> Callable:
    """Compile one expression, or a list of them, into a function of the given
    arguments.

    Parameters
    ----------
    expressions : Expr or sequence of Expr
        A sequence compiles to a function that returns a list.
    arguments : sequence of Basic
        Symbols or sub-expressions (an entry ``M[b, r, s]``, a whole sum) that are
        replaced by numbers. An ``IndexedBase`` ``X`` stands for an array whose last
        axis runs over the index of the sums in which ``X[n]`` occurs, from their first
        term to their last.
    modules : {'numpy', 'mpmath'}
        Arrays in double precision, or scalars at the working precision of mpmath.

    Returns
    -------
    callable
        With ``numpy``, every result, constants included, is broadcast against the
        arguments. Integers are converted to floats, because 64-bit integers overflow
        silently.

    Raises
    ------
    ParameterError
        If an array entry has no argument. When called: if the limits of a sum are not
        integers, or it has more than `MOST_TERMS` terms, or its number of terms differs
        from the array's length.
    """
    many = isinstance(expressions, (list, tuple))
    results = [
        _compile(e, arguments, modules)
        for e in (expressions if many else [expressions])
    ]

    def call(*values: Any) -> Any:
        out = [r(*values) for r in results]
        return out if many else out[0]

    return call


def _number(value: Any) -> np.ndarray:
    """Array with integers converted to floats:
    3e9 * 3e9 overflows in 64-bit integers.
    """
    array = np.asarray(value)
    return array.astype(float) if array.dtype.kind in "iubO" else array


def _exact_number(value: Any) -> Any:
    """A number for mpmath: quotients of Python numbers would be rounded to double
    precision.
    """
    return mpmath.mpmathify(
        value.item() if isinstance(value, np.generic | np.ndarray) else value
    )


def sum_ends(sums: Iterable[sp.Sum]) -> list[sp.Tuple]:
    """First and last value of every summed index."""
    limits = itertools.chain.from_iterable(s.limits for s in sums)
    return [limit[1:] for limit in limits]


def _counted(
    ends: Sequence[Sequence[sp.Expr]], stand_in: Mapping[sp.Basic, sp.Basic]
) -> Callable:
    """Function of arguments that gives the number of terms of every sum with these
    ends, and the sum in words.
    """
    named = {q: name for name, q in stand_in.items()}
    lengths = sp.lambdify(
        [*stand_in.values()], [last - first + 1 for first, last in ends], "numpy"
    )
    words = [
        f"sum from {first.xreplace(named)} to {last.xreplace(named)}"
        for first, last in ends
    ]
    return lambda *values: zip(lengths(*values), words, strict=True)


def whole_number(symbol: sp.Basic, value: Any) -> int:
    """Limit of a sum as an integer."""
    number = np.asarray(value)
    if (
        number.size != 1
        or not np.isfinite(float(number))
        or float(number) != int(number)
    ):
        raise ParameterError(
            f"{symbol} = {value}: must be one whole number, as it is the end of a sum"
        )
    return int(number)


def _compile(expr: sp.Expr, arguments: Sequence[sp.Basic], modules: str) -> Callable:
    arrays = [a for a in arguments if isinstance(a, sp.IndexedBase)]
    plain = [a for a in arguments if not isinstance(a, sp.IndexedBase)]
    # Numbered symbols, no Dummy: the last bit must not depend on what was compiled
    # before.
    stand_in: dict[sp.Basic, sp.Basic] = {
        a: sp.Symbol(f"_argument{k}") for k, a in enumerate(plain)
    }
    expr = sympified(expr).xreplace(stand_in)

    def over_an_array(s: sp.Sum) -> bool:
        return len(s.variables) == 1 and any(s.has(x) for x in arrays)

    sums = [*filter(over_an_array, sorted(expr.atoms(sp.Sum), key=str))]
    summed_arrays = [x for x in arrays if sp.Tuple(*sums).has(x)]
    totals = {s: sp.Symbol(f"_total{k}") for k, s in enumerate(sums)}
    summands, loose = [], set()
    for s in sums:
        entries = {
            x[s.variables[0]]: sp.Symbol(f"_entry{k}") for k, x in enumerate(arrays)
        }
        used = [*stand_in.values(), *entries.values()]
        summand = s.function.xreplace(entries)
        loose |= summand.atoms(sp.Indexed)
        summands.append(compiled(used, summand, modules))
    outside_sums = expr.xreplace(totals)
    if open_entries := sorted(loose | outside_sums.atoms(sp.Indexed), key=str):
        raise ParameterError(
            f"{open_entries[0]}: has no number; give the entry itself, or an array that"
            " is summed over"
        )
    # Remaining sums are evaluated term by term up to a limit that must be a Python
    # integer. Common subexpressions must not be taken out of a sum or an integral, as
    # they may contain its index.
    loops = sorted(outside_sums.atoms(sp.Sum), key=str)
    bound = outside_sums.has(sp.Sum, sp.Integral)
    outer = compiled(
        [*stand_in.values(), *totals.values()], outside_sums, modules, not bound
    )
    if outside_sums.has(sp.Integral) and arguments and modules == "numpy":
        # SciPy's quadrature takes one number.
        outer = np.vectorize(outer, otypes=[float])
    in_ends = sp.Tuple(*sum_ends(loops)).free_symbols
    integers = [k for k, q in enumerate(stand_in.values()) if q in in_ends]
    looped = _counted(sum_ends(loops), stand_in)
    known = {*stand_in.values()}
    known_ends = [pair for pair in sum_ends(sums) if pair.free_symbols <= known]
    fits = _counted(known_ends, stand_in)

    def ready(values: Sequence[Any]) -> list[Any]:
        out = [(_exact_number if modules == "mpmath" else _number)(v) for v in values]
        for k in integers:
            out[k] = whole_number(plain[k], values[k])
        for length, words in looped(*out):
            if not length <= MOST_TERMS:
                raise ParameterError(
                    f"{words}: has {float(length):.3g} terms, must be at most"
                    f" {MOST_TERMS:.0e}"
                )
        return out

    def elementwise(*values: Any) -> Any:
        """Fast path for functions that integrators call thousands of times: no sums,
        arguments usually scalars.
        """
        scalars = ready(values)
        with np.errstate(over="ignore"):
            result = outer(*scalars)
        shape = np.broadcast(*scalars).shape
        return (
            result if np.shape(result) == shape else np.broadcast_to(result, shape)[()]
        )

    if modules == "numpy" and not arrays and 0 < len(arguments) <= 32:
        return elementwise

    def call(*values: Any) -> Any:
        by_argument = dict(zip(arguments, values, strict=True))
        scalars = ready([by_argument[a] for a in plain])
        vectors = [by_argument[x] for x in arrays]
        summed = [by_argument[x] for x in summed_arrays]
        terms = max((np.shape(x)[-1] for x in summed), default=0)
        for length, words in fits(*scalars):
            if np.any(np.asarray(length, float) != terms):
                most = float(np.max(length))
                raise ParameterError(
                    f"{words}: has {most:g} terms, but the array {terms}"
                )
        if modules == "mpmath":
            rows = [[*map(_exact_number, row)] for row in zip(*vectors, strict=True)]
            sum_up = lambda f: mpmath.fsum(f(*scalars, *row) for row in rows)
            return outer(*scalars, *map(sum_up, summands))
        vectors = [np.asarray(x, dtype=float) for x in vectors]
        lifted = [np.asarray(v)[..., None] for v in scalars]
        shape = np.broadcast_shapes(*map(np.shape, (*lifted, *vectors)))
        # e^m beyond double precision is infinite, as its limit.
        with np.errstate(over="ignore"):
            totals = [
                np.broadcast_to(f(*lifted, *vectors), shape).sum(-1) for f in summands
            ]
            result = outer(*map(np.asarray, scalars), *totals)
        shape = np.broadcast_shapes(*map(np.shape, (*scalars, *totals)))
        return np.broadcast_to(result, shape)[()]

    return call
