"""Every figure of the paper: required students and theory, and drawing."""

import functools
from typing import Any

import numpy as np
import xarray as xr

from papers.cui2024 import panels
from papers.cui2024.panels import (
    ALPHA,
    COLOURS,
    STARTS,
    Setting,
    between,
    both,
    branches,
    experiment_map,
    gap_map,
    phase_maps,
    sized,
    students,
)
from papers.source import Figure, Source
from theory.positional_semantic import baseline, curve, solve
from theory.positional_semantic.branches import thresholds
from theory.runtime import plotting
from verify.positional_semantic import thresholds as check


def gap_panel(
    axis: Any,
    runs: dict[str, xr.Dataset],
    theory: dict[str, xr.Dataset] | None,
    colour: str = "C2",
    label: str = "",
) -> None:
    """Training loss, semantic minus positional, times 10^4."""
    plotting.band(
        axis,
        1e4 * (runs["semantic"].train_loss - runs["positional"].train_loss),
        colour,
        label or "students",
    )
    if theory:
        gap = theory["semantic"].train_loss - theory["positional"].train_loss
        axis.plot(
            gap.alpha,
            1e4 * gap,
            color=colour,
            ls="--",
            label=None if label else "theory (local prox)",
        )
    axis.axhline(0, color="0.5", lw=0.6)
    axis.set(xlabel=ALPHA, ylabel=r"$\epsilon_t$, semantic $-$ positional $[10^{-4}]$")


@plotting.panels(1, 3, height=3.0)
def transition(source: Source, s: Setting, left: Any, middle: Any, right: Any) -> None:
    """Fig. 2: difference of losses, overlaps and test error over alpha."""
    p = s.p
    runs, theory = both(source, p, s.alphas), branches(p, s)
    crossings = thresholds(p.replace(order=max(12, s.theory_order)))
    gap_panel(left, runs, theory)
    for name, kind, label in (
        ("m", "positional", r"$m$"),
        ("theta", "semantic", r"$\theta$"),
    ):
        scale = 1 / p.sigma**2
        plotting.band(
            middle, scale * runs[kind][name], COLOURS[kind], rf"{label}, {kind} start"
        )
        middle.plot(
            theory[kind].alpha,
            scale * theory[kind][name],
            color=COLOURS[kind],
            ls="--",
            label=f"{label}, theory (local prox)",
        )
    middle.set(xlabel=ALPHA, ylabel=r"overlap divided by $\sigma^2$")
    for kind in STARTS:
        plotting.band(
            right, 1e3 * runs[kind].test_mse_half, COLOURS[kind], f"{kind} start"
        )
        right.plot(
            theory[kind].alpha,
            1e3 * theory[kind].test_mse_half,
            color=COLOURS[kind],
            ls="--",
            label=f"{kind} branch, theory (local prox)",
        )
    right.axhline(
        1e3 * baseline(p)["half_test"], color="C2", label="linear layer (theory)"
    )
    right.set(xlabel=ALPHA, ylabel=r"test error $E|y-f|^2/(2d)\ [10^{-3}]$")
    left.axvline(
        crossings.alpha_c,
        color="0.4",
        lw=0.8,
        label=rf"$\alpha_c = {crossings.alpha_c:.3f}$, theory",
    )
    right.axvline(
        crossings.alpha_l,
        color="0.4",
        lw=0.8,
        ls=":",
        label=rf"$\alpha_l = {crossings.alpha_l:.3f}$, theory",
    )


def scaling(source: Source, s: Setting) -> dict[int, xr.Dataset]:
    """Semantic students at alpha = 1.5 over d, raw teachers."""
    p = s.p.replace(start="semantic", teacher="gaussian")
    return {d: students(source, p.replace(d=d), [1.5]).isel(alpha=0) for d in s.sizes}


def scaling_panel(
    axis: Any, source: Source, s: Setting, names: tuple[str, ...], label: str
) -> None:
    """Every student and the means over d, with the theory's value."""
    runs = scaling(source, s)
    point = solve(
        s.p.replace(alpha=1.5, order=max(12, s.theory_order)), "semantic"
    ).summary()
    for k, name in enumerate(names):
        unit = 1e3 if name == "test_mse_half" else 1 / s.p.sigma**2
        tex = {"theta": r"\theta", "test_mse_half": "", "m": "m"}[name]
        values = unit * xr.concat(
            [r[name] for r in runs.values()], "d", coords="minimal", compat="override"
        )
        words = f"${tex}$, students" if tex else "students"
        axis.plot(s.sizes, values, ".", ms=4, alpha=0.4, color=f"C{k}")
        axis.plot(
            [], [], ".", ms=4, alpha=0.4, color=f"C{k}", label=f"{words}, one mark each"
        )
        axis.plot(
            s.sizes,
            values.mean("seed"),
            "_",
            ms=14,
            mew=2,
            color=f"C{k}",
            label=f"{words}, mean",
        )
        axis.axhline(
            unit * point[name],
            color=f"C{k}",
            ls="--",
            label=f"${tex}$, theory (local prox)" if tex else "theory (local prox)",
        )
    axis.set(
        xlabel="dimension $d$",
        ylabel=label,
        xscale="log",
        title=r"semantic start, $\alpha = 1.5$",
    )
    shown = s.sizes[:: max(1, len(s.sizes) // 5)]
    axis.set_xticks(shown, [f"{d}" for d in shown])
    axis.minorticks_off()


@plotting.panels(1, 3, height=3.1)
def phase_diagram(source: Source, s: Setting, *axes: Any) -> None:
    """Fig. 3: theta over d at alpha = 1.5, and maps of training loss and test error
    over omega and alpha.
    """
    scaling_panel(axes[0], source, s, ("theta",), r"$\theta/\sigma^2$")
    phase_maps(source, s, s.p, (axes[1], axes[2]))


@plotting.panels()
def test_scaling(source: Source, s: Setting, axis: Any) -> None:
    """Fig. 7: test error over d at alpha = 1.5."""
    scaling_panel(
        axis, source, s, ("test_mse_half",), r"test error $E|y-f|^2/(2d)\ [10^{-3}]$"
    )


@plotting.panels(1, 3, height=3.0)
def slices(source: Source, s: Setting, *axes: Any) -> None:
    """Fig. 8: difference of losses over alpha, for values of omega,
    sigma and lambda.
    """
    for axis, (name, tex, values) in zip(
        axes,
        (
            ("omega", r"\omega", (0.2, 0.3, 0.7)),
            ("sigma", r"\sigma", (0.3, 0.5, 0.7)),
            ("lam", r"\lambda", (0.1, 0.01, 0.001)),
        ),
        strict=True,
    ):
        for k, value in enumerate(values):
            p = s.p.replace(**{name: value})
            gap_panel(
                axis,
                both(source, p, s.alphas, range(s.map_seeds)),
                branches(p, s),
                f"C{k}",
                rf"${tex} = {value:g}$",
            )
        axis.plot([], [], "--", color="0.3", label="theory (local prox)")


@plotting.panels(1, 2, height=3.2)
def alternative(source: Source, s: Setting, *axes: Any) -> None:
    """Fig. 9: the maps of Fig. 3 for the alternative target."""
    phase_maps(source, s, s.p.replace(target="alternative"), tuple(axes))


EXTENSIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "correlated": ("correlated tokens, $c = 0.2$", {"correlation": 0.2}),
    "rank2": ("rank 2, 1000 steps", {"rank": 2, "polish": False, "steps": 1000}),
    "untied": ("untied keys", {"tied": False}),
    "value": ("value matrix", {"value": True}),
}


@plotting.panels(1, 2)
def extension(name: str, source: Source, s: Setting, left: Any, right: Any) -> None:
    """Figs. 10-13: an extension compared with the model of the main text."""
    title, change = EXTENSIONS[name]
    plain, changed = s.p, s.p.replace(**change)
    starts = (*STARTS, "mixed") if name == "rank2" else STARTS
    alphas = s.extension_alphas
    runs = {k: students(source, changed.replace(start=k), alphas) for k in starts}
    gap_panel(
        left,
        both(source, plain, alphas),
        branches(plain, s, alphas),
        "0.5",
        "main text",
    )
    gap_panel(left, runs, None, "C2", title)
    for kind, r in runs.items():
        plotting.band(right, 1e3 * r.test_mse_half, COLOURS[kind], f"{kind} start")
    right.set(
        xlabel=ALPHA, ylabel=r"test error $E|y-f|^2/(2d)\ [10^{-3}]$", title=title
    )
    left.plot([], [], "--", color="0.5", label="main text, theory (local prox)")


@plotting.panels(2, 2, height=3.0)
def extension_maps(source: Source, s: Setting, axes: Any) -> None:
    """Fig. 14: the map of training loss for each extension."""
    for axis, (title, change) in zip(axes.flat, EXTENSIONS.values(), strict=True):
        runs = experiment_map(source, s, s.p.replace(**change), s.extension_alphas)
        gap_map(axis, runs, title)


@plotting.panels(1, 2)
def uninformed(source: Source, s: Setting, left: Any, right: Any) -> None:
    """Fig. 15: Adam from random weights; its final loss against the two informed
    minima.
    """
    seeds = range(s.adam_seeds)
    runs = students(source, s.adam, [s.adam.alpha], seeds).isel(alpha=0)
    p = s.p.replace(d=s.adam.d, n_test=s.adam.n_test)
    both_starts = both(source, p, [s.adam.alpha], seeds)
    informed = {kind: r.isel(alpha=0) for kind, r in both_starts.items()}
    left.plot(
        runs.m,
        runs.theta / s.adam.sigma**2,
        "o",
        color="C3",
        ms=7,
        mfc="none",
        label="Adam, random start",
    )
    for kind, r in informed.items():
        left.plot(
            r.m,
            r.theta / s.p.sigma**2,
            "x",
            ms=3,
            color=COLOURS[kind],
            label=f"{kind} start",
        )
    left.set(xlabel=r"$|m|$", ylabel=r"$|\theta|/\sigma^2$")
    losses = [1e3 * r.train_loss for r in (runs, *informed.values())]
    first, last = (
        min(float(v.min()) for v in losses),
        max(float(v.max()) for v in losses),
    )
    bins = np.linspace(first, last, 25)
    for values, kind in zip(losses, ("random", *STARTS), strict=True):
        right.hist(
            values,
            bins,
            histtype="step",
            lw=4 if kind == "random" else 1.2,
            alpha=0.5 if kind == "random" else 1,
            color=COLOURS[kind],
            label="Adam, random start" if kind == "random" else f"{kind} start",
        )
    right.set(
        xlabel=r"training loss $\epsilon_t\ [10^{-3}]$",
        ylabel="runs",
        title=rf"$d = {s.adam.d}$, $\alpha = {s.adam.alpha:g}$",
    )


@plotting.panels(1, 2)
def selections(source: Source, s: Setting, *axes: Any) -> None:
    """Ours: both branches of the proximal operator against students of both starts:
    small students one by one, and the limit of large ones.
    """
    for axis, (kind, name, tex) in zip(
        axes, (("positional", "m", "m"), ("semantic", "theta", r"\theta")), strict=True
    ):
        runs = students(source, s.p.replace(start=kind), s.alphas)
        plotting.band(axis, runs[name], COLOURS[kind], f"students, $d = {s.p.d}$")
        for prox, style in (("global", "-"), ("local", "--")):
            p = s.p.replace(prox=prox, order=s.theory_order, alpha=None)
            data = curve(p, kind, between(s.alphas))
            axis.plot(
                data.alpha,
                data[name],
                "k",
                ls=style,
                lw=1.2,
                label=f"theory, {prox} prox",
            )
        p, seeds = s.limit, range(s.limit_seeds)
        options = {"device": source.device, "progress": source.progress}
        limit = check.overlaps(p, kind, name, seeds, options)
        label = (
            rf"students, $d \to \infty$ from {p.d // 2}, {p.d}, {2 * p.d}:"
            rf" {len(seeds)} seeds, with standard errors"
        )
        plotting.means(
            axis,
            limit.alpha,
            limit.transpose("alpha", "seed"),
            fmt="s",
            ms=4,
            color=COLOURS[kind],
            mec="k",
            ecolor="k",
            capsize=2,
            label=label,
        )
        axis.set(
            xlabel=ALPHA,
            ylabel=f"overlap ${tex}$",
            title=f"{kind} branch",
            ylim=(0, None),
        )


FIGURES: dict[str, Any] = {
    f.name: f
    for f in (
        Figure(
            "2",
            "Training loss gap, overlaps and test error over the sample complexity.",
            sized(transition),
        ),
        Figure(
            "3",
            "Overlap of semantic students over d; phase diagrams of training loss and"
            " test error. Orange: the semantic minimum has the lower loss, or attention"
            " the lower error than the linear layer; violet: the opposite. Dots: seeds"
            " where both starts end in one minimum.",
            sized(phase_diagram),
            "With d = 240 the mean of students is 8% below theory, whose d is"
            " infinite.",
        ),
        Figure(
            "4",
            "Histogram task: attention matrices of the positional and the semantic"
            " solution.",
            panels.frozen,
        ),
        Figure(
            "5",
            "Histogram task, positional solution: before and after unfreezing.",
            functools.partial(panels.unfrozen, "positional"),
        ),
        Figure(
            "6",
            "Histogram task, semantic solution: before and after unfreezing.",
            functools.partial(panels.unfrozen, "semantic"),
        ),
        Figure(
            "7",
            "Test error over the dimension at fixed sample complexity.",
            sized(test_scaling),
        ),
        Figure(
            "8",
            "Loss gap for other positional fractions, variances and ridge strengths.",
            sized(slices),
        ),
        Figure(
            "9",
            "Phase diagrams for the asymmetric target matrix (144), colours and marks"
            " as in Figure 3.",
            sized(alternative),
        ),
        Figure(
            "10",
            "Correlated tokens.",
            sized(functools.partial(extension, "correlated")),
        ),
        Figure(
            "11",
            "A student of rank 2, three starts.",
            sized(functools.partial(extension, "rank2")),
        ),
        Figure(
            "12",
            "Untied queries and keys.",
            sized(functools.partial(extension, "untied")),
        ),
        Figure(
            "13",
            "A trained value matrix.",
            sized(functools.partial(extension, "value")),
        ),
        Figure(
            "14",
            "Training loss, semantic minus positional, of the four extensions; marks as"
            " in Figure 3. They have no theory here.",
            sized(extension_maps),
        ),
        Figure("15", "Adam from random weights.", sized(uninformed)),
        panels.Table("table_1", "Histogram task: accuracies and distances (Table 1)."),
        Figure(
            "selections",
            "Both selections of the minimiser against students. Theory ends where its"
            " overlap vanishes; a small student may leave a branch that theory holds"
            " stable.",
            sized(selections),
            "At alpha = 0.57 theory has theta = 0.060 by the local selection and 0 by"
            " the global one, students of infinite d 0.057 with standard error 0.003.",
        ),
    )
}
