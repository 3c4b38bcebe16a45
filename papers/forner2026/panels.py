"""Panels over training time: students and theory."""

from typing import Any

import numpy as np
import xarray as xr

from theory import state_tracking as st
from theory.runtime import plotting
from theory.state_tracking import Parameters

MEASURED_LOGITS = "(17)-(18), measured logits"


TIME = r"training time $\alpha$ = epochs / $(d_g N)$"


def theory(p: Parameters, runs: xr.Dataset) -> xr.Dataset:
    """Theory curve over the run length."""
    return st.trajectory(p, float(runs.alpha[-1]))


Curves = list[tuple[str, xr.DataArray, xr.DataArray | None]]


def panels(runs: xr.Dataset, groups: list[tuple[str, Curves]], predicted_by: str = "theory") -> Any:
    """One panel per group of (name, students, prediction): students as single lines or as a band,
    prediction dashed, with marks where there are two.
    """
    figure, axes = plotting.figure(1, len(groups), height=2.9)
    for axis, (label, curves) in zip(np.atleast_1d(axes), groups, strict=True):
        for k, (name, measured, predicted) in enumerate(curves):
            prefix = f"{name}, " if name else ""
            plotting.band(axis, measured, f"C{k}", f"{prefix}students")
            if predicted is not None:
                mean = predicted.mean("seed") if "seed" in predicted.dims else predicted
                by = predicted.attrs.get("by", predicted_by)
                axis.plot(
                    mean.alpha,
                    mean,
                    "os"[k] + "--" if name else "--",
                    ms=4,
                    markevery=0.12,
                    color=f"C{k}" if name else "k",
                    label=prefix + by,
                )
        axis.set(xlabel=TIME, ylabel=label, xlim=(0, float(runs.alpha[-1])))
        if "accuracy" in label or "attention" in label:
            axis.set_ylim(-0.02, 1.05)
        plotting.below(axis)
    return figure
