"""What a student under training offers, and the two shapes most of them share."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from theory.parameters import ParameterError

State = dict[str, Any]  # tensors, numbers, and lists or dictionaries of them


class Learner(Protocol):
    """A stack of students on their way, one per seed. It knows nothing of files, time or progress.

    A step may depend on nothing but the state, the seeds and its own number, so that a resumed run
    goes on as the uninterrupted one would.
    """

    def step(self, number: int) -> None:
        """Make training step ``number`` (0, 1, ...) of all students."""

    def measure(self) -> Mapping[str, Any]:
        """Quantities of the system's ``meaning`` now, each with a first axis over students."""
        return {}

    def state(self, b: int) -> State:
        """What determines all later steps of one student."""
        return {}

    def load(self, states: Sequence[State]) -> None:
        """Take up the states of all students, which made equally many steps."""

    def finish(self, b: int) -> Mapping[str, Any]:
        """What one student adds to its records at the end, as ``xarray.Dataset.assign`` takes
        it.
        """
        return {}


class Each(Learner):
    """Students that know no stack, side by side: ``kind(p, seed, device, dtype, **own)`` makes one,
    whose `state` and `load` take one.
    """

    def __init__(
        self,
        kind: Callable[..., Any],
        p: Any,
        seeds: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
        **own: Any,
    ) -> None:
        self.members = [kind(p, seed, device, dtype, **own) for seed in seeds]

    def step(self, number: int) -> None:
        """One step of each."""
        for member in self.members:
            member.step(number)

    def measure(self) -> Mapping[str, Any]:
        """Measurements of all, stacked."""
        found = [member.measure() for member in self.members]
        return {name: np.stack([np.asarray(f[name]) for f in found]) for name in found[0]}

    def state(self, b: int) -> State:
        """State of one."""
        return self.members[b].state()

    def load(self, states: Sequence[State]) -> None:
        """Take up a state each."""
        for member, state in zip(self.members, states, strict=True):
            member.load(state)

    def finish(self, b: int) -> Mapping[str, Any]:
        """What one adds, if its kind adds anything."""
        return self.members[b].finish() if hasattr(self.members[b], "finish") else {}


class Held(Learner):
    """Students of another learner with weights clamped, at the start and after every step.

    Parameters
    ----------
    learner : Learner
        Moves all weights.
    students : int
        How many it has.
    values : mapping of str to float
        By name of a weight in a student's `state`, all of it (``w``), one entry of its first axis
        (``theta[1]``) or several (``w[4:8]``).

    Raises
    ------
    ParameterError
        If there is no such weight.
    """

    def __init__(self, learner: Learner, students: int, values: Mapping[str, float]) -> None:
        self.learner, self.students, self.values = learner, students, values
        self.measure, self.state, self.finish = learner.measure, learner.state, learner.finish  # type: ignore[method-assign]
        self._clamp()

    def step(self, number: int) -> None:
        """One step of all, and back."""
        self.learner.step(number)
        self._clamp()

    def load(self, states: Sequence[State]) -> None:
        """Take up the states of all."""
        self.learner.load(states)

    @torch.no_grad()
    def _clamp(self) -> None:
        states = [self.learner.state(b) for b in range(self.students)]
        for (text, value), state in itertools.product(self.values.items(), states):
            found = re.fullmatch(r"([\w.]+?)(?:\[(\d+)(?::(\d+))?\])?", text)
            name, first, last = found.groups() if found else (text, None, None)
            weights = dict(_tensors(state))
            if name not in weights or (
                first and int(last or first) >= len(weights[name]) + bool(last)
            ):
                known = ", ".join(f"{n} {tuple(w.shape)}" for n, w in weights.items())
                raise ParameterError(f"held: no weight {text}; there are {known}")
            at = slice(None) if first is None else slice(int(first), int(last or int(first) + 1))
            weights[name][at] = value
        self.learner.load(states)


def _tensors(state: State) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in state.items():
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, dict):
            yield from _tensors(value)


class Descent:
    """Gradient descent with the interface of `torch.optim`, and the steps of its `SGD` to the last
    bit.

    The first optimiser of torch loads torch's compiler into a process, which takes two seconds.
    """

    def __init__(
        self, weights: Iterable[torch.Tensor], lr: float, weight_decay: float = 0.0
    ) -> None:
        self.weights, self.lr, self.weight_decay = list(weights), lr, weight_decay

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients."""
        for w in self.weights:
            w.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """One step against the gradients that are there."""
        for w in self.weights:
            if w.grad is not None:
                slope = w.grad.add(w, alpha=self.weight_decay) if self.weight_decay else w.grad
                w.add_(slope, alpha=-self.lr)

    def state_dict(self) -> State:
        """Nothing: it remembers nothing."""
        return {"state": {}}

    def load_state_dict(self, state: State) -> None:
        """Take up nothing."""


class Module:
    """A student that is a module with an optimiser: together they are its state."""

    student: Any
    optimizer: Descent | torch.optim.Optimizer

    def state(self) -> State:
        """Weights, and what the optimiser remembers of them."""
        return {"student": self.student.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state: State) -> None:
        """Take up a state."""
        self.student.load_state_dict(state["student"])
        self.optimizer.load_state_dict(state["optimizer"])
