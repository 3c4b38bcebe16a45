"""Digest of all code that a ``verify`` command may use for a model."""

from __future__ import annotations

import importlib
from pathlib import Path

from theory.registry import Model
from theory.runtime.sources import imported, used

ROOT = Path(__file__).parents[1]
WINGS = ("theory", "simulate", "verify")
# Modules that list or import every model, handle statements in files, draw, print, make digests.
ASIDE = (
    "verify",
    "verify.digests",
    "verify.kept",
    "verify.stored",
    "theory.registry",
    "verify.device.students",
    "theory.statement.model",
    "theory.runtime.plotting",
    "theory.renaming",
    "theory.titles",
    "theory.printing",
    "theory.runtime.sources",
)


def sources(model: Model, command: str) -> str:
    """Digest of all code that may affect the results of a command for a model."""
    files = modules(model, command)
    return used(files.values(), [files[name] for name in _roots(model, command) if name in files])


def _roots(model: Model, command: str) -> list[str]:
    """Modules that implement a command for a model; one model may share another's."""
    return [m.place("verify", command) for m in model.offering(command)]


def packages(model: Model) -> dict[str, Path]:
    """Folders of the wings, and of the package that a model comes from, by name."""
    folders = {wing: ROOT / wing for wing in WINGS}
    if model.package:
        top = model.package.partition(".")[0]
        folders[top] = Path(str(importlib.import_module(top).__file__)).parent
    return folders


def modules(model: Model, command: str) -> dict[str, Path]:
    """Files of the modules that implement a command, of the model's theory and students, and of
    everything that these import.

    Device measurements and the shortcut to shipped ensembles are excluded.
    """
    tops = packages(model)
    own = [m.path(wing) for m in model.offering(command) for wing in ("theory", "simulate")]
    return imported(["verify.report", *_roots(model, command), *own], tops, ASIDE)
