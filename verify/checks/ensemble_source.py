"""Ensemble for a command: a given file, a shipped ensemble,
or students trained once.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from simulate.store import runs as store
from simulate.systems import of_model as systems
from simulate.training.plan import System
from theory import Model, ParameterError
from verify.checks.report import Request

SEEDS = "4"  # of students, where a model does not say
FLAGS = (
    "plot",
    "set",
    "preset",
    "seeds",
    "alpha",
    "until",
    "device",
    "quiet",
    "beyond",
    "runs",
)


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
        return store.ensemble(
            path, self.system.name, type(self.base), self.needed, self.sizes
        )


def of_system(
    system: System,
    base: Any = None,
    seeds: str = SEEDS,
    also: Iterable[str] = (),
    **more: Any,
) -> Source:
    """Students of a system with all their measurements, and what is in the file
    ``also``; further fields of `Source` by name.
    """
    time = str(system.time)
    measured = (*system.meaning, *also)
    needed = {x: ("seed", time, *system.dimensions.get(x, ())) for x in measured}
    needed |= {time: (time,), system.counter: (time,)}
    return Source(system, base or system.parameters(), seeds, needed, **more)


def of(model: Model) -> Source:
    """Source of a model's ensembles: that of its module ``ensemble`` or of its one
    file, or students of its first system at its default parameters.
    """
    place = next((x for x in ("ensemble", "SOURCE") if model.has("verify", x)), None)
    return model.wing("verify", place).SOURCE if place else of_system(systems(model)[0])


def get(request: Request) -> tuple[Any, xr.Dataset]:
    """Parameters and ensemble for a request.

    Raises
    ------
    ParameterError
        If the given file is not an ensemble of this model, or parameters are given in
        addition.
    """
    source = of(request.model)
    if request.runs is not None:
        if str(request.runs).endswith((".csv", ".npz")):
            raise ParameterError(
                f"--runs {request.runs}: a table needs --columns NAME=COLUMN,..."
            )
        if request.given:
            raise ParameterError(
                f"{request.given[0]}: not together with --runs, whose file says with"
                " what it was trained"
            )
        return source.read(request.runs)
    if source.shipped is not None and not request.given:
        return source.shipped()
    p = request.parameters(source.base)
    p = p.run_to(request.until or (source.until if p == source.base else None))
    return p, source.system.train(
        p, request.seed_list(source.seeds), **request.training
    )
