"""Fixed points published by the authors against the degree-seven rule, from a user's copy.

Files are those of ``theory/`` in github.com/SPOC-group/positional-and-semantic-attention; nothing
of them comes with this toolkit.
"""

import re
from pathlib import Path

import numpy as np
import xarray as xr

from theory.parameters import ParameterError
from theory.positional_semantic import Parameters, State
from theory.positional_semantic.numbers import degree_seven
from theory.runtime import output
from verify import tables

NAME = re.compile(
    r"repl_softmax_Mixed_sig(?P<sigma>[\d.]+)_lamb(?P<lam>[\d.]+)_omega(?P<omega>\d*\.\d+)"
    r"(?P<branch>_para|_agno)?(?P<other>_Aalt)?\.csv"
)
BRANCH = {None: "semantic", "_para": "positional", "_agno": "agnostic"}
# Order parameters that are not zero on a branch.
FREE = {"semantic": "q V theta", "positional": "q V m", "agnostic": "q V"}


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
    columns = {x: x for x in ("alpha", *State._fields)}
    return p, BRANCH[match["branch"]], tables.read(path, columns)


def deviations(path: Path | str) -> dict[str, float]:
    """Largest deviation of each order parameter of a file from the fixed point to which the rule
    converges from there, relative to the largest value in the file; infinite if it does not
    converge.

    Parameters
    ----------
    path : path
        A file of theirs, under its own name.
    """
    p, branch, theirs = read(path)
    names = FREE[branch].split()
    off = dict.fromkeys(names, 0.0)
    for alpha in theirs.alpha.values:
        row = theirs.sel(alpha=alpha)
        start = State(*(float(row[x]) if x in names else 0.0 for x in State._fields))
        try:
            found = degree_seven.solve(p.replace(alpha=float(alpha)), branch, start).state
        except ParameterError:
            return dict.fromkeys(names, np.inf)
        for x in names:
            size = float(np.abs(theirs[x]).max())
            off[x] = max(off[x], abs(getattr(found, x) - getattr(start, x)) / size)
    return off


def table(folder: Path | str) -> str:
    """Deviations of all their files in a folder, as a text table.

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
        off = deviations(file)
        p, branch, theirs = read(file)
        cells = [f"{100 * off[x]:.2g}%" if x in off else "" for x in State._fields]
        rows.append([f"{p.omega:g}", p.target, branch, str(theirs.alpha.size), *cells])
    return output.table(("omega", "target", "branch", "rows", *State._fields), rows)
