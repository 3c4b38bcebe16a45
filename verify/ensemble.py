"""Ensemble for a command: a given file, a shipped ensemble, or students trained once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from simulate import runs as store
from simulate.systems import of_model as systems
from simulate.training import System
from theory import Model, ParameterError
from verify.report import Request

SEEDS = "4"  # of students, where a model does not say
FLAGS = ("plot", "set", "preset", "seeds", "alpha", "until", "device", "quiet", "beyond", "runs")


@dataclass(frozen=True)
class Source:
    """Where a model's ensembles come from.

    Attributes
    ----------
    system : System
        System of the students.
    base : Parameters
        Default parameters of the training.
    seeds : str
        Default seeds.
    needed : mapping of str to tuple of str
        Required variables of a stored ensemble, with their dimensions.
    until : float, optional
        Run length for `base`, if not given by its parameters.
    sizes : callable
        Lengths of dimensions that follow from parameters.
    shipped : callable, optional
        Function that returns the shipped ensemble.
    """

    system: System
    base: Any
    seeds: str
    needed: Mapping[str, tuple[str, ...]]
    until: float | None = None
    sizes: Callable[[Any], Mapping[str, int]] = lambda p: {}
    shipped: Callable[[], tuple[Any, xr.Dataset]] | None = None

    def read(self, path: Path) -> tuple[Any, xr.Dataset]:
        """Parameters and ensemble of a stored file or folder."""
        return store.ensemble(path, self.system.name, type(self.base), self.needed, self.sizes)


def of(model: Model) -> Source:
    """Source of a model's ensembles: its module ``ensemble``, or students of its first system at
    its default parameters, with all their measurements.
    """
    if model.has("verify", "ensemble"):
        return model.wing("verify", "ensemble").SOURCE
    (system, *_) = systems(model)
    time = str(system.time)
    needed = {x: ("seed", time, *system.dimensions.get(x, ())) for x in system.meaning}
    needed |= {time: (time,), system.counter: (time,)}
    return Source(system, system.parameters(), SEEDS, needed)


def get(request: Request) -> tuple[Any, xr.Dataset]:
    """Parameters and ensemble for a request.

    Raises
    ------
    ParameterError
        If the given file is not an ensemble of this model, or parameters are given in addition.
    """
    source = of(request.model)
    if request.runs is not None:
        if str(request.runs).endswith((".csv", ".npz")):
            raise ParameterError(f"--runs {request.runs}: a table needs --columns NAME=COLUMN,...")
        if request.given:
            raise ParameterError(
                f"{request.given[0]}: not together with --runs, whose file says with what it was trained"
            )
        return source.read(request.runs)
    if source.shipped is not None and not request.given:
        return source.shipped()
    p = request.parameters(source.base)
    p = p.run_to(request.until or (source.until if p == source.base else None))
    return p, source.system.train(p, request.seed_list(source.seeds), **request.training)
