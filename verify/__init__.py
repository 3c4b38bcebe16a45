"""Does the theory predict the students? Checks that are table, exit code and test at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from theory import __version__

if TYPE_CHECKING:
    import xarray as xr

    from theory.state_tracking import Parameters

__all__ = ["__version__", "ensembles"]


def ensembles(name: str) -> tuple[Parameters, xr.Dataset]:
    """Parameters and students of an ensemble that comes with the code: ``p, runs =
    ensembles("table_1")``.

    Parameters
    ----------
    name : str
        ``table_1`` and ``table_2`` of the state-tracking paper, ``unequal``, ``demo`` (twenty
        seeds), ``draws_2048`` and ``draws_8192`` (training sets redrawn; attention only).

    Raises
    ------
    ParameterError
        If there is none of that name.
    """
    from theory import cli
    from verify.state_tracking import ensemble  # loads torch: not for nothing

    cli.choose("ensemble", name, ensemble.SETTINGS)
    return ensemble.shipped(name)
