"""Tables for the explorer: recovery of both memories at finite N, over samples, noise and N."""

import numpy as np
import xarray as xr

from theory import scope
from theory.associative_memory.noisy_bigram.numbers import feed_forward_success, value_recovered
from theory.associative_memory.noisy_bigram.parameters import Parameters
from theory.associative_memory.noisy_bigram.samples import equations
from theory.associative_memory.noisy_bigram.scope import ONE_STEP

ANSWERS, NOISES = [16, 64, 256], [0.1, 0.3, 0.5, 0.7, 0.9]
SAMPLES = [round(2 ** (k / 2)) for k in range(2, 19)]  # up to 512
KINDS = {
    "noise_answered": (feed_forward_success, "probability that the noise token is learned"),
    "value_recovered": (value_recovered, "part of the value memory that is recovered"),
}


@scope.guard(ONE_STEP)
def charts(p: Parameters) -> dict[str, xr.Dataset]:
    """Recovery over (N, a, n) at the length of the context in the parameters."""
    places = {"N": ANSWERS, "a": NOISES, "n": SAMPLES}
    grid: dict[str, np.ndarray] = dict(zip(places, np.ix_(*places.values()), strict=True))
    data = {
        name: (tuple(places), made(p, **grid), {"long_name": words})
        for name, (made, words) in KINDS.items()
    }
    about = {
        "reference": equations()["value_recovered"].reference,
        "status": "noise: exact; value memory: closure (other labels taken as independent)",
        "note": f"computed beforehand at the places of the sliders, for finite N, T = {p.T}",
    }
    return {"recovery at finite N": xr.Dataset(data, places, about)}
