"""Interface of students under training (`Learner`),
and base classes for most of them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from theory.call.refusal import ParameterError

State = dict[str, Any]  # tensors, numbers, and lists or dictionaries of these


class Learner(Protocol):
    """A stack of students under training, one per seed. It does not handle files, time
    or progress.

    A step must depend only on the state, the seeds and its number, so that a resumed
    run continues exactly like an uninterrupted one.
    """

    def step(self, number: int) -> None:
        """Perform training step ``number`` (0, 1, ...) of all students."""

    def measure(self) -> Mapping[str, Any]:
        """Current values of the quantities in the system's ``meaning``, each with a
        first axis over students.
        """
        return {}

    def state(self, b: int) -> State:
        """State of one student, which determines all later steps."""
        return {}

    def load(self, states: Sequence[State]) -> None:
        """Restore the states of all students, which must have made the same number of
        steps.
        """

    def finish(self, b: int) -> Mapping[str, Any]:
        """Final results of one student to be added to its records, as for
        ``xarray.Dataset.assign``.
        """
        return {}


class Unstacked(Learner):
    """Adapter for students without a stack axis: runs several side by side. ``kind(p,
    seed, device, dtype, **own)`` makes one student, with `state` and `load` for a
    single student.
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
        """One step of each student."""
        for member in self.members:
            member.step(number)

    def measure(self) -> Mapping[str, Any]:
        """Stacked measurements of all students."""
        measured = [member.measure() for member in self.members]
        stacked = {}
        for name in measured[0]:
            stacked[name] = np.stack([as_array(values[name]) for values in measured])
        return stacked

    def state(self, b: int) -> State:
        """State of one student."""
        return self.members[b].state()

    def load(self, states: Sequence[State]) -> None:
        """Restore the state of each student."""
        for member, state in zip(self.members, states, strict=True):
            member.load(state)

    def finish(self, b: int) -> Mapping[str, Any]:
        """Final results of one student, if its kind has any."""
        return self.members[b].finish() if hasattr(self.members[b], "finish") else {}


class Clamped(Learner):
    """Students of another learner with some weights clamped, at the start and after
    every step.

    Parameters
    ----------
    learner : Learner
        Learner that trains all weights.
    students : int
        Number of students.
    values : mapping of str to float
        Fixed values by name of a weight in a student's `state`: all entries (``w``),
        one entry of the first axis (``theta[1]``) or several (``w[4:8]``).

    Raises
    ------
    ParameterError
        If there is no such weight.
    """

    def __init__(
        self, learner: Learner, students: int, values: Mapping[str, float]
    ) -> None:
        self.learner, self.students, self.values = learner, students, values
        self.measure = learner.measure  # type: ignore[method-assign]
        self.state = learner.state  # type: ignore[method-assign]
        self.finish = learner.finish  # type: ignore[method-assign]
        self._clamp()

    def step(self, number: int) -> None:
        """One step of all students, then reset the clamped weights."""
        self.learner.step(number)
        self._clamp()

    def load(self, states: Sequence[State]) -> None:
        """Restore the states of all students."""
        self.learner.load(states)

    @torch.no_grad()
    def _clamp(self) -> None:
        states = [self.learner.state(b) for b in range(self.students)]
        for (text, value), state in itertools.product(self.values.items(), states):
            parts = re.fullmatch(r"([\w.]+?)(?:\[(\d+)(?::(\d+))?\])?", text)
            name, first, last = parts.groups() if parts else (text, None, None)
            weights = dict(_tensors(state))
            length = next(iter(weights[name].shape), 0) if name in weights else 0
            if name not in weights or (
                first and int(last or first) >= length + bool(last)
            ):
                known = ", ".join(f"{n} {tuple(w.shape)}" for n, w in weights.items())
                raise ParameterError(f"held: no weight {text}; there are {known}")
            place = (
                ... if first is None else slice(int(first), int(last or int(first) + 1))
            )
            weights[name][place] = value
        self.learner.load(states)


def _tensors(state: State) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in state.items():
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, dict):
            yield from _tensors(value)


def as_array(value: Any) -> np.ndarray:
    """A number, array or tensor as an array; tensors in double precision."""
    return np.asarray(
        value.cpu().double() if isinstance(value, torch.Tensor) else value
    )


def losses(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of every token but the first, shape (n, T - 1)."""
    following = tokens[:, 1:]
    ahead = logits[:, : following.shape[1]].transpose(1, 2)
    return torch.nn.functional.cross_entropy(ahead, following, reduction="none")


class Descent:
    """Gradient descent, also with momentum, with the interface of `torch.optim`; bit
    for bit the same steps as `torch.optim.SGD`.

    Used because torch's optimisers load torch's compiler, which takes two seconds per
    process.
    """

    def __init__(
        self,
        weights: Iterable[torch.Tensor],
        lr: float,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        self.weights, self.weight_decay = list(weights), weight_decay
        self.momentum, self.nesterov = momentum, nesterov
        self.param_groups: list[dict[str, Any]] = [{"lr": lr}]
        self.kept: dict[int, torch.Tensor] = {}  # momentum, by place of the weight

    @property
    def lr(self) -> float:
        """Learning rate."""
        return self.param_groups[0]["lr"]

    @lr.setter
    def lr(self, value: float) -> None:
        self.param_groups[0]["lr"] = value

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear all gradients."""
        for w in self.weights:
            w.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """One descent step with the current gradients."""
        for k, w in enumerate(self.weights):
            if w.grad is not None:
                slope = (
                    w.grad.add(w, alpha=self.weight_decay)
                    if self.weight_decay
                    else w.grad
                )
                w.add_(self._moved(k, slope), alpha=-self.lr)

    def _moved(self, k: int, slope: torch.Tensor) -> torch.Tensor:
        """Direction of a step of one weight."""
        if not self.momentum:
            return slope
        if k in self.kept:
            self.kept[k].mul_(self.momentum).add_(slope)
        else:
            self.kept[k] = slope.clone()
        return (
            slope.add(self.kept[k], alpha=self.momentum)
            if self.nesterov
            else self.kept[k]
        )

    def state_dict(self) -> State:
        """Momentum of every weight that has any."""
        return {"state": {k: {"momentum_buffer": v} for k, v in self.kept.items()}}

    def load_state_dict(self, state: State) -> None:
        """Restore the momentum."""
        saved = state["state"].items()
        self.kept = {int(k): v["momentum_buffer"].clone() for k, v in saved}


class Member:
    """Base class of one student of `Unstacked`.

    Parameters
    ----------
    p : Parameters
        Task, student, training.
    seed : int
        Seed of all that is drawn.
    device : torch.device, optional
        Device; the CPU by default.
    dtype : torch.dtype, optional
        Precision; by default that of the class.
    own
        Arguments of ``build``, which makes the student.
    """

    p: Any
    dtype = torch.float32
    build: Callable[..., None]

    def __init__(
        self,
        p: Any,
        seed: int,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
        **own: Any,
    ) -> None:
        self.p, self.seed, self.device = p, seed, device
        self.dtype = dtype or self.dtype
        self.build(**own)


class Module(Member):
    """Base class of a student that is a torch module with an optimiser; its state
    consists of both. Its loss is that of the batch of a step.
    """

    student: Any
    optimizer: Descent | torch.optim.Optimizer

    def loss(self, number: int) -> torch.Tensor:
        """Loss on the batch of a step."""
        raise NotImplementedError

    def step(self, number: int) -> None:
        """One step of the optimiser on the batch of this step."""
        loss = self.loss(number)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def state(self) -> State:
        """Weights and optimiser state."""
        return {
            "student": self.student.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def load(self, state: State) -> None:
        """Restore a state."""
        self.student.load_state_dict(state["student"])
        self.optimizer.load_state_dict(state["optimizer"])
