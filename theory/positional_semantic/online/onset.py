"""Which overlap grows first in one-pass descent, when, and where it ends."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from theory import Onset, of_onset, scope, until
from theory.positional_semantic.online import dynamics
from theory.positional_semantic.online.dynamics import flow_of
from theory.positional_semantic.online.numbers import (
    BRANCHES,
    Unsettled,
    basin,
    end_of,
    ended,
    ends,
    equal_growth,
    equal_loss,
    growth_rates,
)
from theory.positional_semantic.online.parameters import ANY, Parameters

LABELS = {
    "growth_m": "growth rate of the overlap with the positions while both are small",
    "growth_theta": "growth rate of the overlap with the teacher while both are small",
    "T_m": "time until the overlap with the positions is of order one from 1/sqrt(d)",
    "T_theta": "the same for the overlap with the teacher",
    "loss_positional": "population loss at the end with theta = 0",
    "loss_semantic": "population loss at the end with m = 0",
    "omega_growth": "omega at which both overlaps grow at one rate",
    "omega_loss": "omega at which both ends have one loss",
}
SETTING = ("omega", "sigma", "target", "norm", "scale", "decay", "d")
ANGLES = np.linspace(5, 85, 9)  # degrees of the start, from the positions to the teacher
OMEGAS = np.linspace(0, 1, 11)
MOST = 40.0  # units of the faster growth: length of a curve


@until("t")
@scope.pointwise(ANY)
def onset(p: Parameters, until: float | None = None) -> Onset:
    """Growth rates and escape times at small overlaps, ends, and the window of omega in which
    descent starts positional though the semantic end is lower.

    Parameters
    ----------
    p : Parameters
        Model and start.
    until : float, optional
        Length of the curve (also ``t=``).
    """
    first = _start(p, until)
    reasons = {}

    def known(name: str, found: Callable[[], Any], absent: Any = math.nan) -> Any:
        """A result, or ``absent`` with the reason where descent does not come to an end."""
        try:
            return found()
        except Unsettled as error:
            reasons[name] = f"{name}: {error}"
            return absent

    numbers, absent = first.numbers, first.absent
    found = {name: known(f"loss_{name}", partial(end_of, p, name), None) for name in BRANCHES}
    end = {name: dict(of) for name, of in found.items() if of is not None}
    numbers |= {f"loss_{name}": end.get(name, {}).get("loss", math.nan) for name in BRANCHES}
    low = numbers["omega_growth"] = equal_growth(p)
    high = numbers["omega_loss"] = known("omega_loss", lambda: equal_loss(p))
    notes = [
        f"the {name} end is {'unstable' if of['transverse'] > 0 else 'stable'} towards the other "
        f"overlap (rate {of['transverse']:.3g})"
        for name, of in end.items()
    ]
    if low < high:
        notes.append(
            f"omega in ({low:.4g}, {high:.4g}): starts positional, the semantic end is lower"
        )
    start = f"cosines of {p.cos_p:g} with the positions, {p.cos_teacher:g} with the teacher"
    word = known("end", lambda: ended(p), None)
    notes += [f"from {start}: ends {word}"] if word else []
    notes += reasons.values()
    late = "descent does not come to an end: see notes"
    absent |= dict.fromkeys(("loss_positional", "loss_semantic"), late)
    absent |= {"omega_growth": "none", "omega_loss": late if "omega_loss" in reasons else "none"}
    return replace(first, notes=notes, details={"ends": end, "reasons": reasons})


@scope.guard(ANY)
def _start(p: Parameters, until: float | None = None) -> Onset:
    """The growth rates and times alone, without ends, for which descent is followed."""
    rates = growth_rates(p)
    never = "does not grow" if p.norm == "held" else "norm and rate change on the way: --plot"
    return Onset(
        numbers={
            name: float(rates[name]) for name in ("growth_m", "growth_theta", "T_m", "T_theta")
        },
        labels=LABELS,
        absent=dict.fromkeys(("T_m", "T_theta"), never),
        notes=[],
        curves=lambda: curves(p, until),
        plot=lambda result, axes: draw(p, result, axes),
        setting={name: getattr(p, name) for name in SETTING},
        equations=lambda: [*dynamics.equations().values(), *dynamics.early_equations().values()],
        times={"T_m": "t", "T_theta": "t"},
    )


emergence_times = of_onset(_start)


def curves(p: Parameters, end: float | None) -> dict[str, xr.Dataset]:
    """The flow from the start, and where it ends over omega and the angle of the start."""
    rates = growth_rates(p)
    fastest = max(abs(float(rates.growth_m)), abs(float(rates.growth_theta)), 1e-12)
    return {"flow": flow_of(p).solve(p, t=end or MOST / fastest), "basins": basins(p)}


def basins(p: Parameters) -> xr.Dataset:
    """Which overlap wins over omega and the angle of the start, without the noise of steps."""
    radius = min(0.99, max(math.hypot(p.cos_p, p.cos_teacher), 1e-3))
    quiet = p.replace(batch=None)
    won = np.empty((OMEGAS.size, ANGLES.size))
    for i, omega in enumerate(OMEGAS):
        for j, angle in enumerate(np.radians(ANGLES)):
            start = {"cos_p": radius * math.cos(angle), "cos_teacher": radius * math.sin(angle)}
            won[i, j] = basin(quiet.replace(omega=float(omega), **start)).semantic
    return xr.Dataset(
        {"semantic": (("omega", "angle"), won)},
        {"omega": OMEGAS, "angle": ANGLES},
        attrs={"radius": radius},
    )


def draw(p: Parameters, result: Onset, axes: Any) -> None:
    """Overlaps over time (left), and where descent ends over omega and the start (right)."""
    left, right = axes
    drawn = result.curves()
    flow, map_ = drawn["flow"], drawn["basins"]
    left.plot(flow.t, abs(flow.cosine_p), "C0", label="cosine with the positions")
    left.plot(flow.t, abs(flow.cosine_teacher), "C1--", label="cosine with the teacher")
    left.set(
        xlabel=r"time $t = \eta \cdot$ steps$/d$", ylabel="cosine of the weights", ylim=(0, 1.05)
    )
    omega, angle = np.meshgrid(map_.omega, map_.angle, indexing="ij")
    for value, word, mark, colour in ((0, "positional", "s", "C0"), (1, "semantic", "o", "C1")):
        here = map_.semantic.values == value
        right.plot(omega[here], angle[here], mark, color=colour, ms=5, label=f"ends {word}")
    for name, style in (("omega_growth", "-"), ("omega_loss", ":")):
        if np.isfinite(result.numbers[name]):
            words = {"omega_growth": "equal growth", "omega_loss": "equal loss of the ends"}
            right.axvline(result.numbers[name], color="0.4", ls=style, lw=1, label=words[name])
    right.set(
        xlabel=r"positional fraction $\omega$",
        ylabel=f"angle of the start (length {map_.attrs['radius']:.2g}) [degrees]",
    )


# Tables for the explorer

SIGMAS = np.array([0.3, 0.5, 1.0])


@scope.guard(ANY)
def charts(p: Parameters) -> dict[str, xr.Dataset]:
    """Growth rates while the overlaps are small, and losses of the ends, over omega and sigma."""
    p = p.replace(batch=None)
    places = {"omega": OMEGAS, "sigma": SIGMAS}
    about = {
        "reference": "beyond cui2024, one-pass descent",
        "status": "exact",
        "note": "computed beforehand, without the noise of steps; all other fields as in the start",
    }
    grid = {x: xr.DataArray(v, {x: v}, x) for x, v in places.items()}
    growth = growth_rates(p, **grid)[["growth_m", "growth_theta"]]
    losses = [[ends(p.replace(omega=w, sigma=s)) for s in SIGMAS] for w in OMEGAS]
    of_ends = {
        f"loss_{name}": (tuple(places), [[e[name]["loss"] for e in row] for row in losses])
        for name in BRANCHES
    }
    tables = {"growth": growth, "ends": xr.Dataset(of_ends, places)}
    for table, words in zip(tables.values(), ("growth rates", "loss of the ends"), strict=True):
        table.attrs = dict(about)
        for shown in table.data_vars.values():
            shown.attrs = {"long_name": words}
    labels = "; ".join(f"{x}: {LABELS[x]}" for x in growth)
    growth.attrs["note"] = f"{labels}; {about['note']}"
    return tables
