"""Times at which expressions jump, turn or are narrow, found from their own parts."""

from collections.abc import Iterator, Sequence

import numpy as np
import scipy.optimize
import sympy as sp
from sympy.core.relational import Relational

from theory import crossings, numeric
from theory.parameters import ParameterError

MOST = 2000  # times at which an integration begins anew
PIECES = 64  # of the run, in which zeros of other functions than polynomials are looked for
LEVELS = (sp.floor, sp.ceiling, sp.frac)
SWITCHES = (sp.Heaviside, sp.sign, sp.Abs)


def parts(expr: sp.Expr, time: sp.Symbol) -> Iterator[tuple[sp.Expr, bool]]:
    """Functions of time alone inside an expression, inner ones first, and whether the expression
    jumps or has a kink where they vanish. Otherwise it changes most where they vanish, are one in
    size, or turn.
    """
    for e in sp.postorder_traversal(expr):
        if time not in getattr(e, "free_symbols", ()):
            continue
        if isinstance(e, Relational):
            yield e.lhs - e.rhs, True
        elif isinstance(e, sp.Max | sp.Min):
            yield from (
                (a - b, True) for a in e.args for b in e.args if a.sort_key() < b.sort_key()
            )
        elif isinstance(e, LEVELS):
            yield sp.sin(sp.pi * e.args[0]), True
        elif isinstance(e, sp.Mod):
            yield sp.sin(sp.pi * e.args[0] / e.args[1]), True
        elif isinstance(e, SWITCHES):
            yield e.args[0], True
        elif isinstance(e, sp.Pow | sp.Function):
            yield from ((a, False) for a in e.args if isinstance(a, sp.Expr))


def mixed(expr: sp.Expr, time: sp.Symbol, state: Sequence[sp.Symbol]) -> bool:
    """Whether a function inside an expression has an argument in both time and state."""
    inside = (a for e in expr.atoms(sp.Function, sp.Pow) for a in e.args)
    return any(time in a.free_symbols and not a.free_symbols.isdisjoint(state) for a in inside)


def special_times(exprs: Sequence[sp.Expr], time: sp.Symbol, end: float) -> list[float]:
    """Times between 0 and ``end``, in order.

    Parameters
    ----------
    exprs : sequence of Expr
        In time and other symbols; what depends on these is passed over.

    Raises
    ------
    ParameterError
        If there are more than `MOST`.
    """
    found: set[float] = set()
    known: set[sp.Expr] = set()
    for expr in exprs:
        for part, jumps in parts(expr, time):
            if part.free_symbols != {time}:
                continue
            tried = [part] if jumps else [part, part - 1, part + 1, sp.diff(part, time)]
            for of in tried:
                if of.has(sp.DiracDelta, sp.Derivative, sp.Subs):
                    continue
                if of not in known and time in of.free_symbols:
                    known.add(of)
                    found |= set(_zeros(of, time, end, found))
            if len(found) > MOST:
                raise ParameterError(
                    f"{part}: the rates change at more than {MOST} times until {time} = {end:g}; "
                    "take a shorter run"
                )
    return sorted(found)


def _zeros(of: sp.Expr, time: sp.Symbol, end: float, found: set[float]) -> list[float]:
    """Zeros of a function of time alone; real parts of those of a polynomial."""
    if of.is_polynomial(time):
        roots = np.roots(np.array([complex(c) for c in sp.Poly(of, time).all_coeffs()]))
        times = np.unique(roots.real)
    else:
        call = numeric.function(of.xreplace({time: end * time}), [time])
        near = sorted({*np.linspace(0, 1, PIECES + 1), *(t / end for t in found)})

        def values(t: np.ndarray) -> np.ndarray:
            with np.errstate(all="ignore"):
                return np.nan_to_num(np.asarray(call(t), float))

        changes = crossings.sign_changes(values, near, lambda t: np.zeros(t.shape))
        try:
            brackets = [pair for _, pair in zip(range(MOST + 1), changes, strict=False)]
        except crossings.NoSign as error:
            raise ParameterError(f"{of}: {error.why} near {time} = {end * error.time:g}") from None
        one = lambda t: float(values(np.array([t]))[0])  # noqa: E731
        times = [end * scipy.optimize.brentq(one, a, b, xtol=1e-16) for a, b in brackets]
    return [float(t) for t in times if 0 < t < end * (1 - 1e-12)]
