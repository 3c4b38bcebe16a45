"""Flow of the overlaps of a committee of K units, any K, that starts alike for all of its units.

An example xi of N Gaussian numbers moves unit i by eta / N delta_i xi, with delta_i = g'(x_i) times
the error; alpha counts examples over N. Overlaps move by means of delta_i times a field, and by
means of delta_i delta_k, as |xi|^2 = N.
"""

from collections.abc import Callable, Sequence
from functools import cache

import sympy as sp

from committee.parameters import COMMITTEE
from theory import Equation, Flow, proved, symbol, table, vanishes, written_as
from theory.algebra import replaced, slope
from theory.statement.overlaps import Weighed, mean_product

K = symbol("K", means="hidden units", integer=True, positive=True)
eta = symbol("eta", means="learning rate", positive=True)
sigma = symbol("sigma", means="deviation of label noise", nonnegative=True)
alpha = symbol("alpha", means="examples over N", nonnegative=True)
R = symbol("R", means="overlap of a unit with its own teacher", real=True)
S = symbol("S", means="overlap of a unit with another teacher", real=True)
Q = symbol("Q", means="squared length of a unit", positive=True)
C = symbol("C", means="overlap of two units", real=True)
start = {x: symbol(f"{x}_0", means=f"{x} at the start", real=True) for x in (R, S, Q, C)}
error = symbol(
    "epsilon_g", r"\epsilon_{g}", "generalisation error, half the mean square", real=True
)
STATE = (R, S, Q, C)
ALIKE = ("N to infinity", "orthonormal teachers, overlaps alike for all units")
Unit = tuple[str, int]  # student (w) or teacher (b), and its number


def overlap(x: Unit, y: Unit) -> sp.Expr:
    """Covariance of two fields."""
    same, kinds = x[1] == y[1], {x[0], y[0]}
    if kinds == {"b"}:
        return sp.Integer(int(same))
    of_same, of_other = (R, S) if len(kinds) == 2 else (Q, C)
    return of_same if same else of_other


def over(of: Callable[[int], sp.Expr], known: Sequence[int]) -> sp.Expr:
    """Sum over all K numbers of units: those that are known, and K less as many of a fresh one."""
    return sp.Add(*map(of, known), (K - len(known)) * of(max(known, default=0) + 1))


def outputs(of: Callable[[Unit], sp.Expr], known: Sequence[int]) -> sp.Expr:
    """Sum over teachers minus sum over students: the error, spelled."""
    return over(lambda n: of(("b", n)) - of(("w", n)), known)


@cache
def loss() -> sp.Expr:
    """Generalisation error."""

    def pair(x: Unit, y: Unit) -> sp.Expr:
        return mean_product("erf", overlap(x, x), overlap(y, y), overlap(x, y))

    every = outputs(lambda x: outputs(lambda y: pair(x, y), [x[1]]), [])
    return sp.collect(sp.expand(every / 2), sp.asin(0))


def pull(i: int, v: Unit) -> sp.Expr:
    """Mean of delta_i times the field of v."""
    under = Weighed(overlap, [("w", i)])
    return outputs(lambda y: under.field_and_output(v, y), sorted({i, v[1]}))


def noise(i: int, k: int) -> sp.Expr:
    """Mean of delta_i delta_k, with label noise."""
    under = Weighed(overlap, [("w", i), ("w", k)])
    known = sorted({i, k})

    def with_all(x: Unit) -> sp.Expr:
        return outputs(lambda y: under.outputs(x, y), sorted({*known, x[1]}))

    return outputs(with_all, known) + sigma**2 * under.factor


@cache
def drift() -> dict[sp.Symbol, sp.Expr]:
    """Rates of R, S, Q, C over alpha to first order in eta, over eta."""
    to_teachers = {R: pull(1, ("b", 1)), S: pull(1, ("b", 2))}
    return to_teachers | {Q: 2 * pull(1, ("w", 1)), C: 2 * pull(1, ("w", 2))}


@cache
def spread() -> dict[sp.Symbol, sp.Expr]:
    """Coefficients of eta^2: single examples push units apart."""
    return {R: sp.S.Zero, S: sp.S.Zero, Q: noise(1, 1), C: noise(1, 2)}


@cache
def rates() -> dict[sp.Symbol, sp.Expr]:
    """Rates of R, S, Q, C over alpha."""
    return {x: eta * drift()[x] + eta**2 * spread()[x] for x in STATE}


@cache
def flow() -> Flow:
    """Online flow of the four overlaps."""
    where = "saad1995, online dynamics"
    seen = {"loss": loss()}
    return Flow(
        "committee", alpha, rates(), start, where, "exact", ALIKE, observables=seen, scope=COMMITTEE
    )


@cache
def equations() -> dict[str, Equation]:
    """Generalisation error, and the flow."""
    made = table("saad1995, generalisation error", *ALIKE, status="exact", error=(error, loss))
    return made | flow().equations()


# Fixed points of the committee and their stability

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
    return written_as(K / 6 - K**2 / sp.pi * sp.asin(1 / (2 * K)), loss().subs(plateau()))


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
    block = sp.Matrix(
        [
            [
                plain(sum(sp.diff(f, z) * sp.diff(near[z], w) for z in STATE).subs(point))
                for w in (x, y)
            ]
            for f in [(drift()[R] - drift()[S]) / point[R], drift()[Q] - drift()[C]]
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
        closed = all(vanishes(a + 2 * b) for a, b in zip(slopes[whole], slopes[half], strict=True))
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
def phases() -> dict[str, Equation]:
    """Plateau, escape, largest learning rate, error under noise."""
    there = "saad1995, symmetric plateau"
    end = "saad1995, convergence"
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
