"""Tables for the explorer: recovery of both memories at finite N, over samples, noise and N."""

import xarray as xr

from theory import scope
from theory.associative_memory.noisy_bigram.numbers import feed_forward_success, value_recovered
from theory.associative_memory.noisy_bigram.parameters import ONE_STEP, Parameters
from theory.associative_memory.noisy_bigram.samples import equations
from theory.explorer.grid import gridded

PLACES: dict[str, list[float]] = {
    "N": [16, 64, 256],
    "a": [0.1, 0.3, 0.5, 0.7, 0.9],
    "n": [round(2 ** (k / 2)) for k in range(2, 19)],  # up to 512
}
KINDS = {
    "noise_answered": (feed_forward_success, "probability that the noise token is learned"),
    "value_recovered": (value_recovered, "part of the value memory that is recovered"),
}
STATUS = "noise: exact; value memory: closure (other labels taken as independent)"


@scope.guard(ONE_STEP)
def charts(p: Parameters) -> dict[str, xr.Dataset]:
    """Recovery over (N, a, n) at the length of the context in the parameters."""
    note = f"computed beforehand at the places of the sliders, for finite N, T = {p.T}"
    made = gridded(p, PLACES, KINDS, equations()["value_recovered"], note, status=STATUS)
    return {"recovery at finite N": made}
