"""Exact solution of the flow (15): a first integral, quadratures over D = R - S, and
the separatrix.
"""

from functools import cache

import sympy as sp

from theory import Chapter, Equations, function, proved, symbol, vanishes, written_as
from theory.state_tracking.dynamics import flow
from theory.state_tracking.model import mean_field
from theory.state_tracking.model.symbols import (
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
    zeta,
)

D = symbol("D", means="R - S", real=True)
D_0 = symbol("D_0", means="R - S at time 0", real=True)
x = symbol("x", means="argument: D, or D by its scale", real=True)
kappa = symbol("kappa", means="steepness of attention in D", positive=True)
pace = symbol(
    "pace",
    r"\vartheta",
    "pace of D: rate of D per eta g A; 1 for independent teachers",
    positive=True,
)
drift = symbol(
    "off_target_drift",
    r"\nu",
    "rate of S per D at A = 1; 0 for independent teachers",
    real=True,
)
PROPER = "proper time: dT = pace eta g dalpha"
T = symbol("T", means=PROPER, nonnegative=True)
T_of = function("T", PROPER)
epsilon = symbol(
    "epsilon",
    r"\varepsilon",
    "-ln(1 - A) at D = 0; negative beyond the separatrix",
    real=True,
)
level = symbol("a", means="a value of A", positive=True)
D_level2 = symbol("D_level2", r"D_{a}^{2}", "square of D where A = a", real=True)
D_sep = symbol(
    "D_separatrix",
    r"D_{\mathrm{sep}}",
    "start D_0 below which A never grows",
    real=True,
)
D_dead2 = symbol(
    "D_dead2", r"D_{\dagger}^{2}", "square of D where A comes to rest at 0", real=True
)
invariant = symbol("invariant", r"\mathcal{I}", "first integral of the flow", real=True)

ANY = "flow (15), any A_0 < 1, R_0, S_0, zeta and mean teacher overlap tau"
BEYOND = "beyond the paper: exact solution of Eq. (15)"

of_A = sp.Function("A")(D)
of_T = T_of(D)
of_S = sp.Function("S")(D)
chapter = Chapter(ref(BEYOND), ANY, status="exact")


@chapter.derives(kappa, name="kappa")
@cache
def steepness() -> sp.Expr:
    """kappa: the ratio of the rates of A and R - S does not contain g, eta or the time,
    and separates.
    """
    rate = flow("tau").rhs
    slope = rate[A] / (rate[R] - rate[S]) / ((1 - A) * (R - S))
    return written_as(c_omega * L * (d_g - 1) / (d_g * (1 - tau)), slope)


@chapter.derives(pace, "dD/dalpha = pace eta g A", name="pace")
@cache
def speed_of_difference() -> sp.Expr:
    """Rate of D per eta g A; 1 for independent teachers (tau = 1/N)."""
    rate = flow("tau").rhs
    return written_as(N * (1 - tau) / (N - 1), (rate[R] - rate[S]) / (eta * g * A))


@chapter.derives(drift, "dS/dalpha = pace eta g ((1-A)/d_g + drift)")
def off_target_drift() -> sp.Expr:
    """Rate of S per D at A = 1; 0 for independent teachers."""
    per_pace = flow("tau").rhs[S] / (eta * g * speed_of_difference())
    return written_as((N * tau - 1) / (N * (1 - tau)), per_pace - (1 - A) / d_g)


@chapter.derives(invariant, "constant along the flow")
@cache
def first_integral() -> sp.Expr:
    """Constant of motion ln(1-A) + kappa (R-S)^2/2: what dA/(1-A) = kappa D dD
    integrates to.

    Raises
    ------
    ArithmeticError
        If its derivative along the flow is not zero.
    """
    rate = flow("tau").rhs
    motion = sp.log(1 - A) + kappa * (R - S) ** 2 / 2
    moved = sum(sp.diff(motion, q) * rate[q] for q in (A, R, S))
    proved(
        vanishes(moved.subs(kappa, steepness())),
        "the first integral is not constant along the flow",
    )
    return motion


@chapter.derives(of_A, name="A_of_D")
@cache
def attention_of_difference() -> sp.Expr:
    """A as a function of D = R - S, from the first integral."""
    at_start = first_integral().subs({A: A_0, R: S + D_0})
    remainder = sp.exp(at_start - first_integral().subs(R, S + D) + sp.log(1 - A))
    form = 1 - (1 - A_0) * sp.exp(-kappa * (D**2 - D_0**2) / 2)
    return written_as(form, 1 - remainder)


def along(upper: sp.Expr, integrand: sp.Expr) -> sp.Integral:
    """Integral over D from its initial value D_0."""
    return sp.Integral(integrand.subs(D, x), (x, D_0, upper))


chapter.state("proper_time", of_T, along(D, 1 / of_A), "dT = pace eta g dalpha")


@cache
def off_target() -> sp.Expr:
    """S as a function of T and D. With dT = pace eta g dalpha, dD/dT = A and dS/dT =
    (1-A)/d_g + drift.

    Raises
    ------
    ArithmeticError
        If the result does not solve the flow.
    """
    S_of = S_0 + (1 / d_g + drift) * T - (D - D_0) / d_g
    attention = attention_of_difference()
    slope = S_of.diff(T) / attention + S_of.diff(D)
    rate = (1 - attention) / d_g + drift
    proved(vanishes(slope - rate / attention), "S(D) does not solve the flow")
    return S_of


@chapter.derives(of_S)
def S_of_D() -> sp.Expr:
    """S as a function of D."""
    return off_target().subs(T, of_T)


@chapter.derives(m, "R = S + D", name="margin_of_D")
@cache
def margin() -> sp.Expr:
    """Logit margin as a function of A, D and S."""
    lifted = S + (A + (1 - A) / d_g) * D  # c_R + c_S = 1
    of_state = mean_field.margin_of_state().subs(R, S + D)
    return written_as((N * lifted - zeta) / (N - 1), of_state)


@chapter.derives(sp.Function("alpha")(D))
def alpha_of_D() -> sp.Expr:
    """Training time, from dT = pace eta g dalpha."""
    inverse_g = sp.together(1 / mean_field.wrong_mass())
    integrand = inverse_g.subs(m, sp.Function("m")(D)) / of_A
    return along(D, integrand) / (eta * pace)


@cache
def square_at(value: sp.Expr) -> sp.Expr:
    """D^2 at a given A; the first integral is linear in D^2."""
    square = D_0**2 + 2 / kappa * sp.log((1 - A_0) / (1 - value))
    written_as(value, attention_of_difference().subs(D, sp.sqrt(square)))
    return square


@chapter.derives(D_level2, "kappa > 0", "A = a, reached at the positive root")
def D_of_level() -> sp.Expr:
    """D^2 where A reaches a value."""
    return square_at(level)


@chapter.derives(epsilon, "kappa > 0", "the value of -ln(1-A) at D = 0", name="epsilon")
@cache
def height() -> sp.Expr:
    """epsilon: the value of E = -ln(1-A) at D = 0."""
    at_zero = -sp.log(1 - A_0) - kappa * D_0**2 / 2
    written_as(1 - sp.exp(-at_zero), attention_of_difference().subs(D, 0))
    return at_zero


@cache
def rise() -> sp.Expr:
    """E = -ln(1-A) as a function of D = R - S: E = epsilon + kappa D^2/2, which equals
    A to leading order while A is small.
    """
    E = epsilon + kappa * D**2 / 2
    start = 1 - sp.exp(-E.subs(D, D_0))
    written_as(1 - sp.exp(-E), attention_of_difference().subs(A_0, start))
    small = sp.Symbol("e", positive=True)
    return written_as(E, sp.diff(1 - sp.exp(-small * E), small).subs(small, 0))


@chapter.derives(D_sep, "kappa > 0", "for D_0 at or below, A falls to 0 for good")
def separatrix() -> sp.Expr:
    """Separatrix, epsilon = 0: A reaches 0 exactly when D reaches 0 from below."""
    return -sp.sqrt(-height().subs(D_0, 0) / height().coeff(D_0**2))


@chapter.derives(
    D_dead2, "kappa > 0", "below the separatrix: D rises to the negative root, A to 0"
)
def resting_place() -> sp.Expr:
    """D^2 where A comes to rest at 0."""
    start = -2 * (sp.log(1 - A_0) + epsilon) / kappa
    square = square_at(sp.S.Zero).subs(D_0**2, start)
    return written_as(-2 * epsilon / kappa, square)


def equations() -> Equations:
    """First integral, solution by quadratures, time of A = a, separatrix."""
    return chapter.equations
