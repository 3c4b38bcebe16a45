"""Fixed points published by the authors against quadrature rules of low degree, from a user's
copy.

Files are those of ``theory/`` in github.com/SPOC-group/positional-and-semantic-attention; nothing
of them comes with this toolkit.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from theory.parameters import ParameterError
from theory.positional_semantic import Parameters, State, variants
from theory.positional_semantic.parameters import TARGETS
from theory.positional_semantic.state_evolution import update
from theory.runtime import output
from verify import tables

NAME = re.compile(
    r"repl_softmax_Mixed_sig(?P<sigma>[\d.]+)_lamb(?P<lam>[\d.]+)_omega(?P<omega>\d*\.\d+)"
    r"(?P<branch>_para|_agno)?(?P<other>_Aalt)?\.csv"
)
BRANCH = {None: "semantic", "_para": "positional", "_agno": "agnostic"}
RESOLVED = 1e-4  # the smaller of their tolerances


def read(path: Path | str) -> tuple[Parameters, str, xr.Dataset]:
    """Parameters and branch, from the name of a file, and its order parameters over alpha.

    Raises
    ------
    ParameterError
        If the name is not one of theirs, or the file no such table.
    """
    path = Path(path)
    match = NAME.fullmatch(path.name)
    if match is None:
        raise ParameterError(f"{path}: must be named repl_softmax_Mixed_sig..._omega....csv")
    p = Parameters(
        sigma=float(match["sigma"]),
        lam=float(match["lam"]),
        omega=float(match["omega"]),
        target="alternative" if match["other"] else "standard",
    )
    return p, BRANCH[match["branch"]], tables.read(path, {x: x for x in ("alpha", *State._fields)})


def changes(path: Path | str) -> dict[str, Any]:
    """Rule and matrix of the target at which the rows of a file are nearest to fixed points, and
    the largest change of each order parameter over one undamped step from a row.

    The authors stop when ``q``, ``m`` and ``theta`` change by less than a tolerance; ``V`` is not
    looked at.

    Parameters
    ----------
    path : path
        A file of theirs, under its own name.
    """
    p, _, theirs = read(path)
    rows = [theirs.sel(alpha=alpha) for alpha in theirs.alpha.values]
    best: dict[str, Any] = {"largest": np.inf}
    for target, degree in itertools.product(TARGETS, variants.DEGREES):
        off = [_change(p.replace(target=target), degree, row) for row in rows]
        change = {x: max(abs(row[x]) for row in off) for x in State._fields}
        largest = max(change[x] for x in ("q", "m", "theta"))
        if largest < best["largest"]:
            best = {"largest": largest, "target": target, "degree": degree, **change}
    return best


def _change(p: Parameters, degree: int, row: xr.Dataset) -> dict[str, float]:
    """Change of the order parameters of a row over one undamped step."""
    here = State(*(float(row[x]) for x in State._fields))
    # Overlaps below what they resolve are rounding errors of a branch without.
    here = here._replace(**{x: 0.0 for x in ("m", "theta") if abs(getattr(here, x)) < RESOLVED})
    p = p.replace(alpha=float(row.alpha))
    try:
        new = update(p, here, variants.low_degree_averages(p, here, degree))
    except ParameterError:  # the step leaves the domain
        new = State(*[np.inf] * 4)
    return {x: getattr(new, x) - getattr(here, x) for x in State._fields}


def table(folder: Path | str) -> str:
    """What every file of theirs in a folder is, as a text table (see `changes`).

    Raises
    ------
    ParameterError
        If there is none, or one that cannot be read.
    """
    files = sorted(Path(folder).glob("repl_softmax_*.csv"))
    if not files:
        raise ParameterError(f"{folder}: has no repl_softmax_*.csv")
    rows = []
    for file in files:
        off = changes(file)
        p, branch, theirs = read(file)
        cells = [f"{off[x]:.1g}" if off[x] > 1e-9 else "" for x in State._fields]
        rows.append(
            [f"{p.omega:g}", p.target, branch, str(theirs.alpha.size)]
            + [off["target"], str(off["degree"]), *cells]
        )
    head = ("omega", "named", "branch", "rows", "target", "degree", *State._fields)
    return output.table(head, rows)
