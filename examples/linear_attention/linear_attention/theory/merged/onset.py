"""When linear attention learns to regress in context: one drop if key and query are merged, a
staircase if not.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import xarray as xr

from linear_attention.theory import merged, separate, task
from linear_attention.theory.parameters import Parameters
from theory.onset import Onset

SHARE = 0.75  # of a step of the loss: W_dd at half its final value


def onset(p: Parameters, t_end: float | None = None) -> Onset:
    """Times of the drops from an aligned start: the scalar equations, at any Lambda.

    Parameters
    ----------
    p : Parameters
        Spectrum, N and start matter.
    t_end : float, optional
        Length of the curves; 1.2 times the last drop by default.

    Returns
    -------
    Onset
        ``T_drop`` (merged; ``T_white`` in closed form where Lambda = I), ``t_1``, ... (separate) in
        time of unit-rate flow on half the loss, and the plateaus ``L_0``, ... of the loss.
    """
    known, size = p.values(), p.eigenvalues.size
    rows = [
        known | {"lambda_1": x, "a_1": y} for x, y in zip(known["lambda"], known["a"], strict=True)
    ]
    numbers = {"T_drop": merged_time(p)}
    labels = {"T_drop": "merged: time at which three quarters of the drop are gone"}
    if (p.eigenvalues == 1).all():
        numbers["T_white"] = float(merged.equations()["T_drop"].evaluate(known))
        labels["T_white"] = "merged: the same in closed form, Lambda = I"
    t_d = separate.equations()["t_aligned"]
    for n, row in enumerate(rows, 1):
        numbers[f"t_{n}"] = float(t_d.evaluate(row))
        labels[f"t_{n}"] = f"separate: drop {n}, an aligned head, lambda = {row['lambda_1']:g}"
    for n in range(size + 1):
        numbers[f"L_{n}"] = plateau(p, n)
        labels[f"L_{n}"] = f"loss after {n} drops"
    return Onset(
        numbers,
        labels,
        {},
        ["aligned starts of size `start`; heads from any start: separate.heads.drops"],
        curves=lambda: curves(p, t_end or 1.2 * numbers[f"t_{size}"]),
        equations=lambda: [merged.equations()["T_drop"], t_d, task.equations()["plateau"]],
        plot=draw,
        setting={"spectrum": p.spectrum, "N": p.N, "start": p.start},
    )


def plateau(p: Parameters, drops: int) -> float:
    """Loss after a number of drops."""
    return task.at(task.equations()["plateau"].rhs, p.values() | {"m": drops})


def merged_time(p: Parameters) -> float:
    """Time at which one effective head has three quarters of its drop behind it."""
    known = p.values()
    size, last = p.eigenvalues.size, plateau(p, p.eigenvalues.size)
    level = SHARE * last + (1 - SHARE) * known["tr_Lambda"]
    flow = merged.dynamics.flow(size)
    loss = flow.observables["loss"]
    end = 3 * np.log(10 / p.start) / known["gamma"] * (1 + known["lambda"][0] / known["lambda"][-1])
    return float(flow.solve(p, at=[0], events={"drop": loss - level}, t=end)["drop"])


def curves(p: Parameters, end: float) -> dict[str, xr.Dataset]:
    """Loss over ``t`` for both, from aligned starts."""
    known, size = p.values(), p.eigenvalues.size
    one = merged.dynamics.flow(size).solve(p, t=4 * merged_time(p))
    at = np.linspace(0, end, 801)
    left = np.zeros(at.size)
    for x, y in zip(known["lambda"], known["a"], strict=True):
        row = SimpleNamespace(values=lambda x=x, y=y: known | {"lambda_1": x, "a_1": y})
        u = separate.dynamics.flow().solve(row, at=at, t=end).u.values
        left += x - 2 * x**2 * u**3 + y * x * u**6
    return {"merged": one, "separate": xr.Dataset({"loss": ("t", left)}, coords={"t": at})}


def draw(result: Onset, axes: Any) -> None:
    """The one drop on the left, the staircase on the right."""
    from theory import plotting  # loads matplotlib: for figures alone

    times = {
        "merged": ("T_drop", r"$T_{\mathrm{drop}}$: three quarters of the drop are gone"),
        "separate": ("t_", "$t_1, t_2, \\dots$: drops, one each"),
    }
    for axis, (name, curve) in zip(axes, result.curves().items(), strict=True):
        axis.plot(curve.t, curve.loss, color="C0", label="loss, flow from an aligned start")
        first, words = times[name]
        for start, text, draw_line, style in (
            ("L_", "loss with 0, 1, ... directions learned", axis.axhline, ("0.7", "-")),
            (first, words, axis.axvline, ("C3", ":")),
        ):
            values = [v for key, v in result.numbers.items() if key.startswith(start)]
            for k, value in enumerate(values):
                label = None if k else text
                draw_line(value, color=style[0], ls=style[1], lw=0.9, zorder=0, label=label)
        axis.set(
            xlabel="$t$ (unit rate, half the loss)", ylabel=r"loss $\mathcal{L}$", ylim=(0, None)
        )
        axis.set_title(f"{name} key and query")
        plotting.below(axis)
