"""Store of finished runs: one netCDF file per (configuration, seed). A file that exists is
complete.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import math
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import netCDF4
import numpy as np
import torch
import xarray as xr
from filelock import FileLock

from simulate.signals import defer_signals
from theory import prediction
from theory.parameters import BaseParameters, ParameterError, error_summary
from theory.runtime import memory, sources
from theory.runtime.output import atomic

FORMAT = 3  # to be raised when the meaning of a stored run changes
KIND = "solvable-transformers run"
MARK = b"sha256:"
TRAILER = len(MARK) + 32
PACKED = 1100  # largest expansion by zlib, 1032, and a margin


def default_store() -> Path:
    """``$SOLVABLE_TRANSFORMERS_RUNS``, or ``output/runs`` in the working directory."""
    return Path(os.environ.get("SOLVABLE_TRANSFORMERS_RUNS", "output/runs"))


def configuration(model: str, p: BaseParameters, **more: Any) -> str:
    """Canonical text that identifies a configuration; equal texts mean equal runs."""
    return json.dumps(
        {"format": FORMAT, "model": model, **p.stored(training_only=True), **more}, sort_keys=True
    )


def place(store: Path, config: str, seed: int) -> Path:
    """Path of a run's file."""
    return store / hashlib.sha256(config.encode()).hexdigest()[:16] / f"seed-{seed:05d}.nc"


def provenance(
    model: str, config: str, p: BaseParameters, seed: int, code: str = ""
) -> dict[str, Any]:
    """Attributes of every stored run; ``code`` is the digest (`statements`) of the code that
    trained it.
    """
    versions = {name: _version(name) for name in ("solvable-transformers", "torch", "numpy")}
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return {
        "kind": KIND,
        "model": model,
        "parameters": p.as_json(),
        "configuration": config,
        "seed": seed,
        "versions": json.dumps(versions),
        "command": command.encode(errors="backslashreplace").decode(),  # a path may be invalid text
        "code": code,
    }


@functools.cache
def statements(module: str) -> str:
    """Digest of the package that contains a module (of ``simulate.py`` in a flat package), and of
    the task module in theory if there is one; empty for code that is not in a file (a notebook).
    """
    source = sys.modules[module]
    if getattr(source, "__file__", None) is None:
        return ""
    path, package = Path(str(source.__file__)), source.__package__ or ""
    if not package or path.name == "simulate.py":
        return sources.digest([path])
    task = sys.modules.get(f"{package.replace('simulate.', 'theory.', 1)}.task")
    law = [] if task is None or package in task.__name__ else [Path(str(task.__file__))]
    return sources.digest([*sorted(path.parent.rglob("*.py")), *law])


def _version(package: str) -> str:
    """Version of a package; also works for a checkout that is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _seal(path: Path, content: bytes) -> None:
    """Write bytes followed by their digest, atomically. HDF5 readers ignore what follows the
    data.
    """
    with atomic(path) as temporary:
        temporary.write_bytes(content + MARK + hashlib.sha256(content).digest())


def _sizable(path: Path) -> None:
    """Raise an error if a path is not a regular file or does not fit into memory twice (as bytes
    and as arrays).

    Raises
    ------
    ParameterError
        Naming the file.
    """
    if not path.is_file():
        raise ParameterError(
            f"{path}: {'is not a regular file' if path.exists() else 'no such file'}"
        )
    size, there = path.stat().st_size, memory.available()
    if 2 * size > max(there, memory.NEGLIGIBLE_BYTES):
        raise ParameterError(
            f"{path}: reading it takes twice its {memory.amount(size)}, there are {memory.amount(there)}"
        )


def _unseal(path: Path) -> bytes:
    """Read bytes written by `_seal` and check the digest.

    Raises
    ------
    ParameterError
        If the file is missing, too large, has no digest, or differs in any bit from what was
        written.
    """
    _sizable(path)
    sealed = path.read_bytes()
    content, mark, digest = sealed[:-TRAILER], sealed[-TRAILER:-32], sealed[-32:]
    if mark != MARK:
        raise ParameterError(f"{path}: not a result of this toolkit, or cut short")
    if hashlib.sha256(content).digest() != digest:
        raise ParameterError(f"{path}: damaged (its checksum does not match)")
    return content


def write(dataset: xr.Dataset, path: Path | str) -> None:
    """Write a dataset as netCDF, atomically.

    Raises
    ------
    OSError
        If the disk is full; no partial file remains.
    ParameterError
        If the dataset cannot be represented in netCDF.
    """
    _seal(Path(path), content(dataset))


def content(dataset: xr.Dataset) -> bytes:
    """A dataset as the bytes of a netCDF file.

    Raises
    ------
    ParameterError
        If the dataset cannot be represented in netCDF.
    """
    packed = {
        name: {"zlib": True, "complevel": 4} for name, v in dataset.variables.items() if v.size > 64
    }
    try:
        with defer_signals():
            return bytes(dataset.to_netcdf(engine="netcdf4", encoding=packed))
    except (OSError, MemoryError):
        raise
    except Exception as error:  # netCDF4 raises various errors for what it cannot write
        raise ParameterError(f"cannot be stored as netCDF: {error_summary(error)}") from None


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
        If the file is missing, damaged, not written by this toolkit, or does not fit into memory.
    """
    path = Path(path)
    sealed = _unseal(path)
    try:
        with defer_signals(), netCDF4.Dataset(path.name, memory=sealed) as shapes:
            size = sum(v.size * getattr(v.dtype, "itemsize", 8) for v in shapes.variables.values())
        if size > max(
            PACKED * len(sealed), memory.NEGLIGIBLE_BYTES
        ):  # xarray would read the coordinates
            raise ParameterError(
                f"{path}: says that its {memory.amount(len(sealed))} hold {memory.amount(size)}, "
                "more than can be packed into them"
            )
        with defer_signals(), xr.open_dataset(sealed, engine="netcdf4") as closed:
            if not lazy and closed.nbytes > max(memory.available(), memory.NEGLIGIBLE_BYTES):
                raise ParameterError(
                    f"{path}: needs {memory.amount(closed.nbytes)} of memory, there are "
                    f"{memory.amount(memory.available())}"
                )
            dataset = xr.open_dataset(path, engine="netcdf4") if lazy else closed.load()
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


def _check_attributes(path: Path, dataset: xr.Dataset) -> None:
    """Raise an error if attributes differ in type from those of `provenance`; runs joined over a
    sweep may lack some.
    """
    for name in ("parameters", "configuration"):
        if name in dataset.attrs and not isinstance(_object(dataset.attrs[name]), dict):
            raise ParameterError(f"{path}: attribute {name} is not a JSON object")
    if not isinstance(dataset.attrs.get("model", ""), str):
        raise ParameterError(f"{path}: attribute model is not a word")
    if "seed" in dataset.attrs and not isinstance(dataset.attrs["seed"], int | np.integer):
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
    """Read parameters and runs of a stored file or folder, and check that they have what a command
    needs.

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
        raise ParameterError(f"{path}: an ensemble of {runs.attrs['model']}, not of {model}")
    if "parameters" not in runs.attrs:
        raise ParameterError(
            f"{path}: attribute parameters is missing, or runs of several settings; name one of its folders"
        )
    try:
        p = kind(**json.loads(runs.attrs["parameters"]))
    except (ParameterError, TypeError) as error:  # a name such as self
        raise ParameterError(f"{path}: attribute parameters: {error}") from None
    if runs.sizes.get("seed", 1) < 2:
        raise ParameterError(f"{path}: holds one seed; a comparison needs at least 2")
    for name, dimensions in needed.items():
        if name not in runs.variables:
            raise ParameterError(f"{path}: variable {name} is missing")
        if set(runs[name].dims) != set(dimensions):
            raise ParameterError(
                f"{path}: variable {name} has dimensions ({', '.join(map(str, runs[name].dims))}), "
                f"must be ({', '.join(dimensions)})"
            )
        if runs[name].dtype.kind not in "biuf":
            raise ParameterError(f"{path}: variable {name} holds no numbers")
        if name in dimensions and not (np.diff(runs[name].values) > 0).all():
            raise ParameterError(f"{path}: coordinate {name} does not increase")
    for dimension, length in sizes(p).items():
        if runs.sizes.get(dimension, length) != length:
            raise ParameterError(
                f"{path}: dimension {dimension} has length {runs.sizes[dimension]}, must be {length}"
            )
    return p, runs


def writable(places: Iterable[Path]) -> None:
    """Check, before any work, whether runs can be written, by writing a test file next to each.

    Raises
    ------
    OSError
        Naming the obstacle.
    """
    for folder in dict.fromkeys(place.parent for place in places):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"1")
        except OSError as error:
            raise type(error)(error.errno, os.strerror(error.errno or 0), str(folder)) from None


def destination(out: Path | None) -> tuple[Path, Path | None]:
    """Store and single output file for an output path: a path that ends in .nc is the single file,
    any other path is the store.

    Raises
    ------
    OSError
        If that file could not be written.
    """
    if out is None or out.suffix != ".nc":
        return out or default_store(), None
    if out.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(out))
    writable([out])
    return default_store(), out


def finished(path: Path, config: str, seed: int) -> xr.Dataset | None:
    """Return the stored run if it exists and has the given configuration. Any other file is
    reported and renamed.
    """
    if not path.exists():
        return None
    try:
        dataset = read(path)
        if (dataset.attrs.get("configuration"), dataset.attrs.get("seed")) != (config, seed):
            raise ParameterError(f"{path}: holds another configuration or seed")
    except ParameterError as error:
        aside = path.with_suffix(".damaged")
        path.replace(aside)
        warnings.warn(f"{error}; set aside as {aside.name}, training again", stacklevel=2)
        return None
    return dataset


def lock(path: Path) -> FileLock:
    """File lock to hold while training a run. The operating system releases it if the process dies.

    The lock file is not removed: removing it while others may be about to lock it is a race
    condition.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path.with_name(f".{path.stem}.lock"))


def pickled(state: dict[str, Any]) -> bytes:
    """Serialise a checkpoint, and check that `unpickled` can read it.

    Raises
    ------
    ParameterError
        If torch cannot save it, or would not read it back.
    """
    buffer = BytesIO()
    try:
        torch.save(state, buffer)
        unpickled(buffer.getvalue())
    except MemoryError:
        raise
    except Exception as error:  # torch raises various errors for what it cannot save or read
        raise ParameterError(
            f"cannot be saved and read back ({error_summary(error)}); "
            "tensors, numbers, and lists or dictionaries of them can"
        ) from None
    return buffer.getvalue()


def unpickled(saved: bytes) -> dict[str, Any]:
    """Read a serialised checkpoint. Only tensors and plain values are created from the bytes."""
    return torch.load(BytesIO(saved), weights_only=True, map_location="cpu")


def sweep_up(path: Path) -> None:
    """Remove temporary files that killed processes have left of a run; the caller holds its
    `lock`.
    """
    for left in path.parent.glob(f".{path.stem}-*"):
        left.unlink(missing_ok=True)


def save_checkpoint(path: Path, config: str, seed: int, state: dict[str, Any]) -> None:
    """Write a checkpoint next to the run it belongs to; errors as in `pickled`."""
    _seal(
        path.with_suffix(".checkpoint"), pickled({"configuration": config, "seed": seed, **state})
    )


def load_checkpoint(path: Path, config: str, seed: int) -> dict[str, Any] | None:
    """Checkpoint of an interrupted run, or None. A damaged checkpoint, or one of another run, is
    reported and ignored.
    """
    checkpoint = path.with_suffix(".checkpoint")
    if not checkpoint.exists():
        return None
    try:
        state = unpickled(_unseal(checkpoint))
        if (state["configuration"], state["seed"]) != (config, seed):
            raise ParameterError(f"{checkpoint}: of another configuration or seed")
    except ParameterError as error:
        warnings.warn(f"{error}; starting over", stacklevel=2)
        return None
    except Exception as error:  # torch.load raises various errors for what it cannot read
        warnings.warn(
            f"{checkpoint}: cannot be read ({error_summary(error)}); starting over", stacklevel=2
        )
        return None
    return state


def drop_checkpoint(path: Path) -> None:
    """Remove the checkpoint of a finished run."""
    path.with_suffix(".checkpoint").unlink(missing_ok=True)


def combine(datasets: Iterable[xr.Dataset], seeds: Iterable[int]) -> xr.Dataset:
    """Join runs of one configuration along ``seed``."""
    joined = xr.concat(list(datasets), dim="seed", combine_attrs="drop_conflicts", join="exact")
    return joined.assign_coords(seed=("seed", np.asarray(list(seeds))))


def open(store: Path | str) -> xr.Dataset:
    """All finished runs of a store as one dataset.

    Damaged and foreign files, and duplicates, are reported in a warning and left out. Another
    warning is given if the seeds of one configuration were trained by different code.

    Parameters
    ----------
    store : path
        Folder of runs, of one or of several configurations.

    Returns
    -------
    Dataset
        Over ``seed``, every parameter in which the configurations differ, and the model's time; NaN
        if there is no run or no measurement. If ``epochs`` is determined by the other parameters (a
        sweep at fixed ``--alpha``), it is not a dimension. Data that do not fit into memory are
        loaded on demand (dask arrays).

    Raises
    ------
    ParameterError
        If there are no runs, runs of several models, or more data than fit into memory and dask is
        not installed.
    """
    runs_by: dict[str, dict[int, xr.Dataset]] = {}
    # A store has one level of folders; deeper ones are not searched.
    for file in sorted([*Path(store).glob("seed-*.nc"), *Path(store).glob("*/seed-*.nc")]):
        try:
            run = read(file, lazy=True)
            setting = _object(run.attrs.get("configuration"))
            if setting is None or "seed" not in run.attrs:
                raise ParameterError(
                    f"{file}: attribute {'seed' if setting else 'configuration'} is missing"
                )
            if setting.get("format") != FORMAT or not isinstance(setting.get("model"), str):
                raise ParameterError(f"{file}: written by another version of this toolkit")
            of = runs_by.setdefault(run.attrs["configuration"], {})
            if of.setdefault(int(run.attrs["seed"]), run) is not run:
                raise ParameterError(f"{file}: a run that another file holds already")
        except (ParameterError, OSError) as error:
            warnings.warn(f"{error}; left out", stacklevel=2)
    if not runs_by:
        raise ParameterError(f"{store}: no finished runs (seed-*.nc) in it or in its folders")
    if any(len({run.attrs.get("code", "") for run in of.values()}) > 1 for of in runs_by.values()):
        warnings.warn(
            f"{store}: seeds of one configuration, trained by different code; remove those of the "
            "older to train them again",
            stacklevel=2,
        )
    settings = {config: _setting(config) for config in runs_by}
    models = sorted({s["model"] for s in settings.values()})
    if len(models) > 1:
        raise ParameterError(f"{store}: holds runs of {', '.join(models)}; name one of its folders")
    swept = _swept(list(settings.values()))
    ready = _loader(
        store,
        runs_by,
        math.prod(len({json.dumps(s.get(n)) for s in settings.values()}) for n in swept),
    )
    pieces = [
        (settings[config], combine([ready(of[s]) for s in sorted(of)], sorted(of)))
        for config, of in runs_by.items()
    ]
    return _join(pieces, swept)


def _setting(config: str) -> dict[str, Any]:
    """Stored configuration, with the defaults of fields that were added since."""
    setting = json.loads(config)
    model = prediction.named(setting["model"])
    kind = None if model is None else getattr(model.wing("theory"), "Parameters", None)
    return setting if kind is None else kind.filled(setting)


def _loader(
    store: Path | str, found: Mapping[str, Mapping[int, xr.Dataset]], points: int
) -> Callable[[xr.Dataset], xr.Dataset]:
    """Function that loads the runs of a store: into memory, or lazily if they do not fit."""
    largest = max(run.nbytes for of in found.values() for run in of.values())
    needed = (
        3 * points * max(len(of) for of in found.values()) * largest
    )  # memory: runs, joined along seeds, joined over the sweep
    if needed <= max(memory.available(), memory.NEGLIGIBLE_BYTES):
        return _whole
    if importlib.util.find_spec("dask") is None:
        raise ParameterError(
            f"{store}: needs {memory.amount(needed)} of memory, there are {memory.amount(memory.available())}; "
            "name one of its folders, or install dask to open it piece by piece"
        )
    return lambda run: run.chunk()


def _whole(run: xr.Dataset) -> xr.Dataset:
    """Load values into memory and close the file."""
    with run:
        return run.load()


def _swept(settings: list[dict[str, Any]]) -> list[str]:
    """Names of the parameters in which the configurations differ."""

    def distinct(names: Iterable[str]) -> int:
        return len({json.dumps([s.get(n) for n in names]) for s in settings})

    names = [n for n in sorted({n for s in settings for n in s}) if distinct([n]) > 1]
    without = [n for n in names if n != "epochs"]
    return without if distinct(without) == len(settings) else names


def _join(pieces: list[tuple[dict[str, Any], xr.Dataset]], names: list[str]) -> xr.Dataset:
    """Join ensembles along the swept parameters, one parameter after the other."""
    if not names:
        return pieces[0][1]
    name = names[0]
    groups: dict[Any, list] = {}
    for setting, dataset in pieces:
        value = setting.get(name)
        groups.setdefault(value if isinstance(value, int | float) else str(value), []).append(
            (setting, dataset)
        )
    values = sorted(groups)
    joined = [_join(groups[v], names[1:]) for v in values]
    numbered = [
        d.assign_coords(
            {n: np.arange(1, size + 1) for n, size in d.sizes.items() if n not in d.coords}
        )
        for d in joined
    ]
    along = xr.DataArray(values, dims=name, name=name)
    return xr.concat(
        numbered,
        dim=along,
        join="outer",
        data_vars="all",
        coords="different",
        compat="equals",
        combine_attrs="drop_conflicts",
    )
