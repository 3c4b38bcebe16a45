"""The one training loop: plan the runs that are missing, carry them out, read the store back."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import operator
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from filelock import Timeout

from simulate import arguments, checkpoints, interface_checks, jobs, runs, storage
from simulate import device as devices
from simulate.learner import Clamped, Learner, State
from simulate.signals import DeferSignals
from theory.parameters import BaseParameters, ParameterError, Stepped, error_summary, nearest
from theory.runtime import sources

CHECKPOINT_SECONDS = 10.0
PROBE_SECONDS = 0.1  # time of trial steps for the estimate of the duration
PRECISIONS = ("float32", "float64")
# Shared modules that define students, in addition to their own package.
SHARED = tuple(Path(__file__).with_name(name) for name in ("learner.py", "streams.py"))
Records = dict[
    int, dict[str, np.ndarray]
]  # by step and name; first axis over the students of a stack


def records(p: Any, numbers: int) -> float:
    """Memory in bytes for a given number of recorded values per measurement: stored, stacked,
    packed, written.
    """
    return (p.steps // p.eval_every + 2) * 4 * 8 * numbers


def eta_times_steps(p: Any, steps: np.ndarray) -> np.ndarray:
    """Time of gradient flow."""
    return p.eta * steps


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
        ``memory(p, itemsize)``: peak memory of one run in bytes, with ``itemsize`` bytes per
        weight.
    dimensions : mapping
        Extra dimensions of a measured quantity.
    time : str or None
        Time dimension of the measurements, made every ``p.eval_every`` steps; None if only final
        results are recorded (`Learner.finish`).
    clock : callable, optional
        ``clock(p, steps)`` converts steps to the unit of ``time``, ``eta * steps`` for parameters
        that are `theory.parameters.Stepped` if not given; without it, time is the step
        number.
    counter : str
        Name of a step.
    length : callable
        ``length(p)``: number of steps of a run.
    swept : str
        Parameter, if any, that is a dimension of results; `train` accepts several values of it.
    stack : int
        Number of seeds trained together on a GPU. On the CPU it is one, as every seed has its own
        core.
    implied : str or None
        Default precision, which is then omitted from the stored configuration. Without it the
        default is single precision, always stored.
    devices : tuple of str
        Supported types of devices; all if empty.
    identity : callable
        ``identity(p, **own)``: what identifies a run in addition to parameters and precision;
        ``own`` are options of this kind of student.
    finite : str
        Quantity that becomes infinite or NaN if the learning rate is too large.
    settings : mapping
        Parameters fixed by the system.
    shown : tuple of str
        Quantities shown by the command; all if empty.
    text : callable, optional
        ``text(p, content)``: parameters and system for a text given by the user.
    data : callable, optional
        ``data(p, content, file)``: parameters and options of `train` for data in a file.
    held : mapping of str to float
        Weights that stay fixed, see `Clamped`: ``replace(SYSTEM, held={"w[4:8]": 0.3})`` trains the
        students of ``flow.held(w=0.3)``.
    """

    name: str
    parameters: type[BaseParameters]
    make: Callable[..., Learner]
    meaning: Mapping[str, str]
    memory: Callable[..., float]
    dimensions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    time: str | None = "step"
    clock: Callable[[Any, np.ndarray], Any] | None = None
    counter: str = "step"
    length: Callable[[Any], int] = operator.attrgetter("steps")
    sweep_parameter: str = ""
    stack: int = 1
    default_dtype: str | None = None
    devices: tuple[str, ...] = ()
    identity: Callable[..., dict[str, Any]] = lambda p: {}
    finite: str = "loss"
    settings: Mapping[str, Any] = field(default_factory=dict)
    displayed: tuple[str, ...] = ()
    text: Callable[[Any, str], tuple[Any, System]] | None = None
    data: Callable[[Any, str, str], tuple[Any, dict[str, Any]]] | None = None
    held: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """The clock that follows from the parameters, if none is given."""
        if self.clock is None and self.time == "t" and issubclass(self.parameters, Stepped):
            object.__setattr__(self, "clock", eta_times_steps)

    def learner(self, p: Any, seeds: Sequence[int], *where: Any, **own: Any) -> Learner:
        """Learner of the given seeds, with clamped weights if any."""
        made = self.make(p, seeds, *where, **own)
        return Clamped(made, len(seeds), self.held) if self.held else made

    def train(
        self,
        p: Any,
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

        Finished seeds are read from the store. An interrupted run continues from its last
        checkpoint (on the CPU bit for bit like an uninterrupted one).

        Parameters
        ----------
        p : Parameters
            Model and training settings.
        seeds : iterable of int, or int
            Seeds, or their number counted from 0. Each fixes task, data and initial weights.
        until : float, optional
            Run length in the model's time instead of steps; also under the name of the time
            (``alpha=``, ``t=``).
        store : path, optional
            Folder of stored runs; ``output/runs`` by default.
        device : str, optional
            Torch device; a GPU by default if there is one.
        dtype : torch.dtype or str, optional
            ``float32`` or ``float64``; by default `implied`, or else single precision.
        workers : int, optional
            Number of parallel processes: by default one per core on the CPU, and one stack at a
            time on a GPU.
        progress : bool
            Progress bar on stderr.
        **own
            Options of this kind of student, as for `identity`, and one or several values of the
            `swept` parameter.

        Returns
        -------
        Dataset
            Variables in `meaning` over ``seed``, the swept parameter and time; parameters and
            provenance as attributes.

        Raises
        ------
        ParameterError
            For invalid parameters, seeds, options, precision, device, store or workers; if the loss
            does not stay finite; or if the student's code was changed since a run was interrupted.
        """
        seeds, workers = arguments.seeds(seeds), arguments.workers(workers)
        if not seeds:
            raise ParameterError("seeds = []: must be at least one")
        p = self.until(
            p, until if until is not None or self.time is None else own.pop(self.time, None)
        )
        values = own.pop(self.sweep_parameter, None)
        self._refuse(p, own)
        points = (
            [p]
            if values is None
            else [p.replace(**{self.sweep_parameter: v}) for v in np.atleast_1d(values).tolist()]
        )
        if len({q.as_json() for q in points}) < len(points):
            raise ParameterError(f"{self.sweep_parameter} = {values}: a value is repeated")
        planned = [
            job
            for q in points
            for job in self.plan(q, seeds, store=store, device=device, dtype=dtype, **own)
        ]
        for _, error in jobs.carry_out(
            planned, workers if self.device(device).type == "cpu" else 1, progress
        ):
            raise error
        return self.read(points, seeds, arguments.store(store), dtype, own)

    def _refuse(self, p: Any, own: Iterable[str]) -> None:
        """Raise an error for options that this kind of student does not have."""
        options = list(inspect.signature(self.identity).parameters)[1:]
        fields = [f.name for f in dataclasses.fields(p)]
        taken = [*filter(None, (self.time, self.sweep_parameter)), *options]
        taken += [x for x in inspect.signature(self.train).parameters if x not in ("p", "own")]
        for name in own:
            if name == self.time:
                raise ParameterError(f"{name}: says the same as until; give one of them")
            if name in fields and name not in options:
                raise ParameterError(f"{name}: belongs to the parameters: p.replace({name}=...)")
            if name not in options:
                hint = nearest(name, [*taken, *fields])
                raise ParameterError(f"{name}: unknown keyword; {hint}known are {', '.join(taken)}")

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
        """Jobs for unfinished runs; parameters and errors as in `train`."""
        p, seeds, store = self.until(p), arguments.seeds(seeds), arguments.store(store)
        where, precision = self.device(device), self.precision(dtype)
        config = self.configuration(p, precision, **own)
        missing = []
        for s in seeds:
            if runs.finished(storage.place(store, config, s), config, s) is None:
                missing.append(s)
            else:  # left if its writer was killed
                checkpoints.drop_checkpoint(storage.place(store, config, s))
        if not missing:
            return []
        length = interface_checks.length(self, p)
        with interface_checks.named(f"{self.name}: a run"):
            runs.content(xr.Dataset(attrs=self.provenance(config, p, missing[0])))
        size = 1 if where.type == "cpu" else self.stack
        needed = functools.partial(self.memory, itemsize=torch.zeros((), dtype=precision).itemsize)
        devices.require(needed, p, where, min(size, len(missing)))
        storage.writable(storage.place(store, config, s) for s in missing)
        stacks = [missing[i : i + size] for i in range(0, len(missing), size)]
        return [
            jobs.Job(
                f"seed {','.join(map(str, stack))}",
                length,
                functools.partial(_train, self, p, stack, where, precision, store, config, own),
                len(stack) * needed(p),
                config,
                functools.partial(_seconds_per_step, self, p, stack, where, precision, own),
                tuple(storage.place(store, config, s) for s in stack),
            )
            for stack in stacks
        ]

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
            if any(run.attrs.get("code", self.code) != self.code for run in stored):
                warnings.warn(
                    f"{storage.place(store, config, 0).parent}: trained by other code than "
                    f"{self.name} has now; remove it to train again",
                    stacklevel=2,
                )
            parts.append(runs.combine(stored, seeds))
        if not self.sweep_parameter:
            return parts[0]
        joined = xr.concat(
            parts, dim=self.sweep_parameter, combine_attrs="drop_conflicts", join="exact"
        )
        return joined.assign_coords(
            {self.sweep_parameter: [getattr(p, self.sweep_parameter) for p in points]}
        ).transpose("seed", self.sweep_parameter, ...)

    @property
    def code(self) -> str:
        """Digest of the package that defines these students. A run trained by other code is
        reported when it is read; an interrupted one does not continue.
        """
        homes = [part.__module__ for made in (self.memory, self.make) for part in _parts(made)]
        return storage.statements(next((m for m in homes if _of_students(m)), homes[0]))

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
            return storage.configuration(self.name, self.until(p), **precision, **identity)
        except (TypeError, ValueError) as error:
            if isinstance(error, ParameterError):
                raise
            raise ParameterError(
                f"{self.name}: identity() gives what JSON cannot hold ({error_summary(error)})"
            ) from None

    def until(self, p: Any, until: float | None = None) -> Any:
        """Parameters with the settings of this system and a run length that reaches a given time.

        Raises
        ------
        ParameterError
            If the parameters belong to another system or contradict its settings, if the system has
            no time, or if no run reaches that time.
        """
        if not isinstance(p, self.parameters):
            raise ParameterError(
                f"p = {repr(p):.80}: must be {self.parameters.__module__}.{self.parameters.__name__}"
            )
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
                f"until = {until}: {self.name} has no time of its own; set {self.counter}s=... instead"
            )
        reaching = p.run_to(arguments.time(until, f"until ({self.time})"))
        if not isinstance(reaching, self.parameters):
            raise ParameterError(
                f"{self.name}: run_to() gives {type(reaching).__name__}, must give parameters"
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
                f"device = {name!r}: {self.name} is trained on {' or '.join(self.devices)} alone"
            )
        return chosen


def _parts(made: Any) -> list[Any]:
    """The function itself, or the functions and classes inside a (nested) partial, in order."""
    if isinstance(made, functools.partial):
        return [part for one in (made.func, *made.args) if callable(one) for part in _parts(one)]
    return [made]


def _of_students(module: str) -> bool:
    """Whether a module belongs to a particular student rather than to the shared code."""
    return sys.modules[module].__package__ != __package__ and (
        module.partition(".")[0] not in sys.stdlib_module_names or module == "__main__"
    )


def _seconds_per_step(
    system: System,
    p: Any,
    seeds: Sequence[int],
    device: torch.device,
    dtype: torch.dtype,
    own: Mapping[str, Any],
) -> float:
    """Measured seconds per step of a job, including its share of the measurements."""
    learner, length = system.learner(p, seeds, device, dtype, **own), system.length(p)

    def seconds(work: Callable[[], Any]) -> float:
        started = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    learner.step(0)  # the first call includes compilation
    if system.time:
        learner.measure()
    spent: list[float] = []
    while len(spent) + 1 < length and sum(spent) < PROBE_SECONDS:
        spent.append(seconds(functools.partial(learner.step, len(spent) + 1)))
    measured = seconds(learner.measure) / p.eval_every if system.time else 0.0
    return float(np.mean(spent)) + measured if spent else 0.0


def _train(
    system: System,
    p: Any,
    seeds: Sequence[int],
    device: torch.device,
    dtype: torch.dtype,
    store: Path,
    config: str,
    own: Mapping[str, Any],
    tick: Callable[[int], None],
    wait: bool,
) -> bool:
    """Train the runs of one job that no other process holds a lock on; returns whether all are
    finished.
    """
    place = functools.partial(storage.place, store, config)
    code = " ".join([system.code, sources.digest(SHARED)])  # digest of the code of a step
    with contextlib.ExitStack() as held:
        mine: dict[int, State] = {}
        for seed in seeds:
            try:
                held.enter_context(storage.lock(place(seed)).acquire(blocking=wait))
            except Timeout:
                continue
            checkpoints.sweep_up(place(seed))
            if runs.finished(place(seed), config, seed) is None:
                mine[seed] = _checkpoint(system, code, place(seed), config, seed)
        # A stack is trained in lockstep, so that students that resume at different steps are
        # trained one after the other.
        for start in sorted({state["step"] for state in mine.values()}):
            states = {seed: state for seed, state in mine.items() if state["step"] == start}
            learner = system.learner(p, list(states), device, dtype, **own)
            if start:
                _resume(system, learner, {place(s): state for s, state in states.items()})
            records = {
                int(s): {
                    name: np.stack([state["records"][s][name].numpy() for state in states.values()])
                    for name in record
                }
                for s, record in next(iter(states.values()))["records"].items()
            }
            saving = functools.partial(
                _save,
                system,
                code,
                learner,
                records,
                config,
                {seed: place(seed) for seed in states},
            )
            attrs = [system.provenance(config, p, seed) for seed in states]
            results = _learn(system, p, learner, attrs, start, records, saving, tick)
            for seed, result in zip(states, results, strict=True):
                with interface_checks.named(f"{system.name}: a run"):
                    runs.write(result, place(seed))
                checkpoints.drop_checkpoint(place(seed))
        finished = all(place(seed).exists() for seed in seeds)
    if finished:
        tick(system.length(p))
    return finished


def _checkpoint(system: System, code: str, path: Path, config: str, seed: int) -> State:
    """State from which a run continues: its checkpoint, or the initial state.

    Raises
    ------
    ParameterError
        If the checkpoint was written by other code, as the run would then mix two versions.
    """
    state = checkpoints.load_checkpoint(path, config, seed)
    if state is not None and not {"step", "learner", "records"} <= set(state):
        warnings.warn(
            f"{path.with_suffix('.checkpoint')}: of another version of this toolkit; starting over",
            stacklevel=2,
        )
        state = None
    if state is not None and state.get("code") != code:
        raise ParameterError(
            f"{path.with_suffix('.checkpoint')}: written by other code than {system.name} has now; "
            "go on with that code, or remove the file to start over"
        )
    return state or {"step": 0, "records": {}}


def _resume(system: System, learner: Learner, states: Mapping[Path, State]) -> None:
    """Restore a learner from checkpoints."""
    try:
        interface_checks.load(system, learner, [state["learner"] for state in states.values()])
    except ParameterError as error:
        files = ", ".join(str(path.with_suffix(".checkpoint")) for path in states)
        raise ParameterError(f"{error}; to start over, remove {files}") from error


def _save(
    system: System,
    code: str,
    learner: Learner,
    found: Records,
    config: str,
    places: Mapping[int, Path],
    step: int,
) -> None:
    """Write one checkpoint per seed. Students without a state are trained again from the start."""
    for b, (seed, path) in enumerate(places.items()):
        kept = {
            str(s): {name: torch.as_tensor(v[b]) for name, v in record.items()}
            for s, record in found.items()
        }
        if state := interface_checks.state(system, learner, b):
            said = {"step": step, "code": code, "learner": state, "records": kept}
            with interface_checks.named(f"{system.name}: its state"):
                checkpoints.save_checkpoint(path, config, seed, said)


def _learn(
    system: System,
    p: Any,
    learner: Learner,
    attrs: Sequence[dict[str, Any]],
    step: int,
    found: Records,
    save: Callable[[int], None],
    tick: Callable[[int], None],
) -> list[xr.Dataset]:
    """Training loop: step, measure and save until the end. Measurements are added to ``found``,
    ``tick`` is called after every step, and ``attrs`` are the students' attributes.
    """
    length, saved, begun = system.length(p), time.monotonic(), False
    # Overflow is detected below, by name.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"), DeferSignals() as patience:
        try:
            while True:
                if (
                    system.time
                    and (step % p.eval_every == 0 or step == length)
                    and step not in found
                ):
                    first = found[min(found)] if found else None
                    made = interface_checks.records(
                        system, learner.measure(), len(attrs), first, step
                    )
                    _stay_finite(system, p, step, made[system.finite], first is None)
                    found[step] = made
                if not begun:
                    with interface_checks.named(f"{system.name}: a run"):
                        runs.content(_dataset(system, p, found, 0, attrs[0]))
                    interface_checks.states(system, learner, len(attrs))
                    begun = True
                if step == 1:  # some have no state before the first step
                    with patience.step():
                        interface_checks.resumable(system, learner, len(attrs))
                if time.monotonic() - saved > CHECKPOINT_SECONDS:
                    save(step)
                    saved = time.monotonic()
                if step == length:
                    return [
                        _whole(system, p, learner, _dataset(system, p, found, b, of), b)
                        for b, of in enumerate(attrs)
                    ]
                with patience.step():
                    learner.step(step)
                    step += 1
                tick(step)
        except KeyboardInterrupt:
            if not patience.torn:
                save(step)
            raise


def _stay_finite(system: System, p: Any, step: int, now: Any, first: bool = False) -> None:
    """Raise an error if the loss is not finite.

    Raises
    ------
    ParameterError
        Naming the learning rate, unless no step has been made.
    """
    if np.isfinite(now).all():
        return
    where = f"the {system.finite} is not finite at {system.counter} {step}"
    if first:
        raise ParameterError(f"{system.name}: {where}, before any training")
    rate = f"eta = {p.eta:g}" if hasattr(p, "eta") else system.name
    raise ParameterError(f"{rate}: {where}; take it smaller")


def _dataset(
    system: System, p: Any, found: Records, b: int, attrs: Mapping[str, Any]
) -> xr.Dataset:
    """Records of one student as a labelled dataset."""
    steps = np.array(sorted(found))
    if not system.time:
        return xr.Dataset(attrs=attrs)
    data = {
        name: xr.Variable(
            (system.time, *system.dimensions.get(name, ())),
            np.stack([found[s][name][b] for s in steps]),
            {"long_name": system.meaning.get(name, name)},
        )
        for name in found[steps[0]]
    }
    clock = (
        {} if system.clock is None else {system.time: interface_checks.advances(system, p, steps)}
    )
    coords = {**clock, system.counter: (system.time, steps)}
    return xr.Dataset(data, coords, attrs)


def _whole(system: System, p: Any, learner: Learner, records: xr.Dataset, b: int) -> xr.Dataset:
    """Records of one student together with its final results."""
    result = records.assign(learner.finish(b))
    if system.time is None:
        _stay_finite(system, p, system.length(p), result[system.finite].values)
    return result
