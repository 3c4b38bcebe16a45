"""Early stage of one-pass descent: growth rates of the overlaps where both vanish, and escape."""

from functools import cache

import sympy as sp

from theory.equation import Equations, table
from theory.notation import Forms
from theory.positional_semantic.definitions import off_diagonal
from theory.positional_semantic.online import dynamics as s
from theory.positional_semantic.online.dynamics import (
    HELD,
    LIMIT,
    held,
    rates,
    sentence_loss,
    target,
)
from theory.positional_semantic.online.means import (
    STUDENT,
    T_12,
    T_21,
    Mean,
    gathered,
    student_fields,
)
from theory.positional_semantic.symbols import d, h_1, h_2, m, q, sigma, theta, z_1, z_2

UNINFORMED = "m = theta = 0"
SMALL = "q to zero; without decay and noise of steps"
GROWTH = {q: s.growth_q, m: s.growth_m, theta: s.growth_theta}


def even() -> None:
    """Check that attention is even in its fields: means with odd Hermite polynomials vanish, so
    that the lowest order in either overlap is two.
    """
    for S in off_diagonal(z_1, z_2):
        if sp.expand(S.subs({z_1: -z_1, z_2: -z_2}, simultaneous=True) - S) != 0:
            raise ArithmeticError(f"{S} is not even")


@cache
def growth(of_sphere: bool) -> Forms:
    """Rates of ``m`` and ``theta`` per overlap, at zero overlaps and any norm."""
    even()
    moved = held(rates()) if of_sphere else rates()
    return {
        x: gathered(
            sp.diff(moved[x], x)
            .doit()
            .replace(lambda e: isinstance(e, Mean), at_zero)
            .subs({m: 0, theta: 0})
        )
        for x in (m, theta)
    }


def at_zero(of: Mean) -> sp.Expr:
    """A mean at zero overlaps; zero where it is odd in one of them."""
    *orders, _ = of.args[2:4]
    if any(n % 2 for n in orders[0][1:]):
        return sp.S.Zero
    return of.subs({m: 0, theta: 0})


@cache
def small_loss() -> sp.Expr:
    """Population loss to second order in the weights, where ``q``, ``m^2`` and ``theta^2`` are of
    one order.
    """
    epsilon = sp.Symbol("epsilon", positive=True)
    loss = target(sentence_loss())
    fields = {
        x: f.subs({z_1: epsilon * z_1, z_2: epsilon * z_2})
        for x, f in zip(STUDENT[:2], student_fields()[:2], strict=True)
    }
    loss = loss.subs({x: sp.series(f, epsilon, 0, 3).removeO() for x, f in fields.items()})
    second = sp.expand(loss).coeff(epsilon, 2)
    # Given h, z = (m, -m) + theta/rho h + independent noise of variance q - theta^2/rho.
    zeta = sp.symbols("zeta_1 zeta_2")
    rho, left = sigma**2, q - theta**2 / sigma**2
    z = {
        x: sign * m + theta / rho * h + y
        for x, sign, h, y in zip((z_1, z_2), (1, -1), (h_1, h_2), zeta, strict=True)
    }
    inside = sp.Poly(sp.expand(second.subs(z)), *zeta)
    averaged = sum(
        (
            c * left ** (sum(powers) // 2)
            for powers, c in inside.terms()
            if powers in ((0, 0), (2, 0), (0, 2))
        ),
        sp.S.Zero,
    )
    # Over the teacher's fields: odd terms vanish, and the tokens are exchangeable.
    total = sp.S.Zero
    for (i, j, *of_T), c in sp.Poly(sp.expand(averaged), h_1, h_2, T_12, T_21).terms():
        if (i + j) % 2 == 0:
            total += c * teacher_moment(i, j, *of_T)
    return sp.factor(sp.expand(total))


def teacher_moment(i: int, j: int, k: int, l: int) -> sp.Expr:
    """Mean of ``h_1^i h_2^j T_12^k T_21^l`` for ``i + j`` of 0 or 2 and ``k + l`` of 0 or 1."""
    if k + l == 0:
        return {(0, 0): sp.S.One, (1, 1): sp.S.Zero}.get((i, j), sigma**2)
    if l:
        i, j = j, i
    square = sp.Symbol("T_square")  # of T_12 h_1^2 and of T_12 h_1 h_2, tied by T_slope
    crossed = sigma**2 * (s.T_slope - s.T_mean) + square
    other = sp.Symbol("T_other")  # of T_12 h_2^2
    return {(0, 0): s.T_mean, (2, 0): square, (1, 1): crossed, (0, 2): other}[i, j]


@cache
def small_growth() -> Forms:
    """Growth rates of weights along a generic direction, the positions and the teacher, at
    vanishing norm, by gradient flow on the loss to second order.
    """
    curved = small_loss()
    # Weights w: q = sigma^2 |w|^2, m = w.p, theta = sigma^2 w.Q*/sqrt(d), all others alike.
    generic = -2 * sigma**2 * sp.diff(curved, q)
    along = {
        q: generic,
        m: generic - sp.diff(curved, m, 2),
        theta: generic - sigma**4 * sp.diff(curved, theta, 2),
    }
    return {x: sp.factor(r) for x, r in along.items()}


@cache
def equations() -> Equations:
    """Growth rates on the sphere and for free weights, at vanishing norm, and the escape time."""
    rows = {
        f"growth_{x.name}{end}": (GROWTH[x], rate, "growth at zero overlaps", UNINFORMED, *more)
        for end, of_sphere, more in (("", False, ()), ("_held", True, (HELD,)))
        for x, rate in growth(of_sphere).items()
    }
    small = {
        f"growth_{x.name}_small": (GROWTH[x], r, "growth of small weights", "leading order", SMALL)
        for x, r in small_growth().items()
    }
    # m (or theta/sigma) grows from c / sqrt(d) to one like exp(growth t).
    escape = sp.solve(sp.Eq(sp.log(d) / 2, s.growth * s.T_escape), s.T_escape)[0]
    return table(
        s.ref,
        *LIMIT,
        status="exact",
        **rows,
        **small,
        T_escape=(s.T_escape, escape, "escape", "leading order", "starts at order 1/sqrt(d)"),
    )
