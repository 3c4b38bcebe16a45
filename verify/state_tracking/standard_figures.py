"""Figures of the stages of standard transformers."""

from collections.abc import Sequence
from typing import Any

from theory.runtime import plotting
from verify.state_tracking import standard
from verify.state_tracking import standard_ensemble as ensembles
from verify.state_tracking.standard_ensemble import Ensembles


def draw(runs: Ensembles | None = None, names: Sequence[str] = ()) -> Any:
    """Figure: order parameters by intervention over tokens seen, mean and scatter of the seeds."""
    runs = ensembles.shipped() if runs is None else runs
    names = names or ("base", standard.ROTARY, "solvable, Adam", "solvable, descent")
    figure, axes = plotting.figure(2, len(names), height=2.5)
    for column, name in zip(axes.T, names, strict=True):
        p, part = ensembles.parameters(name), runs[name]
        times, each = standard.stages(p, part), standard.thousand(p)
        for axis, curves in zip(column, CURVES, strict=True):
            for quantity, (word, colour) in curves.items():
                tokens, values = part.epoch * each, part[quantity]
                axis.plot(tokens, values.median("seed"), color=colour, label=word)
                ends = values.min("seed"), values.max("seed")
                axis.fill_between(tokens, *ends, color=colour, alpha=0.2, lw=0)
            axis.set(xlim=(0, 1.3 * each * float(times.rollout.max())))
        column[0].axhline(
            float(times.known.mean()), color="k", ls=":", lw=1, label="from state alone"
        )
        column[0].set(title=TITLES.get(name, name), ylim=(0, 1.02))
        column[1].set(xlabel="thousand predicted tokens seen")
    for row, label in zip(axes, ("share, accuracy", "overlap"), strict=True):
        for axis in row:
            axis.set_ylabel(label if axis.get_subplotspec().is_first_col() else "")
    for axis in axes[:, -1]:
        plotting.below(axis)
    return figure


def draw_one_head(runs: Ensembles | None = None) -> Any:
    """Figure: accuracy of students of one head, one panel per seed, and what attention allows."""
    runs = ensembles.shipped() if runs is None else runs
    part = runs[standard.ONE_HEAD]
    figure, axes = plotting.figure(1, part.sizes["seed"], height=1.7)
    for axis, seed in zip(axes.flat, part.seed.values, strict=True):
        for quantity, word in (("accuracy", "accuracy"), ("visible", "that attention allows")):
            line = "-" if quantity == "accuracy" else ":"
            tokens = part.epoch * standard.thousand(ensembles.parameters(standard.ONE_HEAD))
            axis.plot(tokens, part[quantity].sel(seed=seed), "k" + line, lw=1.2, label=word)
        axis.set(title=f"seed {seed}", ylim=(0, 1.02))
        axis.set(xlabel="thousand tokens", ylabel="accuracy")
    plotting.below(axes[-1])
    return figure


TITLES = {
    "base": "standard transformer",
    standard.ROTARY: "the same, rotary positions",
    "solvable, Adam": "solvable student, Adam",
    "solvable, descent": "solvable student, descent",
}
CURVES: tuple[dict[str, tuple[str, str]], ...] = (
    {
        "A": ("attention A", "C0"),
        "logic": ("logic", "C1"),
        "heuristic": ("heuristic", "C2"),
        "rollout_accuracy": ("rollout", "C3"),
    },
    {"R": ("R, own teacher", "C0"), "S": ("S, other teachers", "C1")},
)
