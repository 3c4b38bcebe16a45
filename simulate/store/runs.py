"""Files of runs: written, read and checked, and joined to one dataset."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import netCDF4
import numpy as np
import xarray as xr
from xarray.backends import NetCDF4DataStore

import theory
from simulate.store import joined_runs
from simulate.store.storage import FORMAT, defer_signals, place
from theory.call.parameters import BaseParameters, Stepped
from theory.call.refusal import ParameterError, error_summary
from theory.runtime import hdf5, memory, output
from theory.runtime.sealed import KIND, seal, unseal

INDEX = ".index.nc"  # in a store of many runs: what `open` returned last
MANY = 200  # files, from which there is an index


def write(dataset: xr.Dataset, path: Path | str) -> None:
    """Write a dataset as netCDF, atomically.

    Raises
    ------
    OSError
        If the disk is full; no partial file remains.
    ParameterError
        If the dataset cannot be represented in netCDF.
    """
    seal(output.path(path), content(dataset))


def content(dataset: xr.Dataset) -> bytes:
    """A dataset as the bytes of a netCDF file.

    Raises
    ------
    ParameterError
        If it is no dataset, or cannot be represented in netCDF.
    """
    try:
        encoding: dict[Hashable, dict[str, Any]] = {}
        for name, v in dataset.variables.items():
            encoding[name] = {"zlib": True, "complevel": 4} if v.size > 64 else {}
            if v.dtype.kind == "f":
                encoding[name]["_FillValue"] = None  # NaN stands for itself
        with defer_signals():
            content = bytes(dataset.to_netcdf(engine="netcdf4", encoding=encoding))
        end = int.from_bytes(content[28:36], "little")  # of HDF5's second superblock
        return (
            content[:end]
            if content[8] in (2, 3) and not any(content[end:])
            else content
        )
    except (OSError, MemoryError):
        raise
    except Exception as error:  # netCDF4 raises various errors for what it cannot write
        raise ParameterError(
            f"cannot be stored as netCDF: {error_summary(error)}"
        ) from None


def read(path: Path | str, lazy: bool = False) -> xr.Dataset:
    """Read a run or an ensemble.

    Parameters
    ----------
    path : path
        The file.
    lazy : bool
        Load values from disk only when they are needed.

    Raises
    ------
    ParameterError
        If the file is missing, damaged, not written by this toolkit, or does not fit
        into memory.
    """
    path = output.path(path)
    sealed = unseal(path)
    try:
        size = hdf5.inspect(sealed)
    except ParameterError as error:
        raise ParameterError(f"{path}: {error}; not a run of this toolkit") from None
    try:
        with defer_signals(), netCDF4.Dataset(path.name, memory=sealed) as file:
            if not lazy and memory.exceeds(size):
                raise ParameterError(
                    f"{path}: needs {memory.amount(size)} of memory, there are "
                    f"{memory.amount(memory.available())}"
                )
            dataset = None if lazy else _decoded(file)
        if dataset is None:
            dataset = xr.open_dataset(path, engine="netcdf4")
    except ParameterError:
        raise
    except Exception as error:  # netCDF4 raises various errors for what it cannot read
        raise ParameterError(
            f"{path}: not a readable netCDF file ({type(error).__name__})"
        ) from None
    if dataset.attrs.get("kind") != KIND:
        raise ParameterError(f"{path}: a netCDF file, but not a run of this toolkit")
    _check_attributes(path, dataset)
    return dataset


def _decoded(file: netCDF4.Dataset) -> xr.Dataset:
    """Content of an open file as xarray decodes it; numbers, of which runs consist, ten
    times as fast.
    """
    variables, attrs = {}, dict(file.__dict__)
    coordinates = attrs.pop("coordinates", "")
    file.set_auto_maskandscale(False)
    for name, v in file.variables.items():
        own = dict(v.__dict__)
        blank = own.pop("_FillValue", np.nan)
        more = own.pop("coordinates", "")
        number = getattr(v.dtype, "str", "")[1:] in ("f4", "f8", "i8")
        if not number or blank == blank or not own.keys() <= {"long_name"}:
            file.set_auto_maskandscale(True)
            return xr.open_dataset(NetCDF4DataStore(file)).load()
        coordinates = f"{coordinates} {more}"
        variables[name] = xr.Variable(v.dimensions, v[...], own)
    named = {n for n in coordinates.split() if n in variables}
    return xr.Dataset(variables, attrs=attrs).set_coords(named)


def _check_attributes(path: Path, dataset: xr.Dataset) -> None:
    """Raise an error if attributes differ in type from those of `provenance`; runs
    joined over a sweep may lack some.
    """
    for name in ("parameters", "configuration"):
        if name in dataset.attrs and not isinstance(_object(dataset.attrs[name]), dict):
            raise ParameterError(f"{path}: attribute {name} is not a JSON object")
    for name in ("model", "code"):
        if not isinstance(dataset.attrs.get(name, ""), str):
            raise ParameterError(f"{path}: attribute {name} is not a word")
    if "seed" in dataset.attrs and not isinstance(
        dataset.attrs["seed"], int | np.integer
    ):
        raise ParameterError(f"{path}: attribute seed is not a whole number")


def _object(text: Any) -> Any:
    """Parse a JSON text; None if it is invalid."""
    try:
        parsed = json.loads(text) if isinstance(text, str) else None
        json.dumps(parsed)  # as later comparisons do
        return parsed
    except (ValueError, RecursionError):  # the latter if nested too deeply
        return None


P = TypeVar("P", bound=BaseParameters)


def ensemble(
    path: Path | str,
    model: str,
    kind: type[P],
    needed: Mapping[str, tuple[str, ...]],
    sizes: Callable[[P], Mapping[str, int]] = lambda p: {},
) -> tuple[P, xr.Dataset]:
    """Read parameters and runs of a stored file or folder, and check that they have
    what a command needs.

    Parameters
    ----------
    path : path
        A netCDF file, or a folder of runs.
    model : str
        Model that the runs must belong to.
    kind : type
        That model's ``Parameters``.
    needed : mapping of str to tuple of str
        Required numeric variables and coordinates, with their dimensions.
    sizes : callable
        Lengths of dimensions that follow from the parameters.

    Raises
    ------
    ParameterError
        Naming the file and the missing or invalid part.
    """
    path = Path(path)
    runs = open(path) if path.is_dir() else read(path)
    if "model" not in runs.attrs:
        raise ParameterError(f"{path}: attribute model is missing")
    if runs.attrs["model"] != model:
        raise ParameterError(
            f"{path}: an ensemble of {runs.attrs['model']}, not of {model}"
        )
    if "parameters" not in runs.attrs:
        raise ParameterError(
            f"{path}: attribute parameters is missing, or runs of several settings;"
            " name one of its folders"
        )
    try:
        p = kind(**kind.filled(json.loads(runs.attrs["parameters"])))
    except (ParameterError, TypeError, AttributeError) as error:  # no JSON object
        raise ParameterError(f"{path}: attribute parameters: {error}") from None
    if runs.sizes.get("seed", 1) < 2:
        raise ParameterError(f"{path}: holds one seed; a comparison needs at least 2")
    for name, dimensions in needed.items():
        if name not in runs.variables:
            raise ParameterError(f"{path}: variable {name} is missing")
        if set(runs[name].dims) != set(dimensions):
            raise ParameterError(
                f"{path}: variable {name} has dimensions"
                f" ({', '.join(map(str, runs[name].dims))}), must be"
                f" ({', '.join(dimensions)})"
            )
        if runs[name].dtype.kind not in "biuf":
            raise ParameterError(f"{path}: variable {name} holds no numbers")
        if name in dimensions and not (np.diff(runs[name].values) > 0).all():
            raise ParameterError(f"{path}: coordinate {name} does not increase")
    for dimension, length in sizes(p).items():
        if runs.sizes.get(dimension, length) != length:
            raise ParameterError(
                f"{path}: dimension {dimension} has length {runs.sizes[dimension]},"
                f" must be {length}"
            )
    return p, p.timed(runs) if isinstance(p, Stepped) else runs


def finished(
    path: Path,
    config: str,
    seed: int,
    lack: Callable[[xr.Dataset], str] = lambda run: "",
) -> xr.Dataset | None:
    """Return the stored run if it exists, has the given configuration and, as ``lack``
    says, nothing missing. Any other file is reported and renamed.
    """
    if not path.exists():
        return None
    try:
        dataset = read(path)
        if (dataset.attrs.get("configuration"), dataset.attrs.get("seed")) != (
            config,
            seed,
        ):
            raise ParameterError(f"{path}: holds another configuration or seed")
        if said := lack(dataset):
            raise ParameterError(f"{path}: {said}")
    except ParameterError as error:
        aside = path.with_suffix(".damaged")
        path.replace(aside)
        warnings.warn(
            f"{error}; set aside as {aside.name}, training again", stacklevel=2
        )
        return None
    return dataset


def open(store: Path | str) -> xr.Dataset:
    """All finished runs of a store as one dataset.

    Damaged and foreign files, and duplicates, are reported in a warning and left out.
    Another warning is given if the seeds of one configuration were trained by different
    code. The result of `MANY` files is kept in the store; it is read in their place
    until one of them changes.

    Parameters
    ----------
    store : path
        Folder of runs, of one or of several configurations.

    Returns
    -------
    Dataset
        Over ``seed``, every parameter in which the configurations differ, and the
        model's time; NaN if there is no run or no measurement. If ``epochs`` is
        determined by the other parameters (a sweep at fixed ``--alpha``), it is not a
        dimension. Data that do not fit into memory are loaded on demand (dask arrays).

    Raises
    ------
    ParameterError
        If there are no runs, runs of several models, or more data than fit into memory
        and dask is not installed.
    """
    store = output.path(store)
    # A store has one level of folders; deeper ones are not searched.
    files = sorted([*store.glob("seed-*.nc"), *store.glob("*/seed-*.nc")])
    state = _state(files) if len(files) >= MANY else ""
    notes: list[str] = []
    try:
        found = _indexed(store / INDEX, state, notes)
        return _joined(store, files, state, notes) if found is None else found
    finally:
        for note in notes:
            warnings.warn(note, stacklevel=2)


def _state(files: Sequence[Path]) -> str:
    """Digest of the names, sizes and times of files, and of the code that reads them;
    empty if one cannot be looked at.
    """
    code = output.digest(Path(name) for name in (__file__, str(joined_runs.__file__)))
    try:
        stats = [(f.parent.name, f.name, f.stat()) for f in files]
    except OSError:
        return ""
    listed = [
        f"{d}/{f} {s.st_size} {s.st_mtime_ns} {s.st_ctime_ns} {s.st_ino}\n"
        for d, f, s in stats
    ]
    return output.hashed([code, theory.__version__, *listed])


def _indexed(path: Path, state: str, notes: list[str]) -> xr.Dataset | None:
    """What `_joined` kept of files in this state, and its notes; None if it kept
    nothing.
    """
    try:
        dataset = read(path) if state else xr.Dataset()
    except (ParameterError, OSError):
        return None
    kept = _object(dataset.attrs.pop("index", None))
    if not isinstance(kept, list) or kept[:1] != [state]:
        return None
    notes += map(str, kept[1:])
    return dataset


def _joined(
    store: Path, files: Sequence[Path], state: str, notes: list[str]
) -> xr.Dataset:
    """Runs of files as one dataset; what is to be said of them is added to the notes.
    Where all files are whole, and have a state to know them by, both are kept in an
    index.
    """
    runs_by: dict[str, dict[int, xr.Dataset]] = {}
    # A third each for the runs, the same stacked, and the result.
    room = max(memory.available(), memory.NEGLIGIBLE_BYTES) / 3
    lazy = False
    for file in files:
        try:
            run = read(file, lazy)
            setting = _object(run.attrs.get("configuration"))
            if setting is None or "seed" not in run.attrs:
                raise ParameterError(
                    f"{file}: attribute {'seed' if setting else 'configuration'} is"
                    " missing"
                )
            if setting.get("format") != FORMAT or not isinstance(
                setting.get("model"), str
            ):
                raise ParameterError(
                    f"{file}: written by another version of this toolkit"
                )
            _check_coordinates(file, run)
            config, seed = run.attrs["configuration"], int(run.attrs["seed"])
            of = runs_by.setdefault(config, {})
            if (
                file.name != place(store, config, seed).name
                or of.setdefault(seed, run) is not run
            ):
                raise ParameterError(
                    f"{file}: of seed {seed}, which is not its name, or that another"
                    " file holds already"
                )
        except (ParameterError, OSError) as error:
            notes.append(f"{error}; left out")
            continue
        room -= 0 if lazy else run.nbytes
        lazy = room < 0
    if not runs_by:
        raise ParameterError(
            f"{store}: no finished runs (seed-*.nc) in it or in its folders"
        )
    if any(_of_different_code(of.values()) for of in runs_by.values()):
        notes.append(
            f"{store}: seeds of one configuration, trained by different code; remove"
            " those of the older to train them again"
        )
    settings = {config: joined_runs.setting(config) for config in runs_by}
    models = sorted({s["model"] for s in settings.values()})
    if len(models) > 1:
        raise ParameterError(
            f"{store}: holds runs of {', '.join(models)}; name one of its folders"
        )
    spanning, others = joined_runs.swept([*settings.values()])
    points: list[tuple[Any, ...]] = []
    follow: dict[str, list[Any]] = {name: [] for name in others}
    for config, of in runs_by.items():
        values = settings[config]
        for seed in of:
            points.append((*(values.get(name) for name in spanning), seed))
            for name in others:
                follow[name].append(values.get(name))
    joined = [*itertools.chain.from_iterable(of.values() for of in runs_by.values())]
    grid = joined_runs.Grid([*spanning, "seed"], points, joined)
    if lazy or memory.exceeds(grid.nbytes):
        if importlib.util.find_spec("dask") is None:
            raise ParameterError(
                f"{store}: needs {memory.amount(3 * grid.nbytes)} of memory, there are"
                f" {memory.amount(memory.available())}; name one of its folders, or"
                " install dask to open it piece by piece"
            )
        grid.runs = [run.chunk() for run in grid.runs]
    notes += [f"{store}: {blank}" for blank in grid.blanks()]
    dataset = grid.dataset(follow)
    if state and len(joined) == len(files) and not dataset.chunks:
        index = json.dumps([state, *notes])
        with contextlib.suppress(ParameterError, OSError):
            write(dataset.assign_attrs(index=index), store / INDEX)
    return dataset


def _of_different_code(seeds: Iterable[xr.Dataset]) -> bool:
    """Whether runs were trained by different code."""
    return len({run.attrs.get("code", "") for run in seeds}) > 1


def _check_coordinates(path: Path, run: xr.Dataset) -> None:
    """Raise an error if a coordinate holds a value twice, or what is no number."""
    if {"seed", joined_runs.RUN} & {*run.variables, *run.dims}:
        raise ParameterError(f"{path}: holds an ensemble, not the run of one seed")
    for d in run.sizes:
        values = run.variables[d].values if d in run.variables else np.arange(0)
        if len(np.unique(values)) < len(values) or (
            values.dtype.kind == "f" and not np.isfinite(values).all()
        ):
            raise ParameterError(f"{path}: coordinate {d} holds a value twice, or none")
