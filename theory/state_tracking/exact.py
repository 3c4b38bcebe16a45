"""Exact solution of the flow (15): a first integral, quadratures over D = R - S, and the separatrix."""

from __future__ import annotations

from functools import cache

import sympy as sp

from theory.algebra import written_as
from theory.equation import Equation
from theory.latex import symbol
from theory.state_tracking import logits, loss
from theory.state_tracking.dynamics import flow
from theory.state_tracking.symbols import (
    A_0,
    S_0,
    A,
    L,
    N,
    R,
    S,
    c_omega,
    d_g,
    eta,
    g,
    m,
    ref,
    tau,
    z_k,
    z_kbar,
    zeta,
)

D, D_0, x = (symbol(q, real=True) for q in ("D", "D_0", "x"))  # D = R - S, at time 0, under an integral
kappa = symbol("kappa", positive=True)  # steepness of attention in D
pace = symbol("pace", r"\vartheta", positive=True)  # dD/dalpha = pace eta g A; 1 for independent teachers
drift = symbol("off_target_drift", r"\nu", real=True)  # dS/dD at A = 1; 0 for independent teachers
T = symbol("T", nonnegative=True)  # proper time: dT = pace eta g dalpha
epsilon = symbol("epsilon", r"\varepsilon", real=True)  # -ln(1 - A) at D = 0; negative beyond the separatrix
level = symbol("a", positive=True)  # a value of A
D_level2 = symbol("D_level2", r"D_{a}^{2}", real=True)
D_sep = symbol("D_separatrix", r"D_{\mathrm{sep}}", real=True)
D_dead2 = symbol("D_dead2", r"D_{\dagger}^{2}", real=True)
invariant = symbol("invariant", r"\mathcal{I}", real=True)

ANY = ("flow (15), any A_0 < 1, R_0, S_0, zeta and mean teacher overlap tau",)
BEYOND = "beyond the paper: exact solution of Eq. (15)"


def first_integral() -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """kappa, the constant of motion ln(1-A) + kappa (R-S)^2/2, and A as a function of R - S.

    The rate of A over the rate of R - S is free of g, eta and the training time, and separates.

    Raises
    ------
    ArithmeticError
        If the derivative of the constant along the flow is not zero.
    """
    rate = flow("tau").rhs
    slope = rate[A] / sp.factor(sp.simplify(rate[R] - rate[S])) / ((1 - A) * (R - S))
    steepness = written_as(c_omega * L * (d_g - 1) / (d_g * (1 - tau)), sp.simplify(slope))
    path, constant = sp.Function("A")(D), sp.Symbol("C1")
    solution = sp.dsolve(sp.Eq(path.diff(D), kappa * D * (1 - path)), path)
    (of_state,) = sp.solve(solution.subs(path, A), constant)
    motion = sp.log(1 - A) + kappa * (R - S) ** 2 / 2
    written_as(sp.exp(motion), -of_state.subs(D, R - S))
    if sp.simplify(sum(sp.diff(motion, q) * rate[q] for q in (A, R, S)).subs(kappa, steepness)) != 0:
        raise ArithmeticError("the first integral is not constant along the flow")
    (of_D,) = sp.solve(motion.subs(R, S + D) - motion.subs({A: A_0, R: S + D_0}), A)
    return steepness, motion, written_as(1 - (1 - A_0) * sp.exp(-kappa * (D**2 - D_0**2) / 2), of_D)


def growth() -> tuple[sp.Expr, sp.Expr]:
    """Pace and drift: dD/dalpha = pace eta g A, dS/dalpha = pace eta g ((1-A)/d_g + drift).

    For independent teachers (tau = 1/N) the pace is 1 and the drift 0.
    """
    rate = flow("tau").rhs
    speed = written_as(N * (1 - tau) / (N - 1), sp.simplify((rate[R] - rate[S]) / (eta * g * A)))
    rest = sp.simplify(rate[S] / (eta * g * speed) - (1 - A) / d_g)
    return speed, written_as((N * tau - 1) / (N * (1 - tau)), rest)


def margin() -> sp.Expr:
    """Logit margin as a function of A, D and S."""
    mean = logits.equations()
    of_state = loss.equations()["margin"].rhs.subs(z_kbar, mean["logit_other"].rhs).subs(z_k, mean["logit_correct"].rhs)
    lifted = S + (A + (1 - A) / d_g) * D  # c_R + c_S = 1
    return written_as((N * lifted - zeta) / (N - 1), of_state.subs(R, S + D))


def along(upper: sp.Expr, integrand: sp.Expr) -> sp.Integral:
    """Integral over D from its initial value."""
    return sp.Integral(integrand.subs(D, x), (x, D_0, upper))


@cache
def equations() -> dict[str, Equation]:
    """First integral, solution by quadratures, times of A = a, separatrix."""
    steepness, motion, attention = first_integral()
    speed, rest = growth()
    of_A, of_T, of_S = sp.Function("A")(D), sp.Function("T")(D), sp.Function("S")(D)
    # dT = pace eta g dalpha gives dD/dT = A and dS/dT = (1-A)/d_g + drift.
    off_target = S_0 + sp.expand(sp.integrate(1 / d_g + drift, (x, 0, T)) - (D - D_0) / d_g)
    off_target = written_as(S_0 + (1 / d_g + drift) * T - (D - D_0) / d_g, off_target)
    by_flow = ((1 - attention) / d_g + drift) / attention
    if sp.simplify(off_target.subs(T, along(D, 1 / attention)).diff(D) - by_flow) != 0:
        raise ArithmeticError("S(D) does not solve the flow")
    inverse_g = sp.simplify(1 / loss.equations()["g"].rhs)
    time = along(D, inverse_g.subs(m, sp.Function("m")(D)) / of_A) / (eta * pace)
    root = sp.Symbol("root", positive=True)
    square = {
        e: sp.solve(sp.log((1 - A_0) / (1 - e)) - kappa * (root - D_0**2) / 2, root)[0] for e in (level, sp.S.Zero)
    }
    for value, at in square.items():
        written_as(value, attention.subs(D, sp.sqrt(at)))
    at_zero = -sp.log(1 - A_0) - kappa * D_0**2 / 2
    written_as(1 - sp.exp(-at_zero), attention.subs(D, 0))
    dead = written_as(-2 * epsilon / kappa, square[sp.S.Zero].subs(D_0**2, -2 * (sp.log(1 - A_0) + epsilon) / kappa))
    # The edge: A falls to 0 just where D has come up to 0.
    edge = -sp.sqrt(sp.solve(at_zero.subs(D_0**2, root), root)[0])
    to_level = square[level]
    status, moving = "exact", (*ANY, "kappa > 0")
    found = [
        Equation("kappa", kappa, steepness, ref(BEYOND), status, ANY),
        Equation("pace", pace, speed, ref(BEYOND), status, (*ANY, "dD/dalpha = pace eta g A")),
        Equation("off_target_drift", drift, rest, ref(BEYOND), status, (*ANY, "dS/dalpha = pace eta g ((1-A)/d_g + drift)")),
        Equation("first_integral", invariant, motion, ref(BEYOND), status, (*ANY, "constant along the flow")),
        Equation("A_of_D", of_A, attention, ref(BEYOND), status, ANY),
        Equation("proper_time", of_T, along(D, 1 / of_A), ref(BEYOND), status, (*ANY, "dT = pace eta g dalpha")),
        Equation("S_of_D", of_S, off_target.subs(T, of_T), ref(BEYOND), status, ANY),
        Equation("margin_of_D", m, margin(), ref(BEYOND), status, (*ANY, "R = S + D")),
        Equation("alpha_of_D", sp.Function("alpha")(D), time, ref(BEYOND), status, ANY),
        Equation("D_of_level", D_level2, to_level, ref(BEYOND), status, (*moving, "A = a, reached at the positive root")),
        Equation("epsilon", epsilon, at_zero, ref(BEYOND), status, (*moving, "the value of -ln(1-A) at D = 0")),
        Equation("separatrix", D_sep, edge, ref(BEYOND), status, (*moving, "for D_0 at or below, A falls to 0 for good")),
        Equation("resting_place", D_dead2, dead, ref(BEYOND), status, (*moving, "below the separatrix: D rises to the negative root, A to 0")),
    ]  # fmt: skip
    return {e.name: e for e in found}
