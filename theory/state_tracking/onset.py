"""Onset of attention learning (App. H, Eqs. 79-81): when does retrieval emerge."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import sympy as sp
import xarray as xr

from theory.algebra import written_as
from theory.equation import Equation
from theory.latex import symbol
from theory.onset import Onset
from theory.state_tracking import exact, inversion, loss
from theory.state_tracking.dynamics import flow
from theory.state_tracking.early_time import equations as early_equations
from theory.state_tracking.exact import BEYOND, D_0, D, T, epsilon, kappa, x
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.quadrature import emergence_time
from theory.state_tracking.symbols import A_0, R_0, S_0, A, L, N, R, S, alpha, c_omega, d_g, eta, g, m, ref, tau, zeta

T_alpha = symbol("T_alpha", r"T_{\alpha}", positive=True)
gain = symbol("onset_coefficient", r"[\alpha^{2}]\ln(A/A_{0})")
alpha_star = symbol("alpha_star", r"\alpha^{\star}", positive=True)
departure = symbol("departure", r"\ln(A/A_{(81)})", real=True)
SHARP = ("N, d_g, L to infinity", "A_0 = 1/L, R_0 = S_0 = zeta = 0", "before the onset: A small")
LARGE = ("N, d_g, L large", "A small", "R - S linear in time")
HALF = {"alpha_half": A - sp.Rational(1, 2)}


@cache
def before_lock() -> tuple[sp.Expr, sp.Expr]:
    """A(T) and T(D) while A is small: 1 - e^-E is E = epsilon + kappa D^2/2, and dD/dT = A is a Riccati equation."""
    height = epsilon + kappa * D**2 / 2
    written_as(1 - sp.exp(-height), exact.equations()["A_of_D"].rhs.subs(
        A_0, 1 - sp.exp(-epsilon - kappa * D_0**2 / 2)))  # fmt: skip
    small = sp.Symbol("e", positive=True)
    height = written_as(height, sp.limit((1 - sp.exp(-small * height)) / small, small, 0))
    rise = sp.Symbol("rise", positive=True)  # epsilon above the separatrix
    waited = sp.integrate(1 / height.subs({epsilon: rise, D: x}), x)
    waited = (waited.subs(x, D) - waited.subs(x, D_0)).subs(rise, epsilon)
    phase = sp.sqrt(kappa * epsilon / 2) * T + sp.atan(D_0 * sp.sqrt(kappa / (2 * epsilon)))
    path = sp.sqrt(2 * epsilon / kappa) * sp.tan(phase)
    if sp.simplify((path.diff(T) - height.subs(D, path)).subs(epsilon, rise)) != 0:
        raise ArithmeticError("the tangent does not solve the Riccati equation")
    written_as(D_0, path.subs(T, 0).subs(epsilon, rise))
    angle = sp.Symbol("angle", real=True)
    secant = written_as(epsilon * sp.sec(angle) ** 2, sp.trigsimp(height.subs(D, path.subs(phase, angle))))
    return secant.subs(angle, phase), waited


def sharp() -> sp.Expr:
    """The onset form to leading order in 1/L: epsilon L -> 1, kappa/L -> c_omega, T -> eta alpha."""
    size = sp.Symbol("size", positive=True)
    centred = exact.equations()["epsilon"].rhs.subs({D_0: 0, A_0: 1 / size})
    coefficient = sp.limit(centred * size, size, sp.oo)
    rise = exact.equations()["kappa"].rhs.subs(tau, 1 / N) / L
    for q in (N, d_g):
        rise = sp.limit(rise.subs(q, size), size, sp.oo)
    secant, _ = before_lock()
    at_start = secant.subs(D_0, 0).subs(epsilon, coefficient / L).subs(kappa, rise * L).subs(T, eta * alpha)
    return written_as(sp.sec(eta * sp.sqrt(c_omega / 2) * alpha) ** 2 / L, at_start)


@cache
def equations() -> dict[str, Equation]:
    """Growth of R - S, of A, and the exact small-time coefficient of ln A."""
    random_start = {A_0: 1 / L, R_0: 0, S_0: 0, zeta: 0}
    rate = flow().rhs
    difference = sp.factor(rate[R] - rate[S])  # eta g A: holds at all times
    early_g = sp.simplify(loss.equations()["g"].rhs.subs(m, 0))
    early = difference.subs({g: early_g, A: 1 / L})
    # (15a) with R - S from (79), at large N and d_g, where g -> 1, and to first order in A.
    growth = rate[A].subs(g, early_g).subs(R, S + early * alpha)
    for size in (N, d_g):
        large = sp.Symbol("size", positive=True)
        growth = sp.limit(growth.subs(size, large), large, sp.oo)
    growth = written_as(eta**2 * c_omega * alpha * A, sp.series(growth, A, 0, 2).removeO())
    path = sp.Function("A")(alpha)
    solution = sp.dsolve(sp.Eq(path.diff(alpha), growth.subs(A, path)), path, ics={path.subs(alpha, 0): 1 / L})
    exponent = sp.simplify(sp.log(solution.rhs * L)).expand().coeff(alpha, 2)
    second = flow().series(2, random_start)[A]
    coefficient = written_as(eta**2 * c_omega / 2 * (1 - 1 / N) * (1 - 1 / d_g) * (1 - 1 / L),
                             sp.expand(second * L).coeff(alpha, 2))  # fmt: skip
    secant, _ = before_lock()
    limit = sharp()
    apart = sp.series(sp.log(limit * L) - sp.log(solution.rhs * L), alpha, 0, 6).removeO()
    apart = written_as(eta**4 * c_omega**2 * alpha**4 / 24, sp.expand_log(apart, force=True))
    (pole,) = sp.solve(sp.pi / 2 - eta * sp.sqrt(c_omega / 2) * alpha, alpha)
    found = [
        Equation("onset_difference", sp.Derivative(R - S, alpha), early, ref("Eq. (79)"), "leading order",
                 ("A = 1/L", "logits small")),
        Equation("onset_rate", sp.Derivative(A, alpha), growth, ref("Eq. (80)"), "leading order", LARGE),
        Equation("onset_A", A, solution.rhs, ref("Eq. (81)"), "leading order", LARGE),
        Equation("onset_time_scale", T_alpha, sp.simplify(1 / sp.sqrt(exponent)),
                 ref("below Eq. (81), corrected: printed as sqrt(2/(c_omega eta))"), "leading order", LARGE),
        Equation("onset_coefficient", gain, coefficient, ref("beyond Eq. (81): finite sizes"), "exact",
                 ("coefficient of alpha^2 along the flow (15) from A = 1/L, R = S = zeta = 0",)),
        Equation("onset_secant", A, secant, ref(BEYOND), "leading order", ("A small", "epsilon > 0")),
        Equation("onset_sharp", A, limit, ref("beyond Eq. (81): leading order in 1/L"), "leading order", SHARP),
        Equation("onset_departure", departure, apart, ref("beyond Eq. (81): what it lacks"), "leading order",
                 (*SHARP, "eta alpha sqrt(c_omega) small")),
        Equation("alpha_star", alpha_star, pole, ref("beyond Eq. (81): sharp onset"), "leading order", SHARP),
    ]  # fmt: skip
    return {e.name: e for e in found}


def onset(p: Parameters, alpha_end: float | None = None) -> Onset:
    """Numbers and curves of the onset: flow, early-time and onset solution on one time axis.

    Parameters
    ----------
    p : Parameters
        Model parameters.
    alpha_end : float, optional
        Length of the curves in alpha; 2.5 times the time of A = 1/2 by default.

    Returns
    -------
    Onset
        With numbers ``c_omega``, ``T_alpha`` = sqrt(2/c_omega)/eta, ``onset_coefficient``, ``alpha_half``, the
        time of A = 1/2 by the exact solution (NaN when the mechanism never emerges), ``alpha_star``, the sharp
        onset of infinite size, and ``D_separatrix``, the value of R_0 - S_0 at or below which attention dies.
    """
    numbers = p.values()
    moves = numbers["c_omega"] > 0 and p.d_g > 1 and p.L > 1
    scale = float(equations()["onset_time_scale"].evaluate(numbers)) if moves else np.inf
    half, notes, never = float(emergence_time(numbers)), [], "never emerges"
    star, edge = np.inf, -np.inf
    if moves:
        star = float(equations()["alpha_star"].evaluate(numbers))
        steepness = exact.equations()["kappa"].evaluate(numbers)
        with np.errstate(divide="ignore"):  # A_0 = 1 cannot die
            edge = float(exact.equations()["separatrix"].evaluate({**numbers, "kappa": steepness}))
    if numbers["A_0"] >= 0.5:
        notes.append("A is at or above 1/2 from the start")
    elif not moves:
        why = "d_g = 1: one action, nothing to tell apart" if p.d_g == 1 else "c_omega = 0: no positional information"
        notes.append(f"attention does not move ({why})")
    elif np.isnan(half):
        notes.append(f"R_0 - S_0 = {p.R_0 - p.S_0:.6g} is at or below the separatrix {edge:.6g}: attention dies")
    elif np.isinf(half):
        never = "never emerges below 1.8e308"
        notes.append("A reaches 1/2 at a time beyond the largest number, 1.8e308")
    end = alpha_end or (2.5 * half if 0 < half < np.inf else min(5 * scale, 12.0))
    curve = inversion.solve(p, np.linspace(0, end, 601))
    numbers |= {"alpha": curve.alpha.values}
    forms = {"early time": {x: early_equations()[f"early_{x}"] for x in "ARS"}, "onset": {"A": equations()["onset_A"]}}
    curves = {"flow (15)": curve}
    for name, eqs in forms.items():
        curves[name] = xr.Dataset({x: ("alpha", np.broadcast_to(e.evaluate(numbers), curve.alpha.shape))
                                   for x, e in eqs.items()}, coords={"alpha": curve.alpha})  # fmt: skip
    rising = curve.alpha < star
    sharp = equations()["onset_sharp"].evaluate({**numbers, "alpha": curve.alpha.where(rising, 0).values})
    curves["sharp onset"] = xr.Dataset({"A": ("alpha", np.where(rising, sharp, np.nan))}, coords={"alpha": curve.alpha})
    return Onset(
        numbers={"c_omega": numbers["c_omega"], "T_alpha": scale,
                 "onset_coefficient": float(equations()["onset_coefficient"].evaluate(numbers)),
                 "alpha_half": half, "alpha_star": star, "D_separatrix": edge},
        labels={"c_omega": "attention constant (14)", "T_alpha": "onset time scale sqrt(2/c_omega)/eta",
                "onset_coefficient": "alpha^2 coefficient of ln(A/A_0), finite sizes",
                "alpha_half": "time of A = 1/2, flow (15), exact",
                "alpha_star": "sharp onset pi/(eta sqrt(2 c_omega)) of infinite size",
                "D_separatrix": "R_0 - S_0 at or below which attention dies"},
        absent={"alpha_half": never, "T_alpha": "infinite", "alpha_star": "infinite", "D_separatrix": "none"},
        notes=notes,
        curves=curves,
        equations=[*flow(p.permutations).equations().values(), *early_equations().values(), *equations().values()],
        plot=draw,
    )  # fmt: skip


def draw(result: Onset, axes: Any) -> None:
    """Attention on the left, teacher overlaps on the right; flow solid, approximations broken."""
    left, right = axes
    half = result.numbers["alpha_half"]
    styles = {"flow (15)": "-", "early time": ":", "onset": "--", "sharp onset": "-."}
    for name, curve in result.curves.items():
        for q, axis, colour in (("A", left, "C0"), ("R", right, "C1"), ("S", right, "C2")):
            if q in curve:
                label = name if axis is left else f"${q}$, {name}"
                axis.plot(curve.alpha, curve[q], styles[name], color=colour, label=label)
    left.set(ylim=(0, 1.05), ylabel="attention $A$")
    right.set(ylabel="teacher overlap", ylim=(0, 1.1 * float(result.curves["flow (15)"].R.max())))
    if half > 0:
        left.axvline(half, color="0.6", lw=0.8)
        left.annotate(rf"$\alpha_{{1/2}} = {half:.3f}$", (half, 0.03), xytext=(4, 0), textcoords="offset points")
    for axis in axes:
        axis.set(
            xlabel=r"training time $\alpha$ = epochs / $(d_g N)$", xlim=(0, float(result.curves["flow (15)"].alpha[-1]))
        )
        axis.legend(loc="upper left")
