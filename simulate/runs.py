"""Store of finished runs: one netCDF file per (configuration, seed); a file that exists is complete."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import sys
import warnings
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from filelock import FileLock

from theory.cli import atomic
from theory.parameters import BaseParameters, ParameterError

FORMAT = 3  # raise when the meaning of a stored run changes
KIND = "solvable-transformers run"
MARK = b"sha256:"
TRAILER = len(MARK) + 32


def default_store() -> Path:
    """``$SOLVABLE_TRANSFORMERS_RUNS``, or ``output/runs`` in the working directory."""
    return Path(os.environ.get("SOLVABLE_TRANSFORMERS_RUNS", "output/runs"))


def configuration(model: str, p: BaseParameters, **more: Any) -> str:
    """Canonical text that identifies a configuration: equal text, equal runs."""
    return json.dumps({"format": FORMAT, "model": model, **p.as_dict(training_only=True), **more}, sort_keys=True)


def place(store: Path, config: str, seed: int) -> Path:
    """File of a run."""
    return store / hashlib.sha256(config.encode()).hexdigest()[:16] / f"seed-{seed:05d}.nc"


def provenance(model: str, config: str, p: BaseParameters, seed: int) -> dict[str, Any]:
    """Attributes every stored run carries."""
    versions = {name: _version(name) for name in ("solvable-transformers", "torch", "numpy")}
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return {
        "kind": KIND, "model": model, "parameters": p.as_json(), "configuration": config, "seed": seed,
        "versions": json.dumps(versions), "command": command,
    }  # fmt: skip


def _version(package: str) -> str:
    """Version of a package; a checkout may be used without being installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _seal(path: Path, content: bytes) -> None:
    """Write bytes with their digest behind them, whole or not at all; HDF5 readers ignore what follows the data."""
    with atomic(path) as temporary:
        temporary.write_bytes(content + MARK + hashlib.sha256(content).digest())


def _unseal(path: Path) -> bytes:
    """Read the bytes back.

    Raises
    ------
    ParameterError
        If the file is missing, carries no digest, or differs from what was written in any bit.
    """
    if not path.is_file():
        raise ParameterError(f"{path}: no such file")
    sealed = path.read_bytes()
    content, mark, digest = sealed[:-TRAILER], sealed[-TRAILER:-32], sealed[-32:]
    if mark != MARK:
        raise ParameterError(f"{path}: not a result of this toolkit, or cut short")
    if hashlib.sha256(content).digest() != digest:
        raise ParameterError(f"{path}: damaged (its checksum does not match)")
    return content


def write(dataset: xr.Dataset, path: Path) -> None:
    """Write a dataset as netCDF, whole or not at all.

    Raises
    ------
    OSError
        If the disk does not take it; nothing is left behind.
    """
    buffer = BytesIO()
    packed = {name: {"zlib": True, "complevel": 4} for name, v in dataset.variables.items() if v.size > 64}
    dataset.to_netcdf(buffer, engine="h5netcdf", encoding=packed)
    _seal(path, buffer.getvalue())


def read(path: Path) -> xr.Dataset:
    """Read a run or an ensemble.

    Raises
    ------
    ParameterError
        If the file is missing, damaged, or not written by this toolkit.
    """
    content = _unseal(path)
    try:
        with xr.open_dataset(BytesIO(content), engine="h5netcdf") as lazy:
            dataset = lazy.load()
    except Exception as error:  # h5py has no common error for what it cannot read
        raise ParameterError(f"{path}: not a readable netCDF file ({type(error).__name__})") from None
    if dataset.attrs.get("kind") != KIND:
        raise ParameterError(f"{path}: a netCDF file, but not a run of this toolkit")
    return dataset


def finished(path: Path, config: str, seed: int) -> xr.Dataset | None:
    """Return the stored run if it is there and is the one asked for; any other file is named and set aside."""
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
    """Lock to hold while training the run of this file; the system opens it when its holder dies.

    The lock's own file stays behind: to remove it while others may be about to lock it is a race.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path.with_name(f".{path.stem}.lock"))


def save_checkpoint(path: Path, config: str, seed: int, state: dict[str, Any]) -> None:
    """Write a checkpoint next to the run it belongs to."""
    buffer = BytesIO()
    torch.save({"configuration": config, "seed": seed, **state}, buffer)
    _seal(path.with_suffix(".checkpoint"), buffer.getvalue())


def load_checkpoint(path: Path, config: str, seed: int) -> dict[str, Any] | None:
    """Checkpoint of an interrupted run, or None; one that is damaged or of another run is named and ignored."""
    checkpoint = path.with_suffix(".checkpoint")
    if not checkpoint.exists():
        return None
    try:
        state = torch.load(BytesIO(_unseal(checkpoint)), weights_only=True, map_location="cpu")
        if (state["configuration"], state["seed"]) != (config, seed):
            raise ParameterError(f"{checkpoint}: of another configuration or seed")
    except Exception as error:  # torch.load has no common error for what it cannot read
        warnings.warn(f"{error}; starting over", stacklevel=2)
        return None
    return state


def drop_checkpoint(path: Path) -> None:
    """Remove the checkpoint of a run that is finished."""
    path.with_suffix(".checkpoint").unlink(missing_ok=True)


def combine(datasets: Iterable[xr.Dataset], seeds: Iterable[int]) -> xr.Dataset:
    """Join runs of one configuration along ``seed``."""
    joined = xr.concat(list(datasets), dim="seed", combine_attrs="drop_conflicts", join="exact")
    return joined.assign_coords(seed=("seed", np.asarray(list(seeds))))


def open(store: Path | str) -> xr.Dataset:
    """All finished runs of a store as one dataset.

    Damaged and foreign files are named in a warning and left out.

    Parameters
    ----------
    store : path
        Folder of runs, of one or of several configurations.

    Returns
    -------
    Dataset
        Over ``seed``, a dimension for every parameter the configurations differ in, and the model's time;
        NaN where there is no run or no measurement. Where ``epochs`` follows from the other
        parameters (a sweep at fixed ``--alpha``), it is no dimension.

    Raises
    ------
    ParameterError
        If there are no runs, or runs of several models.
    """
    found: dict[str, dict[int, xr.Dataset]] = {}
    for file in sorted(Path(store).glob("**/seed-*.nc")):
        try:
            run = read(file)
            if json.loads(run.attrs["configuration"])["format"] != FORMAT:
                raise ParameterError(f"{file}: written by another version of this toolkit")
            found.setdefault(run.attrs["configuration"], {})[int(run.attrs["seed"])] = run
        except ParameterError as error:
            warnings.warn(f"{error}; left out", stacklevel=2)
    if not found:
        raise ParameterError(f"{store}: no finished runs")
    settings = {config: json.loads(config) for config in found}
    models = sorted({s["model"] for s in settings.values()})
    if len(models) > 1:
        raise ParameterError(f"{store}: holds runs of {', '.join(models)}; name one of its folders")
    pieces = [(settings[config], combine([of[s] for s in sorted(of)], sorted(of))) for config, of in found.items()]
    return _join(pieces, _swept(list(settings.values())))


def _swept(settings: list[dict[str, Any]]) -> list[str]:
    """Names of the parameters that tell the configurations apart."""

    def distinct(names: Iterable[str]) -> int:
        return len({json.dumps([s.get(n) for n in names]) for s in settings})

    names = [n for n in sorted({n for s in settings for n in s}) if distinct([n]) > 1]
    without = [n for n in names if n != "epochs"]
    return without if distinct(without) == len(settings) else names


def _join(pieces: list[tuple[dict[str, Any], xr.Dataset]], names: list[str]) -> xr.Dataset:
    """Join ensembles along the swept parameters, one after the other."""
    if not names:
        return pieces[0][1]
    name = names[0]
    groups: dict[Any, list] = {}
    for setting, dataset in pieces:
        value = setting.get(name)
        groups.setdefault(value if isinstance(value, int | float) else str(value), []).append((setting, dataset))
    values = sorted(groups)
    joined = [_join(groups[v], names[1:]) for v in values]
    numbered = [d.assign_coords({n: np.arange(1, size + 1) for n, size in d.sizes.items() if n not in d.coords})
                for d in joined]  # fmt: skip
    along = xr.DataArray(values, dims=name, name=name)
    return xr.concat(numbered, dim=along, join="outer", data_vars="all", coords="different", compat="equals",
                     combine_attrs="drop_conflicts")  # fmt: skip
