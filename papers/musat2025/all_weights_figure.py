"""Figure of the law of all weights: scaled emergence times, error of the law, and the leading
pseudo-parameters of a run.
"""

from typing import Any

import numpy as np
from scipy.interpolate import PchipInterpolator

from papers.source import Source
from theory.induction_heads.all_weights import descent as times
from theory.induction_heads.all_weights import law
from theory.runtime import plotting
from verify.induction_heads import flow_laws

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


@plotting.panels(2, 2)
def draw(_: Source, axes: Any) -> None:
    """Draw times over N for both queries with the law and with three pseudo-parameters only, the
    law's error, and a run's pseudo-parameters over time.
    """
    times_of = {query: [times.times(N, query) for N in SIZES] for query in LABELS}
    far = {query: [law.predicted(N, query) for N in LAW_SIZES] for query in LABELS}
    x, large = np.array(SIZES, float), np.array(LAW_SIZES, float)
    for axis, (query, label) in zip(axes[0], LABELS.items(), strict=True):
        for c, (name, letter) in enumerate(LETTERS.items()):
            axis.semilogx(
                x,
                [f[name] * np.log(N) / N**2 for f, N in zip(times_of[query], SIZES, strict=True)],
                "o",
                ms=4,
                color=f"C{c}",
                label=f"${letter}$, all weights",
            )
            scaled = [
                f[name] * np.log(N) / N**2 for f, N in zip(far[query], LAW_SIZES, strict=True)
            ]
            fine = np.geomspace(large[0], large[-1], 100)  # smooth in ln N between sizes
            law_curve = PchipInterpolator(np.log(large), scaled)(np.log(fine))
            axis.semilogx(fine, law_curve, "-", lw=1, color=f"C{c}")
        axis.plot([], [], "k-", lw=1, label="law, nothing fitted")
        alone = [flow_laws.times(N, query)["T_drop"] * np.log(N) / N**2 for N in SIZES]
        axis.semilogx(x, alone, "--", color="0.5", lw=1, label=r"$T_\mathrm{drop}$, three numbers")
        limit = 4.0 if query == "last" else 4 * float(law.uniform_integral().evalf())
        axis.axhline(
            limit, color="C2", lw=0.8, ls=":", label=rf"limit {limit:.4g} of $T_\mathrm{{drop}}$"
        )
        axis.set(
            xlabel="item-label pairs $N$",
            ylabel=r"time $\times \ln N / N^2$",
            title=f"strict mask, {label}",
            ylim=(0, 9 if query == "last" else 5),
        )
        plotting.below(axis, ncols=2)
    left, right = axes[1]
    known = {N: {query: times_of[query][SIZES.index(N)] for query in LABELS} for N in SIZES}
    for query, marker in zip(LABELS, "os", strict=True):
        predicted = [law.predicted(N, query) for N in SIZES]
        for c, (name, letter) in enumerate(LETTERS.items()):
            error = [
                abs(p[name] / known[N][query][name] - 1)
                for p, N in zip(predicted, SIZES, strict=True)
            ]
            left.loglog(
                x,
                error,
                f"{marker}-",
                ms=4,
                lw=0.8,
                color=f"C{c}",
                mfc="none" if query == "uniform" else None,
                label=f"${letter}$, {LABELS[query]}",
            )
    left.loglog(x, np.log(x) / x, "k--", lw=0.8, label=r"$\ln N / N$")
    left.set(
        xlabel="item-label pairs $N$",
        ylabel="relative error of the law",
        title="five numbers against all weights",
    )
    plotting.below(left, ncols=2)
    curve = times.curve(PATH_SIZE, "last")
    drop = known[PATH_SIZE]["last"]["T_drop"]
    curve = curve.sel(t=curve.t < drop)
    for c, (name, letter) in enumerate(SHOWN.items()):
        mark = {"marker": "osD^vP"[c], "ms": 4, "markevery": 0.15}
        right.semilogx(drop - curve.t, curve[name], color=f"C{c}", label=f"${letter}$", **mark)
    right.semilogx(drop - curve.t, curve.loss, "k", lw=1, label="loss")
    right.axhline(0.5, color="0.7", lw=0.8, label="level 1/2")
    right.set(
        xlabel=r"time left, $T_\mathrm{drop} - t$",
        ylabel="pseudo-parameter, loss",
        title=f"$q = N = {PATH_SIZE}$, strict mask",
        xlim=(drop, 0.1),
        ylim=(-2.2, 8.5),
    )
    plotting.below(right, ncols=2)
