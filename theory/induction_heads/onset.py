"""When the induction head emerges (Definitions 1-3, Theorem 2): times, curves and
figure; curves of a training run.
"""

import math
from typing import Any

import numpy as np
import sympy as sp
import xarray as xr

from theory import Onset, of_onset, until
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
        path = descent.euler(
            p.N, p.query, p.mask, p.time_per_step, int(steps[-1]), p.B
        )[steps]
        losses = [of(x)[0] for x in path]
        curves = {
            short: ("t", path[:, NAMES.index(full)]) for short, full in HEAD.items()
        }
        return xr.Dataset(
            curves | {"loss": ("t", losses)}, {"t": clock, "step": ("t", steps)}
        )

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
    return _three(p, until) if p.trained in PROJECTED else _all(p)


def _all(p: Parameters) -> Onset:
    """Onset with all weights trained."""
    times, notes = all_weights_times(p), []
    if p.data == "gaussian":
        notes.append(
            f"Gaussian data: to leading order in 1/D, D = {p.dimension}; at N = 16, D ="
            " 32 students drop 1.6% later at eta = 1/8, 5.5% later at eta = 1"
        )
    return Onset(
        numbers={"N": float(p.N), **times},
        labels=LABELS | {"T_gamma": "time of gamma_3 = 1/2, flow of all weights"},
        absent=dict.fromkeys(("T_gamma", "T_beta", "T_alpha"), "not before the drop")
        | {"T_drop": "never"},
        notes=notes,
        curves=lambda: {ALL_WEIGHTS: _path(p)},
        equations=lambda: (
            [*(scores.equations() | scores.loss_equations()).values()]
            if p.B == 1
            else [*(burst.equations() | burst.burst_loss_equations()).values()]
        ),
        plot=draw,
        setting={name: getattr(p, name) for name in ("N", "data", "query", "mask")}
        | ({"B": p.B} if p.B > 1 else {})
        | ({"D": p.dimension} if p.data == "gaussian" else {}),
        times=dict.fromkeys(times, "t"),
    )


def _path(p: Parameters) -> xr.Dataset:
    """Alpha_3, beta_2, gamma_3 and the loss with all weights trained,
    up to the drop.
    """
    speed, pace = descent.rates(p.data, p.dimension)
    curve = descent.curve(p.N, p.query, p.mask, right=p.B, speed=speed)
    return curve[[*SHORT, "loss"]].rename(SHORT).assign_coords(t=curve.t / pace)


def _three(p: Parameters, until: float | None) -> Onset:
    """Onset with three trained pseudo-parameters."""
    times, flow = emergence.times(p.N), dynamics.flow()
    notes = []
    risen = {f"T_{x}": x for x in flow.state} | {"T_drop": flow.observables["loss"]}
    if p.N == 1:
        notes.append(
            "N = 1: T_alpha never comes; a label's only predecessor is its own item, so"
            " alpha has no gradient"
        )
    elif times["T_drop"] < times["T_alpha"]:
        notes.append(f"N = {p.N}: the loss falls below 1/2 before alpha reaches 1/2")
    return Onset(
        numbers={"N": float(p.N), **times},
        labels=LABELS,
        absent={"T_alpha": "never emerges"},
        notes=notes,
        curves=lambda: curves(
            p.N, until or 1.25 * max(v for v in times.values() if math.isfinite(v))
        ),
        equations=lambda: [
            *dynamics.flow().equations().values(),
            *expansions.equations().values(),
            *drop.equations().values(),
        ],
        plot=draw,
        setting={"N": p.N},
        times=dict.fromkeys(times, "t"),
        crossings={name: (flow, p, x - sp.Rational(1, 2)) for name, x in risen.items()},
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
    slow = {
        name: (
            expansions.equations()[name].evaluate(
                {"N": N, "x": 1 / (2 * N), "beta": beta}
            )
        )
        for name in ("slow_time", "alpha_slow", "gamma_slow")
    }
    approximate = xr.Dataset(
        {
            "alpha": ("t", slow["alpha_slow"]),
            "beta": ("t", beta),
            "gamma": ("t", slow["gamma_slow"]),
        },
        coords={"t": slow["slow_time"]},
    )
    return {FLOW: curve, SLOW: approximate}


def draw(result: Onset, axes: Any) -> None:
    """Pseudo-parameters over the time left before the drop, and the loss around the
    drop; over time itself where the loss does not drop.
    """
    from theory.runtime import plotting  # imports matplotlib, needed for figures only

    left, right = axes
    drawn, drop = result.curves(), result.numbers["T_drop"]
    name, curve = next(iter(drawn.items()))
    drops = drop <= float(curve.t[-1])
    before = curve.sel(t=curve.t < drop) if drops else curve
    for k, ((short, letter), mark) in enumerate(
        zip(SYMBOLS.items(), "osD", strict=True)
    ):
        left.plot(
            drop - before.t if drops else before.t,
            before[short],
            f"{mark}-",
            ms=4,
            markevery=0.15,
            color=f"C{k}",
            label=f"${letter}$: {ROLES[short]}",
        )
    if SLOW in drawn and drops:
        slow = drawn[SLOW]
        slow = slow.sel(t=(slow.t > 5 * result.numbers["N"]) & (slow.t < drop))
        for k, short in enumerate(SYMBOLS):
            left.plot(
                drop - slow.t, slow[short], "k--", lw=0.9, label=None if k else SLOW
            )
    left.axhline(0.5, color="0.6", lw=0.8, label="level 1/2")
    left.set(
        ylabel="parameter",
        ylim=(0, 1.05 * float(before[list(SYMBOLS)].to_array().max())),
    )
    if drops:
        falls = curve.t[(curve.loss < 0.95 * curve.loss[0]) & (curve.loss > 0.5)]
        around = 1.5 * (drop - float(falls[0])) if falls.size else 0.1 * drop
        after = min(around, max(float(curve.t[-1]) - drop, 0.05 * around))
        said = f"{drop:.0f}" if drop >= 1000 else f"{drop:.4g}"
        close = curve.sel(t=abs(curve.t - drop) < around)
        left.set(
            xscale="log",
            xlim=(drop, around / 100),
            xlabel=r"time left, $T_\mathrm{drop} - t$ (unit rate, summed loss)",
        )
        right.plot(close.t - drop, close.loss, color="C3", label=name)
        right.plot(
            [0], [0.5], "o", ms=5, color="C3", label=rf"$T_\mathrm{{drop}} = {said}$"
        )
        right.set(
            xlabel=r"time since the drop, $t - T_\mathrm{drop}$", xlim=(-around, after)
        )
    else:
        left.set(xlabel="training time $t$ (unit rate, summed loss)")
        right.plot(curve.t, curve.loss, color="C3", label=name)
        right.set(xlabel="training time $t$ (unit rate, summed loss)")
    right.set(ylabel=r"loss $\mathcal{L}$", ylim=(0, 1.05 * float(curve.loss.max())))
    for axis in axes:
        plotting.below(axis)
