"""Tables of functions over fields of the parameters, with the reference and status of
an equation.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from theory.equations.equation import Equation


def gridded(
    p: Any,
    places: Mapping[str, Sequence[float]],
    kinds: Mapping[str, tuple[Callable[..., Any], str]],
    equation: Equation,
    note: str,
    **more: str,
) -> xr.Dataset:
    """Values of functions at all combinations of some fields.

    Parameters
    ----------
    p : Parameters
        All other fields.
    places : mapping of str to sequence
        Values by field.
    kinds : mapping of str to (callable, str)
        By name: a function of parameters and arrays of fields, and what its values are.
    equation : Equation
        Whose reference and status the table has.
    note : str
        Printed below it.
    **more : str
        Attributes that replace these.
    """
    grid: dict[str, Any] = dict(zip(places, np.ix_(*places.values()), strict=True))
    data = {
        name: (tuple(places), made(p, **grid), {"long_name": words})
        for name, (made, words) in kinds.items()
    }
    about = {
        "reference": equation.reference,
        "status": equation.status,
        "note": note,
        **more,
    }
    return xr.Dataset(data, {k: list(v) for k, v in places.items()}, about)
