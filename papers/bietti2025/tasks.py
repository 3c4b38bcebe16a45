"""Figures of the composition of maps, and of the trigger task."""

from typing import Any

import numpy as np

from papers.source import Source
from simulate.associative_memory import gradient_steps as step_students
from simulate.associative_memory import k_hop as hop_students
from simulate.associative_memory import trigger_task as trigger_students
from simulate.training.pool import one_thread
from theory.associative_memory import k_hop
from theory.associative_memory.k_hop import product_curve
from theory.runtime import plotting
from verify.associative_memory.k_hop import learner_runs
from verify.associative_memory.trigger_task import EARLY


@plotting.panels(1, 2)
def hops(source: Source, left: Any, right: Any) -> None:
    """k hops: training time with and without curriculum, and kernel learners against
    their flow.
    """
    ks = np.arange(1, 9)
    left.semilogy(
        ks,
        [k_hop.direct_time(k_hop.Parameters(k=int(k))) for k in ks],
        "o-",
        label="all hops at once, to a product of 0.5",
    )
    left.semilogy(
        ks[2:],
        k_hop.equations()["direct_time"].evaluate(
            k_hop.Parameters().values() | {"k": ks[2:]}
        ),
        "k:",
        label=r"all at once, small $m_0$: $m_0^{2-k}/(k-2)$",
    )
    left.semilogy(
        ks,
        k_hop.curriculum_times(k_hop.Parameters(k=8)),
        "s--",
        label="curriculum, to products of 0.9",
    )
    left.semilogy(
        ks,
        [k_hop.mixture_time(k_hop.Parameters(k=int(k))) for k in ks],
        "^-.",
        label=r"mixture of $1 \dots k$ hops, to a product of 0.5",
    )
    left.set(
        xlabel="hops $k$", ylabel=r"training time $t$ of the flow, $m_0=0.1$", xticks=ks
    )
    hops_ = 4
    for runs in learner_runs(hops_, source.progress):
        k = int(runs["curriculum"])
        word = "curriculum" if k else "all at once"
        source.used(runs["p"], runs["runs"].sizes["seed"])
        measured = runs["runs"]["product"]
        end = float(measured[measured.dims[-1]][-1])
        pieces = product_curve(runs["p"], end, runs["curriculum"], "softmax")
        times, values = (np.concatenate(x) for x in zip(*pieces, strict=True))
        right.plot(times, values, f"C{k}", lw=1, label=f"{word}, flow")
        for seed in range(measured.sizes["seed"]):
            some = measured.isel(seed=seed)[6 * seed :: 12]
            right.plot(
                some[some.dims[0]],
                some,
                "os"[k],
                ms=3,
                mfc="none",
                color=f"C{k}",
                label=None if seed else f"{word}, students",
            )
    right.set(
        xlabel=r"flow time $t=\eta\,\times$ steps",
        ylabel=f"product of {hops_} overlaps",
        ylim=(0, 1.03),
    )


@plotting.panels(1, 3, legends=False)
def pointers(source: Source, *axes: Any) -> None:
    """Extension: hops 1, 2, 4, 8 learned layer by layer by attention that jumps along a
    permutation.
    """
    for axis, kind, title in zip(
        axes[:2],
        ("mixture", "last"),
        ("1, 2, 4, 8 hops together", "8 hops alone"),
        strict=True,
    ):
        p = k_hop.Pointers(hops=kind)
        runs = source.train_on_cpu(hop_students.train_pointers, p, source.few(3))
        for j in range(p.layers + 1):
            plotting.band(
                axis,
                runs.accuracy.isel(task=j),
                f"C{j}",
                f"{2**j} hops" if j else "1 hop",
            )
        axis.set(xlabel="training step", ylabel="accuracy", title=title, ylim=(0, 1.03))
        if kind == "mixture":
            for layer in range(p.layers):
                plotting.band(
                    axes[2],
                    runs.jump.isel(layer=layer),
                    f"C{layer + 1}",
                    f"layer {layer + 1}",
                )
            axes[2].set(
                xlabel="training step",
                ylabel="attention on where the pointer leads",
                title=title,
                ylim=(0, 1.03),
            )
    plotting.below(axes[0])
    plotting.below(axes[2])


# Figures of the trigger task


@plotting.panels(1, 3, legends=False)
def probes(source: Source, *axes: Any) -> None:
    """Trigger task: probes and in-context accuracy, matrices trained jointly and one
    after the other.
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
        0.55,
        color="0.6",
        lw=0.8,
        ls=":",
        label="slides: 55% with one layer, 99% with two",
    )
    axis.axhline(0.99, color="0.6", lw=0.8, ls=":")
    axis.set(xlabel="training step", ylabel="in-context accuracy", ylim=(0, 1.03))


def steps(source: Source) -> Any:
    """Three gradient steps: the weights right after each step, and accuracy along the
    way.
    """
    p = step_students.Parameters(samples=20000 if source.scale == "small" else 50000)
    with one_thread():
        good, bad = (step_students.run(p.replace(first_step=x)) for x in (1.0, 30.0))
    figure, axes = plotting.figure(1, 4, height=3.0)
    # The first position has no choice, and the last one's does not matter.
    inner = good.weights["W_1"][1:-1]
    scaled = np.pad(inner / np.abs(inner).max(1, keepdims=True), ((1, 1), (0, 0)))
    token_block = good.weights["W_O"][p.K :, p.K : p.N]
    remap_block = good.weights["W_2"][p.N :, : p.K].T
    panels = [
        (token_block, "token", "output", "1. $W_O$, token block"),
        (
            remap_block,
            "remapped token of the key",
            "trigger at the end",
            "2. $W_2$, remap block",
        ),
        (scaled, "attended position", "position", "3. $W_1$, rows scaled to 1"),
    ]
    for axis, (weight, x, y, title) in zip(axes, panels, strict=False):
        top = np.abs(weight).max()
        image = axis.imshow(
            weight,
            cmap="RdBu_r",
            vmin=-top,
            vmax=top,
            aspect="auto",
            interpolation="nearest",
        )
        axis.set(xlabel=x, ylabel=y, title=title)
        axis.grid(False)
        if len(weight) == p.K:
            axis.set_yticks(range(p.K))
        figure.colorbar(image, ax=axis, fraction=0.05, label="weight")
    axis = axes[3]
    for k, (word, out) in enumerate(
        (("small first step", good), ("30 times larger", bad))
    ):
        axis.plot(
            range(4), out.accuracy, "o-", color=f"C{k}", label=f"accuracy, {word}"
        )
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
        xlabel="gradient steps taken",
        ylabel="accuracy, attention",
        xticks=range(4),
        ylim=(0, 1.05),
    )
    plotting.below(axis)
    source.used(p, 1)
    return figure
