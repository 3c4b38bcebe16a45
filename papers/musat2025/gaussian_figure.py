"""Figure of Gaussian data: the law of fast attention over N, and its finite-D correction."""

from typing import Any

import numpy as np
import scipy.stats

from papers.source import Source
from simulate.induction_heads import train
from theory.induction_heads import gaussian as law
from theory.induction_heads import symbols
from theory.induction_heads.all_weights import descent as times
from theory.runtime import plotting
from verify.induction_heads import gaussian

SIZES = (4, 8, 16, 32, 64, 128, 256)
PACES = (2, 8, 32)  # D / N^(1/2)
LABELS = {"last": "$q = N$", "uniform": "uniform $q$"}


@plotting.panels(1, 2)
def draw(source: Source, left: Any, right: Any) -> None:
    """Scaled time of the drop at fixed D / N^(1/2) with the law; students on Gaussian data over D
    with the first order in 1/D.
    """
    over_dimensions(right, source)  # first: asks for students
    over_sizes(left)


def law_of(query: str, N: float) -> float:
    """T_drop D^2 / N^(3/2), without gamma's time after attention."""
    drop = law.equations()[f"T_drop_gaussian_{query}"].evaluate({"N": N, "D": 1})
    return float(drop - after()) / N**1.5


def after() -> float:
    """Gamma's time after attention, times D."""
    return float(law.after_attention().subs(symbols.D, 1))


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
        axis.semilogx(fine, [law_of(query, N) for N in fine], line, lw=1, label=f"law, {label}")
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
    steps = [  # first, as it may require training
        gaussian.drops(D, gaussian.SIZE, lambda p: source.train(train, p, gaussian.SEEDS))
        for D in dimensions
    ]
    limit, first = np.array([gaussian.descents(D, gaussian.SIZE) for D in dimensions]).T
    axis.semilogx(dimensions, first / limit, "k-", lw=1, label="first order in $1/D$")
    for c, batch in enumerate((*gaussian.BATCHES, None)):
        seen = [k for k, x in enumerate(steps) if batch in x]
        over = [steps[k][batch] / limit[k] for k in seen]
        axis.errorbar(
            np.array(dimensions)[seen] * (1 + 0.04 * (c - 1)),
            [x.mean() for x in over],
            [scipy.stats.sem(x) for x in over],
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
        title=rf"Gaussian data, uniform $q$, $N = {gaussian.SIZE}$; {len(gaussian.SEEDS)} seeds, $\pm$ s.e.",
        xticks=dimensions,
        xticklabels=[str(D) for D in dimensions],
    )
    axis.minorticks_off()
    plotting.below(axis)
