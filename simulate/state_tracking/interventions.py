"""Order parameters of any architecture, by intervention: attention on actions is moved, and what
the student then predicts is measured.

A student is a function ``student(actions, states, redirect)`` with the result of
`standard.Transformer.forward`; for the solvable student, whose head sees actions alone, A, R and
S are those of the theory (R and S less zeta/N).
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from simulate.state_tracking import learner
from simulate.state_tracking.student import Student

MEANING = {
    "A": "attention on the right action, of what the best head pays to actions",
    "retrieval": "attention on the right action, best head",
    "retrieval_mean": "attention on the right action, mean over heads",
    "retrieval_shared": "attention on the right action, best head of every step",
    "retrieval_heads": "attention on the right action, every head",
    "visible": "next-token accuracy of who knows the next state where a head looks at the right action (above 1/(2L), for the pair of state and action), and guesses it from the state elsewhere",
    "B": "attention of a state on itself, the head where it is largest",
    "R": "overlap with the own teacher: logit of the right state less the mean logit, attention on actions moved to the right one",
    "S": "overlap with the other teachers: the same logit, attention on actions moved to another one",
    "loss": "cross-entropy, test set",
    "accuracy": "next-token accuracy under teacher forcing, test set",
    "step_accuracy": "next-token accuracy per step, test set",
    "rollout_accuracy": "final accuracy of greedy rollouts, test set",
    "logic": "next-token accuracy with attention on actions moved to the right one",
    "heuristic": "next-token accuracy with attention on actions spread evenly over them",
    "attention": "attention of each step (row) on each action (column), best head",
}
DIMENSIONS = {
    "retrieval_heads": ("head",),
    "step_accuracy": ("step",),
    "attention": ("step", "action"),
}


class Seen(NamedTuple):
    """Attention and predictions of a student at every state, heads of all blocks one after the
    other; attention without intervention.

    Attributes
    ----------
    logits : Tensor, shape (n, T, N)
        Of the next states.
    attention : Tensor, shape (n, heads, T, L)
        On the actions.
    itself : Tensor, shape (n, heads, T)
        Of a state on itself.
    """

    logits: Tensor
    attention: Tensor
    itself: Tensor


@torch.no_grad()
def measure(student: Callable[..., Seen], actions: Tensor, states: Tensor) -> dict[str, Tensor]:
    """Quantities in `MEANING`.

    Parameters
    ----------
    student : callable
        The student.
    actions, states : Tensor, shapes (n, L) and (n, L + 1)
        Test sequences.
    """
    L = actions.shape[1]
    now = states[:, :-1]
    then = states[:, 1:]
    right = torch.eye(L, device=actions.device, dtype=student(actions[:1], now[:1]).logits.dtype)
    other = right.roll(1, 1)  # the action one place later
    seen = student(actions, now)
    retrieved = student(actions, now, right).logits
    averaged = student(actions, now, right.mean(0).expand(L, L)).logits
    mistaken = student(actions, now, other).logits
    differs = actions != actions.roll(-1, 1)  # at step t: the right action, and the one moved to
    paid = seen.attention.double().mean(0)  # head, step, action
    on_right = paid.diagonal(dim1=1, dim2=2)
    best = int(on_right.mean(1).argmax())
    hits = (seen.logits.argmax(-1) == then).double().mean(0)
    return {
        "A": on_right[best].sum() / paid[best].sum(),
        "retrieval": on_right[best].mean(),
        "retrieval_mean": on_right.mean(),
        "retrieval_shared": on_right.amax(0).mean(),
        "retrieval_heads": on_right.mean(1),
        "visible": visible(seen.attention, actions, states),
        "B": seen.itself.double().mean((0, 2)).max(),
        "R": _excess(retrieved, then).mean(),
        "S": _excess(mistaken, then)[differs].mean(),
        "loss": torch.nn.functional.cross_entropy(seen.logits.flatten(0, 1), then.flatten()),
        "accuracy": hits.mean(),
        "step_accuracy": hits,
        "rollout_accuracy": (rollout(student, actions, states[:, 0]) == then[:, -1])
        .double()
        .mean(),
        "logic": (retrieved.argmax(-1) == then).double().mean(),
        "heuristic": (averaged.argmax(-1) == then).double().mean(),
        "attention": paid[best],
    }


def visible(attention: Tensor, actions: Tensor, states: Tensor) -> Tensor:
    """Accuracy that attention allows: to a head that pays an action less than one that looks at all
    tokens alike, 1/(2L), all such actions are the same.

    Parameters
    ----------
    attention : Tensor, shape (n, heads, T, L)
        On the actions.
    actions, states : Tensor, shapes (n, L) and (n, L + 1)
        The sequences.
    """
    now, then = states[:, :-1], states[:, 1:]
    N = int(states.max()) + 1
    pair = (actions * N + now).flatten()
    paid = attention.double().diagonal(dim1=2, dim2=3).transpose(0, 1).flatten(1)
    total = paid.new_zeros(len(paid), int(pair.max()) + 1).index_add(1, pair, paid)
    looked = (total / torch.bincount(pair)).amax(0)[pair] > 1 / (2 * actions.shape[1])
    led = torch.bincount((now * N + then).flatten()[~looked], minlength=N * N)
    return (looked.sum() + led.view(N, N).amax(1).sum()).double() / len(pair)


def _excess(logits: Tensor, then: Tensor) -> Tensor:
    """Logit of the right state less the mean over states."""
    precise = logits.double()
    return precise.gather(2, then[..., None])[..., 0] - precise.mean(-1)


def rollout(student: Callable[..., Seen], actions: Tensor, first: Tensor) -> Tensor:
    """Last state of greedy rollouts from the first states."""
    states = first[:, None]
    for _ in range(actions.shape[1]):
        guess = student(actions, states).logits[:, -1].argmax(-1, keepdim=True)
        states = torch.cat([states, guess], 1)
    return states[:, -1]


def seen(student: Student, actions: Tensor, states: Tensor, redirect: Tensor | None = None) -> Seen:
    """As `standard.Transformer.forward`; one head, which sees actions alone."""
    attention = student.attention(actions, states)
    used = attention if redirect is None else redirect.expand_as(attention)
    logits = student.logic(student.retrieve(used, actions), states)
    return Seen(logits, attention[:, None], attention.new_zeros(len(actions), 1, states.shape[1]))


class Measured(learner.Learner):
    """Solvable students, measured as standard transformers are."""

    def measure(self) -> dict[str, np.ndarray]:
        """Quantities in `interventions.MEANING`."""
        students = zip(self.students.members, *self.test_data, strict=True)
        each = [measure(partial(seen, one), *test) for one, *test in students]
        return {
            name: torch.stack([x[name] for x in each]).cpu().double().numpy() for name in each[0]
        }

    def finish(self, b: int) -> dict[str, Any]:
        """No final results."""
        return {}


SYSTEM = dataclasses.replace(
    learner.SYSTEM,
    name="state_tracking.measured",
    make=Measured,
    meaning=MEANING,
    dimensions=DIMENSIONS,
    stack=1,
    identity=lambda p: learner.identity(p),
    data=None,
)
