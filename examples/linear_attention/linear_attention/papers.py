"""Zhang, Singh, Latham, Saxe: Training dynamics of in-context learning in linear
attention (arXiv:2501.16265): reproduced figures, and the ledger.
"""

from typing import Any

import numpy as np

from linear_attention import merged, separate
from linear_attention.laws import predicted
from linear_attention.parameters import Parameters
from linear_attention.simulate import train
from linear_attention.theory import merged_time, plateau
from papers.source import Figure, Source
from theory.runtime import in_symbols, plotting

STARTS = np.logspace(-4, -1.5, 11)


@plotting.panels(1, 2)
def losses(source: Source, *axes: Any) -> None:
    """Students of the population gradient from generic starts: one drop, or a
    staircase.
    """
    one = Parameters(begin="generic", steps=400, eval_every=2)
    stairs = Parameters(attention="separate", start=0.05, steps=10_000, eval_every=20)
    for axis, p in zip(axes, (one, stairs), strict=True):
        runs = source.train(train, p)
        lines = axis.plot(
            runs.t, runs.loss.transpose("t", "seed"), color="C0", lw=1, alpha=0.6
        )
        lines[0].set_label("one line per student")
        for m in range(p.eigenvalues.size + 1):
            words = None if m else "loss with 0, 1, ... directions learned"
            axis.axhline(
                plateau(p, m), color="0.6", lw=0.7, ls=":", zorder=0, label=words
            )
        if p.attention == "merged":
            curve = merged.flow(p.eigenvalues.size).solve(p, t=float(runs.t[-1]))
            axis.plot(
                curve.t, curve.loss, "k--", lw=1.2, label="flow of one effective head"
            )
        else:
            seed = int(runs.seed[0])
            axis.plot(
                runs.t, runs.loss.sel(seed=seed), color="C3", label=f"seed {seed}"
            )
            for n, time in enumerate(predicted(p, seed)):
                label = None if n else f"drops of seed {seed}, theory"
                axis.axvline(time, color="C3", lw=0.9, ls=":", label=label)
            axis.set_xlim(0, float(runs.t[-1]))
        axis.set(
            xlabel="$t$ = steps times step size",
            ylabel=r"loss $\mathcal{L}$",
            ylim=(0, None),
        )
        axis.set_title(f"{p.attention} key and query")


@plotting.panels(1, 1)
def contrast(source: Source, axis: Any) -> Any:
    """Time of the first drop over the size of the initial weights: logarithmic if
    merged, a power law if separate.
    """
    each = [Parameters(start=float(s)) for s in STARTS]
    t_1 = separate.equations()["t_aligned"]
    axis.loglog(
        1 / STARTS, [merged_time(p) for p in each], "o-", ms=3, label="merged, flow"
    )
    aligned = [t_1.number(p.values()) for p in each]
    axis.loglog(1 / STARTS, aligned, "s-", ms=3, label="separate, aligned head, flow")
    for n, seed in enumerate(source.seeds[:4]):
        times = [predicted(p.replace(attention="separate"), seed, 1)[0] for p in each]
        label = None if n else "separate, flow from generic starts, one line per seed"
        axis.loglog(1 / STARTS, times, color="C1", lw=0.7, alpha=0.6, label=label)
    axis.set(xlabel="1 / size of the start", ylabel="time of the first drop $t$")
    shown = (
        in_symbols.assigned(x, [getattr(each[0], x)])
        for x in ("spectrum", "N", "H", "R")
    )
    return "; ".join(shown)


DRAWN = (
    Figure(
        "losses",
        "Loss of students: one drop if merged, a staircase if separate.",
        losses,
    ),
    Figure("contrast", "Time of the first drop over the size of the start.", contrast),
)
FIGURES = {f.name: f for f in DRAWN}
