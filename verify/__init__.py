"""Does the theory predict the students? Checks with verdicts, shown as tables and used
for exit codes and tests.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from simulate import __version__

if TYPE_CHECKING:
    import xarray as xr

    from theory.state_tracking import Parameters

__all__ = ["__version__", "ensembles"]


def ensembles(name: str) -> tuple[Parameters, xr.Dataset]:
    """Parameters and students of a shipped ensemble: ``p, runs =
    ensembles("table_1")``.

    Parameters
    ----------
    name : str
        ``table_1`` (five seeds), ``table_1_100`` (a hundred, without entries of
        attention) and ``table_2`` of the state-tracking paper, ``unequal``, ``demo``
        (twenty seeds), or ``draws_2048`` and ``draws_8192`` (redrawn training sets;
        attention only).

    Raises
    ------
    ParameterError
        If there is no ensemble of that name.
    """
    from theory.runtime import cli
    from verify.state_tracking import ensemble  # imports torch, so only when needed

    cli.choose("ensemble", name, ensemble.SETTINGS)
    return ensemble.shipped(name)


def __getattr__(name: str) -> Any:
    """``verify.tables`` and ``verify.times``, imported when needed."""
    if name in ("tables", "times"):
        return importlib.import_module(f"verify.compare.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
