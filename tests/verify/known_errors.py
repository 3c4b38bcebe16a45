"""Cavity equations on the ladder of the shipped ensembles, run once for all tests of a
process.
"""

import functools

from verify.state_tracking import ensemble, fidelity, ladder


@functools.cache
def best(setting: str) -> ladder.Fidelity:
    """Errors seed by seed, as `python -m verify.fidelity` finds them."""
    p, runs = ensemble.shipped(setting)
    runs = runs.isel(alpha=slice(None, None, ladder.EVERY))
    return ladder.judge(p, fidelity.LEVELS[ladder.CAVITY].curves(p, runs), runs)
