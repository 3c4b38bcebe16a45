"""Checks of the `Learner` interface for students of other packages. Each requirement is
checked at the first opportunity, and a violation is reported in one line.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch
import xarray as xr

from simulate.store import checkpoints
from simulate.training.arguments import is_whole
from simulate.training.learner import Learner, State
from theory.call.refusal import ParameterError, error_summary

TIMES = 1000  # measurements whose times are checked before a run


def length(system: Any, p: Any) -> int:
    """Number of steps of a run.

    Raises
    ------
    ParameterError
        If the number of steps is not finite, or time does not advance.
    """
    steps = system.length(p)
    if not is_whole(steps) or steps < 0:
        raise ParameterError(
            f"{system.name}: length(p) = {steps!r}: must be a whole number >= 0, or a"
            " run would not end"
        )
    if system.time is None:
        return int(steps)
    every: Any = getattr(p, "eval_every", None)
    if not is_whole(every) or every < 1:
        raise ParameterError(
            f"{system.name}: eval_every = {every!r}: must be a whole number >= 1"
        )
    if system.clock is not None:
        increasing_times(system, p, np.unique([*range(0, steps, every)[:TIMES], steps]))
    return int(steps)


def increasing_times(system: Any, p: Any, steps: np.ndarray) -> np.ndarray:
    """Check the times of steps.

    Raises
    ------
    ParameterError
        If they do not increase.
    """
    times = np.asarray(system.clock(p, steps))
    if times.shape != steps.shape or not (
        np.isfinite(times).all() and (np.diff(times) > 0).all()
    ):
        raise ParameterError(
            f"{system.name}: clock(p, steps) does not advance with the"
            f" {system.counter}s: {', '.join(f'{t}' for t in times.ravel()[:3])}, ..."
        )
    return times


def records(
    system: Any,
    measured: Any,
    students: int,
    first: Mapping[str, np.ndarray] | None,
    step: int,
) -> dict[str, np.ndarray]:
    """Check measurements at a step; returns arrays with a first axis over the students.

    Raises
    ------
    ParameterError
        If they differ from the system's ``meaning`` or from the first measurement, or
        are not numbers.
    """
    who = f"{system.name}: measure() at {system.counter} {step}"
    if not isinstance(measured, Mapping) or not all(
        isinstance(name, str) for name in measured
    ):
        raise ParameterError(
            f"{who}: must give quantities by name, not {type(measured).__name__}"
        )
    if first is not None and measured.keys() != first.keys():
        changed = ", ".join(sorted(measured.keys() ^ first.keys()))
        raise ParameterError(f"{who}: gives other quantities than before: {changed}")
    if system.finite not in measured:
        raise ParameterError(
            f"{system.name}: finite = {system.finite!r}: must be one of what "
            f"measure() gives: {', '.join(measured) or 'nothing'}"
        )
    made = {}
    for name, value in measured.items():
        try:
            made[name] = np.array(value, float)
        except (
            TypeError,
            ValueError,
            RuntimeError,
        ) as error:  # torch, if gradients are tracked
            raise ParameterError(
                f"{who}: {name} is no array of numbers ({error_summary(error)})"
            ) from None
        axes = 1 + len(system.dimensions.get(name, ()))
        shape = made[name].shape
        if len(shape) != axes or shape[0] != students:
            raise ParameterError(
                f"{who}: {name} has shape {shape}, must have {axes} axes, the first"
                f" over {students} students"
            )
        if first is not None and shape != first[name].shape:
            raise ParameterError(
                f"{who}: {name} has shape {shape}, and had {first[name].shape} before"
            )
    return made


def lack(system: Any, p: Any) -> Callable[[xr.Dataset], str]:
    """Function that says what a stored run lacks of the measurements of its parameters;
    errors as in `length`.
    """
    last = length(system, p)

    def lacking(run: xr.Dataset) -> str:
        steps = [*range(0, last, p.eval_every), last] if system.time else []
        at = (
            run.variables[system.counter].values.tolist()
            if system.counter in run.variables
            else []
        )
        over = {
            name: (system.time, *system.dimensions.get(name, ()))
            for name in system.meaning
        }
        other = [
            n
            for n, v in run.data_vars.items()
            if system.time and v.dims != over.get(n, v.dims)
        ]
        if at != steps or other:
            return (
                f"lacks measurements of {system.counter} 0 to {last}, as these"
                " parameters have them"
            )
        return ""

    return lacking


def checkpoint(system: Any, p: Any, state: State) -> None:
    """Check that a checkpoint is one of this run.

    Raises
    ------
    ParameterError
        If its step is none of the run, or measurements until then are missing or of
        another kind.
    """
    last = length(system, p)
    step = state["step"]
    made, at = state["records"], state["times"]
    if not is_whole(step) or not 0 <= step <= last:
        raise ParameterError(
            f"is at {system.counter} {step!r}, the run has 0 to {last}"
        )
    every = p.eval_every if system.time else 1
    times = [*range(0, step, every)] if system.time else []
    if not isinstance(made, dict) or not isinstance(state["learner"], dict):
        raise ParameterError("has no state and measurements by name")
    if at not in (times, [*times, step]) or {len(v) for v in made.values()} - {len(at)}:
        raise ParameterError(
            f"has not the measurements of {system.counter} 0, {every}, ..."
        )
    first = None
    for k, number in enumerate(at):
        record = {name: v[None, k].numpy() for name, v in made.items()}
        found = records(system, record, 1, first, number)
        first = first or found


@contextlib.contextmanager
def named(what: str) -> Iterator[None]:
    """Context manager: begin the message of a storage error with the quantity and
    student it concerns.
    """
    try:
        yield
    except ParameterError as error:
        raise ParameterError(f"{what} {error}") from error


def states(system: Any, learner: Learner, students: int) -> list[State]:
    """States of all students after a round trip through a checkpoint.

    Raises
    ------
    ParameterError
        If a state cannot be saved or read.
    """
    states_back = [state(system, learner, b) for b in range(students)]
    with named(f"{system.name}: its state"):
        return [checkpoints.unpickled(checkpoints.pickled(s)) for s in states_back]


def resumable(
    system: Any,
    learner: Learner,
    again: Callable[[], Learner] | None,
    students: int,
    number: int,
) -> None:
    """Check that a resumed run is the same run: this learner and a new one from
    ``again`` make step ``number`` from the same saved states, and end in the same
    states and measurements. Without ``again`` this one makes step 1 twice. At step 1
    the global random generators differ, so that a student that draws from them is
    found. Afterwards the learner is as before. With a GPU, where sums may round in
    another order, no step is made.

    Raises
    ------
    ParameterError
        If the states cannot be saved, read, or restored, or do not determine the step.
    """
    begin = states(system, learner, students) if again or number == 1 else []
    if not any(begin):
        return
    load(system, learner, copy.deepcopy(begin))  # optimisers go on with what they load
    if torch.cuda.is_initialized():
        return
    generators, ends, counts, measured = checkpoints.generators(), [], [], None
    for shift, one in enumerate((again() if again else learner, learner)):
        load(system, one, copy.deepcopy(begin))
        checkpoints.set_generators(generators)
        if system.time:
            measured = records(system, one.measure(), students, measured, number)
        if number == 1:
            random.seed(shift)
            np.random.seed(shift)  # noqa: NPY002
            torch.manual_seed(shift)
        try:
            one.step(number)
        except Exception:
            if one is learner:
                raise  # else its state is another
        seen = [torch.as_tensor(v) for v in (measured or {}).values()]
        ends.append([states(system, one, students), seen])
        counts.append(attributes(one))
    load(system, learner, copy.deepcopy(begin))
    checkpoints.set_generators(generators)
    if not alike(*ends):
        raise ParameterError(
            f"{system.name}: step({number}) made twice from the same state gives two"
            " states or measurements, a resumed run would be another; keep in state()"
            " all that step() changes, and draw random numbers from"
            " simulate.training.plan.streams.of_torch(seed, 0, number)"
        )
    if moved := [k for k, v in counts[0].items() if not alike(v, counts[1].get(k))]:
        raise ParameterError(
            f"{system.name}: step({number}) made twice from the same state gives two"
            f" values of the attribute {moved[0][1:]}, a resumed run may be another;"
            " keep it in state(), or take the number of the step"
        )


DRAWING = (np.random.Generator, random.Random, torch.Generator)


def attributes(of: Any, name: str = "", depth: int = 4) -> dict[str, Any]:
    """Attributes of a student and of its parts that a step may change: numbers and
    states of random generators, by dotted name.
    """
    if isinstance(of, int | float):
        return {name: of}
    if isinstance(of, DRAWING):
        return {
            name: (
                of.get_state() if isinstance(of, torch.Generator) else pickle.dumps(of)
            )
        }
    parts = dict(enumerate(of)) if isinstance(of, list | tuple) else of
    parts = parts if isinstance(parts, Mapping) else getattr(of, "__dict__", {})
    found: dict[str, Any] = {}
    for key, part in parts.items() if depth and not isinstance(of, ModuleType) else ():
        found |= attributes(part, f"{name}.{key}", depth - 1)
    return found


def state(system: Any, learner: Learner, b: int) -> State:
    """State of one student.

    Raises
    ------
    ParameterError
        If it is not a dictionary, or `state` fails.
    """
    try:
        saved = learner.state(b)
    except Exception as error:  # foreign code may raise anything
        raise ParameterError(
            f"{system.name}: state() fails: {error_summary(error)}"
        ) from error
    if not isinstance(saved, dict):
        raise ParameterError(
            f"{system.name}: state() gives {type(saved).__name__}, must be a dictionary"
        )
    return saved


def load(system: Any, learner: Learner, states: Sequence[State]) -> None:
    """Restore states of a learner, and check that it then has them.

    Raises
    ------
    ParameterError
        If the states are of another student, or restoring fails or changes them.
    """
    if not all(_fit(state(system, learner, b), s) for b, s in enumerate(states)):
        raise ParameterError(
            f"{system.name}: a state has other shapes than the student"
        )
    try:
        learner.load(states)
    except Exception as error:  # foreign code may raise anything
        raise ParameterError(
            f"{system.name}: load() does not take what state() gave:"
            f" {error_summary(error)}"
        ) from error
    if not all(alike(state(system, learner, b), s) for b, s in enumerate(states)):
        raise ParameterError(
            f"{system.name}: load() does not take up what state() gave, a resumed run"
            " would not go on where it stopped"
        )


def _fit(one: Any, two: Any) -> bool:
    """Whether the arrays that a fresh state shares with another have the same shapes;
    numbers may have become arrays.
    """
    if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
        return one.ndim == 0 or one.shape == two.shape
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        return all(_fit(one[k], two[k]) for k in one.keys() & two.keys())
    return True


def alike(one: Any, two: Any) -> bool:
    """Whether two states are equal, bit for bit."""
    if isinstance(one, Mapping):
        same = isinstance(two, Mapping) and one.keys() == two.keys()
        return same and all(alike(one[k], two[k]) for k in one)
    if isinstance(one, list | tuple):
        same = isinstance(two, list | tuple) and len(one) == len(two)
        return same and all(map(alike, one, two))
    if isinstance(one, torch.Tensor):
        if not isinstance(two, torch.Tensor) or (one.shape, one.dtype) != (
            two.shape,
            two.dtype,
        ):
            return False
        one, two = one.detach().cpu(), two.detach().cpu()
        return bool(((one == two) | ((one != one) & (two != two))).all())
    return bool(one == two) or bool(one != one and two != two)
