"""Panels over training time: students and theory."""

from typing import Any

import numpy as np
import xarray as xr

from theory import state_tracking as st
from theory.runtime import plotting
from theory.state_tracking import Parameters

MEASURED_LOGITS = "paper, (17)-(18) with measured logits"
MARKS = 20  # of each student


TIME = r"training time $\alpha$ = epochs / $(d_g N)$"


def theory(p: Parameters, runs: xr.Dataset) -> xr.Dataset:
    """Theory curve over the run length."""
    return st.trajectory(p, float(runs.alpha[-1]))


_best: dict[Any, xr.Dataset] = {}


def best(p: Parameters, runs: xr.Dataset) -> xr.Dataset:
    """The fixed-disorder theory of each student, computed once for all figures of an ensemble."""
    key = p, *runs.seed.values.tolist()
    if key not in _best:
        _best[key] = st.predict(p, runs, level="fixed_disorder")
    return _best[key]


def marked(axis: Any, values: xr.DataArray, colour: str, label: str) -> None:
    """Draw students as marks, or many of them as a band."""
    if values.sizes["seed"] > plotting.FEW:
        return plotting.band(axis, values, colour, label)
    some = values[:, :: max(1, values.sizes["alpha"] // MARKS)]
    drawn = axis.plot(some.alpha, some.T, ".", ms=4, color=colour, alpha=0.6)
    drawn[0].set_label(label)


def lines(axis: Any, values: xr.DataArray, colour: str, label: str) -> None:
    """Draw a theory of each student as thin lines."""
    drawn = axis.plot(values.alpha, values.T, color=colour, lw=0.7)
    drawn[0].set_label(label)


Group = tuple[
    str, dict[str, tuple[str, Any]]
]  # label; by variable its name, and a prediction or None


def panels(
    p: Parameters, runs: xr.Dataset, groups: list[Group], predicted_by: str = "paper, Eq. (15)"
) -> Any:
    """One panel per group of variables, each with its name among them and the paper's prediction:
    students as marks, our theory of each as thin lines, the paper's dashed.
    """
    figure, axes = plotting.figure(1, len(groups))
    shown: set[str] = set()
    for axis, (label, curves) in zip(np.atleast_1d(axes), groups, strict=True):
        for k, (variable, (name, predicted)) in enumerate(curves.items()):
            prefix = f"{name}, " if name else ""
            marked(axis, runs[variable], f"C{k}", f"{prefix}students")
            lines(axis, best(p, runs)[variable], f"C{k}", f"{prefix}our theory of each")
            if predicted is not None:
                axis.plot(predicted.alpha, predicted, "k--", label=None if k else predicted_by)
        axis.set(xlabel=TIME, ylabel=label, xlim=(0, float(runs.alpha[-1])))
        if "accuracy" in label or "attention" in label:
            axis.set_ylim(-0.02, 1.05)
        entries = set(axis.get_legend_handles_labels()[1])
        if entries - shown:
            plotting.below(axis)
        shown |= entries
    return figure
