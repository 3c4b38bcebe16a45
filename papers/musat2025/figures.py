"""Every figure of the paper except the schematics: required setting and drawing."""

from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from papers.musat2025 import laws
from papers.musat2025.weights_figures import (
    STANDARD,
    THREE,
    interpretation,
    standard_runs,
    weights,
)
from papers.source import Figure, Source
from simulate.induction_heads import train
from theory import induction_heads as ih
from theory.induction_heads import Parameters, dynamics, emergence, onset
from theory.induction_heads.symbols import N as N_symbol
from theory.runtime import plotting
from verify.compare.emergence import first_crossing
from verify.induction_heads import pictures, timescales

STEPS = "training step"
# Apps. C and D train in minutes on a CPU at the printed sizes; both scales use these.
ABLATION = {"4": (16, 32), "15": (32, 16), "16": (8, 32)}  # N, D
ABLATION_SEEDS = 2
EMERGENCE = {"small": (2, 4, 6, 8, 12, 16, 24), "paper": (2, 4, 8, 16, 32, 64, 128)}
RATE = 100 / 256  # step in t in App. F: rate 100, mean over D = 256
THRESHOLD = 0.1  # threshold of alpha and beta in Fig. 5; 1/2 for gamma
UNIFORM_SIZES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
DROP_SIZES = (4, 8, 16, 32, 64, 256, 1024, 10**4, 10**5, 10**6, 10**7)


def pseudo_panel(axis: Any, runs: xr.Dataset) -> None:
    """All pseudo-parameters: the three in colour, the others grey, mean over seeds and
    band.
    """
    others = [str(n) for n in runs.parameter.values if str(n) not in THREE]
    for k, name in enumerate(others):
        axis.plot(
            runs.step,
            runs.pseudo.sel(parameter=name).mean("seed"),
            color="0.6",
            lw=0.7,
            label="the other 16, means" if k == 0 else None,
        )
    for k, (name, letter) in enumerate(THREE.items()):
        values = runs.pseudo.sel(parameter=name).swap_dims(t="step")
        plotting.band(axis, values, f"C{k}", f"${letter}$")
    axis.set(xlabel=STEPS, ylabel="pseudo-parameter", xlim=(0, int(runs.step[-1])))


@plotting.panels(2, 2, height=2.8, legends=False)
def ablation(name: str, source: Source, axes: Any) -> None:
    """Figs. 4, 15, 16: 19 pseudo-parameters and loss, all weights (top) and three
    directions only (bottom).
    """
    N, D = ABLATION[name]
    base = pictures.ablation((N, D))
    for row, (trained, label) in enumerate(
        (("all", "all weights"), ("projected", "three directions only"))
    ):
        runs = source.train(
            train, base.replace(trained=trained), source.seeds[:ABLATION_SEEDS]
        )
        pseudo_panel(axes[row, 0], runs)
        axes[row, 0].set_title(label)
        plotting.band(axes[row, 1], runs.loss.swap_dims(t="step"), "C3", "loss")
        drop = first_crossing(-runs.loss, -0.5).values
        head = np.max(
            np.stack(
                [
                    first_crossing(runs[x], 0.5).values
                    for x in ("alpha", "beta", "gamma")
                ]
            ),
            0,
        )
        for values, colour, text in (
            (head, "0.5", "all three $\\geq 1/2$, mean time"),
            (drop, "k", "loss $< 1/2$, mean time"),
        ):
            if np.isfinite(values).any():
                axes[row, 1].axvline(
                    np.nanmean(values) / base.time_per_step,
                    color=colour,
                    ls="--",
                    lw=1,
                    label=text,
                )
        axes[row, 1].set(
            xlabel=STEPS,
            ylabel="loss / loss of predicting zero",
            ylim=(0, 1.1),
            xlim=(0, base.steps),
        )
        plotting.below(axes[row, 1])
    plotting.below(axes[0, 0])


def emergence_runs(source: Source, N: int) -> dict[str, float]:
    """Times of the constrained network at Fig. 5's rate: thresholds 0.1 and 1/2 for
    alpha and beta, 1/2 for gamma.
    """
    last = emergence.Path(N).of_alpha() if N > 1 else 10.0
    p = Parameters.emergence().replace(
        N=N, steps=int(1.1 * last / RATE) + 5, eval_every=1
    )
    if source.scale == "small":  # the loss does not depend on D >= 2N nor on the draw
        p = p.replace(D=2 * N, eta=RATE * 2 * N, batch_size=1)
    runs = source.train(partial(train, dtype="float64"), p, source.seeds[:1])
    levels = {
        "T_gamma": ("gamma", 0.5),
        "T_beta": ("beta", THRESHOLD),
        "T_alpha": ("alpha", THRESHOLD),
        "t_ICL": ("alpha", 0.5),
    }
    return {
        name: float(first_crossing(runs[x], level).values[0])
        for name, (x, level) in levels.items()
    }


@plotting.panels(1, 2)
def emergence_times(source: Source, left: Any, right: Any) -> None:
    """Fig. 5: emergence times of the constrained network over N; t_ICL with its
    expansion.
    """
    sizes = np.array(EMERGENCE[source.scale])
    runs = {int(N): emergence_runs(source, int(N)) for N in sizes}
    smooth = np.unique(np.linspace(sizes[0], sizes[-1], 16).astype(int))
    paths = [emergence.Path(int(N)) for N in smooth]
    flow = {
        "T_alpha": [path.of_alpha(THRESHOLD) for path in paths],
        "T_beta": [path.of_beta(THRESHOLD) for path in paths],
        "T_gamma": [path.of_gamma() for path in paths],
    }
    labels = {
        "T_alpha": r"$\alpha_3 \geq 0.1$",
        "T_beta": r"$\beta_2 \geq 0.1$",
        "T_gamma": r"$\gamma_3 \geq 0.5$",
    }
    for k, (name, label) in enumerate(labels.items()):
        left.plot(
            sizes,
            [runs[int(N)][name] for N in sizes],
            "o",
            color=f"C{k}",
            ms=5,
            label=f"{label}, network",
        )
        left.plot(smooth, flow[name], "-", color=f"C{k}", lw=1)
    left.plot([], [], "k-", lw=1, label="three-parameter flow")
    left.set(xlabel="item-label pairs $N$", ylabel="emergence time $t$", ylim=(0, None))
    expansion = ih.equations()["T_alpha"]
    fine = np.geomspace(sizes[0], sizes[-1], 100)
    right.loglog(
        sizes,
        [runs[int(N)]["t_ICL"] for N in sizes],
        "o",
        color="C0",
        ms=5,
        label="network, all three $\\geq 1/2$",
    )
    right.loglog(
        fine,
        expansion.evaluate({"N": fine}),
        "-",
        color="C0",
        lw=1,
        label="expansion to $O(1)$",
    )
    leading = float(expansion.rhs.expand().coeff(N_symbol, 2))
    right.loglog(
        fine, leading * fine**2, "--", color="0.4", label=rf"${leading:.4f}\,N^2$"
    )
    right.set(
        xlabel="item-label pairs $N$",
        ylabel=r"$t_{\mathrm{ICL}}$",
        xticks=sizes,
        xticklabels=[str(N) for N in sizes],
    )
    right.minorticks_off()


@plotting.panels(1, 1)
def standard_loss(source: Source, axis: Any) -> None:
    """Fig. 17: loss of the standard transformer on fresh sequences."""
    runs = standard_runs(source, ABLATION_SEEDS)
    plotting.band(axis, runs.loss, "C0", "students")
    axis.axhline(
        np.log(STANDARD[source.scale].pairs * 2),
        color="0.5",
        ls="--",
        lw=1,
        label="guessing among the tokens of the context",
    )
    axis.set(
        xlabel=STEPS,
        ylabel="negative log-likelihood (nats)",
        xlim=(0, int(runs.step[-1])),
        ylim=(0, None),
    )


def onset_curves(source: Source) -> Any:
    """Ours: the flow and its slow manifold over the time left before the drop, and the
    loss around the drop.
    """
    return onset(Parameters.emergence(N=64)).draw()


@plotting.panels(1, 2)
def uniform(source: Source, left: Any, right: Any) -> None:
    """Ours: averaging over the queried pair accelerates emergence by ln N; the time of
    the drop against its formula.
    """
    sizes = np.array(UNIFORM_SIZES)
    averaged = [dynamics.times(int(N)) for N in sizes]
    alone = [emergence.times(int(N)) for N in sizes]
    letters = {
        "T_alpha": r"T_\alpha",
        "T_beta": r"T_\beta",
        "T_drop": r"T_\mathrm{drop}",
    }
    for k, (name, letter) in enumerate(letters.items()):
        last = np.array([x[name] for x in alone]) / sizes**2
        label = f"${letter} / N^2$, $q = N$"
        left.semilogx(sizes, last, "--", color=f"C{k}", label=label)
        uniform_times = np.array([x[name] for x in averaged])
        scaled = uniform_times * np.log(sizes) / sizes**2
        label = f"${letter} \\ln N / N^2$, uniform $q$"
        left.semilogx(sizes, scaled, "o-", ms=4, color=f"C{k}", label=label)
    left.set(
        xlabel="item-label pairs $N$", ylabel="scaled emergence time", ylim=(0, 4.2)
    )
    plotting.below(left, ncols=2)
    large = np.array(DROP_SIZES, float)
    measured = np.array([emergence.Path(int(N)).of_loss() for N in large])
    predicted = np.array([ih.drop.drop_time(N) for N in large])
    square = np.sqrt(2 * np.pi) * large**2
    right.semilogx(
        large, (measured - square) / large, "o", ms=5, color="C0", label="flow"
    )
    right.semilogx(
        large,
        (predicted - square) / large,
        "-",
        color="C0",
        lw=1,
        label="matched expansion",
    )
    right.set(
        xlabel="item-label pairs $N$",
        ylabel=r"$(T_\mathrm{drop} - \sqrt{2\pi}\,N^2)\,/\,N$",
    )


def all_weights(source: Source) -> Any:
    """Ours: emergence times when all weights move, seeds and population, against the
    three-parameter flow.
    """
    _, _, sweeps = timescales.all_weights(
        device=source.device, progress=source.progress
    )
    return timescales.draw(sweeps)


def _structure_figures() -> list[Figure]:
    figures: list[Figure] = []
    for N, steps in pictures.STRUCTURE.items():
        for step in steps:
            caption = f"Weights after {step} steps, D = 16, N = {N}."
            draw = partial(weights, N=N, step=step)
            figures.append(Figure(str(6 + len(figures)), caption, draw))
    return figures


FIGURES = {
    f.name: f
    for f in (
        Figure(
            "2",
            "A standard attention-only transformer in the basis of its embeddings.",
            interpretation,
        ),
        Figure(
            "3",
            "Weights of the disentangled transformer at the end of training (N = 4, D ="
            " 16, step 400).",
            partial(weights, N=4, step=400),
        ),
        Figure(
            "4",
            "Pseudo-parameters and loss, all weights and three directions only; N = 16,"
            " D = 32.",
            partial(ablation, "4"),
        ),
        Figure(
            "5",
            "Emergence times of the constrained network against the flow and its"
            " expansion.",
            emergence_times,
        ),
        *_structure_figures(),
        Figure("15", "As Fig. 4 for N = 32, D = 16.", partial(ablation, "15")),
        Figure("16", "As Fig. 4 for N = 8, D = 32.", partial(ablation, "16")),
        Figure(
            "17",
            "Loss of the standard transformer; every batch is new, so training loss is"
            " test loss.",
            standard_loss,
        ),
        Figure(
            "onset",
            "The three-parameter flow with its slow manifold, and the loss around the"
            " drop.",
            onset_curves,
        ),
        Figure(
            "uniform",
            "Uniform query (left) and the time of the drop (right) against the derived"
            " laws.",
            uniform,
        ),
        Figure("all_weights", "Emergence times when all weights move.", all_weights),
        Figure(
            "law",
            "Emergence times of the flow of all weights against their law.",
            laws.all_weights_law,
        ),
        Figure(
            "gaussian",
            "The drop on Gaussian data: law over N, and students over D.",
            laws.gaussian_law,
        ),
    )
}
