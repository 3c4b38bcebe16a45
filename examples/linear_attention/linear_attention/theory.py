"""In-context linear regression by linear attention (Zhang et al., arXiv:2501.16265): one drop if
key and query are merged, a staircase if not.
"""

from typing import Any

import numpy as np
import xarray as xr

from linear_attention import merged, separate, task
from linear_attention.parameters import DROPS, Parameters, applies
from theory import Equation, Onset, ParameterError, of_onset, scope, sweep, until
from theory.catalogue import family

__all__ = [
    "Parameters",
    "applies",
    "emergence_times",
    "equations",
    "flow",
    "flows",
    "merged",
    "onset",
    "sections",
    "separate",
]
sections, equations = family([merged, separate])
flow = merged.flow  # the headline's
flows = lambda: merged.flows() | separate.flows()  # noqa: E731
BEYOND = "start = {start:g}: lies beyond the drop of {name}; take it smaller"
SHARE = 0.75  # fraction of a drop of the loss at W_dd equal to half its final value


@until("t")
@scope.guard(DROPS)
@sweep.over_fields
def onset(p: Parameters, until: float | None = None) -> Onset:
    """Times of the drops from an aligned start, by the scalar equations at any Lambda.

    Parameters
    ----------
    p : Parameters
        Only spectrum, N and the size of the initial weights enter.
    until : float, optional
        Length of the curves (also ``t=``); 1.2 times the last drop by default.

    Returns
    -------
    Onset
        ``T_drop`` (merged; ``T_white`` in closed form where Lambda = I), ``t_1``, ... (separate) in
        time of unit-rate flow on half the loss, and the plateaus ``L_0``, ... of the loss.
    """
    logistic, t_d = merged.equations()["T_drop"], separate.equations()["t_aligned"]
    rows = [("T_drop", merged_time(p), "merged: time at which three quarters of the drop are gone")]
    if (p.eigenvalues == 1).all():
        text = "merged: the same in closed form, Lambda = I"
        rows.append(("T_white", _ahead(p, "T_white", logistic, p.values()), text))
    for n, mode in enumerate(p.modes, 1):
        text = f"separate: drop {n}, an aligned head, lambda = {mode['lambda_1']:g}"
        rows.append((f"t_{n}", last := _ahead(p, f"t_{n}", t_d, mode), text))
    for n in range(len(p.modes) + 1):
        rows.append((f"L_{n}", plateau(p, n), f"loss after {n} drops"))
    return Onset(
        {name: number for name, number, _ in rows},
        {name: text for name, _, text in rows},
        {},
        ["aligned starts of size `start`; heads from any start: heads.drops"],
        curves=lambda: curves(p, until or 1.2 * last),
        equations=lambda: [logistic, t_d, task.equations()["plateau"]],
        plot=draw,
        setting={"spectrum": p.spectrum, "N": p.N, "start": p.start},
        times={name: "t" for name, _, _ in rows if name[0] in "Tt"},
    )


emergence_times = of_onset(onset)


def _ahead(p: Parameters, name: str, law: Equation, values: dict[str, Any]) -> float:
    """Time from its formula; refused if the start lies beyond the event."""
    with np.errstate(invalid="ignore"):  # beyond the end of the drop
        time = float(law.evaluate(values))
    if not time > 0:
        raise ParameterError(BEYOND.format(start=p.start, name=name))
    return time


def plateau(p: Parameters, drops: int) -> float:
    """Loss after a number of drops."""
    return float(task.equations()["plateau"].evaluate(p.learned(drops)))


def level(p: Parameters) -> float:
    """Loss at three quarters of a drop."""
    return SHARE * plateau(p, p.eigenvalues.size) + (1 - SHARE) * plateau(p, 0)


def merged_time(p: Parameters) -> float:
    """Time at which one effective head has completed three quarters of its drop.

    Raises
    ------
    ParameterError
        If it starts beyond this point, or does not reach it.
    """
    x, flow = p.eigenvalues, merged.flow(p.eigenvalues.size)
    end = 3 * np.log(10 / p.start) / p.values()["gamma"] * (1 + x[0] / x[-1])
    events = {"drop": flow.observables["loss"] - level(p)}
    curve = flow.solve(p, at=[0], events=events, t=end)
    if float(curve.loss[0]) <= level(p):
        raise ParameterError(BEYOND.format(start=p.start, name="T_drop"))
    if np.isnan(time := float(curve["drop"])):
        raise ParameterError(f"T_drop: the loss does not drop before t = {end:g}")
    return time


def curves(p: Parameters, end: float) -> dict[str, xr.Dataset]:
    """Loss over ``t`` for both, from aligned starts."""
    one = merged.flow(p.eigenvalues.size).solve(p, t=4 * merged_time(p))
    heads = [separate.flow().solve(mode, t=end) for mode in p.modes]
    stairs = p.values()["tr_Lambda"] - sum(head.gained for head in heads)
    return {"merged": one, "separate": stairs.to_dataset(name="loss")}


def draw(result: Onset, axes: Any) -> None:
    """Single drop (left) and staircase (right)."""
    from theory.runtime import plotting  # imports matplotlib, needed for figures only

    drops = {
        "merged": ("T_drop", r"$T_{\mathrm{drop}}$: three quarters of the drop are gone"),
        "separate": ("t_", "$t_1, t_2, \\dots$: drops, one each"),
    }
    levels = "L_", "loss with 0, 1, ... directions learned"
    for axis, (name, curve) in zip(axes, result.curves().items(), strict=True):
        axis.plot(curve.t, curve.loss, color="C0", label="loss, flow from an aligned start")
        lines = (*levels, axis.axhline, "0.7", "-"), (*drops[name], axis.axvline, "C3", ":")
        for start, text, line, color, style in lines:
            values = [v for key, v in result.numbers.items() if key.startswith(start)]
            for k, value in enumerate(values):
                line(value, color=color, ls=style, lw=0.9, zorder=0, label=None if k else text)
        axis.set(xlabel="$t$ (unit rate, half the loss)", ylabel=r"loss $\mathcal{L}$")
        axis.set(ylim=(0, None), title=f"{name} key and query")
        plotting.inside(axis)
