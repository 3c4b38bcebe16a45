"""Figures of the composition of maps: kernel learners and transformers."""

from typing import Any

import numpy as np

from papers.source import Source
from simulate.associative_memory import k_hop as hop_students
from theory.associative_memory import k_hop
from theory.associative_memory.k_hop import product_curve
from theory.runtime import plotting
from verify.associative_memory.k_hop import learner_runs


@plotting.panels(1, 2)
def hops(source: Source, left: Any, right: Any) -> None:
    """k hops: training time with and without curriculum, and kernel learners against their flow."""
    ks = np.arange(1, 9)
    left.semilogy(
        ks,
        [k_hop.direct_time(k_hop.Parameters(k=int(k))) for k in ks],
        "o-",
        label="all hops at once, to a product of 0.5",
    )
    left.semilogy(
        ks[2:],
        k_hop.equations()["direct_time"].evaluate(k_hop.Parameters().values() | {"k": ks[2:]}),
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
    left.set(xlabel="hops $k$", ylabel=r"training time $t$ of the flow, $m_0=0.1$", xticks=ks)
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
    plotting.below(left)
    plotting.below(right)


@plotting.panels(1, 3)
def pointers(source: Source, *axes: Any) -> None:
    """Extension: hops 1, 2, 4, 8 learned layer by layer by attention that jumps along a
    permutation.
    """
    for axis, kind, title in zip(
        axes[:2], ("mixture", "last"), ("1, 2, 4, 8 hops together", "8 hops alone"), strict=True
    ):
        p = k_hop.Pointers(hops=kind)
        runs = source.train_on_cpu(hop_students.train_pointers, p, source.few(3))
        for j in range(p.layers + 1):
            plotting.band(
                axis, runs.accuracy.isel(task=j), f"C{j}", f"{2**j} hops" if j else "1 hop"
            )
        axis.set(xlabel="training step", ylabel="accuracy", title=title, ylim=(0, 1.03))
        if kind == "mixture":
            for layer in range(p.layers):
                plotting.band(
                    axes[2], runs.jump.isel(layer=layer), f"C{layer + 1}", f"layer {layer + 1}"
                )
            axes[2].set(
                xlabel="training step",
                ylabel="attention on where the pointer leads",
                title=title,
                ylim=(0, 1.03),
            )
    plotting.below(axes[0])
    plotting.below(axes[2])
