"""Figures 4-6 and Table 1 of App. A: the histogram task."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from papers.source import Source
from simulate.positional_semantic.histogram import KINDS, solutions
from theory.positional_semantic.parameters import HistogramParameters
from theory.runtime import output, plotting

SETTINGS = {"small": HistogramParameters(), "paper": HistogramParameters.paper()}
SEEDS = {"small": 2, "paper": 10}
COLUMNS = {
    "accuracy": "accuracy, frozen",
    "accuracy_unfrozen": "accuracy, unfrozen",
    "frozen_to_unfrozen": "distance frozen to unfrozen",
    "formerly_zero": "of it, formerly zero",
    "start_to_frozen": "distance start to frozen",
    "dependence": "attention s.d. over sequences, frozen",
    "dependence_unfrozen": "the same, unfrozen",
}


@cache
def trained(
    p: HistogramParameters, seed: int, device: str | None, progress: bool
) -> dict[str, dict[str, Any]]:
    """Both solutions of a seed (cached per process)."""
    return solutions(p, seed, device=device, progress=progress)


def of(source: Source, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Solutions at the scale of a source."""
    return trained(SETTINGS[source.scale], seed, source.device, source.progress)


@dataclass(frozen=True)
class Table:
    """Table 1, mean and standard deviation over seeds."""

    name: str
    caption: str
    result: str = ""

    def write(self, source: Source, out: Path) -> Path:
        """Train, write; return the file."""
        path = out / f"{self.name}.txt"
        many = [of(source, seed) for seed in range(SEEDS[source.scale])]
        rows = []
        for kind in KINDS:
            values = {k: np.array([m[kind][k] for m in many]) for k in COLUMNS}
            rows.append(
                [kind, *(f"{v.mean():.5g} +- {v.std(ddof=1):.2g}" for v in values.values())]
            )
        with output.atomic(path) as temporary:
            temporary.write_text(output.table(("solution", *COLUMNS.values()), rows) + "\n")
        return path


def letters(sequence: np.ndarray) -> list[str]:
    """Tokens as capital letters."""
    return [chr(ord("A") + int(t)) for t in sequence]


def show(axis: Any, matrix: np.ndarray, sequence: np.ndarray, title: str) -> Any:
    """One attention matrix, labelled by its tokens."""
    image = axis.imshow(matrix, cmap="viridis", vmin=0, vmax=1)
    axis.set(xticks=range(len(sequence)), yticks=range(len(sequence)), title=title)
    axis.set_xticklabels(letters(sequence))
    axis.set_yticklabels(letters(sequence))
    axis.set(xlabel="attended token", ylabel="token")
    axis.grid(False)
    return image


def frozen(source: Source) -> Any:
    """Fig. 4."""
    result = of(source)
    figure, axes = plotting.figure(2, 2, width=2.9, height=2.9)
    for row, kind in zip(axes, KINDS, strict=True):
        for k, axis in enumerate(row):
            image = show(
                axis,
                result[kind]["attention"][k],
                result[kind]["sequences"][k],
                f"{kind}, sequence {k + 1}",
            )
    figure.colorbar(image, ax=axes, label="attention", shrink=0.6)
    return figure


def unfrozen(kind: str, source: Source) -> Any:
    """Figs. 5 and 6."""
    result = of(source)[kind]
    figure, axes = plotting.figure(2, 2, width=2.9, height=2.9)
    for k in (0, 1):
        for axis, (when, name) in zip(
            axes[k], (("frozen", "attention"), ("unfrozen", "attention_unfrozen")), strict=True
        ):
            image = show(
                axis, result[name][k], result["sequences"][k], f"{kind}, {when}, sequence {k + 1}"
            )
    figure.colorbar(image, ax=axes, label="attention", shrink=0.6)
    return figure
