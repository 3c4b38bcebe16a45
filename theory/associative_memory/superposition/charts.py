"""Tables for the explorer: recall accuracies over dimension and keys."""

import xarray as xr

from theory import scope
from theory.associative_memory.superposition import numbers
from theory.associative_memory.superposition.parameters import Parameters
from theory.associative_memory.superposition.recall import equations
from theory.associative_memory.superposition.scope import RECALL

DIMENSIONS = [4 * 2**k for k in range(8)]
KEYS = [2**k for k in range(1, 15)]
KINDS = {"recall_gaussian": numbers.gaussian, "recall_sphere": numbers.sphere}


@scope.guard(RECALL)
def charts(p: Parameters) -> dict[str, xr.Dataset]:
    """Both accuracies over (d, N), one output per key."""
    data = {
        name: (
            ("d", "N"),
            [[recall(N, d) for N in KEYS] for d in DIMENSIONS],
            {"long_name": "probability of recall"},
        )
        for name, recall in KINDS.items()
    }
    stated = equations()["recall_sphere"]
    note = "integrals computed beforehand at the places of the sliders, one output per key"
    about = {"reference": stated.reference, "status": stated.status, "note": note}
    return {"recall": xr.Dataset(data, {"d": DIMENSIONS, "N": KEYS}, about)}
