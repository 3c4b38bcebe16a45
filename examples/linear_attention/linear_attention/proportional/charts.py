"""Tables for the explorer: both errors over sequences, tasks and ridge."""

import numpy as np
import xarray as xr

from linear_attention.proportional.errors import equations
from linear_attention.proportional.numbers import error_new, error_trained
from linear_attention.proportional.parameters import Parameters

SEQUENCES = [round(float(x), 3) for x in np.geomspace(0.1, 10, 20)]  # none is 1
TASKS = [0.2, 0.5, 0.8, 1.0, 1.25, 2.0, 5.0]
RIDGES = [0.0, 0.01, 0.1, 1.0]
KINDS = {"error_trained": error_trained, "error_new": error_new}


def charts(p: Parameters) -> dict[str, xr.Dataset]:
    """Both errors over (kappa, ridge, tau) at the context and noise of the parameters."""
    places = {"kappa": TASKS, "ridge": RIDGES, "tau": SEQUENCES}
    grid = dict(zip(places, np.ix_(*places.values()), strict=True))
    data = {
        name: (tuple(places), made(p, **grid), {"long_name": "mean squared error"})
        for name, made in KINDS.items()
    }
    stated = equations()["error_new"]
    note = f"computed beforehand at the places of the sliders, alpha = {p.alpha:g}, rho = {p.rho:g}"
    about = {"reference": stated.reference, "status": stated.status, "note": note}
    return {"errors of the fit": xr.Dataset(data, places, about)}
