"""Robustness sweeps of App. B: whether and when students learn, changing one parameter at a
time.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from papers.source import Source
from simulate.state_tracking import train
from theory.runtime import plotting
from theory.state_tracking import Parameters, onset
from verify.emergence import first_crossing

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
    """Shipped results (made by ``papers forner2026 --figure robustness --scale small``), or those
    of a requested sweep.
    """
    if source.scale != "shipped":
        return sweep(source)
    source.used(SMALL, SEEDS)
    stored = json.loads(STORED.read_text())
    return {
        name: [
            {k: np.array(v) if isinstance(v, list) else v for k, v in row.items()} for row in rows
        ]
        for name, rows in stored.items()
    }


def sweep(source: Source) -> dict[str, list[dict[str, Any]]]:
    """Train around one setting; returns times of A = 1/2 and final accuracies per parameter and
    value.
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
            lower.plot(np.full(len(r["students"]), x), r["students"], ".", color="C0", alpha=0.5)
        lower.plot(places, [r["flow"] for r in rows], "k_", ms=14, mew=1.6, label="flow (15)")
        lower.plot([], [], ".", color="C0", label="students")
        times = np.concatenate([[r["flow"], *r["students"]] for r in rows])
        top = 1.15 * times[times < LATE].max()
        for x, r in zip(places, rows, strict=True):
            if not r["flow"] < top:
                words = rf"flow: not within $10^{np.log10(LATE):.0f}$"
                lower.text(x, 0.5 * top, words, ha="center", va="center", fontsize=8, rotation=90)
        upper.set(ylim=(-0.03, 1.05), xticks=places, xticklabels=[])
        ticks = [r["value"] if isinstance(r["value"], str) else f"{r['value']:g}" for r in rows]
        lower.set(xlabel=LABELS[name], xticks=places, xticklabels=ticks, ylim=(0, top))
        for axis in (upper, lower):
            axis.set_xlim(places[0] - 0.5, places[-1] + 0.5)
    for upper, lower in axes.T[:: plotting.ACROSS]:  # the first of a row
        upper.set_ylabel("final accuracy")
        lower.set_ylabel(r"time of $A=1/2$, in $\alpha$")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower left", ncols=2)
    figure.legend(*axes[1, 0].get_legend_handles_labels(), loc="outside lower right", ncols=2)
    return figure
