"""Weight matrices: of the disentangled transformer, and of the standard one in the
basis of its embeddings.
"""

from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from papers.source import Source
from simulate.induction_heads import standard, train
from theory.induction_heads import structure
from theory.induction_heads.parameters import StandardParameters
from theory.runtime import plotting
from verify.induction_heads import pictures

THREE = {"alpha_3": r"\alpha_3", "beta_2": r"\beta_2", "gamma_3": r"\gamma_3"}


CORNER = {
    "I": (0.8, 0.2),
    "M": (0.87, 0.13),
}  # place of labels in a block, next to the diagonals of I or M


STANDARD = {"small": StandardParameters(), "paper": StandardParameters.paper()}


def structure_runs(source: Source, N: int) -> xr.Dataset:
    """App. C: all weights, D = 16, recorded at the printed steps."""
    return source.train(
        partial(train, keep_weights=True), pictures.structure(N), source.seeds[:1]
    )


def heat(
    figure: Any,
    axis: Any,
    matrix: np.ndarray,
    title: str,
    label: str = "entry",
    limit: float | None = None,
) -> None:
    """Draw a matrix as an image, zero in white, with a colour bar that is pointed if
    entries exceed its limit.
    """
    top = float(np.abs(matrix).max())
    limit = limit or top or 1.0
    image = axis.imshow(
        matrix,
        cmap="RdBu_r",
        vmin=-limit,
        vmax=limit,
        interpolation="nearest",
        aspect="auto",
    )
    axis.set_title(title)
    axis.grid(False)
    extend = "both" if top > limit else "neither"
    figure.colorbar(
        image, ax=axis, fraction=0.046, pad=0.02, label=label, extend=extend
    )
    figure.get_layout_engine().set(w_pad=0.12)  # keep the label at its colour bar


def weights(source: Source, N: int, step: int) -> Any:
    """Figs. 3 and 6-14: the three matrices after a number of steps, block borders
    drawn.
    """
    runs = structure_runs(source, N).isel(seed=0)
    shown = runs.isel(t=int(np.flatnonzero(runs.step.values == step)[0]))
    D = shown.sizes["column_3"]
    figure, axes = plotting.figure(1, 3, height=3.2)
    for axis, name in zip(axes, ("W1", "W2", "W3"), strict=True):
        matrix = shown[name].values
        heat(figure, axis, matrix, f"$W^{{({name[1]})}}$, step {step}")
        rows, columns = structure.BLOCKS[name]
        for k in range(1, len(rows)):
            axis.axhline(k * D - 0.5, color="0.5", lw=0.5)
        for k in range(1, len(columns)):
            axis.axvline(k * D - 0.5, color="0.5", lw=0.5)
        for block in structure.pseudo_parameters():
            if block.matrix == name and block.name in THREE:
                x, y = CORNER[block.kernel]
                axis.text(
                    (block.column + x) * D,
                    (block.row + y) * D,
                    f"${THREE[block.name]}$",
                    ha="center",
                    va="center",
                )
        axis.set(xlabel="column", ylabel="row")
    return figure


def standard_runs(source: Source, seeds: int) -> xr.Dataset:
    """Sec. 2: the standard transformer, the first few seeds."""
    return source.train(standard.train, STANDARD[source.scale], source.seeds[:seeds])


def interpretation(source: Source) -> Any:
    """Fig. 2: key-query products and output matrix in the basis of embeddings and of
    what the heads write.
    """
    runs = standard_runs(source, 1).isel(seed=0)
    p = STANDARD[source.scale]
    figure, axes = plotting.figure(1, 3, height=3.6)
    # Written by no layer, the first, the second, both.
    written = ("", "V_1", "V_2", "V_2 V_1")
    marks = {}
    for by in written:
        marks[f"${by}\\,e$"] = p.vocabulary
        marks[f"${by}\\,p$"] = p.block
    meaning = {
        "scores_1": "$e$: embedding of a token, $p$: position",
        "scores_2": "$V_i$: as written by layer $i$",
    }
    panels = {
        "scores_1": ("layer 1", "attention score"),
        "scores_2": ("layer 2", "attention score"),
        "readout": ("output", "logit"),
    }
    for axis, (name, (title, label)) in zip(axes, panels.items(), strict=True):
        matrix = runs[name].values
        # A few entries are large due to the random start; the colour scale excludes the
        # top 0.1%.
        heat(
            figure,
            axis,
            matrix,
            title,
            label,
            float(np.quantile(np.abs(matrix), 0.999)),
        )
        label_blocks(axis, marks, matrix.shape[1], "x")
        if name == "readout":
            axis.set(
                xlabel=(
                    "what the residual stream holds\n(bars end at 99.9% of the entries)"
                ),
                ylabel="predicted token",
            )
        else:
            label_blocks(axis, marks, matrix.shape[0], "y")
            axis.set(
                xlabel=f"what the key holds\n({meaning[name]})",
                ylabel="what the query holds",
            )
    return figure


def label_blocks(axis: Any, blocks: dict[str, int], total: int, which: str) -> None:
    """Borders and names of the blocks along one axis."""
    ends = np.cumsum(list(blocks.values()))
    count = int(np.searchsorted(ends, total)) + 1
    edges = np.append(0, ends[:count])
    for edge in edges[1:-1]:
        (axis.axvline if which == "x" else axis.axhline)(
            edge - 0.5, color="0.5", lw=0.5
        )
    ticks = {
        f"{which}ticks": (edges[:-1] + edges[1:]) / 2 - 0.5,
        f"{which}ticklabels": list(blocks)[:count],
    }
    axis.set(**ticks)
    axis.tick_params(axis=which, length=0, labelsize=7)
