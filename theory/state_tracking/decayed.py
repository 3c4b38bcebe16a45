"""Emergence under coupled weight decay: times and critical decays for the table and figure of
``theory.onset`` with ``--set weight_decay=0.002``.
"""

from typing import Any

import numpy as np
import sympy as sp
import xarray as xr

from theory.onset import Onset, tabulated
from theory.state_tracking import norms, phases
from theory.state_tracking.numbers.decay import decay_thresholds, edge, late_states, of_attention
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.symbols import A

SHOWN = ("N", "L", "d_g", "d_h", "eta", "weight_decay", "A_0", "R_0", "S_0", "zeta")
ABSENT = {"alpha_half": "never emerges"} | dict.fromkeys(
    [f"{x}_learned" for x in "ARSP"], "no learned state"
)
EARLY = (
    "alpha_half leaves out the noise of M, which delays emergence: by 30% in the mean of eight "
    "students of the small setting (standard error 9%)"
)
AGES, FOLDS = 20.0, 20.0  # followed: times of decay, and of growth from the unlearned state


def horizon(p: Parameters, growth: float) -> float:
    """Time within which attention emerges if it does: random keys decay, then grow again."""
    lost = p.eta * p.weight_decay * p.d_g * p.N
    return AGES / lost + (FOLDS * (1 + lost / growth) / growth if growth > 0 else 0.0)


def onset(p: Parameters, until: float | None = None) -> Onset:
    """Numbers and curves under weight decay.

    Parameters
    ----------
    p : Parameters
        Parameters with ``weight_decay``.
    until : float, optional
        Length of the curves in alpha; by default 2.5 times the time of A = 1/2, or the time in
        which weights decay.
    """
    edges, late = decay_thresholds(p), late_states(p)
    learned, growth = late.sel(state="learned"), float(late.decay_growth)
    with_norms, end = norms.flow(p.teachers), horizon(p, growth)
    half = {"half": A - sp.Rational(1, 2)}
    time = float(with_norms.solve(p, alpha=end, events=half, at=[0.0]).half)
    if p.A_0 is not None and p.A_0 >= 0.5:
        time = 0.0
    notes = [EARLY] if time > 0 else []
    if np.isnan(time) and np.isfinite(learned.A):
        notes.append(
            "from this start attention dies out; what was learned under less decay would be kept"
        )
    if until is None:
        until = 2.5 * time if time > 0 else end / 4
    scratch, lost = float(edges.decay_unlearned), float(edges.decay_lost)
    return tabulated(
        {
            "decay_unlearned": (
                scratch,
                "weight decay above which nothing is learned from scratch",
            ),
            "decay_lost": (lost, "weight decay above which what was learned is lost"),
            "decay_growth": (growth, "growth rate of small keys and queries beside A = 1/L"),
            "alpha_half": (time, "time of A = 1/2, flow with norms", "alpha"),
            "A_learned": (float(learned.A), "attention of the learned state"),
            "R_learned": (float(learned.R), "its overlap R"),
            "S_learned": (float(learned.S), "its overlap S"),
            "P_learned": (float(learned.P), "its squared norm of keys, or queries"),
        },
        curves=lambda: {"flow": with_norms.solve(p, alpha=until), "decay": branches(p)},
        equations=lambda: [
            *with_norms.equations().values(),
            *norms.equations().values(),
            *phases.equations().values(),
        ],
        plot=draw,
        absent=ABSENT,
        notes=notes,
        setting={name: v for name, v in p.values().items() if name in SHOWN},
        crossings={"alpha_half": (with_norms, p, half["half"])},
    )


def branches(p: Parameters) -> xr.Dataset:
    """Weight decay at which attention is stationary, as a function of attention, and the stability
    of that state.
    """
    attention = 1 - np.geomspace(1 - 1 / p.L, 1e-4, 400)
    attention[0] = 1 / p.L
    values = {"weight_decay": of_attention(p, attention), "stable": attention > edge(p)}
    return xr.Dataset({x: ("A", v) for x, v in values.items()}, coords={"A": attention})


def draw(result: Onset, axes: Any) -> None:
    """Order parameters over time (left), and attention in the end over decay (right)."""
    from theory.runtime import plotting  # imports matplotlib, needed for figures only

    left, right = axes
    curve, ends = result.curves()["flow"], result.curves()["decay"]
    for x, dash in (("A", "-"), ("R", "--"), ("S", ":")):
        left.plot(curve.alpha, curve[x], ls=dash, label=f"${x}$")
    left.set(
        xlabel=r"training time $\alpha$ = epochs / $(d_g N)$",
        ylabel="attention $A$, overlaps $R$, $S$",
        xlim=(0, float(curve.alpha[-1])),
    )
    first, decay_here = result.numbers["decay_unlearned"], result.setting["weight_decay"]
    last = 1.5 * max(result.numbers["decay_lost"], decay_here)
    guess = float(ends.A[0])
    learned, between = ends.where(ends.stable), ends.where(~ends.stable)
    right.plot(learned.weight_decay, learned.A, color="C0", label="learned, stable")
    right.plot(between.weight_decay, between.A, color="C1", ls="--", label="unstable")
    right.plot([first, last], [guess, guess], color="C2", ls="-.", label="$A = 1/L$, stable")
    right.plot([0, first], [guess, guess], color="C1", ls="--")
    right.axvline(decay_here, color="0.6", lw=0.8, label="weight decay here")
    right.set(
        xlabel=r"weight decay $\lambda_{\mathrm{w}}$",
        ylabel="attention $A$ in the end",
        xlim=(0, last),
        ylim=(0, 1.05),
    )
    for axis in axes:
        plotting.below(axis)
