"""Flow of the overlaps of a committee of K units, any K, that starts alike for all of its units.

An example xi of N Gaussian numbers moves unit i by eta / N delta_i xi, with delta_i = g'(x_i) times
the error; alpha counts examples over N. Overlaps move by means of delta_i times a field, and by
means of delta_i delta_k, as |xi|^2 = N.
"""

from collections.abc import Callable, Sequence
from functools import cache

import sympy as sp

from committee.theory.scope import COMMITTEE
from theory import Equation, Flow, symbol, table
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
    under, known = Weighed(overlap, [("w", i), ("w", k)]), sorted({i, k})

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
