"""Closed forms of the onset beside the flow and the exact solution."""

from typing import Any

import numpy as np
import xarray as xr

from papers.forner2026.panels import TIME
from theory.runtime import plotting
from theory.state_tracking import Parameters, dynamics, inversion, late_time, onset
from theory.state_tracking import late_time as number_late_time
from theory.state_tracking.composite import composite
from theory.state_tracking.onset import equations as onset_equations


def onset_forms(p: Parameters, runs: xr.Dataset) -> Any:
    """Apps. G and H: early-time and onset solution beside the flow."""
    return onset(p).draw()


@plotting.panels(1, 3, height=3.0)
def composite_forms(p: Parameters, runs: xr.Dataset, *axes: Any) -> None:
    """Ours: early, onset, late and composite forms compared with the exact solution, for this
    setting and for a large system.
    """
    size, length = 10**5, 3 * 10**4
    large = p.values() | {
        "N": size,
        "d_g": size,
        "L": length,
        "tau": 1 / size,
        "A_0": 1 / length,
        "c_omega": 2.0,
    }
    for axis, numbers, title in (
        (axes[0], p.values(), f"$L = {p.L}$, $N = d_g = {p.N}$"),
        (axes[1], large, r"$L = 3\times10^4$, $N = d_g = 10^5$"),
    ):
        star = float(onset_equations()["alpha_star"].evaluate(numbers))
        end = 1.6 * star
        numbers_at = numbers | {"alpha": np.linspace(0, end, 801)}
        axis.plot(
            numbers_at["alpha"],
            inversion.states(numbers, numbers_at["alpha"])["A"],
            color="0.75",
            lw=4,
            label="exact",
        )
        axis.plot(
            numbers_at["alpha"],
            onset_equations()["onset_A"].evaluate(numbers_at),
            "C0:",
            label="onset (81)",
        )
        before = numbers_at | {"alpha": numbers_at["alpha"][numbers_at["alpha"] < star]}
        axis.plot(
            before["alpha"],
            onset_equations()["onset_sharp"].evaluate(before),
            "C1-.",
            label=r"sharp onset, $\cos^{-2}$",
        )
        curve = composite_curve(numbers, end)
        axis.plot(curve["alpha"], curve["A"], "k--", lw=1.2, label="composite")
        axis.axvline(star, color="C1", lw=0.6, label=rf"sharp onset: $\alpha^* = {star:.2f}$")
        axis.set(xlabel=TIME, ylabel="attention $A$", title=title, ylim=(0, 1.05), xlim=(0, end))
    plotting.below(axes[0])
    axes[1].set(yscale="log", ylim=(2e-5, 2))
    plotting.below(axes[1])
    late = axes[2]
    numbers, times = (
        p.values() | {"C": number_late_time.late_constant(p.values())},
        np.geomspace(0.05, 1e5, 400),
    )
    late.plot(times, inversion.states(numbers, times)["R"], color="0.75", lw=4, label="exact")
    late.plot(
        times,
        dynamics.early_equations()["early_R"].evaluate(numbers | {"alpha": times}),
        "C0:",
        label="early time (78)",
    )
    after = numbers | {"alpha": times[p.eta * times + numbers["C"] > 0.05]}
    late.plot(
        after["alpha"],
        late_time.equations()["late_R"].evaluate(after),
        "C2-.",
        label=r"late, $A = 1$: Lambert $W$",
    )
    late.plot(
        after["alpha"],
        late_time.equations()["late_growth"].evaluate(after),
        "C3:",
        label="late: logarithm",
    )
    curve = composite_curve(p.values(), 1e5)
    late.plot(curve["alpha"][1:], curve["R"][1:], "k--", lw=1.2, label="composite")
    late.set(
        xscale="log",
        yscale="log",
        xlabel=TIME,
        ylabel="teacher overlap $R$",
        xlim=(0.05, 1e5),
        ylim=(2e-3, 30),
        title=f"$L = {p.L}$, $N = d_g = {p.N}$",
    )
    plotting.below(late)


def composite_curve(numbers: Any, end: float) -> dict[str, np.ndarray]:
    """Composite up to the time ``end``, with more points where attention locks."""
    last = float((inversion.states(numbers, [end])["R"] - inversion.states(numbers, [end])["S"])[0])
    start = numbers["R_0"] - numbers["S_0"]
    return composite(numbers, start + (last - start) * np.linspace(0, 1, 3001) ** 4)
