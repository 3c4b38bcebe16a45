"""Tables for the explorer: both errors over sequences, tasks and ridge."""

import numpy as np
import xarray as xr

from linear_attention.proportional.errors import equations
from linear_attention.proportional.numbers import error_new, error_trained
from linear_attention.proportional.parameters import Parameters
from theory.explorer.curves import gridded

PLACES: dict[str, list[float]] = {
    "kappa": [0.2, 0.5, 0.8, 1.0, 1.25, 2.0, 5.0],
    "ridge": [0.0, 0.01, 0.1, 1.0],
    "tau": [round(float(x), 3) for x in np.geomspace(0.1, 10, 20)],  # none is 1
}
WORDS = "mean squared error"
KINDS = {"error_trained": (error_trained, WORDS), "error_new": (error_new, WORDS)}


def charts(p: Parameters) -> dict[str, xr.Dataset]:
    """Both errors over (kappa, ridge, tau) at the context and noise of the parameters."""
    note = f"computed beforehand at the places of the sliders, alpha = {p.alpha:g}, rho = {p.rho:g}"
    return {"errors of the fit": gridded(p, PLACES, KINDS, equations()["error_new"], note)}
