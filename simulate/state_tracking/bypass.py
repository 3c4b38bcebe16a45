"""The solvable student with a bypass, on sequences of actions and states, written without the
statement: attention is one trained number, and logits have a table of the state alone.
"""

from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from simulate.learner import Descent
from simulate.streams import keyed
from theory.state_tracking import task
from theory.state_tracking.bypass import LENGTH


def teachers(N: int, d_g: int, random: np.random.Generator) -> np.ndarray:
    """Permutations that lead from every state to different ones: shifts of a ring whose states are
    named at random.
    """
    names = random.permutation(N)
    shifts = random.permutation(N)[:d_g, None]
    permutations = np.empty((d_g, N), dtype=int)
    permutations[:, names] = names[(np.arange(N) + shifts) % N]
    return permutations


class Student:
    """Logic matrices ``M[a, r, s]``, the table ``U[r, s]`` and the score of the right action, from
    zero.

    Parameters
    ----------
    p : Parameters
        Of `theory.state_tracking.bypass`.
    length : int
        Actions of a sequence.
    """

    def __init__(self, p: Any, length: int = LENGTH) -> None:
        self.p, self.length = p, length
        shapes = {"M": (p.d_g, p.N, p.N), "U": (p.N, p.N), "theta": ()}
        self.weights: dict[str, Tensor] = {
            n: torch.zeros(s, dtype=torch.float64, requires_grad=True) for n, s in shapes.items()
        }

    @property
    def attention(self) -> Tensor:
        """Of every step on every action: A on the right one."""
        return (torch.eye(self.length, dtype=torch.float64) * self.weights["theta"]).softmax(1)

    def logits(self, attention: Tensor, actions: Tensor, states: Tensor) -> Tensor:
        """Logits of the next states under teacher forcing, shape (n, L, N).

        Parameters
        ----------
        attention : Tensor, shape (L, L)
            Of steps (rows) on actions.
        actions, states : Tensor, shape (n, L)
            Actions, and the states that they act on.
        """
        M, U = self.weights["M"], self.weights["U"]
        each = M.transpose(1, 2)[actions[:, None, :], states[:, :, None]]  # sequence, step, action
        logic = torch.einsum("tj,ntjr->ntr", attention, each)
        return logic + self.p.b * U.T[states]

    def loss(self, actions: Tensor, states: Tensor) -> Tensor:
        """Mean cross-entropy on full state sequences (n, L + 1)."""
        logits = self.logits(self.attention, actions, states[:, :-1])
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), states[:, 1:].flatten())


@torch.no_grad()
def measured(
    student: Student, perms: np.ndarray, actions: Tensor, states: Tensor
) -> dict[str, float]:
    """Attention, mass on states that some action leads to, and R and S by intervention: the logit
    of the right state less the mean, with attention moved to the right action or to another one.

    Parameters
    ----------
    student : Student
    perms : ndarray, shape (d_g, N)
        Teachers.
    actions, states : Tensor, shapes (n, L) and (n, L + 1)
        Sequences for the mass.
    """
    p = student.p
    now = states[:, :-1]
    there = torch.as_tensor(perms)
    chances = student.logits(student.attention, actions, now).softmax(2)
    mass = chances.gather(2, there.T[now]).sum(2).mean()
    logits = student.weights["M"] + p.b * student.weights["U"]  # by action, to a state, from one
    # By action, and by the action that leads to the right state.
    right = (logits - logits.mean(1, keepdim=True))[:, there, torch.arange(p.N)].mean(2)
    R, total = right.diagonal().mean(), right.sum()
    S = (total - p.d_g * R) / (p.d_g * (p.d_g - 1))
    quantities = {"A": student.attention[0, 0], "R": R, "S": S, "mass": mass}
    return {name: float(x) for name, x in quantities.items()}


def descent(p: Any, seed: int) -> xr.Dataset:
    """Curves of `measured` over the flow's time, trained from zero on fresh sequences."""
    perms = teachers(p.N, p.d_g, keyed(seed, 0))
    student = Student(p)
    records = []
    optimizer = Descent(student.weights.values(), lr=p.eta)
    for number in range(p.steps + 1):
        drawn = task.draw_sequences(perms, p.batch_size, LENGTH, keyed(seed, 1, number))
        data = torch.as_tensor(drawn.actions), torch.as_tensor(drawn.states)
        records.append(measured(student, perms, *data))
        optimizer.zero_grad()
        student.loss(*data).backward()
        optimizer.step()
    return xr.Dataset(
        {name: ("t", [x[name] for x in records]) for name in records[0]},
        {"t": p.eta * np.arange(p.steps + 1)},
    )
