"""When the loss of somebody's own module falls: plateaus and escapes from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.interpolate
import scipy.optimize
import scipy.signal

from theory.dynamics.onset import Onset, tabulated
from theory.dynamics.trajectory import Trajectory

# share of the fall of the loss in the second half of a run that is long enough
SLOW = 0.01
LEAVES = 60  # e-folds after which a descent that has not left a saddle never does
MOST_DOUBLINGS = 24
EXTREME = 1e-7  # of the time of an extreme: as far as double precision knows one
PEAK = 0.05  # of the fastest fall of the loss: smaller peaks are no escape


def onset(found: Any, until: float | None) -> Onset:
    """Of `simulate.discover.found.Discovered.onset`."""
    flow = found.flow
    growth = [complex(m.rate) for m in flow.linearised()]
    end = until or 1 / max(*map(abs, growth), 1e-3)
    for _ in range(MOST_DOUBLINGS):
        path = Trajectory(flow, {}, end, 1e-9, 1e-12)
        curve = flow.observed({}, end * path.t, path.y)
        t, loss = curve.t.values, curve.loss.values
        fall = loss[0] - np.interp([end / 2, end], t, loss)
        up = end * np.linalg.eigvals(found.subspace.jacobian(path.y[:, -1])).real.max()
        if until or (np.diff(fall) < SLOW * fall[1] and not 1 < up < LEAVES):
            break
        end *= 2
    saddle = (
        f"ends near a saddle, from which one direction grows by e in {end / up:.4g}"
    )
    rate = -np.gradient(loss, t)
    half = scipy.interpolate.PchipInterpolator(t, loss).solve(
        loss[0] - fall[1] / 2, False, False
    )
    rows: dict[str, tuple[Any, ...]] = {
        "run": (end, "length of the run"),
        "loss_start": (loss[0], "loss at the start"),
        "loss_end": (loss[-1], "loss at the end of the run"),
        "half_loss": (half[0], "half of the fall of the loss", "t"),
    }

    def extreme(near: int, sign: int) -> float:
        """Time, between two of the integrator's, at which the loss falls slowest or
        fastest.
        """
        if not 0 < near < len(t) - 1:
            return float(t[near])

        def fall(time: float) -> float:
            theta = found.subspace.weights(path.states(time / end))
            return sign * (found.loss.gradient(theta)[1] ** 2).sum()

        ends, fine = t[[near - 1, near + 1]], {"xatol": EXTREME * t[near]}
        return scipy.optimize.minimize_scalar(fall, bounds=ends, options=fine).x

    begin, k = 0, 0
    for peak in (
        scipy.signal.find_peaks([0, *rate, 0], prominence=PEAK * rate.max())[0] - 1
    ):
        slow = begin + int(rate[begin : peak + 1].argmin())
        if rate[slow] > (1 - PEAK) * rate[peak]:  # a fall from the start is no escape
            continue
        begin, k = peak, k + 1
        rows |= {
            f"plateau_{k}": (
                extreme(slow, 1),
                f"plateau {k}: the loss falls slowest",
                "t",
            ),
            f"plateau_{k}_loss": (loss[slow], f"loss on plateau {k}"),
            f"escape_{k}": (
                extreme(peak, -1),
                f"escape from plateau {k}: the loss falls fastest",
                "t",
            ),
        }
    for k, g in enumerate(growth, 1):
        rows[f"growth_{k}"] = (g.real, "growth rate at the start, real part")
    return tabulated(
        rows,
        curves=lambda: {"flow": curve},
        equations=lambda: [*flow.equations().values()],
        notes=[saddle] if up > 1 else [],
    )
