"""Figure of Gaussian data, and of the law of all weights: scaled emergence times, error
of the law, and the leading pseudo-parameters of a run.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from scipy.interpolate import PchipInterpolator

from papers.source import Source
from simulate.induction_heads import train
from theory.induction_heads import Parameters, symbols
from theory.induction_heads.all_weights import descent as times
from theory.induction_heads.all_weights import gaussian as law_of_gaussian
from theory.induction_heads.all_weights import law
from theory.runtime import plotting
from verify.induction_heads import flow_laws
from verify.induction_heads.all_weights import gaussian

SIZES = (4, 8, 16, 32, 64, 128, 256)
LAW_SIZES = (16, 64, 512, 2048, 10**4)
PATH_SIZE = 256
LETTERS = {"T_alpha": r"T_\alpha", "T_beta": r"T_\beta", "T_drop": r"T_\mathrm{drop}"}
LABELS = {"last": "$q = N$", "uniform": "uniform $q$"}
SHOWN = {
    "alpha_3": r"\alpha_3",
    "beta_2": r"\beta_2",
    "gamma_2": r"\gamma_2",
    "gamma_3": r"\gamma_3",
    "gamma_4": r"\gamma_4",
    "beta_1": r"\beta_1",
}


def columns(rows: Iterable[Mapping[str, float]]) -> dict[str, np.ndarray]:
    """Emergence times by name, over sizes."""
    rows, values = list(rows), {}
    for name in LETTERS:
        values[name] = np.array([row[name] for row in rows])
    return values


def scaled(time: Any, N: Any) -> Any:
    """A time of all weights in units of N^2 / ln N."""
    return time * np.log(N) / N**2


@plotting.panels(2, 2)
def all_weights_law(_: Source, axes: Any) -> None:
    """Draw times over N for both queries with the law and with three pseudo-parameters
    only, the law's error, and a run's pseudo-parameters over time.
    """
    x = np.array(SIZES, float)
    large = np.array(LAW_SIZES, float)
    fine = np.geomspace(large[0], large[-1], 100)  # smooth in ln N between sizes
    exact = {}
    for query in LABELS:
        exact[query] = columns(times.times(N, query) for N in SIZES)
    left, right = axes[1]
    for axis, (query, label), marker in zip(axes[0], LABELS.items(), "os", strict=True):
        by_law = columns(law.predicted(N, query) for N in SIZES)
        law_at_large = columns(law.predicted(N, query) for N in LAW_SIZES)
        hollow = "none" if query == "uniform" else None
        for c, (name, letter) in enumerate(LETTERS.items()):
            colour, measured = f"C{c}", exact[query][name]
            words = f"${letter}$, all weights"
            axis.semilogx(x, scaled(measured, x), "o", ms=4, color=colour, label=words)
            in_units = scaled(law_at_large[name], large)
            law_curve = PchipInterpolator(np.log(large), in_units)(np.log(fine))
            axis.semilogx(fine, law_curve, "-", lw=1, color=colour)
            style = {"ms": 4, "lw": 0.8, "color": colour, "mfc": hollow}
            error = abs(by_law[name] / measured - 1)
            left.loglog(x, error, f"{marker}-", label=f"${letter}$, {label}", **style)
        axis.plot([], [], "k-", lw=1, label="law, nothing fitted")
        drops = np.array([flow_laws.times(N, query)["T_drop"] for N in SIZES])
        words = r"$T_\mathrm{drop}$, three numbers"
        axis.semilogx(x, scaled(drops, x), "--", color="0.5", lw=1, label=words)
        limit = 4.0 if query == "last" else 4 * float(law.uniform_integral().evalf())
        words = rf"limit {limit:.4g} of $T_\mathrm{{drop}}$"
        axis.axhline(limit, color="C2", lw=0.8, ls=":", label=words)
        axis.set(
            xlabel="item-label pairs $N$",
            ylabel=r"time $\times \ln N / N^2$",
            title=f"strict mask, {label}",
            ylim=(0, 9 if query == "last" else 5),
        )
    left.loglog(x, np.log(x) / x, "k--", lw=0.8, label=r"$\ln N / N$")
    left.set(
        xlabel="item-label pairs $N$",
        ylabel="relative error of the law",
        title="five numbers against all weights",
    )
    drop = exact["last"]["T_drop"][SIZES.index(PATH_SIZE)]
    curve = times.curve(PATH_SIZE, "last")
    curve = curve.sel(t=curve.t < drop)
    for c, (name, letter) in enumerate(SHOWN.items()):
        mark = {"marker": "osD^vP"[c], "ms": 4, "markevery": 0.15}
        right.semilogx(
            drop - curve.t, curve[name], color=f"C{c}", label=f"${letter}$", **mark
        )
    right.semilogx(drop - curve.t, curve.loss, "k", lw=1, label="loss")
    right.axhline(0.5, color="0.7", lw=0.8, label="level 1/2")
    right.set(
        xlabel=r"time left, $T_\mathrm{drop} - t$",
        ylabel="pseudo-parameter, loss",
        title=f"$q = N = {PATH_SIZE}$, strict mask",
        xlim=(drop, 0.1),
        ylim=(-2.2, 8.5),
    )
    for axis in axes.flat:
        plotting.below(axis, ncols=2)


# Figure of Gaussian data

PACES = (2, 8, 32)  # D / N^(1/2)


@plotting.panels(1, 2)
def gaussian_law(source: Source, left: Any, right: Any) -> None:
    """Scaled time of the drop at fixed D / N^(1/2) with the law; students on Gaussian
    data over D with the first order in 1/D.
    """
    over_dimensions(right, source)  # first: asks for students
    over_sizes(left)


def law_of(query: str, N: float) -> float:
    """T_drop D^2 / N^(3/2), without gamma's time after attention."""
    drop = law_of_gaussian.equations()[f"T_drop_gaussian_{query}"].evaluate(
        {"N": N, "D": 1}
    )
    return float(drop - after()) / N**1.5


def after() -> float:
    """Gamma's time after attention, times D."""
    return float(law_of_gaussian.after_attention().subs(symbols.D, 1))


def over_sizes(axis: Any) -> None:
    """Flow of all weights at D = infinity, except for its two rates."""
    fine = np.geomspace(SIZES[0], SIZES[-1], 60)
    for query, label in LABELS.items():
        style = {"marker": "o" if query == "last" else "s", "ms": 4, "lw": 0.8}
        for c, pace in enumerate(PACES):
            scaled = []
            for N in SIZES:
                D = pace * N**0.5
                flow = times.times(N, query, speed=gaussian.speeds(D), rtol=1e-5)
                scaled.append((flow["T_drop"] - after()) * D / N**1.5)
            text = rf"$D = {pace}\sqrt{{N}}$, {label}"
            filled = {} if query == "last" else {"mfc": "none"}
            axis.semilogx(SIZES, scaled, color=f"C{c}", label=text, **style, **filled)
        line = "k-" if query == "last" else "k--"
        axis.semilogx(
            fine, [law_of(query, N) for N in fine], line, lw=1, label=f"law, {label}"
        )
    axis.set(
        xlabel="item-label pairs $N$",
        ylabel=r"$(T_\mathrm{drop} - \ln 2 / 4 D) \, D^2 / N^{3/2}$",
        title="flow of all weights, unit variance",
        ylim=(0, None),
    )
    plotting.below(axis, ncols=2)


def over_dimensions(axis: Any, source: Source) -> None:
    """Number of steps to the drop relative to orthonormal inner products."""
    dimensions = gaussian.DIMENSIONS

    def trained(p: Parameters) -> xr.Dataset:
        return source.train(train, p, gaussian.SEEDS)

    # First, as it may require training.
    steps = [gaussian.drops(D, gaussian.SIZE, trained) for D in dimensions]
    limit, first = np.array([gaussian.descents(D, gaussian.SIZE) for D in dimensions]).T
    axis.semilogx(dimensions, first / limit, "k-", lw=1, label="first order in $1/D$")
    for c, batch in enumerate((*gaussian.BATCHES, None)):
        seen = [k for k, x in enumerate(steps) if batch in x]
        ratios = [steps[k][batch] / limit[k] for k in seen]
        beside_each_other = np.array(dimensions)[seen] * (1 + 0.04 * (c - 1))
        plotting.means(
            axis,
            beside_each_other,
            ratios,
            fmt="^vo"[c],
            ms=4,
            color=f"C{c}",
            mfc=None if batch is None else "none",
            label=f"students, {gaussian.batch_in_words(batch)}",
        )
    axis.axhline(1, color="0.7", lw=0.8, label="order zero")
    axis.set(
        xlabel="dimension $D$",
        ylabel="steps to loss 1/2, over order zero",
        title=(
            rf"Gaussian data, uniform $q$, $N = {gaussian.SIZE}$;"
            rf" {len(gaussian.SEEDS)} seeds, $\pm$ s.e."
        ),
        xticks=dimensions,
        xticklabels=[str(D) for D in dimensions],
    )
    axis.minorticks_off()
