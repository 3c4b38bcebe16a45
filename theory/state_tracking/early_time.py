"""Early training: attention frozen, overlaps grow linearly (App. G, Eq. 78)."""

from functools import cache

import sympy as sp

from theory.equation import Equation, table
from theory.state_tracking.dynamics import flow
from theory.state_tracking.symbols import A_0, A, R, S, alpha, ref, zeta

ASSUMED = ("loss linear in the logits", "A = A_0", "R(0) = S(0) = zeta = 0")


@cache
def equations() -> dict[str, Equation]:
    """A, R and S to first order in the logits."""
    at_start = {A: A_0, R: 0, S: 0, zeta: 0}
    rate = {x: sp.factor(rhs.subs(at_start)) for x, rhs in flow().expanded.items()}
    grown = {f"early_{x.name}": (x, sp.integrate(rate[x], (alpha, 0, alpha))) for x in (R, S)}
    return table(ref("Eq. (78)"), *ASSUMED, status="leading order", early_A=(A, A_0), **grown)
