"""Figure style: theory as lines, students as single lines or as median and band,
legends below the panels, colours for colour-blind readers.
"""

import functools
import os
import re
import sys
import textwrap
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from theory.call.refusal import ParameterError, error_summary
from theory.runtime import in_symbols, output

try:
    import matplotlib
    import matplotlib.pyplot as plt
    from matplotlib.transforms import ScaledTranslation
except ValueError as error:  # of MPLBACKEND, which matplotlib reads on import
    raise ParameterError(
        f"MPLBACKEND = {os.environ.get('MPLBACKEND')}: {error}"
    ) from None

FEW = 20  # largest number of seeds drawn one by one
HEADLINE_POINTS = 8  # font size
LEGEND_POINTS = 36  # distance from the axis to the legend below its labels
# inches: letters of 8 points have more than 7 in print, and fill a page of the site
WIDTH = 7.2
ACROSS = 3  # most panels side by side
LETTERS = 17  # of a legend, per inch beside its marks
_NOT_DRAWN = re.compile(r"[\\${}^_]|(?<=\\[a-zA-Z])[a-zA-Z]+")  # of a formula, roughly
# Height of the legends below each row of a figure, in inches.
_legends: weakref.WeakKeyDictionary[Any, dict[int, float]] = weakref.WeakKeyDictionary()
STYLE = Path(__file__).with_name("project.mplstyle")


def figure(
    rows: int = 1, columns: int = 1, width: float = 4.0, height: float = 2.8
) -> tuple[Any, Any]:
    """Figure and axes; sizes in inches per panel, at most so wide that the figure has
    `WIDTH`. Rows of more than three panels are continued below, in an array of the same
    shape.

    Raises
    ------
    ParameterError
        If matplotlib's backend does not load.
    """
    plt.style.use(STYLE)
    blocks = -(-columns // ACROSS)
    across = -(-columns // blocks)
    width = min(width, WIDTH / across)
    try:
        whole, axes = plt.subplots(
            rows * blocks,
            across,
            figsize=(width * across, height * rows * blocks),
            layout="constrained",
            squeeze=False,
        )
    except ImportError as error:
        raise ParameterError(
            f"MPLBACKEND = {os.environ.get('MPLBACKEND')}: {error_summary(error)}"
        ) from None
    axes = np.hstack(np.vsplit(axes, blocks))
    for axis in axes[:, columns:].flat:
        axis.remove()
    axes = axes[:, :columns]
    return whole, axes.squeeze()[()] if 1 in axes.shape else axes


def panels(
    rows: int = 1, columns: int = 1, legends: bool = True, **size: float
) -> Callable[..., Callable[..., Any]]:
    """Decorator: a function that draws into panels returns their figure.

    The axes follow its other arguments: one by one if they form one row, otherwise as
    an array. It may return the text of `headline`, alone or with what is told. With
    ``legends`` every panel gets one, see `legends_below`.
    """

    def decorate(draw: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(draw)
        def drawn(*given: Any, **named: Any) -> Any:
            whole, axes = figure(rows, columns, **size)
            said = draw(
                *given, *(np.atleast_1d(axes) if rows == 1 else [axes]), **named
            )
            if legends:
                legends_below(whole)
            if said is not None:
                headline(whole, *([said] if isinstance(said, str) else said))
            return whole

        return drawn

    return decorate


def has_display() -> bool:
    """Whether a window can be opened."""
    if not sys.stdout.isatty() and not matplotlib.is_interactive():
        return False
    return matplotlib.get_backend().lower() not in (
        "agg",
        "pdf",
        "svg",
        "ps",
        "cairo",
        "template",
    )


def deliver(fig: Any, target: str, default: str, *, stream: Any = None) -> None:
    """Show the figure in a window, or write it to ``target`` or, without a display, to
    ``default`` in the working directory.

    The path written is printed to ``stream`` (stdout by default).
    """
    if not target and has_display():
        plt.show()
        return
    path = Path(target or default)
    save(fig, path)
    print(path, file=stream)


def save(fig: Any, path: Path) -> None:
    """Write a figure atomically; the text given to `headline` becomes the description
    of a PNG.
    """
    told = fig.get_label() if path.suffix == ".png" else ""
    with output.atomic(path) as temporary:
        fig.savefig(temporary, **({"metadata": {"Description": told}} if told else {}))
    plt.close(fig)


def headline(figure: Any, text: str, told: str = "") -> None:
    """Write a title with the parameters above the panels, in symbols, broken only after
    semicolons. The figure grows by the height of the title. What is ``told`` (or the
    title) goes into the file, as a description.
    """
    figure.set_label(told or text)
    text = in_symbols.symbols(text)
    room = int(16 * figure.get_figwidth())  # characters per line at this font size
    parts = [part.replace(" ", "\N{NO-BREAK SPACE}") for part in text.split("; ")]
    lines = textwrap.wrap(
        "; ".join(parts), room, break_long_words=False, break_on_hyphens=False
    )
    figure.suptitle("\n".join(lines), fontsize=HEADLINE_POINTS)
    height = 1.2 * HEADLINE_POINTS / 72 * len(lines)  # 1.2: line spacing
    figure.set_figheight(figure.get_figheight() + height)


def first_panel(figure: Any) -> list[float]:
    """Left, upper, right and lower edge of the first panel with its title, labels and
    legend, as parts of the figure's width and height from its upper left corner.
    """
    figure.draw_without_rendering()  # places everything
    box = figure.axes[0].get_tightbbox().transformed(figure.transFigure.inverted())
    return [box.x0, 1 - box.y1, box.x1, 1 - box.y0]


def below(axis: Any, **options: Any) -> None:
    """Put the legend below the axis, clear of the data. The figure grows by the height
    of the highest legend of a row, so that panels keep their size; long entries are
    broken between words and symbols.
    """
    figure, place = axis.figure, axis.get_subplotspec()
    shift = ScaledTranslation(
        -LEGEND_POINTS / 72, -LEGEND_POINTS / 72, figure.dpi_scale_trans
    )
    handles, labels = axis.get_legend_handles_labels()
    room = int(LETTERS * (figure.get_figwidth() / place.get_gridspec().ncols - 0.8))
    legend = axis.legend(
        handles,
        [_broken(label, room) for label in labels],
        **{
            "loc": "upper left",
            "bbox_to_anchor": (0, 0),
            "bbox_transform": axis.transAxes + shift,
            "borderaxespad": 0,
            "alignment": "left",
            **options,
        },
    )
    row = place.rowspan.start
    heights = _legends.setdefault(figure, {})
    height = legend.get_window_extent().height / figure.dpi
    figure.set_figheight(
        figure.get_figheight() + max(0.0, height - heights.get(row, 0.0))
    )
    heights[row] = max(height, heights.get(row, 0.0))


def means(axis: Any, x: Any, samples: Iterable[Any], **style: Any) -> None:
    """Draw means of independent samples, one array per place, with their standard
    errors.
    """
    values = [np.asarray(s, float) for s in samples]
    errors = [v.std(ddof=1) / np.sqrt(v.size) for v in values]
    axis.errorbar(x, [v.mean() for v in values], errors, **style)


def legends_below(figure: Any) -> None:
    """Put a legend below every panel with entries that has none yet."""
    for axis in figure.axes:
        if axis.get_legend_handles_labels()[0] and axis.get_legend() is None:
            below(axis)


def _broken(label: str, room: int) -> str:
    """A label in lines of about ``room`` letters, formulas in one piece."""
    formulas = iter(re.findall(r"\$[^$]*\$", label))
    letters = re.sub(
        r"\$[^$]*\$", lambda m: "\0" * len(_NOT_DRAWN.sub("", m[0])), label
    )
    lines = textwrap.wrap(
        letters, max(room, 12), break_long_words=False, break_on_hyphens=False
    )
    return re.sub("\0+", lambda _: next(formulas), "\n".join(lines))


def errors(axis: Any, curve: xr.Dataset, name: str, colour: str | None = None) -> None:
    """Draw the error bars of a theory, where it has and claims them: the mean over
    students dotted, a standard deviation to either side as a band. In the colour of the
    last line by default.
    """
    if f"{name}_bias" not in curve:
        return
    colour, (time,) = colour or axis.lines[-1].get_color(), curve[name].dims
    mean = curve[name] + curve[f"{name}_bias"]
    spread = curve[f"{name}_sd"]
    axis.plot(
        curve[time],
        mean,
        ":",
        color=colour,
        lw=1,
        label=f"{name} on batches, mean and deviation",
    )
    axis.fill_between(
        curve[time], mean - spread, mean + spread, color=colour, alpha=0.25, lw=0
    )


def band(
    axis: Any,
    runs: xr.DataArray,
    colour: str,
    label: str | None = None,
    alpha: float = 0.25,
    width: float = 0.9,
    single: bool | None = None,
) -> None:
    """Draw an ensemble over ``seed`` and a time: one line per seed, or the median as
    dots on a thin line with the band that contains two thirds of the seeds.

    Parameters
    ----------
    axis : Axes
    runs : DataArray
        One variable, such as ``runs.A``, over seeds or drawn starts and time.
    colour : str
    label : str, optional
        Entry in the legend; what is drawn (lines or a band) is added in brackets.
    alpha : float
        Opacity of the band; lines have at least 0.4.
    width : float
        Width of single lines, in points.
    single : bool, optional
        Whether to draw each seed; by default up to `FEW` seeds.

    Raises
    ------
    ParameterError
        If the runs are not one variable over seed and time.
    """
    if (
        isinstance(runs, xr.DataArray)
        and "draw" in runs.dims
        and "seed" not in runs.dims
    ):
        runs = runs.rename(draw="seed")
    times = [d for d in getattr(runs, "dims", ()) if d != "seed"]
    if not isinstance(runs, xr.DataArray) or len(times) != 1:
        has = ", ".join(map(str, getattr(runs, "dims", ()))) or type(runs).__name__
        raise ParameterError(
            f"runs: must be one variable over seed and time, as runs.A; has {has}"
        )
    (time,) = times
    seeds = runs.sizes.get("seed", 1)
    if seeds == 1 or (seeds <= FEW if single is None else single):
        drawn = runs if "seed" in runs.dims else runs.expand_dims("seed")
        lines = axis.plot(
            runs[time],
            drawn.transpose(time, "seed"),
            color=colour,
            lw=width,
            alpha=max(alpha, 0.4),
        )
        lines[0].set_label(f"{label} (one line each)" if label and seeds > 1 else label)
        return
    low, middle, high = (runs.quantile(q, "seed") for q in (1 / 6, 1 / 2, 5 / 6))
    axis.fill_between(runs[time], low, high, color=colour, alpha=alpha, lw=0)
    axis.plot(
        runs[time],
        middle,
        color=colour,
        lw=0.8,
        marker=".",
        ms=3,
        markevery=max(1, middle.size // 30),
        label=f"{label} (median, 2/3 of them)" if label else None,
    )
