"""Fixed points of the committee and their stability: symmetric plateau, escape rate, the largest
learning rate, and the error caused by label noise.
"""

from functools import cache

import sympy as sp

from committee.theory.dynamics import (
    ALIKE,
    STATE,
    C,
    K,
    Q,
    R,
    S,
    drift,
    error,
    eta,
    loss,
    sigma,
    spread,
)
from theory import Equation, proved, symbol, table, vanishes, written_as
from theory.algebra import replaced, slope

SMALL = "first order in eta"
on_plateau = symbol("R_plateau", r"R^{\star}", "overlap with all teachers there", positive=True)
length = symbol("Q_plateau", r"Q^{\star}", "overlap of all units there", positive=True)
escape = symbol("lambda_plus", r"\lambda_{+}", "rate at which R - S grows there", positive=True)
eta_max = symbol("eta_max", r"\eta_{\max}", "learning rate where the end is lost", positive=True)
DONE = {R: 1, S: 0, Q: 1, C: 0}
t = sp.Symbol("t", positive=True)  # K = t + 1/2, at which roots of 2 K - 1 have one sign


def plain(of: sp.Expr) -> sp.Expr:
    """An expression in K with its roots of products taken apart."""
    roots = of.subs(K, t + sp.Rational(1, 2)).replace(
        lambda e: e.is_Pow and not e.exp.is_integer,
        lambda e: sp.factor(sp.together(e.base)) ** e.exp,
    )
    return sp.factor(sp.cancel(sp.together(sp.powsimp(sp.expand_power_base(roots)))))


@cache
def plateau() -> dict[sp.Symbol, sp.Expr]:
    """All units alike, and alike to all teachers: fixed to first order in eta.

    All units are one vector along the sum of all teachers: Q = C = K R^2.

    Raises
    ------
    ArithmeticError
        If an overlap moves there.
    """
    point = {R: 1 / sp.sqrt(K * (2 * K - 1)), Q: 1 / (2 * K - 1)}
    point |= {S: point[R], C: point[Q]}
    proved(
        vanishes(point[Q] - K * point[R] ** 2)
        and all(vanishes(drift()[x].subs(point)) for x in STATE),
        "the plateau moves",
    )
    return point


def error_there() -> sp.Expr:
    """Generalisation error on the plateau."""
    form = K / 6 - K**2 / sp.pi * sp.asin(1 / (2 * K))
    return written_as(form, loss().subs(plateau()))


@cache
def escape_rate() -> sp.Expr:
    """Growth rate of R - S on the plateau, means kept; Q - C stays, to first order in both.

    Raises
    ------
    ArithmeticError
        If R - S does not grow at this rate, or Q - C by itself.
    """
    x, y = sp.symbols("x y")
    point = plateau()
    away = {R: (1 - 1 / K) * x * point[R], S: -x * point[R] / K, Q: (1 - 1 / K) * y, C: -y / K}
    near = {z: point[z] + away[z] for z in STATE}
    apart = [(drift()[R] - drift()[S]) / point[R], drift()[Q] - drift()[C]]
    block = sp.Matrix(
        [
            [
                plain(sum(sp.diff(f, z) * sp.diff(near[z], w) for z in STATE).subs(point))
                for w in (x, y)
            ]
            for f in apart
        ]
    )
    form = 2 * K / (sp.pi * sp.sqrt(2 * K - 1) * sp.sqrt(2 * K + 1) ** 3)
    grows = form.subs(K, t + sp.Rational(1, 2))
    proved(
        all(map(vanishes, (block[0, 0] - grows, block[0, 1], block[1, 1]))), "not the only growth"
    )
    return eta * form


@cache
def block(order: int) -> sp.Matrix:
    """Coefficient of eta^order of the rates of Q - 2 R and C - 2 S in these two, near the end: what
    separates units from their teachers.

    Raises
    ------
    ArithmeticError
        If the rates need other combinations of the overlaps.
    """
    parts = {1: drift, 2: spread}[order]()
    moved = [parts[Q] - 2 * parts[R], parts[C] - 2 * parts[S]]

    def slope_at_end(of: sp.Expr, by: sp.Symbol) -> sp.Expr:
        """Slope in one overlap, the others at their end."""
        known = {z: sp.Integer(n) for z, n in DONE.items() if z != by} | {sigma: sp.S.Zero}
        return sp.expand(slope(replaced(of, known), by).subs(by, DONE[by]))

    slopes = {z: [slope_at_end(f, z) for f in moved] for z in STATE}
    for whole, half in ((R, Q), (S, C)):
        pairs = zip(slopes[whole], slopes[half], strict=True)
        closed = all(vanishes(a + 2 * b) for a, b in pairs)
        proved(closed, "the end does not close in Q - 2 R and C - 2 S")
    return sp.Matrix([slopes[Q], slopes[C]]).T


def positive(of: sp.Expr) -> bool:
    """Whether a polynomial in K is positive for K >= 2: in K - 2, all of its coefficients are."""
    return all(c.is_positive for c in sp.Poly(of.subs(K, t + 2), t).all_coeffs())


@cache
def largest() -> sp.Expr:
    """Learning rate at which the end turns unstable: the smaller root of a determinant.

    Raises
    ------
    ArithmeticError
        If its coefficients do not have the signs of two positive roots, for K >= 2.
    """
    y = sp.Symbol("y", positive=True)  # eta over pi
    both = sp.Poly(sp.expand((sp.pi * block(1) + y * sp.pi**2 * block(2)).det()), y)
    square, linear, constant = map(sp.expand, both.all_coeffs())
    inside = sp.expand(linear**2 - 4 * square * constant)
    proved(all(map(positive, (square, -linear, constant, inside))), "not two positive roots")
    return sp.pi * (-linear - sp.sqrt(inside)) / (2 * square)


@cache
def of_noise() -> sp.Expr:
    """Error at the end with label noise, to first order in sigma^2: there the error that noise adds
    per step equals what descent removes.
    """
    added = sp.Matrix([sp.expand(spread()[z].subs(DONE)) for z in (Q, C)])
    taken = -(block(1) + eta * block(2))
    kept = taken.adjugate() * added * eta / taken.det()
    by = sp.Matrix([[sp.diff(loss(), z).subs(DONE) for z in (Q, C)]])
    return sp.cancel(sp.together((by * kept)[0]))


def of_noise_slowly() -> sp.Expr:
    """The same for a small learning rate."""
    first = sp.diff(of_noise(), eta).subs(eta, 0) * eta
    return written_as(eta * sigma**2 * K / (2 * sp.sqrt(3) * sp.pi), first)


@cache
def equations() -> dict[str, Equation]:
    """Plateau, escape, largest learning rate, error under noise."""
    there, end = "saad1995, symmetric plateau", "saad1995, convergence"
    stay = {
        "plateau_R": (on_plateau, lambda: plateau()[R]),
        "plateau_Q": (length, lambda: plateau()[Q]),
        "plateau_error": (error, error_there),
        "escape_rate": (escape, escape_rate),
    }
    return {
        **table(there, *ALIKE, SMALL, status="leading order", **stay),
        **table(end, *ALIKE, status="exact", eta_max=(eta_max, largest)),
        **table(
            end,
            *ALIKE,
            "first order in sigma^2",
            status="leading order",
            error_noise=(error, of_noise),
            error_noise_slow=(error, of_noise_slowly, SMALL),
        ),
    }
