"""Tables for the explorer: growth rates and losses of both ends over omega and the norm."""

import numpy as np
import xarray as xr

from theory import scope
from theory.positional_semantic.online.numbers import BRANCHES, ends, growth_rates
from theory.positional_semantic.online.onset import LABELS
from theory.positional_semantic.online.parameters import ANY, Parameters

OMEGAS = np.linspace(0, 1, 11)
SIGMAS = np.array([0.3, 0.5, 1.0])
RATES = ("growth_m", "growth_theta")


@scope.guard(ANY)
def charts(p: Parameters) -> dict[str, xr.Dataset]:
    """Growth rates while the overlaps are small, and losses of the ends, over omega and sigma."""
    points = [
        [p.replace(omega=float(w), sigma=float(s), batch=None) for s in SIGMAS] for w in OMEGAS
    ]
    axes, places = ("omega", "sigma"), {"omega": OMEGAS, "sigma": SIGMAS}
    about = {
        "reference": "beyond cui2024, one-pass descent",
        "status": "exact",
        "note": "computed beforehand, without the noise of steps; all other fields as in the start",
    }
    rates = [[growth_rates(q) for q in row] for row in points]
    last = [[ends(q) for q in row] for row in points]
    growth = {
        x: (axes, [[float(r[x]) for r in row] for row in rates], {"long_name": "growth rates"})
        for x in RATES
    }
    losses = {
        f"loss_{name}": (
            axes,
            [[e[name]["loss"] for e in row] for row in last],
            {"long_name": "loss of the ends"},
        )
        for name in BRANCHES
    }
    words = "; ".join(f"{x}: {LABELS[x]}" for x in growth)
    return {
        "growth": xr.Dataset(growth, places, about | {"note": f"{words}; {about['note']}"}),
        "ends": xr.Dataset(losses, places, about),
    }
