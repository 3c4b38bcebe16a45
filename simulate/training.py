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

from simulate import asked, jobs, owed, runs
from simulate import device as devices
from simulate.learner import Held, Learner, State
from simulate.patience import Patience
from theory import sources
from theory.parameters import BaseParameters, ParameterError, brief, nearest

CHECKPOINT_SECONDS = 10.0
PROBE_SECONDS = 0.1  # of steps, to tell how long a training will take
PRECISIONS = ("float32", "float64")
# What students are made of, beside what is in their own package.
SHARED = tuple(Path(__file__).with_name(name) for name in ("learner.py", "streams.py"))
Records = dict[
    int, dict[str, np.ndarray]
]  # by step and name, first axis over the students of a stack


def records(p: Any, numbers: int) -> float:
    """Bytes of so many recorded numbers per measurement: kept, stacked, packed, written."""
    return (p.steps // p.eval_every + 2) * 4 * 8 * numbers


@dataclass(frozen=True)
class System:
    """What training needs to know about a kind of student.

    Attributes
    ----------
    name : str
        Under which its runs are stored.
    parameters : type
        Its ``Parameters``.
    make : callable
        ``make(p, seeds, device, dtype, **own)`` gives a `Learner`.
    meaning : mapping
        Measured quantities and what they are.
    memory : callable
        ``memory(p, itemsize)``: bytes at the peak of one run, at so many bytes per weight.
    dimensions : mapping
        Extra dimensions of a measured quantity.
    time : str or None
        Dimension along which is measured, every ``p.eval_every`` steps; None if only the end counts
        (`Learner.finish`).
    clock : callable, optional
        ``clock(p, steps)``: steps in the unit of ``time``; without it, time is the step.
    counter : str
        What a step is called.
    length : callable
        ``length(p)``: steps of a run.
    swept : str
        Parameter, if any, that a result carries as a dimension; `train` takes several values of it.
    stack : int
        Seeds that step together on a GPU; one does on the CPU, where each has a core.
    implied : str or None
        Precision that a configuration leaves out, the default then; without it, single precision,
        always named.
    devices : tuple of str
        Kinds of devices it can be trained on; any without them.
    identity : callable
        ``identity(p, **own)``: what identifies a run beside parameters and precision; ``own`` are
        its own options.
    finite : str
        Quantity that a learning rate taken too large makes infinite.
    settings : mapping
        Parameters that are given by the system.
    shown : tuple of str
        Quantities on the command line; all numbers without them.
    text : callable, optional
        ``text(p, content)``: parameters and system for a text of the user's.
    held : mapping of str to float
        Weights that are clamped, as `Held` takes them:
        ``dataclasses.replace(SYSTEM, held={"w[4:8]": 0.3})`` trains the students of
        ``flow.held(w=0.3)``.
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
    swept: str = ""
    stack: int = 1
    implied: str | None = None
    devices: tuple[str, ...] = ()
    identity: Callable[..., dict[str, Any]] = lambda p: {}
    finite: str = "loss"
    settings: Mapping[str, Any] = field(default_factory=dict)
    shown: tuple[str, ...] = ()
    text: Callable[[Any, str], tuple[Any, System]] | None = None
    held: Mapping[str, float] = field(default_factory=dict)

    def learner(self, p: Any, seeds: Sequence[int], *where: Any, **own: Any) -> Learner:
        """Students of the seeds, with what is held held."""
        made = self.make(p, seeds, *where, **own)
        return Held(made, len(seeds), self.held) if self.held else made

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

        Finished seeds are taken from the store; an interrupted one goes on from its last checkpoint
        (on the CPU bit for bit as if it had not been interrupted).

        Parameters
        ----------
        p : Parameters
            Model and training settings.
        seeds : iterable of int, or int
            Seeds, or how many from 0; each fixes task, data and initial weights.
        until : float, optional
            Run length in the model's time instead of its steps; also under the time's name
            (``alpha=``, ``t=``).
        store : path, optional
            Where runs are kept; ``output/runs`` by default.
        device : str, optional
            Torch device; a GPU by default if there is one.
        dtype : torch.dtype or str, optional
            ``float32`` or ``float64``; that of `implied`, or single precision, by default.
        workers : int, optional
            Seeds trained at once, each in a process of its own; one per core by default on the CPU,
            one stack at a time on a GPU.
        progress : bool
            Progress bar on stderr.
        **own
            Options of this kind of student, as `identity` takes them, and several values of what is
            `swept`.

        Returns
        -------
        Dataset
            Variables of `meaning` over ``seed``, the swept parameter and time; parameters and
            provenance in the attributes.

        Raises
        ------
        ParameterError
            For unusable parameters, seeds, options, precision, device, store or workers, where the
            loss does not stay finite, and where the student was changed since a run was
            interrupted.
        """
        seeds, workers = asked.seeds(seeds), asked.workers(workers)
        if not seeds:
            raise ParameterError("seeds = []: must be at least one")
        p = self.until(
            p, until if until is not None or self.time is None else own.pop(self.time, None)
        )
        values = own.pop(self.swept, None)
        self._refuse(p, own)
        points = (
            [p]
            if values is None
            else [p.replace(**{self.swept: v}) for v in np.atleast_1d(values).tolist()]
        )
        if len({q.as_json() for q in points}) < len(points):
            raise ParameterError(f"{self.swept} = {values}: a value is repeated")
        planned = [
            job
            for q in points
            for job in self.plan(q, seeds, store=store, device=device, dtype=dtype, **own)
        ]
        for _, error in jobs.carry_out(
            planned, workers if self.device(device).type == "cpu" else 1, progress
        ):
            raise error
        return self.read(points, seeds, asked.store(store), dtype, own)

    def _refuse(self, p: Any, own: Iterable[str]) -> None:
        """Refuse options that this kind of student does not have."""
        options = list(inspect.signature(self.identity).parameters)[1:]
        fields = [f.name for f in dataclasses.fields(p)]
        taken = [*filter(None, (self.time, self.swept)), *options]
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
        """Jobs for the runs that are not finished yet; parameters and errors as in `train`."""
        p, seeds, store = self.until(p), asked.seeds(seeds), asked.store(store)
        where, precision = self.device(device), self.precision(dtype)
        config = self.configuration(p, precision, **own)
        missing = []
        for s in seeds:
            if runs.finished(runs.place(store, config, s), config, s) is None:
                missing.append(s)
            else:  # its writer may have been killed before it did so
                runs.drop_checkpoint(runs.place(store, config, s))
        if not missing:
            return []
        length = owed.length(self, p)
        with owed.named(f"{self.name}: a run"):
            runs.content(xr.Dataset(attrs=self.provenance(config, p, missing[0])))
        size = 1 if where.type == "cpu" else self.stack
        needed = functools.partial(self.memory, itemsize=torch.zeros((), dtype=precision).itemsize)
        devices.require(needed, p, where, min(size, len(missing)))
        runs.writable(runs.place(store, config, s) for s in missing)
        stacks = [missing[i : i + size] for i in range(0, len(missing), size)]
        return [
            jobs.Job(
                f"seed {','.join(map(str, stack))}",
                length,
                functools.partial(_train, self, p, stack, where, precision, store, config, own),
                len(stack) * needed(p),
                config,
                functools.partial(_seconds_per_step, self, p, stack, where, precision, own),
                tuple(runs.place(store, config, s) for s in stack),
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
        found = []
        for p in points:
            config = self.configuration(p, self.precision(dtype), **own)
            stored = [runs.read(runs.place(store, config, seed)) for seed in seeds]
            if any(run.attrs.get("code", self.code) != self.code for run in stored):
                warnings.warn(
                    f"{runs.place(store, config, 0).parent}: trained by other code than "
                    f"{self.name} has now; remove it to train again",
                    stacklevel=2,
                )
            found.append(runs.combine(stored, seeds))
        if not self.swept:
            return found[0]
        joined = xr.concat(found, dim=self.swept, combine_attrs="drop_conflicts", join="exact")
        return joined.assign_coords(
            {self.swept: [getattr(p, self.swept) for p in points]}
        ).transpose("seed", self.swept, ...)

    @property
    def code(self) -> str:
        """Digest of the package that makes these students; a run trained by another one is
        reported when it is read, and one that was interrupted does not go on.
        """
        homes = [part.__module__ for made in (self.memory, self.make) for part in _parts(made)]
        return runs.statements(next((m for m in homes if _of_students(m)), homes[0]))

    def provenance(self, config: str, p: Any, seed: int) -> dict[str, Any]:
        """Attributes of a run."""
        return runs.provenance(self.name, config, p, seed, self.code)

    def configuration(self, p: Any, dtype: torch.dtype, **own: Any) -> str:
        """Canonical text of what fixes a run but for its seed."""
        named = str(dtype).removeprefix("torch.")
        precision = {} if named == self.implied else {"dtype": named}
        held = {"held": dict(self.held)} if self.held else {}
        identity = {**self.identity(p, **own), **held}
        try:
            return runs.configuration(self.name, self.until(p), **precision, **identity)
        except (TypeError, ValueError) as error:
            if isinstance(error, ParameterError):
                raise
            raise ParameterError(
                f"{self.name}: identity() gives what JSON cannot hold ({brief(error)})"
            ) from None

    def until(self, p: Any, until: float | None = None) -> Any:
        """Parameters with the settings of this system, and with a run that reaches a time.

        Raises
        ------
        ParameterError
            If these are parameters of something else, a setting is another one, the system has no
            time of its own, or no run reaches that time.
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
        reaching = p.run_to(asked.time(until, f"until ({self.time})"))
        if not isinstance(reaching, self.parameters):
            raise ParameterError(
                f"{self.name}: run_to() gives {type(reaching).__name__}, must give parameters"
            )
        return reaching

    def precision(self, dtype: torch.dtype | str | None) -> torch.dtype:
        """Torch's precision of a name.

        Raises
        ------
        ParameterError
            Unless it is single or double.
        """
        name = str(dtype or self.implied or PRECISIONS[0]).removeprefix("torch.")
        if name not in PRECISIONS:
            raise ParameterError(f"dtype = {name}: must be {' or '.join(PRECISIONS)}")
        return getattr(torch, name)

    def device(self, name: str | None) -> torch.device:
        """Torch's device of a name; without one, a GPU if there is one that can be used.

        Raises
        ------
        ParameterError
            If it is not there, or these students cannot be trained on it.
        """
        if name is None and self.devices:
            name = self.devices[0]
        found = devices.find(name)
        if self.devices and found.type not in self.devices:
            raise ParameterError(
                f"device = {name!r}: {self.name} is trained on {' or '.join(self.devices)} alone"
            )
        return found


def _parts(made: Any) -> list[Any]:
    """The functions and classes that a function is made of, in order."""
    if isinstance(made, functools.partial):
        return [part for one in (made.func, *made.args) if callable(one) for part in _parts(one)]
    return [made]


def _of_students(module: str) -> bool:
    """Whether a module is of some student, not of what all of them share."""
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
    """What a step of a job costs, with its share of the measurements: tried for a moment."""
    learner, length = system.learner(p, seeds, device, dtype, **own), system.length(p)

    def seconds(work: Callable[[], Any]) -> float:
        started = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    learner.step(0)  # what compiles, compiles at the first call
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
    """Train the runs of one job that nobody else is training; whether all are finished then."""
    place = functools.partial(runs.place, store, config)
    code = " ".join([system.code, sources.digest(SHARED)])  # what makes a step
    with contextlib.ExitStack() as held:
        mine: dict[int, State] = {}
        for seed in seeds:
            try:
                held.enter_context(runs.lock(place(seed)).acquire(blocking=wait))
            except Timeout:
                continue
            runs.sweep_up(place(seed))
            if runs.finished(place(seed), config, seed) is None:
                mine[seed] = _checkpoint(system, code, place(seed), config, seed)
        # Students step together, so those that resume at different steps go one after the other.
        for start in sorted({state["step"] for state in mine.values()}):
            states = {seed: state for seed, state in mine.items() if state["step"] == start}
            learner = system.learner(p, list(states), device, dtype, **own)
            if start:
                _resume(system, learner, {place(s): state for s, state in states.items()})
            found = {
                int(s): {
                    name: np.stack([state["records"][s][name].numpy() for state in states.values()])
                    for name in record
                }
                for s, record in next(iter(states.values()))["records"].items()
            }
            saving = functools.partial(
                _save, system, code, learner, found, config, {seed: place(seed) for seed in states}
            )
            attrs = [system.provenance(config, p, seed) for seed in states]
            results = _learn(system, p, learner, attrs, start, found, saving, tick)
            for seed, result in zip(states, results, strict=True):
                with owed.named(f"{system.name}: a run"):
                    runs.write(result, place(seed))
                runs.drop_checkpoint(place(seed))
        finished = all(place(seed).exists() for seed in seeds)
    if finished:
        tick(system.length(p))
    return finished


def _checkpoint(system: System, code: str, path: Path, config: str, seed: int) -> State:
    """Where a run goes on: its checkpoint, or the start.

    Raises
    ------
    ParameterError
        If the checkpoint is of other code: what it and this code make together nobody could name.
    """
    state = runs.load_checkpoint(path, config, seed)
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
    """Let a learner go on from checkpoints."""
    try:
        owed.load(system, learner, [state["learner"] for state in states.values()])
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
    """Write one checkpoint per seed; students without a state start over."""
    for b, (seed, path) in enumerate(places.items()):
        kept = {
            str(s): {name: torch.as_tensor(v[b]) for name, v in record.items()}
            for s, record in found.items()
        }
        if state := owed.state(system, learner, b):
            said = {"step": step, "code": code, "learner": state, "records": kept}
            with owed.named(f"{system.name}: its state"):
                runs.save_checkpoint(path, config, seed, said)


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
    """Step, measure and save to the end; ``found`` is filled, ``tick`` hears of every step, and
    ``attrs`` are those of the students.
    """
    length, saved, begun = system.length(p), time.monotonic(), False
    # Numbers that overflow are found below, by name.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"), Patience() as patience:
        try:
            while True:
                if (
                    system.time
                    and (step % p.eval_every == 0 or step == length)
                    and step not in found
                ):
                    first = found[min(found)] if found else None
                    made = owed.records(system, learner.measure(), len(attrs), first, step)
                    _stay_finite(system, p, step, made[system.finite], first is None)
                    found[step] = made
                if not begun:
                    with owed.named(f"{system.name}: a run"):
                        runs.content(_dataset(system, p, found, 0, attrs[0]))
                    owed.states(system, learner, len(attrs))
                    begun = True
                if step == 1:  # some have no state to take up before
                    with patience.step():
                        owed.resumable(system, learner, len(attrs))
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
    """Refuse a loss that is not finite.

    Raises
    ------
    ParameterError
        Naming the learning rate, unless no step was made.
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
    """Records of one student, labelled."""
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
    clock = {} if system.clock is None else {system.time: owed.advances(system, p, steps)}
    coords = {**clock, system.counter: (system.time, steps)}
    return xr.Dataset(data, coords, attrs)


def _whole(system: System, p: Any, learner: Learner, records: xr.Dataset, b: int) -> xr.Dataset:
    """Records of one student with what it adds at the end."""
    result = records.assign(learner.finish(b))
    if system.time is None:
        _stay_finite(system, p, system.length(p), result[system.finite].values)
    return result
