"""Curves of factual recall: full-batch descent (the Euler map of the flow) against students trained
on batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from theory import titles
from theory.associative_memory.factual_recall import Parameters, flow, predict
from theory.parameters import described
from theory.runtime import plotting
from verify import ensemble
from verify.check import Band
from verify.report import Report, Request
from verify.trajectories import compare

BATCHES = "gradient noise of batches of about a thousand sequences, the same sign in all seeds"
VARIABLES = (
    "loss",
    "loss_relation",
    "loss_subject",
    "accuracy_relation",
    "w_r",
    "w_s",
    "delta_r",
    "delta_s",
)


def report(request: Request) -> Report:
    """Compare students with full-batch descent at the same steps, to 1% of the range of each curve;
    report the deviation of the flow.
    """
    p, runs = ensemble.get(request)
    bands = dict.fromkeys(VARIABLES, Band(-0.01, 0.01, BATCHES))
    comparison = compare(predict(p, runs), runs, bands)
    smooth = flow().solve(p, t=float(runs.t[-1]), at=runs.t.values)
    off = float(np.abs(smooth.loss.values - runs.loss.mean("seed").values).max())
    notes = [
        comparison.spoken(),
        f"largest deviation of the loss from the flow, which has no step size: {off:.4f}",
    ]
    return Report(
        comparison.checks,
        notes,
        numbers={"inside_two_sd": comparison.inside()},
        draw=lambda: draw(p, runs),
    )


STYLES = ("--", "-.", ":")  # line width of the flow, drawn over the students' wide lines


def draw(p: Parameters, runs: xr.Dataset) -> Any:
    """Loss, its parts, attention and value gains over steps."""
    figure, axes = plotting.figure(1, 3, width=3.7, height=2.9)
    curve = flow().solve(p, t=float(runs.t[-1]))
    groups = (
        (
            "cross-entropy [nats]",
            {"loss": "loss", "loss_relation": "relation", "loss_subject": "subject"},
        ),
        ("attention weight", {"w_r": "relation", "w_s": "subject"}),
        ("value gain", {"delta_r": "relation", "delta_s": "subject"}),
    )
    for axis, (label, names) in zip(axes, groups, strict=True):
        for k, (name, word) in enumerate(names.items()):
            colour = {"loss": "C2", "relation": "C0", "subject": "C1"}[word]
            plotting.band(
                axis,
                runs[name].assign_coords(t=runs.t / p.eta),
                colour,
                f"{word}, students",
                width=3,
            )
            axis.plot(curve.t / p.eta, curve[name], "k", ls=STYLES[k], lw=1, label=f"{word}, flow")
        axis.set(xlabel=r"training step = $t/\eta$", ylabel=label, ylim=(0, None))
        plotting.inside(axis)
    asked = [(p, runs.sizes["seed"])]
    plotting.headline(figure, titles.title(asked), described(asked))
    return figure
