"""The one training loop: plan the runs that are missing, carry them out, read the store
back.
"""

from __future__ import annotations

import functools
import textwrap
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from simulate.store import checkpoints, joined_runs, runs, storage
from simulate.training import arguments, interface_checks, jobs
from simulate.training import device as devices
from simulate.training.learner import Clamped, Learner
from simulate.training.stack import Run, seconds_per_step, train_stack
from theory.call.arguments import misfit
from theory.call.parameters import BaseParameters
from theory.call.refusal import ParameterError, error_summary

PRECISIONS = ("float32", "float64")


def records(p: Any, numbers: int) -> float:
    """Memory in bytes for a given number of recorded values per measurement: stored,
    stacked, packed, written.
    """
    return (steps_of(p) // p.eval_every + 2) * 4 * 8 * numbers


def steps_of(p: Any) -> int:
    """Number of steps of a run: the field that counts them."""
    return getattr(p, getattr(p, "LENGTH", "steps"))


def elapsed(p: Any, steps: np.ndarray) -> np.ndarray:
    """Time after so many steps of equal length."""
    return p.time_per_step * steps


FEW_STEPS = dict(steps=24, eval_every=4)  # of a tiny run


@dataclass(frozen=True)
class System:
    """Description of a kind of student for training.

    Attributes
    ----------
    name : str
        Name under which runs are stored.
    parameters : type
        Its ``Parameters``.
    make : callable
        ``make(p, seeds, device, dtype, **own)`` gives a `Learner`.
    meaning : mapping
        Measured quantities and their meanings.
    memory : callable
        ``memory(p, itemsize)``: peak memory of one run in bytes, with ``itemsize``
        bytes per weight.
    dimensions : mapping
        Extra dimensions of a measured quantity.
    time : str or None
        Time dimension of the measurements, made every ``p.eval_every`` steps; None if
        only final results are recorded (`Learner.finish`). By default that of
        `theory.call.parameters.Stepped` parameters, otherwise the step number.
    clock : callable, optional
        ``clock(p, steps)`` converts steps to the unit of ``time``; `elapsed` by
        default, if the parameters are `Stepped`.
    counter : str
        Name of a step; by default as the field that counts them, without its s.
    length : callable
        ``length(p)``: number of steps of a run; by default the field that counts them.
    sweep_parameter : str
        Parameter, if any, that is a dimension of results; `train` accepts several
        values of it.
    stack : int
        Number of seeds trained together on a GPU. On the CPU it is one, as every seed
        has its own core.
    joint : bool
        Whether a stack also spans the values of `sweep_parameter`, and is trained
        together on the CPU, too; ``make`` then gets one Parameters per seed, in a list.
    default_dtype : str or None
        Default precision, which is then omitted from the stored configuration. Without
        it the default is single precision, always stored.
    devices : tuple of str
        Supported types of devices; all if empty.
    identity : callable
        ``identity(p, **own)``: what identifies a run in addition to parameters and
        precision; ``own`` are options of this kind of student.
    finite : str
        Quantity that becomes infinite or NaN if the learning rate is too large.
    settings : mapping
        Parameters fixed by the system.
    displayed : tuple of str
        Quantities shown by the command; all if empty.
    text : callable, optional
        ``text(p, content)``: parameters and system for a text given by the user.
    data : callable, optional
        ``data(p, content, file)``: parameters and options of `train` for data in a
        file.
    tiny : mapping of str to mapping
        Parameters of runs of a moment, for tests and checks on a device, by what is
        particular about them; empty for the plain one.
    held : mapping of str to float
        Weights that stay fixed, see `Clamped`: ``replace(SYSTEM, held={"w[4:8]":
        0.3})`` trains the students of ``flow.held(w=0.3)``.
    """

    name: str
    parameters: type[BaseParameters]
    make: Callable[..., Learner]
    meaning: Mapping[str, str]
    memory: Callable[..., float]
    dimensions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    time: str | None = ""
    clock: Callable[[Any, np.ndarray], Any] | None = None
    counter: str = ""
    length: Callable[[Any], int] = steps_of
    sweep_parameter: str = ""
    stack: int = 1
    joint: bool = False
    default_dtype: str | None = None
    devices: tuple[str, ...] = ()
    identity: Callable[..., dict[str, Any]] = lambda p: {}
    finite: str = "loss"
    settings: Mapping[str, Any] = field(default_factory=dict)
    displayed: tuple[str, ...] = ()
    text: Callable[[Any, str], tuple[Any, System]] | None = None
    data: Callable[[Any, str, str], tuple[Any, dict[str, Any]]] | None = None
    tiny: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    held: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Names and clock that follow from the parameters, where none are given."""
        counter = self.counter or getattr(
            self.parameters, "LENGTH", "steps"
        ).removesuffix("s")
        usual = getattr(self.parameters, "TIME", counter)
        object.__setattr__(self, "counter", counter)
        if self.time == "":
            object.__setattr__(self, "time", usual)
        if self.clock is None and self.time == usual != counter:
            object.__setattr__(self, "clock", elapsed)
        if self.clock is None and self.time not in (None, self.counter):
            said = "needs a clock, or Stepped parameters with this TIME"
            raise ParameterError(f"{self.name}: time = {self.time!r}: {said}")

    def learner(self, p: Any, seeds: Sequence[int], *where: Any, **own: Any) -> Learner:
        """Learner of the given seeds, with clamped weights if any."""
        made = self.make(p, seeds, *where, **own)
        return Clamped(made, len(seeds), self.held) if self.held else made

    def train(
        self,
        p: Any = None,
        seeds: Iterable[int] | int = (0,),
        *,
        until: float | None = None,
        store: Path | str | None = None,
        device: str | None = None,
        dtype: torch.dtype | str | None = None,
        workers: int | None = None,
        progress: bool = True,
        **own: Any,
    ) -> xr.Dataset:
        """Train one student per seed.

        Finished seeds are read from the store. An interrupted run continues from its
        last checkpoint (on the CPU bit for bit like an uninterrupted one).

        Parameters
        ----------
        p : Parameters
            Model and training settings.
        seeds : iterable of int, or int
            Seeds, or their number counted from 0. Each fixes task, data and initial
            weights.
        until : float, optional
            Run length in the model's time instead of steps; also under the name of the
            time (``alpha=``, ``t=``).
        store : path, optional
            Folder of stored runs; ``output/runs`` by default.
        device : str, optional
            Torch device; a GPU by default if there is one.
        dtype : torch.dtype or str, optional
            ``float32`` or ``float64``; by default `default_dtype`, or else single
            precision.
        workers : int, optional
            Number of parallel processes: by default one per core on the CPU, and one
            stack at a time on a GPU.
        progress : bool
            Progress bar on stderr.
        **own
            Options of this kind of student, as for `identity`, and one or several
            values of the `sweep_parameter`.

        Returns
        -------
        Dataset
            Variables in `meaning` over ``seed``, the swept parameter and time;
            parameters and provenance as attributes.

        Raises
        ------
        ParameterError
            For invalid parameters, seeds, options, precision, device, store or workers;
            if the loss does not stay finite; or if the student's code was changed since
            a run was interrupted.
        """
        if p is None:
            raise misfit("p", own or None, self.parameters)
        seeds = arguments.seeds(seeds)
        workers = arguments.workers(workers)
        if not seeds:
            raise ParameterError("seeds = []: must be at least one")
        if until is None and self.time is not None:
            until = own.pop(self.time, None)
        p = self.until(p, until)
        values = own.pop(self.sweep_parameter, None)
        arguments.keywords(self, p, own)
        points = [p]
        if values is not None:
            swept = np.atleast_1d(values).tolist()
            points = [p.replace(**{self.sweep_parameter: v}) for v in swept]
        if len({q.as_json() for q in points}) < len(points):
            raise ParameterError(
                f"{self.sweep_parameter} = {values}: a value is repeated"
            )
        how = {"store": store, "device": device, "dtype": dtype, **own}
        planned: list[jobs.Job] = []
        for group in [points] if self.joint else [[q] for q in points]:
            planned += self.plan(group, seeds, **how)
        at_once = workers if self.device(device).type == "cpu" else 1
        for _, error in jobs.carry_out(planned, at_once, progress):
            raise error
        return self.read(points, seeds, arguments.store(store), dtype, own)

    def plan(
        self,
        p: Any,
        seeds: Iterable[int],
        *,
        store: Path | str | None = None,
        device: str | None = None,
        dtype: torch.dtype | str | None = None,
        **own: Any,
    ) -> list[jobs.Job]:
        """Jobs for unfinished runs, of one or a list of Parameters; errors as in
        `train`.
        """
        seeds = arguments.seeds(seeds)
        store = arguments.store(store)
        missing = []
        where = self.device(device)
        precision = self.precision(dtype)
        for q in map(self.until, p if isinstance(p, list) else [p]):
            config = self.configuration(q, precision, **own)
            lack = interface_checks.lack(self, q)
            for s in seeds:
                if (
                    runs.finished(storage.place(store, config, s), config, s, lack)
                    is None
                ):
                    missing.append(Run(q, config, s))
                else:  # left if its writer was killed
                    checkpoints.drop_checkpoint(storage.place(store, config, s))
        if not missing:
            return []
        p, config, seed = missing[0]
        length = interface_checks.length(self, p)
        with interface_checks.named(f"{self.name}: a run"):
            runs.content(xr.Dataset(attrs=self.provenance(config, p, seed)))
        size = 1 if where.type == "cpu" and not self.joint else self.stack
        needed = functools.partial(
            self.memory, itemsize=torch.zeros((), dtype=precision).itemsize
        )
        devices.require(needed, p, where, min(size, len(missing)))
        storage.writable(storage.place(store, run.config, run.seed) for run in missing)
        folder = store.absolute()  # as workers stay while folders change
        planned = []
        for i in range(0, len(missing), size):
            stack = missing[i : i + size]
            name = f"seed {','.join(str(run.seed) for run in stack)}"
            how = self, stack, where, precision
            training = functools.partial(train_stack, *how, folder, own)
            timing = functools.partial(seconds_per_step, *how, own)
            places = [storage.place(store, run.config, run.seed) for run in stack]
            planned.append(
                jobs.Job(
                    name,
                    length,
                    training,
                    len(stack) * needed(p),
                    config,
                    timing,
                    tuple(places),
                    self.counter,
                )
            )
        return planned

    def read(
        self,
        points: Sequence[Any],
        seeds: Sequence[int],
        store: Path,
        dtype: Any,
        own: Mapping[str, Any],
    ) -> xr.Dataset:
        """Finished runs of one or several settings as one dataset."""
        parts = []
        for p in points:
            config = self.configuration(p, self.precision(dtype), **own)
            stored = [runs.read(storage.place(store, config, seed)) for seed in seeds]
            pairs = zip(seeds, stored, strict=True)
            old = [
                str(k)
                for k, run in pairs
                if run.attrs.get("code", self.code) != self.code
            ]
            if old:
                named = textwrap.shorten(", ".join(old), 40, placeholder=" ...")
                warnings.warn(
                    f"{storage.place(store, config, 0).parent}: trained by other code"
                    f" than {self.name} has now: {len(old)} of {len(seeds)} seeds"
                    f" ({named}); remove them to train again",
                    stacklevel=2,
                )
            parts.append(joined_runs.combine(stored, seeds))
        if not self.sweep_parameter:
            return parts[0]
        whole = xr.concat(
            parts,
            dim=self.sweep_parameter,
            combine_attrs="drop_conflicts",
            join="exact",
        )
        return whole.assign_coords(
            {self.sweep_parameter: [getattr(p, self.sweep_parameter) for p in points]}
        ).transpose("seed", self.sweep_parameter, ...)

    @property
    def code(self) -> str:
        """Digest of the package that defines these students. A run trained by other
        code is reported when it is read; an interrupted one does not continue.
        """
        return storage.code(self.memory, self.make)

    def provenance(self, config: str, p: Any, seed: int) -> dict[str, Any]:
        """Attributes of a run."""
        return storage.provenance(self.name, config, p, seed, self.code)

    def configuration(self, p: Any, dtype: torch.dtype, **own: Any) -> str:
        """Canonical text of everything that determines a run, except its seed."""
        named = str(dtype).removeprefix("torch.")
        precision = {} if named == self.default_dtype else {"dtype": named}
        held = {"held": dict(self.held)} if self.held else {}
        identity = {**self.identity(p, **own), **held}
        try:
            return storage.configuration(
                self.name, self.until(p), **precision, **identity
            )
        except (TypeError, ValueError) as error:
            if isinstance(error, ParameterError):
                raise
            raise ParameterError(
                f"{self.name}: identity() gives what JSON cannot hold"
                f" ({error_summary(error)})"
            ) from None

    def until(self, p: Any, until: float | None = None) -> Any:
        """Parameters with the settings of this system and a run length that reaches a
        given time.

        Raises
        ------
        ParameterError
            If the parameters belong to another system or contradict its settings, if
            the system has no time, or if no run reaches that time.
        """
        if not isinstance(p, self.parameters):
            raise misfit("p", p, self.parameters)
        for name, value in self.settings.items():
            default = self.parameters.__dataclass_fields__[name].default
            if getattr(p, name) not in (value, default):
                raise ParameterError(
                    f"{name} = {getattr(p, name)}: must be {value} for this system"
                )
        p = p.replace(**self.settings)
        if until is None:
            return p
        if not hasattr(p, "run_to"):
            raise ParameterError(
                f"until = {until}: {self.name} has no time of its own; set"
                f" {self.counter}s=... instead"
            )
        reaching = p.run_to(arguments.time(until, f"until ({self.time})"))
        if not isinstance(reaching, self.parameters):
            raise ParameterError(
                f"{self.name}: run_to() gives {type(reaching).__name__}, must give"
                " parameters"
            )
        return reaching

    def precision(self, dtype: torch.dtype | str | None) -> torch.dtype:
        """Torch dtype by name.

        Raises
        ------
        ParameterError
            Unless it is single or double precision.
        """
        name = str(dtype or self.default_dtype or PRECISIONS[0]).removeprefix("torch.")
        if name not in PRECISIONS:
            raise ParameterError(f"dtype = {name}: must be {' or '.join(PRECISIONS)}")
        return getattr(torch, name)

    def device(self, name: str | None) -> torch.device:
        """Torch device by name; by default a GPU if there is a usable one.

        Raises
        ------
        ParameterError
            If the device does not exist, or these students cannot be trained on it.
        """
        if name is None and self.devices:
            name = self.devices[0]
        chosen = devices.find(name)
        if self.devices and chosen.type not in self.devices:
            raise ParameterError(
                f"device = {name!r}: {self.name} is trained on"
                f" {' or '.join(self.devices)} alone"
            )
        return chosen
