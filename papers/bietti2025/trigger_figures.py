"""Figures of the trigger task: training, layers, three gradient steps."""

from typing import Any

import numpy as np

from papers.source import Source
from simulate.associative_memory import gradient_steps as step_students
from simulate.associative_memory import trigger_task as trigger_students
from simulate.pool import one_thread
from theory.runtime import plotting
from verify.associative_memory.trigger_task import EARLY


@plotting.panels(1, 3)
def probes(source: Source, *axes: Any) -> None:
    """Trigger task: probes and in-context accuracy, matrices trained jointly and one after the
    other.
    """
    words = {
        "probe_W_O2": "$W_O^2$ (65 tokens)",
        "probe_W_K2": "$W_K^2$ (5 triggers)",
        "probe_W_K1_early": "$W_K^1$ (positions 2-33)",
        "in_context_accuracy": "in-context accuracy",
    }
    settings = (
        ("joint", trigger_students.Parameters(), 5),
        ("staged", trigger_students.Parameters(schedule="staged"), 2),
        ("first steps: batch 512, no self-loops", EARLY, 3),
    )
    for axis, (title, p, most) in zip(axes, settings, strict=True):
        runs = source.train_on_cpu(trigger_students.train, p, source.few(most))
        for k, (name, word) in enumerate(words.items()):
            plotting.band(axis, runs[name], "k" if k == 3 else f"C{k}", word)
        axis.set(
            xlabel="training step",
            ylabel="share recalled, accuracy",
            ylim=(0, 1.03),
            title=f"{title}, {runs.sizes['seed']} seeds",
        )
    plotting.below(axes[0])


@plotting.panels()
def layers(source: Source, axis: Any) -> None:
    """Trigger task: in-context accuracy of full transformers of one and two layers."""
    for k, (word, p) in enumerate(
        (
            ("one layer", trigger_students.Parameters.one_layer()),
            ("two layers", trigger_students.Parameters.two_layers()),
        )
    ):
        runs = source.train_on_cpu(trigger_students.train, p, source.few(1))
        plotting.band(axis, runs.in_context_accuracy, f"C{k}", word)
    axis.axhline(
        0.55, color="0.6", lw=0.8, ls=":", label="slides: 55% with one layer, 99% with two"
    )
    axis.axhline(0.99, color="0.6", lw=0.8, ls=":")
    axis.set(xlabel="training step", ylabel="in-context accuracy", ylim=(0, 1.03))
    plotting.below(axis)


def steps(source: Source) -> Any:
    """Three gradient steps: the weights right after each step, and accuracy along the way."""
    p = step_students.Parameters(samples=20000 if source.scale == "small" else 50000)
    with one_thread():
        good, bad = (step_students.run(p.replace(first_step=x)) for x in (1.0, 30.0))
    figure, axes = plotting.figure(1, 4, height=3.0)
    # The first position has no choice, and the last one's does not matter.
    inner = good.weights["W_1"][1:-1]
    scaled = np.pad(inner / np.abs(inner).max(1, keepdims=True), ((1, 1), (0, 0)))
    panels = [
        (good.weights["W_O"][p.K :, p.K : p.N], "token", "output", "1. $W_O$, token block"),
        (
            good.weights["W_2"][p.N :, : p.K].T,
            "remapped token of the key",
            "trigger at the end",
            "2. $W_2$, remap block",
        ),
        (scaled, "attended position", "position", "3. $W_1$, rows scaled to 1"),
    ]
    for axis, (weight, x, y, title) in zip(axes, panels, strict=False):
        top = np.abs(weight).max()
        image = axis.imshow(
            weight, cmap="RdBu_r", vmin=-top, vmax=top, aspect="auto", interpolation="nearest"
        )
        axis.set(xlabel=x, ylabel=y, title=title)
        axis.grid(False)
        if len(weight) == p.K:
            axis.set_yticks(range(p.K))
        figure.colorbar(image, ax=axis, fraction=0.05, label="weight")
    axis = axes[3]
    for k, (word, out) in enumerate((("small first step", good), ("30 times larger", bad))):
        axis.plot(range(4), out.accuracy, "o-", color=f"C{k}", label=f"accuracy, {word}")
        axis.plot(
            range(4),
            out.attention,
            "s--",
            color=f"C{k}",
            mfc="none",
            lw=1,
            label=f"attention, {word}",
        )
    axis.set(
        xlabel="gradient steps taken", ylabel="accuracy, attention", xticks=range(4), ylim=(0, 1.05)
    )
    plotting.below(axis)
    source.used(p, 1)
    return figure
