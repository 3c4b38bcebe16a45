"""Figures for the plots of the slides, and for the results derived here."""

import itertools
from functools import partial
from typing import Any

import numpy as np

from papers.bietti2025.tasks import hops, layers, pointers, probes, steps
from papers.source import Figure, Source
from simulate.associative_memory import factual_recall as recall_students
from simulate.associative_memory import noisy_bigram as bigram_students
from simulate.associative_memory import superposition as memories
from simulate.associative_memory.noisy_bigram import CUTS
from simulate.training.pool import one_thread
from theory.associative_memory import (
    factual_recall,
    gradient_memory,
    noisy_bigram,
    superposition,
)
from theory.runtime import plotting
from verify.associative_memory import factual_recall as recall_checks
from verify.trajectories import STEPS, in_steps, overlay


@plotting.panels(1, 3, height=2.9, legends=False)
def recall(source: Source, *axes: Any) -> None:
    """Factual recall: loss, its two parts, and attention and value gains, students
    against the flow.
    """
    p = factual_recall.Parameters()
    runs = source.train_on_cpu(recall_students.train, p, source.few(4))
    curve = factual_recall.flow().solve(p, t=float(runs.t[-1]))
    for value, style, text in (
        (np.log(p.answers), "--", r"$\ln(RD)$: nothing known"),
        (np.log(p.D), ":", r"$\ln D$: relation known, subject ignored"),
    ):
        axes[0].axhline(value, color="0.6", ls=style, lw=0.8, zorder=0, label=text)
    relation, subject = ("relation", "C0"), ("subject", "C1")
    panels = {
        "cross-entropy [nats]": {"loss": ("loss", "C0")},
        "part of the loss [nats]": {"loss_relation": relation, "loss_subject": subject},
        "attention weight $w_r$, $w_s$": {"w_r": relation, "w_s": subject},
    }
    overlay(axes, panels, in_steps(runs, p.eta), in_steps(curve, p.eta), STEPS)
    plotting.plt.setp(axes, ylim=(0, None))


def plateau(source: Source) -> Any:
    """Length of the plateau over epsilon, S, R and D."""
    return recall_checks.draw(recall_checks.scaling(progress=source.progress)[2])


@plotting.panels(1, 2)
def one_step(source: Source, left: Any, right: Any) -> None:
    """Margin and loss along descent from zero: linear, then logarithmic."""
    for k, N in enumerate((8, 32, 128)):
        p = gradient_memory.Parameters(N=N, K=N)
        t = np.logspace(-1, 6, 400)
        m = gradient_memory.margin(p, t)
        half = float(gradient_memory.equations()["half_loss_time"].evaluate(p.values()))
        left.loglog(t, m, color=f"C{k}", label=f"$N=K={N}$")
        left.loglog(t, t / N, color=f"C{k}", ls=":", lw=1)
        loss = gradient_memory.equations()["margin_loss"].evaluate(
            p.values() | {"m": m}
        )
        right.semilogx(t, loss / np.log(N), color=f"C{k}")
        right.plot(
            half,
            0.5,
            "o",
            color=f"C{k}",
            label=rf"$N=K={N}$: half the loss at $t={half:.0f}$",
        )
    left.plot([], [], ":", color="0.3", label="$t/N$: one step")
    left.set(
        xlabel=r"flow time $t=\eta\,\times$ steps", ylabel="margin $m$", ylim=(1e-3, 50)
    )
    right.set(
        xlabel=r"flow time $t=\eta\,\times$ steps",
        ylabel=r"loss / $\ln K$",
        ylim=(0, 1.05),
    )


def _keys_of_mlp(d: int, width: int, outputs: int | None) -> Any:
    """Number of keys that a trained MLP holds; outputs grow with them unless given."""
    train = partial(memories.train_mlp, d=d, width=width, seed=0, outputs=outputs)
    most = (4 if outputs else 1) * width * d
    return memories.capacity(train, outputs or d // 2, most, 0.05)


@plotting.panels(1, 2, height=3.4)
def capacity(source: Source, left: Any, right: Any) -> Any:
    """Recall of Hebbian memories over N/d^2, and the number of keys that trained
    memories hold.
    """
    for k, d in enumerate((32, 64, 128)):
        sizes = np.unique(np.geomspace(d / 2, min(d * d / 4, 4096), 9).astype(int))
        measured = []
        for N in map(int, sizes):
            p = superposition.Parameters(d=d, N=N, draws=max(4, 4096 // N))
            measured.append(memories.recall(p)["accuracy"])
        style = {"fmt": "o", "ms": 4, "color": f"C{k}"}
        plotting.means(left, sizes / d**2, measured, label=f"$d={d}$, Hebbian", **style)
        fine = np.geomspace(sizes[0], sizes[-1], 60)
        left.plot(
            fine / d**2,
            [superposition.sphere_recall(n, d) for n in fine],
            color=f"C{k}",
        )
        left.plot(
            fine / d**2,
            [superposition.gaussian_recall(n, d) for n in fine],
            color=f"C{k}",
            ls=":",
        )
    left.plot([], [], "k-", label="sphere-tail formula")
    left.plot([], [], "k:", label="Gaussian formula")
    left.set(
        xscale="log", xlabel="load $N/d^2$", ylabel="recall accuracy", ylim=(0, 1.03)
    )
    dims = (8, 16, 32) if source.scale == "small" else (8, 16, 32, 64, 128)
    widths = [(d, a * d) for d, a in itertools.product((16, 32), (1, 2, 4, 8))]
    if source.scale == "small":
        widths = [(16, 16), (16, 32)]
    with one_thread():
        linear = []
        for d in dims:
            train = partial(memories.train_linear, d=d, seed=0)
            linear.append(memories.capacity(train, d, d * d // 2, 0.05))
        mlp = [_keys_of_mlp(d, width, None) for d, width in widths]
        fixed = [_keys_of_mlp(d, width, 32) for d, width in widths]
    n = np.geomspace(8, 2000, 50)
    sizes_of_mlp = [d * width for d, width in widths]
    right.loglog(n, 1.3 * n * np.log(n), "C0-", lw=1, label=r"guide $1.3\,N\ln N$")
    right.loglog(linear, np.square(dims), "C0o", label="matrix, $d^2$")
    right.loglog(n, 0.35 * n * np.log(n), "C1--", lw=1, label=r"guide $0.35\,N\ln N$")
    right.loglog(mlp, sizes_of_mlp, "C1s", label="MLP, $md$")
    right.loglog(n, 1.2 * n, "C2:", label=r"guide $1.2\,N$")
    right.loglog(fixed, sizes_of_mlp, "C2^", label="MLP, 32 outputs, $md$")
    right.set(
        xlabel="keys stored at accuracy 0.99, $N$", ylabel="parameters", ylim=(40, 2e4)
    )
    return (
        "Hebbian: mean and standard error over 4 to 256 draws; trained: seed 0, by"
        " bisection to 5%"
    )


@plotting.panels(1, 2)
def samples(source: Source, left: Any, right: Any) -> Any:
    """Noisy bigrams: samples that each path needs, over n and over n/N."""
    base = noisy_bigram.Parameters(draws=400)
    sizes = (2, 4, 8, 12, 16, 24, 32)
    ratios = np.geomspace(0.125, 16, 8)
    for k, N in enumerate((16, 64, 256)):
        few = [base.replace(N=N, n=n) for n in sizes]
        many = [
            base.replace(N=N, n=int(r * N), draws=max(10, 4000 // N)) for r in ratios
        ]
        for axis, settings, path, per, seeds in (
            (left, few, "feed_forward", 1, sizes),
            (right, many, "value", N, [k] * len(many)),
        ):
            made = [
                bigram_students.one_step(p, seed=seed)[path]
                for p, seed in zip(settings, seeds, strict=True)
            ]
            plotting.means(
                axis,
                [p.n / per for p in settings],
                made,
                fmt="o^s"[k],
                color=f"C{k}",
                mfc="none",
                capsize=2,
                label=f"$N={N}$, one step: mean and standard error",
            )
        n = np.arange(2, 33)
        left.plot(
            n,
            noisy_bigram.feed_forward_success(base.replace(N=N), n=n),
            color=f"C{k}",
            lw=1,
        )
        n = np.unique(np.geomspace(N / 8, 16 * N, 60).astype(int))
        right.plot(
            n / N,
            noisy_bigram.value_recovered(base.replace(N=N), n=n),
            color=f"C{k}",
            lw=1,
        )
    fine = np.geomspace(0.125, 16, 80)
    law = noisy_bigram.equations()["value_recovered"]
    labels = {"lambda_labels": fine * (1 - base.a), "T": base.T}
    right.plot(fine, law.evaluate(labels), "k--", label=r"theory, $N\to\infty$")
    n = np.arange(2, 33)
    fails = noisy_bigram.equations()["bigram_fail"].evaluate(
        {"a_noise": base.a, "n_samples": n}
    )
    left.plot(n, 1 - fails, "k--", label=r"theory, $N\to\infty$")
    left.set(xlabel="samples $n$", ylabel="noise token on top", ylim=(0, 1.03))
    left.set_title("feed-forward path")
    right.set(
        xscale="log",
        xlabel="samples per token $n/N$",
        ylabel="part recovered",
        ylim=(0, 1.03),
    )
    right.set_title("value memory")
    for axis in (left, right):
        axis.plot([], [], "0.3", lw=1, label="theory at that $N$")
    return f"$T={base.T}$; $a={base.a}$; {base.draws} draws (left), 250 to 15 (right)"


@plotting.panels(1, 2)
def ablation(source: Source, left: Any, right: Any) -> None:
    """Both paths trained on noisy bigrams; then the feed-forward path is removed in
    part.
    """
    p = noisy_bigram.Parameters.ablation()
    runs = source.train_on_cpu(bigram_students.train, p, source.few(2))
    learner = bigram_students.Learner(p, 0)
    with one_thread():
        for number in range(p.steps):
            learner.step(number)
    for k, (name, word) in enumerate(
        (
            ("p_noise", "probability of the noise token"),
            ("attention", "attention on the answer"),
            (
                "in_context_ablated",
                "clean answer predicted,\nwithout feed-forward path",
            ),
        )
    ):
        plotting.band(left, runs[name], f"C{k}", word)
    left.axhline(p.a, color="0.6", lw=0.8, ls=":", label="share of noise labels $a$")
    left.set(
        xlabel="training step",
        ylabel="probability, share",
        ylim=(0, 1.03),
        xlim=(0, 1200),
    )
    predictions = np.array([learner.predictions(keep) for keep in CUTS])
    right.plot(
        CUTS, predictions[:, 1], "o-", label="noise token (distributional), seed 0"
    )
    right.plot(CUTS, predictions[:, 0], "s--", label="answer in the context, seed 0")
    right.set(
        xlabel="part of the feed-forward path kept",
        ylabel="share of predictions",
        ylim=(-0.02, 1.03),
        xlim=(1.03, -0.03),
    )


FIGURES: dict[str, Figure] = {
    f.name: f
    for f in (
        Figure(
            "recall",
            "Factual recall, reference run: students and the exact flow.",
            recall,
        ),
        Figure(
            "plateau",
            "Length of the plateau over initial weight, subjects, relations and"
            " answers.",
            plateau,
        ),
        Figure(
            "one_step",
            "Descent from zero on orthonormal embeddings: margin by the Lambert"
            " function, and loss.",
            one_step,
        ),
        Figure(
            "capacity",
            "Hebbian recall over the load, and capacities of trained memories with the"
            " authors' guide lines.",
            capacity,
        ),
        Figure(
            "probes",
            "Memory recall probes of the trigger task, matrices trained jointly and in"
            " stages.",
            probes,
        ),
        Figure(
            "layers",
            "In-context accuracy of one and two layers on the shipped bigram table.",
            layers,
        ),
        Figure(
            "steps",
            "Three gradient steps: weights after each, accuracy, and the trap of a"
            " large first step.",
            steps,
        ),
        Figure(
            "samples",
            "Noisy bigrams: samples needed by the feed-forward path and by the value"
            " memory.",
            samples,
        ),
        Figure(
            "ablation",
            "Noisy bigrams with both paths: training, and removal of the feed-forward"
            " path.",
            ablation,
        ),
        Figure(
            "pointers",
            "Extension, setting of ours: hops learned layer by layer; layer 3 avoids"
            " its target and is read with a minus sign.",
            pointers,
        ),
        Figure(
            "hops",
            "k hops: training times of the flow, and kernel learners against the flow"
            " of their overlaps.",
            hops,
            "Learners of all four hops at once reach a product of 0.5 up to 1.2% late,"
            " those of the curriculum 0.9 within 0.3%.",
        ),
    )
}
