"""Closed forms of the onset beside the flow and the exact solution; robustness sweeps
of App. B: whether and when students learn, changing one parameter at a time.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from papers.source import Source
from simulate.state_tracking import train
from theory import state_tracking as st
from theory.runtime import output, plotting
from theory.state_tracking import Parameters, dynamics, late_time, onset
from theory.state_tracking.composite import composite
from theory.state_tracking.onset import equations as onset_equations
from verify.compare.emergence import first_crossing

TIME = r"training time $\alpha$ = epochs / $(d_g N)$"


def onset_forms(p: Parameters, runs: xr.Dataset) -> Any:
    """Apps. G and H: early-time and onset solution beside the flow."""
    return onset(p).draw()


@plotting.panels(1, 3, height=3.0)
def composite_forms(p: Parameters, runs: xr.Dataset, *axes: Any) -> None:
    """Ours: early, onset, late and composite forms compared with the exact solution,
    for this setting and for a large system.
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
            st.inversion.states(numbers, numbers_at["alpha"])["A"],
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
        axis.axvline(
            star, color="C1", lw=0.6, label=rf"sharp onset: $\alpha^* = {star:.2f}$"
        )
        axis.set(
            xlabel=TIME,
            ylabel="attention $A$",
            title=title,
            ylim=(0, 1.05),
            xlim=(0, end),
        )
    axes[1].set(yscale="log", ylim=(2e-5, 2))
    late = axes[2]
    numbers = p.values() | {"C": late_time.late_constant(p.values())}
    times = np.geomspace(0.05, 1e5, 400)
    late.plot(
        times,
        st.inversion.states(numbers, times)["R"],
        color="0.75",
        lw=4,
        label="exact",
    )
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


def composite_curve(numbers: Any, end: float) -> dict[str, np.ndarray]:
    """Composite up to the time ``end``, with more points where attention locks."""
    last = float(
        (
            st.inversion.states(numbers, [end])["R"]
            - st.inversion.states(numbers, [end])["S"]
        )[0]
    )
    start = numbers["R_0"] - numbers["S_0"]
    return composite(numbers, start + (last - start) * np.linspace(0, 1, 3001) ** 4)


# Robustness sweeps of App. B

SEEDS = 4  # seeds per setting of the small sweep
SMALL = Parameters(N=8, L=5, d_g=8, d_h=16, n_train=1024, eval_every=16)
RANGES: dict[str, dict[str, tuple]] = {
    "small": {
        "N": (6, 8, 12),
        "d_g": (4, 8, 16),
        "L": (3, 5, 8),
        "d_h": (4, 8, 16, 32),
        "eta": (0.25, 0.5, 1.0),
        "rope_theta": (1e2, 1e4, 1e6),
        "n_train": (256, 1024, 4096),
        "rope": ("2pi", "plain", "linear"),
    },
    "paper": {
        "N": (8, 16, 24, 32),
        "d_g": (8, 16, 24, 32),
        "L": (5, 10, 15, 20),
        "d_h": (8, 32, 64, 128),
        "eta": (0.25, 0.5, 1.0),
        "rope_theta": (1e2, 1e4, 1e6),
        "n_train": (4096, 8192, 32768),
        "rope": ("2pi", "plain", "linear"),
    },
}
LATE = 1e3  # longer times of A = 1/2 are stated, not drawn
LABELS = {
    "N": "$N$",
    "d_g": "$d_g$",
    "L": "$L$",
    "d_h": "$d_h$",
    "eta": r"$\eta$",
    "rope_theta": r"$\theta_{\rm RoPE}$",
    "n_train": r"$n_{\rm train}$",
    "rope": "frequencies",
}


STORED = Path(__file__).with_name("robustness.json")


def found(source: Source) -> dict[str, list[dict[str, Any]]]:
    """Shipped results (made by ``papers forner2026 --figure robustness --scale
    small``), or those of a requested sweep.
    """
    if source.scale != "shipped":
        return sweep(source)
    source.used(SMALL, SEEDS)

    def arrays(row: dict[str, Any]) -> dict[str, Any]:
        return {k: np.array(v) if isinstance(v, list) else v for k, v in row.items()}

    with output.intact(STORED):
        results = json.loads(STORED.read_text())
        return {name: [*map(arrays, rows)] for name, rows in results.items()}


def sweep(source: Source) -> dict[str, list[dict[str, Any]]]:
    """Train around one setting; returns times of A = 1/2 and final accuracies per
    parameter and value.
    """
    large = source.scale == "paper"
    base = Parameters.table_1() if large else SMALL
    seeds = source.seeds[: 10 if large else SEEDS]
    out: dict[str, list[dict[str, Any]]] = {}
    for name, grid in RANGES["paper" if large else "small"].items():
        out[name] = []
        for value in grid:
            p = base.replace(**{name: value})
            half = onset(p).numbers["alpha_half"]
            length = min(max(16.0, 4 * half), 40.0) if np.isfinite(half) else 30.0
            runs = source.train(train, p.run_to(length), seeds)
            last = runs.isel(alpha=-1)
            out[name].append(
                {
                    "value": value,
                    "flow": half,
                    "students": first_crossing(runs.A, 0.5).values,
                    "accuracy": last.accuracy.values,
                    "rollout_accuracy": last.rollout_accuracy.values,
                }
            )
    return out


def draw(found: dict[str, list[dict[str, Any]]]) -> Any:
    """Two rows of panels: final accuracies above, time of A = 1/2 below, one column per
    parameter.
    """
    figure, axes = plotting.figure(2, len(found), height=1.5)
    for (upper, lower), (name, rows) in zip(axes.T, found.items(), strict=True):
        places = np.arange(len(rows))
        for k, (key, label) in enumerate(
            (("accuracy", "next token"), ("rollout_accuracy", "rollout"))
        ):
            upper.plot(
                places + 0.16 * k - 0.08,
                [r[key].mean() for r in rows],
                "os"[k],
                color=f"C{k}",
                ms=5,
                label=label,
            )
        for x, r in zip(places, rows, strict=True):
            lower.plot(
                np.full(len(r["students"]), x),
                r["students"],
                ".",
                color="C0",
                alpha=0.5,
            )
        lower.plot(
            places, [r["flow"] for r in rows], "k_", ms=14, mew=1.6, label="flow (15)"
        )
        lower.plot([], [], ".", color="C0", label="students")
        times = np.concatenate([[r["flow"], *r["students"]] for r in rows])
        top = 1.15 * times[times < LATE].max()
        for x, r in zip(places, rows, strict=True):
            if not r["flow"] < top:
                words = rf"flow: not within $10^{np.log10(LATE):.0f}$"
                lower.text(
                    x,
                    0.5 * top,
                    words,
                    ha="center",
                    va="center",
                    fontsize=8,
                    rotation=90,
                )
        upper.set(ylim=(-0.03, 1.05), xticks=places, xticklabels=[])
        ticks = [
            r["value"] if isinstance(r["value"], str) else f"{r['value']:g}"
            for r in rows
        ]
        lower.set(xlabel=LABELS[name], xticks=places, xticklabels=ticks, ylim=(0, top))
        for axis in (upper, lower):
            axis.set_xlim(places[0] - 0.5, places[-1] + 0.5)
    for upper, lower in axes.T[:: plotting.ACROSS]:  # the first of a row
        upper.set_ylabel("final accuracy")
        lower.set_ylabel(r"time of $A=1/2$, in $\alpha$")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside lower left", ncols=2
    )
    figure.legend(
        *axes[1, 0].get_legend_handles_labels(), loc="outside lower right", ncols=2
    )
    return figure
