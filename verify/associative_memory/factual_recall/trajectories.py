"""Curves of factual recall: full-batch descent (the Euler map of the flow) against students trained on batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from theory import plotting
from theory.associative_memory.factual_recall import Parameters, descend, flow
from verify.check import Check
from verify.trajectories import Comparison, compare

BATCHES = "gradient noise of batches, the same sign in all seeds: seeds spread far less than a step"
KNOWN_LIMITS = dict.fromkeys(
    ("loss", "loss_relation", "loss_subject", "accuracy_relation", "w_r", "w_s", "delta_r", "delta_s"), BATCHES)  # fmt: skip


def verify(p: Parameters, runs: xr.Dataset) -> tuple[Comparison, list[Check], list[str]]:
    """Compare with full-batch descent at the same steps; bound how far any curve is off; say how far the flow is."""
    steps = runs.step.values
    curve = descend(p, int(steps[-1])).isel(t=steps)
    # The flow's accuracy is the probability of the right answer; the students' counts answers.
    comparison = compare(curve.drop_vars("accuracy").assign_coords(t=runs.t), runs, KNOWN_LIMITS)
    checks = []
    for name in KNOWN_LIMITS:
        gap = np.abs(curve[name].values - runs[name].mean("seed").values)
        scale = float(np.abs(curve[name]).max())
        k = int(gap.argmax())
        checks.append(Check(f"{name}: largest deviation of the mean, of its range, at step {steps[k]}", name, float(curve[name][k]),
                            float(runs[name].mean("seed")[k]), float(gap[k]) / scale, 0.01,
                            "batches of about a thousand sequences"))  # fmt: skip
    smooth = flow().solve(p, t=float(runs.t[-1]), at=runs.t.values)
    off = float(np.abs(smooth.loss.values - runs.loss.mean("seed").values).max())
    return comparison, checks, [f"largest deviation of the loss from the flow, which has no step size: {off:.4f}"]


def draw(p: Parameters, runs: xr.Dataset) -> Any:
    """Loss, its parts, attention and value gains over steps."""
    figure, axes = plotting.figure(1, 3, width=3.7, height=2.9)
    curve = flow().solve(p, t=float(runs.t[-1]))
    groups = (("cross-entropy [nats]", {"loss": "loss", "loss_relation": "relation", "loss_subject": "subject"}),
              ("attention weight", {"w_r": "relation", "w_s": "subject"}),
              ("value gain", {"delta_r": "relation", "delta_s": "subject"}))  # fmt: skip
    for axis, (label, names) in zip(axes, groups, strict=True):
        for name, word in names.items():
            colour = {"loss": "k", "relation": "C0", "subject": "C1"}[word]
            plotting.band(axis, runs[name].assign_coords(t=runs.t / p.eta), colour, f"{word}, students")
            axis.plot(curve.t / p.eta, curve[name], color=colour, ls="--", label=f"{word}, flow")
        axis.set(xlabel=r"training step = $t/\eta$", ylabel=label, ylim=(0, None))
        axis.legend(fontsize=7, loc="center right" if axis is axes[0] else "lower right")
    return figure
