"""Tables for the explorer: recall accuracies over dimension and keys."""

import xarray as xr

from theory import scope
from theory.associative_memory import superposition
from theory.associative_memory.superposition.parameters import RECALL, Parameters
from theory.associative_memory.superposition.recall import equations
from theory.explorer.grid import gridded

PLACES: dict[str, list[float]] = {
    "d": [4 * 2**k for k in range(8)],
    "N": [2**k for k in range(1, 15)],
}
NOTE = "integrals computed beforehand at the places of the sliders, one output per key"


@scope.guard(RECALL)
def charts(p: Parameters) -> dict[str, xr.Dataset]:
    """Both accuracies over (d, N), one output per key."""
    words = "probability of recall"
    kinds = {f"recall_{n}": (getattr(superposition, n), words) for n in ("gaussian", "sphere")}
    return {"recall": gridded(p, PLACES, kinds, equations()["recall_sphere"], NOTE)}
