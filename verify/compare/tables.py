"""Curves of other people's students, from a CSV or NumPy file whose columns are mapped
to the names of a theory, or from arrays, and comparison with theory: ``python -m
verify.trajectories MODEL
--runs FILE.csv --columns``.
"""

import contextlib
import csv
import io
import math
import re
import textwrap
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from theory.call import scope
from theory.call.parameters import Stepped
from theory.call.refusal import (
    Allowed,
    ParameterError,
    error_summary,
    nearest,
    number,
    shown,
)
from theory.models import command_line, registry
from theory.runtime import memory, output
from theory.symbols import notation
from verify.checks import command, ensemble_source
from verify.checks.check import failed
from verify.checks.report import Report
from verify.compare import time_axes
from verify.compare.comparison import Comparison
from verify.compare.curves import compare

FLAGS = ("columns", "rows")  # beside those of `verify.trajectories`
FACTOR = re.compile(
    r"(?P<column>.+?)(?:(?P<sign>[*/])(?P<factor>[0-9.eE+-]+))?", re.DOTALL
)
BLANKS = ("", "na", "<na>", "n/a", "#n/a", "nan", "null", "none")
# Words in the names of columns that hold no student.
WORDS_OF_SUMMARIES = (
    "mean average avg median std sd se sem stderr err error var min max low high lower"
    " upper ci iqr n count"
)
SUMMARIES = {*WORDS_OF_SUMMARIES.split()}
MOST = 2**26  # bytes of a table


def read(
    path: Path | str, columns: Any = None, rows: Mapping[str, str] | None = None
) -> xr.Dataset:
    """Read curves from a CSV file with a header, one row per time (and seed), or from
    arrays in a NumPy file (``.npz``; shapes as in `arrays`).

    Cells are separated by commas, semicolons or tabs; numbers have a decimal point.
    Blank cells and ``NA``, ``nan``, ``null`` are missing values.

    Parameters
    ----------
    path : path
        The file.
    columns : mapping of str to str
        By name in the theory, the column. The first is the time; ``seed``, if given,
        tells the students apart, by number or name. A column of this very name comes
        first; else ``"seen/2048"`` and ``"seen*2"`` convert the unit of ``seen``
        (beside a column ``attn/2``, ``attn/2.0`` halves ``attn``), ``"loss_*"`` is one
        column per student, and for ``x_n`` (`published`) a number is the same at all
        times.
    rows : mapping of str to str, optional
        Keep the rows that have this in a column: equal as numbers, else as words.

    Returns
    -------
    Dataset
        Over time, or over ``seed`` and time.

    Raises
    ------
    ParameterError
        Naming the file and the column or line that does not do.
    OSError
        If there is no such file, or it may not be read.
    """
    if (
        not isinstance(columns, Mapping)
        or len(columns) < 2
        or next(iter(columns)) == "seed"
    ):
        raise ParameterError(
            "--columns: must be a time and a quantity, the time first: {'t': 'step',"
            " 'x': 'loss'}"
        )
    path = output.path(path)
    rows = notation.mapping("rows = {}", {} if rows is None else rows, "{'seed': '3'}")
    columns = {str(name): str(text) for name, text in columns.items()}
    rows = {str(column): str(word) for column, word in rows.items()}
    binary = path.suffix == ".npz"
    if binary and (rows or not path.is_file()):
        raise ParameterError(
            f"{path}: " + ("has no rows to keep" if rows else "must be a file")
        )
    table: Any = _archive(path) if binary else _table(path)
    header, (time, *_) = list(table), columns
    sources = {
        n: _source(path, header, n, text) for n, text in columns.items() if n != "seed"
    }
    if "seed" in columns:
        seeds = _column(path, header, columns["seed"])
    for column, word in rows.items():
        table = table[
            [_same(cell, word) for cell in table[_column(path, header, column)]]
        ]
    if not binary and table.empty:
        wanted = " and ".join(f"{column} = {word}" for column, word in rows.items())
        raise ParameterError(
            f"{path}: no row has {wanted}" if rows else f"{path}: has no rows"
        )
    curves: dict[str, Any] = {"seed": table[seeds]} if "seed" in columns else {}
    for name, (chosen, factor) in sources.items():
        values = [factor * _numbers(path, table[column]) for column in chosen.values()]
        if not chosen:
            curves[name] = 0 * curves.get(time, 0) + factor
        elif "" in chosen:
            curves[name] = values[0]
        elif [*chosen] == [*curves.setdefault("seed", [*chosen])]:
            curves[name] = values
        else:
            raise ParameterError(
                f"{path}: {name}: of other students than columns before"
            )
    return arrays(curves, str(path))


def _table(path: Path) -> pd.DataFrame:
    """Cells of a text file as words; its index are the numbers of lines."""
    text = output.read_text("table", path, MOST).removeprefix("\ufeff")
    separator = max(",;\t", key=text.strip().partition("\n")[0].count)
    if text.strip() and separator not in text.strip().partition("\n")[0]:
        raise ParameterError(
            f"{path}: cells must be separated by commas, semicolons or tabs; R's"
            " write.csv(..., row.names=FALSE) does"
        )
    file = io.StringIO(text, newline="")
    reader = csv.reader(file, delimiter=separator, skipinitialspace=True, strict=True)
    header, cells, lines = None, [], []
    try:
        for words in reader:
            row = [word.strip() for word in words]
            if not any(row):
                continue
            header = header or row
            if None not in map(_number, header) and header != [
                *map(str, range(len(header)))
            ]:
                raise ParameterError(
                    f"{path}: line {reader.line_num} has no names of columns"
                )
            if len(row) != len(header):
                names = (
                    "; R's write.table puts names of rows under no header:"
                    " row.names=FALSE leaves them out, col.names=NA heads them"
                )
                raise ParameterError(
                    f"{path}: line {reader.line_num} has {len(row)} cells, the header"
                    f" has {len(header)}{names if len(row) > len(header) else ''}"
                )
            cells.append(row)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise ParameterError(f"{path}: line {reader.line_num}: {error}") from None
    return pd.DataFrame(cells[1:], lines[1:], header, dtype=object)


def _column(path: Path, header: Sequence[str], column: str) -> str:
    """The name of a column, which must be there once."""
    column = column.strip()
    if column not in header:
        some = textwrap.shorten(", ".join(header), 300, placeholder=" ...") or "none"
        hint = nearest(column, header[:1000])
        raise ParameterError(f"{path}: no column {column!r:.80}; {hint}it has {some}")
    if header.count(column) > 1:
        raise ParameterError(
            f"{path}: {header.count(column)} columns have the name {column!r:.80}"
        )
    return column


def _source(
    path: Path, header: Sequence[str], name: str, text: str
) -> tuple[dict[str, str], float]:
    """Columns by student (of a single one, by an empty name; of a number, none) and
    factor.
    """
    word, factor = text.strip(), 1.0
    if word not in header:
        word, factor = _parts(word)
    if word not in header and name.endswith("_n") and word.isdecimal():
        return {}, factor * float(word)
    if word in header or "*" not in word:
        return {"": _column(path, header, word)}, factor
    pattern = re.compile("(.+)".join(map(re.escape, word.split("*", 1))), re.DOTALL)
    matches = {match[1].strip(): c for c in header if (match := pattern.fullmatch(c))}
    words = {*re.split("[^a-z]+", " ".join(matches).lower())}
    if not matches or SUMMARIES & words:
        labels = textwrap.shorten(", ".join(matches), 300, placeholder=" ...")
        raise ParameterError(
            f"{path}: * in {word} must be students only; it stands for"
            f" {labels or 'nothing'}"
        )
    return {label: _column(path, header, c) for label, c in matches.items()}, factor


def _parts(text: str) -> tuple[str, float]:
    """Column and the factor that its numbers are multiplied with."""
    match = FACTOR.fullmatch(text)
    if match is None:
        raise ParameterError(
            f"--columns {text!r}: must be COLUMN, COLUMN*NUMBER or COLUMN/NUMBER"
        )
    try:
        factor = number(
            f"--columns {text}", float(match["factor"] or "1"), Allowed(above=0)
        )
    except ValueError as error:
        raise ParameterError(str(error) or text) from None
    return match["column"].strip(), 1 / factor if match["sign"] == "/" else factor


def _same(cell: str, wanted: str) -> bool:
    one, two = _number(cell), _number(wanted)
    if one is None or two is None:
        return cell == wanted.strip()
    return math.isclose(one, two, rel_tol=1e-14)


def _number(word: str) -> float | None:
    try:
        return (
            float(word) if word.isascii() and "_" not in word else None
        )  # as no table has them
    except ValueError:
        return None


def _numbers(path: Path, cells: Any) -> np.ndarray:
    """Words as numbers; blank ones are NaN."""
    if isinstance(cells, np.ndarray):
        if cells.dtype.kind not in "iuf":
            raise ParameterError(
                f"{path}: holds an array of {cells.dtype}, must be real numbers"
            )
        return cells
    values = []
    for line, cell in cells.items():
        value = _number("nan" if cell.lower() in BLANKS else cell)
        if value is None or math.isinf(value):
            wrong = (
                "a value that is not a number"
                if value is None
                else "an infinite number"
            )
            raise ParameterError(
                f"{path}: column {cells.name!r} holds {wrong}: {cell!r:.80} in line"
                f" {line}"
            )
        values.append(value)
    return np.array(values)


def _archive(path: Path) -> dict[str, np.ndarray]:
    """Arrays of a file of `numpy.savez`."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(part.file_size for part in archive.infolist())
        if memory.exceeds(2 * size):
            raise ParameterError(
                f"{path}: holds {memory.amount(size)}, more than memory does"
            )
        with np.load(path) as arrays:
            return {
                n: v for n in arrays.files if isinstance(v := arrays[n], np.ndarray)
            }
    except (ParameterError, OSError):
        raise
    except Exception as error:  # of zip files, headers and types
        raise ParameterError(
            f"{path}: no arrays of numbers ({error_summary(error)})"
        ) from None


def arrays(curves: Mapping[str, Any], what: str = "arrays") -> xr.Dataset:
    """Curves from arrays, for `compare` and `emergence_times`.

    Parameters
    ----------
    curves : mapping of str to array_like
        By name in the theory. The first is the time, in the theory's unit, of shape
        ``(times,)``; the others are of this shape or ``(students, times)``, NaN is a
        missing value. ``seed``: numbers or names of the students, needed if there are
        as many as times; or, if all shapes are ``(n,)``, that of each entry.
    what : str
        Where they are from, for messages.

    Returns
    -------
    Dataset
        Over time, or over ``seed`` and time, sorted.

    Raises
    ------
    ParameterError
        If shapes do not fit, if values are no finite numbers, or if a student has a
        time twice, or a later one but not this.
    """
    if not isinstance(curves, Mapping | pd.DataFrame) or not {*curves} - {"seed"}:
        raise ParameterError(
            f"{what}: must be a mapping, as {{'t': times, 'x': values}}"
        )
    time, *names = (name for name in curves if name != "seed")
    found = ""
    try:
        values = {
            name: np.ma.filled(np.ma.asarray(curves[name]), np.nan)
            for name in (time, *names)
        }
        found = ", ".join(
            f"{n} {np.shape(values[n] if n in values else curves[n])}" for n in curves
        )
        several = any(v.ndim > 1 for v in values.values())
        index = {time: values[time]}
        if "seed" in curves and not several:
            index |= {"seed": _labels(what, curves["seed"])}
        rows = pd.DataFrame(index)
        if rows.duplicated().any() or not np.isfinite(rows[time]).all():
            raise ParameterError(
                f"{what}: {time} must be finite, and each once per student (seed=COLUMN"
                " tells students apart, --rows picks some)"
            )
        if "seed" in rows:
            data = (
                rows.assign(**{n: values[n] for n in names})
                .set_index(["seed", time])
                .to_xarray()
            )
            counts = pd.crosstab(rows.seed, rows[time]).to_numpy()
            if (
                counts[:, 1:] > counts[:, :-1]
            ).any():  # comes back after a gap, or comes late
                raise ParameterError(
                    f"{what}: every student must have a row at every {time}, the first"
                    " of --columns, until it ends; cells may be blank"
                )
        else:
            square = [n for n in names if values[n].shape == (values[time].size,) * 2]
            if square and "seed" not in curves:
                raise ParameterError(
                    f"{what}: {square[0]} is square; if rows are students, say so by"
                    f" seed=range({values[time].size}), else transpose it first"
                )
            shapes = {n: (("seed", time)[-values[n].ndim :], values[n]) for n in names}
            data = xr.Dataset(shapes, index)
        if several:
            seeds = curves.get("seed", range(data.seed.size))
            data = data.assign_coords(seed=_labels(what, seeds))
    except ParameterError:
        raise
    except (TypeError, ValueError, RuntimeError, LookupError, OverflowError) as error:
        # ragged, other lengths, gradients, numbers that are none in double precision
        raise ParameterError(
            f"{what}: {time} must have shape (times,), others this or (students,"
            f" times), not {found or error_summary(error)}"
        ) from None
    data = time_axes.axis(what, time_axes.numbers(what, data, names), time)
    return data.isel(seed=0, drop=True) if data.sizes.get("seed") == 1 else data


def _labels(what: str, seeds: Any) -> np.ndarray:
    """Numbers of students, or their names."""
    labels = pd.Series(seeds)
    with contextlib.suppress(ValueError, TypeError):
        labels = pd.to_numeric(labels)
    if labels.isna().any() or any(str(label).lower() in BLANKS for label in labels):
        raise ParameterError(f"{what}: a student has neither number nor name")
    return labels.to_numpy() if labels.dtype.kind in "iuf" else labels.to_numpy(str)


def published(means: xr.Dataset, students: int) -> xr.Dataset:
    """Means and standard deviations over students, as papers print them, for `compare`:
    ``published(read("figure.csv", {"t": "t", "x": "x_mean", "x_std": "x_std"}), 20)``.

    Parameters
    ----------
    means : Dataset
        From `read` or `arrays`, without seeds: ``x``, and ``x_std``, its standard
        deviation between students (``"sem*4.472"`` from a standard error of 20).
    students : int
        Their number, at least 2; if it varies, give ``x_n`` to `read` or `arrays`
        instead.

    Raises
    ------
    ParameterError
        If no variable has a standard deviation.
    """
    students = number("students", students, Allowed(low=2), int)
    if not isinstance(means, xr.Dataset):
        raise ParameterError(
            f"means = {shown(means)}: must be a Dataset, of read or arrays"
        )
    numbers = {
        f"{x}_n": students + 0 * means[x]
        for x in map(str, means)
        if f"{x}_std" in means
    }
    if not numbers or "seed" in means.dims:
        raise ParameterError(
            f"means: must be x and x_std over time, got {', '.join(map(str, means))}"
        )
    return means.assign(numbers)


def against(model: registry.Model, p: Any, runs: xr.Dataset) -> Comparison:
    """A flow of a model (its first one), solved at given parameters, against curves of
    a table.

    Raises
    ------
    ParameterError
        If the model has no flow, or the table another time.
    """
    flows = model.wing("theory").flows()
    if not flows:
        raise ParameterError(
            f"{model.name}: has no flow; in Python: compare(curve, read(...))"
        )
    flow = next(iter(flows.values()))
    time = flow.time.name
    if time not in runs.dims:
        raise ParameterError(
            f"--columns: the first must be {time}=COLUMN, the time of {flow.name}"
        )
    times = np.union1d(
        0.0, runs[time].values
    )  # a curve of one time could not be interpolated
    curve = flow.solve(p, at=times, **{time: float(times[-1])})
    found = compare(curve, runs)
    if isinstance(p, Stepped) and time == p.TIME and failed(found.checks):
        end = p.time_per_step * getattr(p, p.LENGTH)
        found.notes.extend(time_axes.other_unit(curve, runs, time, end))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """The part of ``verify.trajectories`` for a table."""
    flags = ("json", "wide", *ensemble_source.FLAGS, *FLAGS)
    args = command_line.parser(
        "verify.trajectories", "Flow against a table.", *flags
    ).parse_args(argv)
    unused = [
        x
        for x in ("seeds", "until", "alpha", "device", "plot")
        if getattr(args, x) is not None
    ]
    if unused:
        raise ParameterError(
            f"--{unused[0]}: not together with --columns, whose file says it"
        )
    if args.runs is None or args.columns is None:
        raise ParameterError(
            "--columns NAME=COLUMN,... needs --runs FILE.csv, and --rows needs both"
        )
    rows = command.mapped("--rows", args.rows) if args.rows else {}
    runs = read(args.runs, command.mapped("--columns", args.columns), rows)
    comparison = against(args.model, command.request(args).parameters(), runs)
    return Report(comparison.checks, [comparison.spoken(), *scope.broken()]).printed(
        args
    )
