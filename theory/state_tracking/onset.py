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
from theory.state_tracking import loss
from theory.state_tracking.dynamics import flow
from theory.state_tracking.early_time import equations as early_equations
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.symbols import A_0, R_0, S_0, A, L, N, R, S, alpha, c_omega, d_g, eta, g, m, ref, zeta

T_alpha = symbol("T_alpha", r"T_{\alpha}", positive=True)
gain = symbol("onset_coefficient", r"[\alpha^{2}]\ln(A/A_{0})")
LARGE = ("N, d_g, L large", "A small", "R - S linear in time")
HALF = {"alpha_half": A - sp.Rational(1, 2)}
HORIZONS = (10, 1e3, 1e6, 1e12)  # time scales that the search for A = 1/2 covers, one after the other


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
    found = [
        Equation("onset_difference", sp.Derivative(R - S, alpha), early, ref("Eq. (79)"), "leading order",
                 ("A = 1/L", "logits small")),
        Equation("onset_rate", sp.Derivative(A, alpha), growth, ref("Eq. (80)"), "leading order", LARGE),
        Equation("onset_A", A, solution.rhs, ref("Eq. (81)"), "leading order", LARGE),
        Equation("onset_time_scale", T_alpha, sp.simplify(1 / sp.sqrt(exponent)),
                 ref("below Eq. (81), corrected: printed as sqrt(2/(c_omega eta))"), "leading order", LARGE),
        Equation("onset_coefficient", gain, coefficient, ref("beyond Eq. (81): finite sizes"), "exact",
                 ("coefficient of alpha^2 along the flow (15) from A = 1/L, R = S = zeta = 0",)),
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
        With numbers ``c_omega``, ``T_alpha`` = sqrt(2/c_omega)/eta, ``onset_coefficient`` and
        ``alpha_half``, the time of A = 1/2 (NaN when the mechanism never emerges).
    """
    numbers = p.values()
    moves = numbers["c_omega"] > 0 and p.d_g > 1 and p.L > 1
    scale = float(equations()["onset_time_scale"].evaluate(numbers)) if moves else np.inf
    half, notes = np.nan, []
    if numbers["A_0"] >= 0.5:
        half = 0.0
        notes.append("A is at or above 1/2 from the start")
    elif moves:
        for horizon in HORIZONS:
            half = float(flow(p.permutations).solve(p, at=[0.0], events=HALF, alpha=horizon * scale).alpha_half)
            if np.isfinite(half):
                break
        if np.isnan(half):
            notes.append(f"A stays below 1/2 up to alpha = {HORIZONS[-1] * scale:.4g}")
    else:
        why = "d_g = 1: one action, nothing to tell apart" if p.d_g == 1 else "c_omega = 0: no positional information"
        notes.append(f"attention does not move ({why})")
    end = alpha_end or (2.5 * half if half > 0 else min(5 * scale, 12.0))
    curve = flow(p.permutations).solve(p, alpha=end)
    numbers |= {"alpha": curve.alpha.values}
    forms = {"early time": {x: early_equations()[f"early_{x}"] for x in "ARS"}, "onset": {"A": equations()["onset_A"]}}
    curves = {"flow (15)": curve}
    for name, eqs in forms.items():
        curves[name] = xr.Dataset({x: ("alpha", np.broadcast_to(e.evaluate(numbers), curve.alpha.shape))
                                   for x, e in eqs.items()}, coords={"alpha": curve.alpha})  # fmt: skip
    return Onset(
        numbers={"c_omega": numbers["c_omega"], "T_alpha": scale,
                 "onset_coefficient": float(equations()["onset_coefficient"].evaluate(numbers)),
                 "alpha_half": half},
        labels={"c_omega": "attention constant (14)", "T_alpha": "onset time scale sqrt(2/c_omega)/eta",
                "onset_coefficient": "alpha^2 coefficient of ln(A/A_0), finite sizes",
                "alpha_half": "time of A = 1/2, flow (15)"},
        absent={"alpha_half": "never emerges", "T_alpha": "infinite"},
        notes=notes,
        curves=curves,
        equations=[*flow(p.permutations).equations().values(), *early_equations().values(), *equations().values()],
        plot=draw,
    )  # fmt: skip


def draw(result: Onset, axes: Any) -> None:
    """Attention on the left, teacher overlaps on the right; flow solid, approximations broken."""
    left, right = axes
    half = result.numbers["alpha_half"]
    styles = {"flow (15)": "-", "early time": ":", "onset": "--"}
    for name, curve in result.curves.items():
        for x, axis, colour in (("A", left, "C0"), ("R", right, "C1"), ("S", right, "C2")):
            if x in curve:
                label = name if axis is left else f"${x}$, {name}"
                axis.plot(curve.alpha, curve[x], styles[name], color=colour, label=label)
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
