"""Theory curve against an ensemble of students: ``python -m verify.trajectories
[MODEL]``.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from theory import Flow
from theory.equations import titles
from theory.runtime import cli, plotting
from verify.checks import command, ensemble_source
from verify.checks.check import Band
from verify.checks.report import Report, Request
from verify.compare import tables
from verify.compare.curves import compare


def main(argv: list[str] | None = None) -> int:
    """Command line; a CSV file is compared with the model's flow
    (`verify.compare.tables`).
    """
    words = sys.argv[1:] if argv is None else argv
    if any(word.partition("=")[0] in ("--columns", "--rows") for word in words):
        return tables.main(argv)
    return command.main(
        "trajectories",
        "Order-parameter curves, theory against students.",
        (*ensemble_source.FLAGS, *tables.FLAGS),
        argv,
    )


STEPS = r"training step = $t/\eta$"
STYLES = ("--", "-.", ":")  # of theory, drawn over the students' wide lines
Panels = Mapping[str, Mapping[str, tuple[str, str]]]


def overlay(
    axes: Iterable[Any],
    panels: Panels,
    runs: xr.Dataset,
    curve: xr.Dataset,
    clock: str,
    theory: str = "flow",
) -> None:
    """Draw students as wide bands, and theory over them as thin lines.

    Parameters
    ----------
    axes : iterable of Axes
        One per panel.
    panels : mapping
        By label of an axis, variables with word and colour.
    runs, curve : Dataset
        Students and theory over ``t``.
    clock : str
        Label of this time.
    theory : str
        What the lines are.
    """
    for axis, (label, names) in zip(axes, panels.items(), strict=True):
        for k, (name, (word, colour)) in enumerate(names.items()):
            plotting.band(axis, runs[name], colour, f"{word}, students", width=3)
            style = STYLES[k % len(STYLES)]
            axis.plot(
                curve.t, curve[name], "k", ls=style, lw=1, label=f"{word}, {theory}"
            )
        axis.set(xlabel=clock, ylabel=label)
        plotting.below(axis)


def in_steps(data: xr.Dataset, eta: float) -> xr.Dataset:
    """The same over steps, in place of ``t``."""
    return data.assign_coords(t=data.t / eta)


def trajectories(
    predict: Callable[..., xr.Dataset],
    flow: Callable[[], Flow],
    panels: Panels,
    band: Band,
) -> Callable[[Request], Report]:
    """Make the function ``report`` of a model's ``trajectories``.

    Parameters
    ----------
    predict : callable
        ``predict(p, runs)``: curves at the students' times.
    flow : callable
        Makes the flow without steps.
    panels : mapping
        By label of an axis, variables with word and colour.
    band : Band
        What every curve is allowed to be off by.
    """

    def report(request: Request) -> Report:
        """All curves of the figure against the prediction;
        the deviation of the flow.
        """
        p, runs = ensemble_source.get(request)
        curves = predict(p, runs)
        comparison = compare(
            curves, runs, dict.fromkeys(map(str, curves.data_vars), band)
        )
        smooth = flow().solve(p, t=float(runs.t[-1]), at=runs.t.values)
        off = float(np.abs(smooth.loss.values - runs.loss.mean("seed").values).max())
        said = (
            "largest deviation of the loss from the flow, which has no step size:"
            f" {off:.4f}"
        )
        return Report(
            comparison.checks,
            [comparison.spoken(), said],
            numbers={"inside_two_sd": comparison.inside()},
            draw=lambda: draw(p, runs),
        )

    def draw(p: Any, runs: xr.Dataset) -> Any:
        """Students as bands, the flow as lines, over steps."""
        figure, axes = plotting.figure(1, len(panels), height=2.9)
        curve = flow().solve(p, t=float(runs.t[-1]))
        overlay(
            np.atleast_1d(axes),
            panels,
            in_steps(runs, p.eta),
            in_steps(curve, p.eta),
            STEPS,
        )
        plotting.plt.setp(axes, ylim=(0, None))
        plotting.headline(figure, *titles.of_runs(p, runs))
        return figure

    return report


if __name__ == "__main__":
    cli.run(main)
