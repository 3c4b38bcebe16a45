"""Curves of other people's students, from a CSV file whose columns are mapped to the names of a
theory, and comparison with theory: ``python -m verify.trajectories MODEL --runs FILE.csv
--columns``.
"""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from theory import registry, scope
from theory.parameters import Allowed, ParameterError, nearest, number
from theory.runtime import cli
from verify import ensemble, report
from verify.trajectories import Comparison, compare

FLAGS = ("columns", "rows")  # beside those of `verify.trajectories`
FACTOR = re.compile(r"(?P<column>.+?)(?:(?P<sign>[*/])(?P<factor>[0-9.eE+-]+))?")


def read(
    path: Path | str, columns: Mapping[str, str], rows: Mapping[str, str] | None = None
) -> xr.Dataset:
    """Read curves from a CSV file with a header: one row per time (and seed).

    Parameters
    ----------
    path : path
        The file.
    columns : mapping of str to str
        By name in the theory, the column, also times or over a number (``"seen/2048"``). The first
        is the time; ``seed``, if given, tells the students apart.
    rows : mapping of str to str, optional
        Keep the rows that have this in a column: equal as numbers, else as words.

    Returns
    -------
    Dataset
        Over time, or over ``seed`` and time.

    Raises
    ------
    ParameterError
        Naming the file and the column or row that does not do.
    """
    path, rows = Path(path), rows or {}
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ParameterError(f"{path}: must be a text file in UTF-8") from None
    with io.StringIO(text, newline="") as file:
        table = csv.DictReader(file)
        header = list(table.fieldnames or [])
        for column in (*(_parts(text)[0] for text in columns.values()), *rows):
            if column not in header:
                hint = nearest(column, header)
                raise ParameterError(
                    f"{path}: no column {column!r}; {hint}it has {', '.join(header) or 'none'}"
                )
        kept = [line for line in table if all(_same(line[c], v) for c, v in rows.items())]
    if not kept:
        wanted = " and ".join(f"{column} = {value}" for column, value in rows.items())
        raise ParameterError(f"{path}: no row has {wanted}" if rows else f"{path}: has no rows")
    if len(columns) < 2 or next(iter(columns)) == "seed":
        raise ParameterError("--columns: must be a time and a quantity, the time first")
    curves = {name: _numbers(path, kept, text) for name, text in columns.items()}
    time, *_ = curves
    return _shaped(path, time, curves)


def _parts(text: str) -> tuple[str, float]:
    """Column and the factor that its numbers are multiplied with."""
    match = FACTOR.fullmatch(text.strip())
    if match is None:
        raise ParameterError(f"--columns {text!r}: must be COLUMN, COLUMN*NUMBER or COLUMN/NUMBER")
    try:
        factor = number(f"--columns {text}", float(match["factor"] or "1"), Allowed(above=0))
    except ValueError as error:
        raise ParameterError(str(error) or text) from None
    return match["column"].strip(), 1 / factor if match["sign"] == "/" else factor


def _same(cell: str | None, wanted: str) -> bool:
    try:
        return math.isclose(float(cell or ""), float(wanted), rel_tol=1e-9)
    except ValueError:
        return (cell or "").strip() == wanted.strip()


def _numbers(path: Path, lines: list[dict[str, str]], text: str) -> np.ndarray:
    column, factor = _parts(text)
    try:
        values = factor * np.array([float(line[column] or "nan") for line in lines])
    except (TypeError, ValueError):
        raise ParameterError(
            f"{path}: column {column!r} holds a value that is not a number"
        ) from None
    if np.isinf(values).any():
        raise ParameterError(f"{path}: column {column!r} holds an infinite number")
    return values


def _shaped(path: Path, time: str, curves: dict[str, np.ndarray]) -> xr.Dataset:
    """Long columns as curves over time, or over seed and time."""
    seeds = curves.pop("seed", np.zeros(len(curves[time])))
    every, times = np.unique(seeds), np.unique(curves[time])
    places = np.searchsorted(every, seeds), np.searchsorted(times, curves[time])
    if not np.isfinite(times).all() or len(set(zip(*places, strict=True))) < len(seeds):
        more = "" if len(every) > 1 else " (seed=COLUMN tells students apart, --rows picks some)"
        raise ParameterError(f"{path}: {time} must be finite, and each once per student{more}")
    if len(seeds) < len(every) * len(times):
        raise ParameterError(
            f"{path}: every student must have a row at every {time}, the first of --columns"
        )
    data = {}
    for name, values in curves.items():
        if name != time:
            curve = np.full((len(every), len(times)), np.nan)
            curve[places] = values
            data[name] = (("seed", time), curve)
    whole = xr.Dataset(data, {"seed": every, time: times})
    return whole if len(every) > 1 else whole.isel(seed=0, drop=True)


def against(model: registry.Model, p: Any, runs: xr.Dataset) -> Comparison:
    """A flow of a model (its first one), solved at given parameters, against curves of a table.

    Raises
    ------
    ParameterError
        If the model has no flow, or the table another time.
    """
    flows = model.wing("theory").flows()
    if not flows:
        raise ParameterError(f"{model.name}: has no flow; in Python: compare(curve, read(...))")
    flow = next(iter(flows.values()))
    time = flow.time.name
    if time not in runs.dims:
        raise ParameterError(f"--columns: the first must be {time}=COLUMN, the time of {flow.name}")
    times = np.union1d(0.0, runs[time].values)  # a curve of one time could not be interpolated
    return compare(flow.solve(p, at=times, **{time: float(times[-1])}), runs)


def mapped(flag: str, text: str) -> dict[str, str]:
    """``NAME=WORD,NAME=WORD`` as a mapping.

    Raises
    ------
    ParameterError
        If a part has no ``=``, or a name comes twice.
    """
    pairs = [part.partition("=") for part in text.split(",")]
    words = {name.strip(): word for name, sign, word in pairs if sign}
    if len(words) < len(pairs):
        raise ParameterError(f"{flag} {text}: must be NAME=WORD,NAME=WORD, each name once")
    return words


def main(argv: Sequence[str] | None = None) -> int:
    """The part of ``verify.trajectories`` for a table."""
    flags = ("json", "wide", *ensemble.FLAGS, *FLAGS)
    args = cli.parser("verify.trajectories", "Flow against a table.", *flags).parse_args(argv)
    unused = [x for x in ("seeds", "alpha", "device", "plot") if getattr(args, x) is not None]
    if unused:
        raise ParameterError(f"--{unused[0]}: not together with --columns, whose file says it")
    if args.runs is None or args.columns is None:
        raise ParameterError(
            "--columns NAME=COLUMN,... needs --runs FILE.csv, and --rows needs both"
        )
    rows = mapped("--rows", args.rows) if args.rows else {}
    runs = read(args.runs, mapped("--columns", args.columns), rows)
    comparison = against(args.model, report.request(args).parameters(), runs)
    return report.Report(comparison.checks, [comparison.spoken(), *scope.broken()]).printed(args)
