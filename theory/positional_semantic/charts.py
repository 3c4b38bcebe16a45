"""Tables for the explorer: fixed points of both branches, and thresholds, over the fields."""

import numpy as np
import xarray as xr

from theory import scope
from theory.positional_semantic.branches import MEANING, curve, line
from theory.positional_semantic.onset import BOTH, DRAWN_ORDER, LABELS
from theory.positional_semantic.parameters import MINIMUM, Parameters

OMEGAS = np.linspace(0, 0.5, 6)  # of branches; thresholds take a tenth of the time
FINER = np.linspace(0, 0.5, 21)
ALPHAS = np.geomspace(0.5, 4, 9)
SHOWN = ("train_loss", "test_mse_half", "m", "theta", "q", "V")
NOTE = (
    f"fixed points computed beforehand, with {DRAWN_ORDER} nodes per axis, at the places of the "
    "sliders; none where a branch or a crossing does not exist; every other field as in the start"
)


@scope.guard(MINIMUM)
def charts(p: Parameters) -> dict[str, xr.Dataset]:
    """Order parameters, losses and errors of both branches over (omega, alpha), and thresholds over
    omega.
    """
    p = p.replace(order=min(p.order, DRAWN_ORDER), alpha=None)
    rows = {b: [curve(p.replace(omega=w), b, ALPHAS) for w in OMEGAS] for b in BOTH}
    branches = {
        f"{name}_{b}": (
            ("omega", "alpha"),
            [c[name].values for c in rows[b]],
            {"long_name": MEANING[name]},
        )
        for name in SHOWN
        for b in BOTH
    }
    # From the middle, where both crossings exist, to either side.
    middle = len(FINER) // 2
    up = line(p, FINER[middle:])
    points = [*line(p, FINER[middle - 1 :: -1], up[0])[::-1], *up]
    thresholds = {
        name: (
            "omega",
            [getattr(t, name) for t in points],
            {"long_name": "thresholds of the sample complexity n/d"},
        )
        for name in ("alpha_c", "alpha_l")
    }
    about = {
        "reference": "cui2024, Eqs. (7)-(14)",
        "status": "closure",
        "note": f"the {p.prox} minimiser of the envelope; {NOTE}",
    }
    words = "; ".join(f"{name}: {LABELS[name]}" for name in ("alpha_c", "alpha_l"))
    return {
        "thresholds": xr.Dataset(
            thresholds, {"omega": FINER}, about | {"note": f"{words}; {about['note']}"}
        ),
        "branches": xr.Dataset(branches, {"omega": OMEGAS, "alpha": ALPHAS}, about),
    }
