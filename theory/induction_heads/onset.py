"""When the induction head emerges (Definitions 1-3, Theorem 2): times, curves and
figure; curves of a training run.
"""

import math
from typing import Any

import numpy as np
import sympy as sp
import xarray as xr

from theory import Equation, Onset, of_onset, until
from theory.call import scope
from theory.dynamics import prediction
from theory.induction_heads import drop, dynamics, emergence, expansions
from theory.induction_heads.all_weights import burst, descent, scores
from theory.induction_heads.all_weights.running import NAMES
from theory.induction_heads.network import SHORT
from theory.induction_heads.parameters import (
    ALL,
    DESCENT,
    EMERGENCE,
    PROJECTED,
    Parameters,
)
from theory.induction_heads.structure import HEAD

# Emergence times for Parameters, and predicted curves of a training run


@scope.pointwise(ALL)
def all_weights_times(p: Parameters) -> dict[str, float]:
    """Emergence times with all weights trained, for the data, query and mask of ``p``.

    Exact for orthonormal data. On Gaussian data to leading order in 1/D, i.e. without
    fluctuations of inner products. Times in ``t``, keys as in
    `all_weights.descent.times`; infinite if not reached before the drop.
    """
    speed, pace = descent.rates(p.data, p.dimension)
    times = descent.times(p.N, p.query, p.mask, right=p.B, speed=speed)
    return {name: value / pace for name, value in times.items()}


@until("t")
@scope.pointwise(DESCENT)
def predict(
    p: Parameters, runs: xr.Dataset | None = None, *, until: float | None = None
) -> xr.Dataset:
    """Predict a training run: population gradient descent of all weights with the
    students' step, starting from zero for every seed.

    Parameters
    ----------
    p : Parameters
        Parameters of the training run.
    runs : Dataset, optional
        Students over ``(seed, t)``; the curve is evaluated at their times.
    until : float, optional
        Length of the curve without runs, in ``t`` (also ``t=``); ``p.steps`` by
        default.

    Returns
    -------
    Dataset
        ``alpha``, ``beta``, ``gamma`` and ``loss`` over ``t`` (unit-rate flow on the
        summed loss).

    Raises
    ------
    ParameterError
        If the closed flow does not apply (data not orthonormal, every pair queried in
        turn, fewer weights), or if the runs were trained with other parameters.
    """
    steps, clock = prediction.clock(p, runs, until)
    of = descent.loss_of(p.N, p.query, p.mask, p.B)

    def follow() -> xr.Dataset:
        last = int(steps[-1])
        path = descent.euler(p.N, p.query, p.mask, p.time_per_step, last, p.B)[steps]
        curves: dict[str, Any] = {}
        for short, full in HEAD.items():
            curves[short] = ("t", path[:, NAMES.index(full)])
        curves["loss"] = ("t", [of(x)[0] for x in path])
        return xr.Dataset(curves, {"t": clock, "step": ("t", steps)})

    return prediction.finite(p, follow).assign_attrs(
        kind="theory",
        reference="beyond musat2025: descent of the flow of all weights",
        status="exact",
        parameters=p.as_json(),
    )


FLOW = "flow (B.5)"
SLOW = "slow manifold"
ALL_WEIGHTS = "flow of all weights"
LABELS = {
    "N": "item-label pairs",
    "T_gamma": "time of gamma = 1/2, flow (B.5)",
    "T_beta": "time of beta = 1/2",
    "T_alpha": "time of alpha = 1/2: the induction head is there (t_ICL)",
    "T_drop": "first time of loss < 1/2",
}
SYMBOLS = {"alpha": r"\alpha", "beta": r"\beta", "gamma": r"\gamma"}
ROLES = {
    "alpha": "label to its item",
    "beta": "query to the label of its item",
    "gamma": "written out",
}


@until("t")
@scope.pointwise(EMERGENCE)
def onset(p: Parameters, until: float | None = None) -> Onset:
    """Emergence times and curves for the trained parameters: three pseudo-parameters,
    or all weights.

    Parameters
    ----------
    p : Parameters
        Trained weights, data and query.
    until : float, optional
        Length of the curves in ``t`` (also ``t=``); by default 1.25 times the latest
        emergence (for all weights they end at the drop).

    Returns
    -------
    Onset
        With numbers ``N``, ``T_gamma``, ``T_beta``, ``T_alpha``, ``T_drop`` in ``t``
        (unit rate for normalised vectors, loss summed over D); infinite if never
        reached.
    """
    if p.trained in PROJECTED:
        return _three(p, until)
    return _all(p)


def _all(p: Parameters) -> Onset:
    """Onset with all weights trained."""
    times = all_weights_times(p)
    absent = dict.fromkeys(("T_gamma", "T_beta", "T_alpha"), "not before the drop")
    absent["T_drop"] = "never"
    setting = {name: getattr(p, name) for name in ("N", "data", "query", "mask")}
    notes = []
    if p.B > 1:
        setting["B"] = p.B
    if p.data == "gaussian":
        setting["D"] = p.dimension
        notes.append(
            f"Gaussian data: to leading order in 1/D, D = {p.dimension}; at N = 16, D ="
            " 32 students drop 1.6% later at eta = 1/8, 5.5% later at eta = 1"
        )

    def equations() -> list[Equation]:
        if p.B == 1:
            by_name = scores.equations() | scores.loss_equations()
        else:
            by_name = burst.equations() | burst.burst_loss_equations()
        return [*by_name.values()]

    return Onset(
        numbers={"N": float(p.N), **times},
        labels=LABELS | {"T_gamma": "time of gamma_3 = 1/2, flow of all weights"},
        absent=absent,
        notes=notes,
        curves=lambda: {ALL_WEIGHTS: _path(p)},
        equations=equations,
        plot=draw,
        setting=setting,
        times=dict.fromkeys(times, "t"),
    )


def _path(p: Parameters) -> xr.Dataset:
    """Alpha_3, beta_2, gamma_3 and the loss with all weights trained, to the drop."""
    speed, pace = descent.rates(p.data, p.dimension)
    curve = descent.curve(p.N, p.query, p.mask, right=p.B, speed=speed)
    return curve[[*SHORT, "loss"]].rename(SHORT).assign_coords(t=curve.t / pace)


def _three(p: Parameters, until: float | None) -> Onset:
    """Onset with three trained pseudo-parameters."""
    times = emergence.times(p.N)
    flow = dynamics.flow()
    half = sp.Rational(1, 2)
    crossings = {f"T_{x}": (flow, p, x - half) for x in flow.state}
    crossings["T_drop"] = (flow, p, flow.observables["loss"] - half)
    latest = max(value for value in times.values() if math.isfinite(value))
    notes = []
    if p.N == 1:
        notes.append(
            "N = 1: T_alpha never comes; a label's only predecessor is its own item, so"
            " alpha has no gradient"
        )
    elif times["T_drop"] < times["T_alpha"]:
        notes.append(f"N = {p.N}: the loss falls below 1/2 before alpha reaches 1/2")

    def equations() -> list[Equation]:
        asymptotic = expansions.equations() | drop.equations()
        return [*(dynamics.flow().equations() | asymptotic).values()]

    return Onset(
        numbers={"N": float(p.N), **times},
        labels=LABELS,
        absent={"T_alpha": "never emerges"},
        notes=notes,
        curves=lambda: curves(p.N, until or 1.25 * latest),
        equations=equations,
        plot=draw,
        setting={"N": p.N},
        times=dict.fromkeys(times, "t"),
        crossings=crossings,
    )


emergence_times = of_onset(onset)


def curves(N: int, end: float) -> dict[str, xr.Dataset]:
    """Pseudo-parameters and loss over ``t`` up to ``end``, and the slow manifold if
    there is one.
    """
    curve = emergence.Path(N).curve(end)
    if N == 1:
        return {FLOW: curve}
    beta = np.linspace(0, 1.5, 200)
    values = {"N": N, "x": 1 / (2 * N), "beta": beta}
    slow = expansions.equations()
    manifold = {
        "alpha": ("t", slow["alpha_slow"].evaluate(values)),
        "beta": ("t", beta),
        "gamma": ("t", slow["gamma_slow"].evaluate(values)),
    }
    time = slow["slow_time"].evaluate(values)
    return {FLOW: curve, SLOW: xr.Dataset(manifold, coords={"t": time})}


def draw(result: Onset, axes: Any) -> None:
    """Pseudo-parameters over the time left before the drop, and the loss around the
    drop; over time itself where the loss does not drop.
    """
    from theory.runtime import plotting  # imports matplotlib, needed for figures only

    parameters, loss = axes
    drawn = result.curves()
    drop = result.numbers["T_drop"]
    name, curve = next(iter(drawn.items()))
    drops = drop <= float(curve.t[-1])
    before = curve
    times = curve.t
    if drops:
        before = curve.sel(t=curve.t < drop)
        times = drop - before.t
    for k, short in enumerate(SYMBOLS):
        style = "osD"[k] + "-"
        role = f"${SYMBOLS[short]}$: {ROLES[short]}"
        parameters.plot(
            times, before[short], style, ms=4, markevery=0.15, color=f"C{k}", label=role
        )
    if SLOW in drawn and drops:
        slow = drawn[SLOW]
        slow = slow.sel(t=(slow.t > 5 * result.numbers["N"]) & (slow.t < drop))
        for short, label in zip(SYMBOLS, (SLOW, None, None), strict=True):
            parameters.plot(drop - slow.t, slow[short], "k--", lw=0.9, label=label)
    parameters.axhline(0.5, color="0.6", lw=0.8, label="level 1/2")
    highest = float(before[list(SYMBOLS)].to_array().max())
    parameters.set(ylabel="parameter", ylim=(0, 1.05 * highest))
    if drops:
        around = _draw_drop(loss, name, curve, drop)
        parameters.set(
            xscale="log",
            xlim=(drop, around / 100),
            xlabel=r"time left, $T_\mathrm{drop} - t$ (unit rate, summed loss)",
        )
    else:
        parameters.set(xlabel="training time $t$ (unit rate, summed loss)")
        loss.plot(curve.t, curve.loss, color="C3", label=name)
        loss.set(xlabel="training time $t$ (unit rate, summed loss)")
    loss.set(ylabel=r"loss $\mathcal{L}$", ylim=(0, 1.05 * float(curve.loss.max())))
    for axis in axes:
        plotting.below(axis)


def _draw_drop(axis: Any, name: str, curve: xr.Dataset, drop: float) -> float:
    """Draw the loss around the drop; how long before the drop the drawing begins."""
    falls = curve.t[(curve.loss < 0.95 * curve.loss[0]) & (curve.loss > 0.5)]
    around = 0.1 * drop
    if falls.size:
        around = 1.5 * (drop - float(falls[0]))
    after = min(around, max(float(curve.t[-1]) - drop, 0.05 * around))
    close = curve.sel(t=abs(curve.t - drop) < around)
    axis.plot(close.t - drop, close.loss, color="C3", label=name)
    rounded = f"{drop:.0f}" if drop >= 1000 else f"{drop:.4g}"
    label = rf"$T_\mathrm{{drop}} = {rounded}$"
    axis.plot([0], [0.5], "o", ms=5, color="C3", label=label)
    xlabel = r"time since the drop, $t - T_\mathrm{drop}$"
    axis.set(xlabel=xlabel, xlim=(-around, after))
    return around
