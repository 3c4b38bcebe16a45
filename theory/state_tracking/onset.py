"""Onset of attention learning: when retrieval emerges (App. H, Eqs. 79-81)."""

from functools import cache
from typing import Any

import numpy as np
import sympy as sp
import xarray as xr

from theory import (
    Chapter,
    Equation,
    Equations,
    linear_root,
    proved,
    symbol,
    vanishes,
    written_as,
)
from theory.call import scope, sweep
from theory.dynamics.onset import Onset, tabulated, until
from theory.state_tracking import exact, inversion
from theory.state_tracking.dynamics import early_equations, flow
from theory.state_tracking.exact import BEYOND, D_0, D, T, epsilon, kappa, rise
from theory.state_tracking.model import definitions, mean_field
from theory.state_tracking.model.parameters import Parameters
from theory.state_tracking.model.scope import FLOW, SHARP_ONSET
from theory.state_tracking.model.symbols import (
    A_0,
    R_0,
    S_0,
    A,
    L,
    N,
    R,
    S,
    alpha,
    c_omega,
    d_g,
    eta,
    g,
    m,
    ref,
    tau,
    zeta,
)
from theory.state_tracking.quadrature import emergence_time
from theory.symbols.notation import Forms

T_alpha = symbol("T_alpha", r"T_{\alpha}", "time scale of the onset", positive=True)
gain = symbol(
    "onset_coefficient",
    r"[\alpha^{2}]\ln(A/A_{0})",
    "coefficient of the square of time in ln A",
)
alpha_star = symbol(
    "alpha_star",
    r"\alpha^{\star}",
    "time of the onset as L goes to infinity",
    positive=True,
)
departure = symbol(
    "departure", r"\ln(A/A_{(81)})", "what Eq. (81) lacks in ln A", real=True
)
SHARP = (
    "N, d_g, L to infinity",
    "A_0 = 1/L, R_0 = S_0 = zeta = 0",
    "before the onset: A small",
)
LARGE = ("N, d_g, L large", "A small", "R - S linear in time")
SHOWN = (
    "N",
    "L",
    "d_g",
    "d_h",
    "eta",
    "c_omega",
    "A_0",
    "R_0",
    "S_0",
    "zeta",
)  # in titles
HALF = {"alpha_half": A - sp.Rational(1, 2)}
ONE_TIME = (
    "alpha_half is one time for all seeds; single students scatter about it, most are"
    " earlier: predict(p, seeds=3) follows drawn students"
)
# approximations are drawn no further up: Matplotlib cannot place what overflows
FAR = 1e6

chapter = Chapter(ref, status="leading order")


def at_large_sizes(expr: sp.Expr) -> sp.Expr:
    """Limit of an expression rational in N and d_g as both grow."""
    small = sp.Symbol("small", positive=True)
    for size in (N, d_g):
        expr = sp.cancel(expr.subs(size, 1 / small)).subs(small, 0)
    return expr


@cache
def rates() -> Forms:
    """Right-hand sides of the flow (15) for independent teachers."""
    return {
        q: rate.subs(tau, definitions.independent_overlap())
        for q, rate in flow("tau").rhs.items()
    }


def early_mass() -> sp.Expr:
    """g for small logits."""
    return sp.cancel(mean_field.wrong_mass().subs(m, 0))


@chapter.derives(
    sp.Derivative(R - S, alpha),
    "Eq. (79)",
    "A = 1/L",
    "logits small",
    name="onset_difference",
)
def early_difference() -> sp.Expr:
    """Rate of R - S: eta g A at all times; returned for A = 1/L and small logits."""
    rate = written_as(eta * g * A, rates()[R] - rates()[S])
    return rate.subs({g: early_mass(), A: 1 / L})


@chapter.derives(sp.Derivative(A, alpha), "Eq. (80)", *LARGE, name="onset_rate")
@cache
def growth() -> sp.Expr:
    """dA/dalpha from (15a) with R - S from (79), at large N and d_g, where g -> 1, and
    to first order in A.
    """
    rising = rates()[A].subs(g, early_mass()).subs(R, S + early_difference() * alpha)
    first = sp.diff(at_large_sizes(rising), A).subs(A, 0) * A
    return written_as(eta**2 * c_omega * alpha * A, first)


@cache
def exponent() -> sp.Expr:
    """Coefficient of alpha^2 in ln(A L), the antiderivative of d ln A/dalpha."""
    return sp.Poly(growth() / A, alpha).integrate().coeff_monomial(alpha**2)


@chapter.derives(A, "Eq. (81)", *LARGE)
@cache
def onset_A() -> sp.Expr:
    """A(alpha), starting at 1/L."""
    return sp.exp(exponent() * alpha**2) / L


@chapter.derives(
    T_alpha, "below Eq. (81), corrected: printed as sqrt(2/(c_omega eta))", *LARGE
)
def onset_time_scale() -> sp.Expr:
    """Time in which ln A grows by one."""
    return 1 / sp.sqrt(exponent())


@chapter.derives(
    gain,
    "beyond Eq. (81): finite sizes",
    "exact",
    "coefficient of alpha^2 along the flow (15) from A = 1/L, R = S = zeta = 0",
    name="onset_coefficient",
)
@cache
def gain_of_flow() -> sp.Expr:
    """Exact coefficient of alpha^2 in ln A for the random start, at which the rate of A
    vanishes.

    Raises
    ------
    ArithmeticError
        If the rate does not vanish; ln A would then have a term linear in alpha.
    """
    start = {A: A_0, R: R_0, S: S_0}
    random_start = {A_0: 1 / L, R_0: 0, S_0: 0, zeta: 0}
    rate = rates()
    first = rate[A].subs(start).subs(random_start)
    if first != 0:
        raise ArithmeticError(f"A moves at the start: {first}")
    # At first only R and S change. g need not be differentiated, as it multiplies R - S
    # = 0.
    second = sum(sp.diff(rate[A], q) * rate[q] for q in (R, S))
    second = second.subs(start).subs(random_start)
    second = second.subs(g, early_mass()) * L / 2
    form = eta**2 * c_omega / 2 * (1 - 1 / N) * (1 - 1 / d_g) * (1 - 1 / L)
    return written_as(form, second)


@chapter.derives(A, BEYOND, "A small", "epsilon > 0", name="onset_secant")
@cache
def secant() -> sp.Expr:
    """A(T) while A is small: dD/dT = A = epsilon + kappa D^2/2 is a Riccati equation,
    solved by a tangent.

    Raises
    ------
    ArithmeticError
        If the form does not solve the equation.
    """
    started = sp.atan(D_0 * sp.sqrt(kappa / (2 * epsilon)))
    phase = sp.sqrt(kappa * epsilon / 2) * T + started
    path = sp.sqrt(2 * epsilon / kappa) * sp.tan(phase)
    up = sp.Symbol("rise", positive=True)  # epsilon > 0: above the separatrix
    mismatch = path.diff(T) - rise().subs(D, path)
    proved(
        vanishes(mismatch.subs(epsilon, up)),
        "the tangent does not solve the Riccati equation",
    )
    written_as(D_0, path.subs(T, 0).subs(epsilon, up))
    angle = sp.Symbol("angle", real=True)
    at_angle = rise().subs(D, path.subs(phase, angle))
    square = written_as(epsilon * sp.sec(angle) ** 2, at_angle)
    return square.subs(angle, phase)


ANGLE = eta * sp.sqrt(c_omega / 2) * alpha  # pi/2 at the sharp onset


@chapter.derives(A, "beyond Eq. (81): leading order in 1/L", *SHARP, name="onset_sharp")
@cache
def sharp() -> sp.Expr:
    """Onset solution to leading order in 1/L: epsilon L -> 1, kappa/L -> c_omega, T ->
    eta alpha.
    """
    size = sp.Symbol("size", positive=True)
    centred = exact.height().subs({D_0: 0, A_0: 1 / size})
    coefficient = sp.limit(centred * size, size, sp.oo)
    steep = at_large_sizes(exact.steepness().subs(tau, 1 / N) / L)
    at_start = secant().subs(D_0, 0).subs(epsilon, coefficient / L)
    at_start = at_start.subs(kappa, steep * L).subs(T, eta * alpha)
    return written_as(sp.sec(ANGLE) ** 2 / L, at_start)


@chapter.derives(
    departure,
    "beyond Eq. (81): what it lacks",
    *SHARP,
    "eta alpha sqrt(c_omega) small",
    name="onset_departure",
)
def departure_of_sharp() -> sp.Expr:
    """Leading term of the difference between the sharp onset and Eq. (81)."""
    phase = sp.Symbol("phase", positive=True)
    small = sp.series(-2 * sp.log(sp.cos(phase)), phase, 0, 6).removeO()  # ln sec^2
    written_as(sp.sec(ANGLE) ** 2, sharp() * L)
    lacking = small.subs(phase, ANGLE) - sp.log(sp.exp(exponent() * alpha**2))
    return written_as(eta**4 * c_omega**2 * alpha**4 / 24, lacking)


@chapter.derives(alpha_star, "beyond Eq. (81): sharp onset", *SHARP, name="alpha_star")
def time_of_sharp() -> sp.Expr:
    """Time at which the sharp onset diverges."""
    return written_as(SHARP_ONSET, linear_root(sp.pi / 2 - ANGLE, alpha))


def equations() -> Equations:
    """Growth of R - S, of A, and the exact small-time coefficient of ln A."""
    return chapter.equations


@until("alpha")
@scope.guard(FLOW)
@sweep.over_fields
def onset(p: Parameters, until: float | None = None) -> Onset:
    """Numbers and curves of the onset: flow, early-time and onset solutions on one time
    axis.

    Parameters
    ----------
    p : Parameters
        Model parameters.
    until : float, optional
        Length of the curves in alpha (also ``alpha=``); 2.5 times the time of A = 1/2
        by default.

    Returns
    -------
    Onset
        With numbers ``c_omega``; ``T_alpha`` = sqrt(2/c_omega)/eta;
        ``onset_coefficient``; ``alpha_half``, the time of A = 1/2 by the exact solution
        (NaN if the mechanism never emerges); ``alpha_star``, the sharp onset at
        infinite size; and ``D_separatrix``, the value of R_0 - S_0 at or below which
        attention dies.
    """
    numbers = p.values()
    half = float(emergence_time(p))
    scale = np.inf
    star = np.inf
    edge = -np.inf
    moves = numbers["c_omega"] > 0 and p.d_g > 1
    if moves:
        scale = equations()["onset_time_scale"].number(numbers)
        star = equations()["alpha_star"].number(numbers)
        steepness = exact.equations()["kappa"].evaluate(numbers)
        at_edge = numbers | {"kappa": steepness}
        with np.errstate(divide="ignore"):  # with A_0 = 1 attention cannot die
            edge = exact.equations()["separatrix"].number(at_edge)
    notes = []
    never = "never emerges"
    if numbers["A_0"] >= 0.5:
        notes.append("A is at or above 1/2 from the start")
    elif not moves:
        why = "c_omega = 0: no positional information"
        if p.d_g == 1:
            why = "d_g = 1: one action, nothing to tell apart"
        notes.append(f"attention does not move ({why})")
    elif np.isnan(half):
        notes.append(
            f"R_0 - S_0 = {p.R_0 - p.S_0:.6g} is at or below the separatrix {edge:.6g}:"
            " attention dies"
        )
    elif np.isinf(half):
        never = "never emerges below 1.8e308"
        notes.append("A reaches 1/2 at a time beyond the largest number, 1.8e308")
    else:
        notes.append(ONE_TIME)
    early = equations()["onset_coefficient"].number(numbers)
    table = {
        "c_omega": (numbers["c_omega"], "attention constant (14)"),
        "T_alpha": (scale, "onset time scale sqrt(2/c_omega)/eta"),
        "onset_coefficient": (early, "alpha^2 coefficient of ln(A/A_0), finite sizes"),
        "alpha_half": (half, "time of A = 1/2, flow (15), exact", "alpha"),
        "alpha_star": (
            star,
            "sharp onset pi/(eta sqrt(2 c_omega)) of infinite size",
            "alpha",
        ),
        "D_separatrix": (edge, "R_0 - S_0 at or below which attention dies"),
    }
    absent = {
        "alpha_half": never,
        "T_alpha": "infinite",
        "alpha_star": "infinite",
        "D_separatrix": "none",
    }
    usual_end = 2.5 * half if 0 < half < np.inf else min(5 * scale, 12.0)

    def of_onset() -> list[Equation]:
        return [
            *flow(p.teachers).equations().values(),
            *early_equations().values(),
            *equations().values(),
        ]

    return tabulated(
        table,
        curves=lambda: curves(p, until or usual_end),
        equations=of_onset,
        plot=draw,
        absent=absent,
        notes=notes,
        setting={name: numbers[name] for name in SHOWN},
        crossings={"alpha_half": (flow(p.teachers), p, HALF["alpha_half"])},
    )


def curves(p: Parameters, end: float) -> dict[str, xr.Dataset]:
    """Order parameters over alpha up to ``end``: exact solution of the flow, and
    approximations.
    """
    curve = inversion.solve(p, np.linspace(0, end, 601))
    times = {"alpha": curve.alpha.values}
    numbers = p.values() | times

    def along(form: Equation) -> tuple[str, np.ndarray]:
        return "alpha", np.broadcast_to(form.evaluate(numbers), curve.alpha.shape)

    star = np.inf
    if numbers["c_omega"] > 0:
        star = equations()["alpha_star"].number(numbers)
    rising = times["alpha"] < star
    before = numbers | {"alpha": np.where(rising, times["alpha"], 0)}
    sharp = np.where(rising, equations()["onset_sharp"].evaluate(before), np.nan)
    early = {x: along(early_equations()[f"early_{x}"]) for x in "ARS"}
    return {
        "flow (15)": curve,
        "early time": xr.Dataset(early, times),
        "onset": xr.Dataset({"A": along(equations()["onset_A"])}, times),
        "sharp onset": xr.Dataset({"A": ("alpha", sharp)}, times),
    }


def draw(result: Onset, axes: Any) -> None:
    """Attention (left) and teacher overlaps (right): the flow as solid lines,
    approximations of it dashed and marked.
    """
    from theory.runtime import plotting  # imports matplotlib, needed for figures only

    left, right = axes
    half = result.numbers["alpha_half"]
    drawn = result.curves()
    styles = {
        "flow (15)": ("-", "", "flow (15), exact"),
        "early time": (":", "o", "early time (78)"),
        "onset": ("--", "s", "onset (81), small $A$"),
        "sharp onset": ("-.", "D", "sharp onset, leading order in $1/L$"),
    }
    for k, (name, curve) in enumerate(drawn.items()):
        style, mark, words = styles[name]
        curve = curve.where(abs(curve) < FAR)
        more = {"ls": style, "marker": mark, "ms": 4, "markevery": 0.12}
        left.plot(curve.alpha, curve.A, color=f"C{k}", label=words, **more)
        for q, colour in (("R", "C0"), ("S", "C3")):
            if q in curve:
                label = f"${q}$, {words}"
                right.plot(curve.alpha, curve[q], color=colour, label=label, **more)
    exact_curve = drawn["flow (15)"]
    left.set(ylim=(0, 1.05), ylabel="attention $A$")
    right.set(ylabel="teacher overlap", ylim=(0, 1.1 * float(exact_curve.R.max())))
    if half > 0:
        left.axvline(half, color="0.6", lw=0.8, label=rf"$\alpha_{{1/2}} = {half:.3f}$")
    for axis in axes:
        axis.set_xlabel(r"training time $\alpha$ = epochs / $(d_g N)$")
        axis.set_xlim(0, float(exact_curve.alpha[-1]))
        plotting.below(axis)
