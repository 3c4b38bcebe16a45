"""Standard transformers on the state-tracking task, and order parameters of any architecture, by
intervention: attention on actions is moved, and what the student then predicts is measured.

A student is a function ``student(actions, states, redirect)`` with the result of
`Transformer.forward`; for the solvable student, whose head sees actions alone, A, R and S are those
of the theory (R and S less zeta/N).
"""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from simulate import training
from simulate.learner import Module, Unstacked
from simulate.state_tracking import learner as solvable
from simulate.state_tracking.student import Student, rotate
from theory.state_tracking import task
from theory.state_tracking.parameters import StandardParameters

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


# Standard transformers


class Heads(nn.Module):
    """Causal softmax attention of several heads, without biases."""

    omega: Tensor

    def __init__(self, p: StandardParameters) -> None:
        super().__init__()
        self.p = p
        width = p.heads * p.d_h
        self.query, self.key, self.value = (
            nn.Linear(p.d_model, width, bias=False) for _ in range(3)
        )
        self.out = nn.Linear(width, p.d_model, bias=False)
        rotary = torch.tensor(p.frequencies) if p.positions == "rope" else torch.empty(0)
        self.register_buffer("omega", rotary, persistent=False)

    def forward(self, x: Tensor, redirect: Tensor | None, first: int) -> tuple[Tensor, Tensor]:
        """Output from place ``first`` on, and the attention of states before it is redirected."""
        n, length, _ = x.shape
        split = (n, -1, self.p.heads, self.p.d_h)
        q = self.query(x[:, first:]).view(split).transpose(1, 2)
        k, v = (f(x).view(split).transpose(1, 2) for f in (self.key, self.value))
        if self.p.positions == "rope":
            angle = (torch.arange(length, device=x.device)[:, None] * self.omega).to(x.dtype)
            q, k = rotate(q, angle[first:]), rotate(k, angle)
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)[first:]
        scores = (q @ k.transpose(2, 3) / math.sqrt(self.p.d_h)).masked_fill(later, -math.inf)
        weights = scores.softmax(-1)
        before, seen = weights.split([self.p.L - first, length - self.p.L], 2)
        if redirect is not None:
            on_actions = seen[..., : self.p.L].sum(-1, keepdim=True) * redirect
            moved = torch.cat([on_actions, seen[..., self.p.L :]], -1)
            weights = torch.cat([before, moved], 2)
        return self.out((weights @ v).transpose(1, 2).flatten(2)), seen


class MLP(nn.Module):
    """Two layers with a GELU between, or three with a gate."""

    def __init__(self, p: StandardParameters) -> None:
        super().__init__()
        self.up = nn.Linear(p.d_model, p.d_ff)
        self.gate = nn.Linear(p.d_model, p.d_ff) if p.mlp == "glu" else None
        self.down = nn.Linear(p.d_ff, p.d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Output to be added to the residual stream."""
        up = self.up(x)
        if self.gate is None:
            return self.down(nn.functional.gelu(up))
        return self.down(up * nn.functional.gelu(self.gate(x)))


def normalised(p: StandardParameters) -> nn.Module:
    """LayerNorm, or the identity."""
    return nn.LayerNorm(p.d_model) if p.norm else nn.Identity()


class Block(nn.Module):
    """Attention, then an MLP, each added to the residual stream."""

    def __init__(self, p: StandardParameters) -> None:
        super().__init__()
        self.norm_1, self.heads = normalised(p), Heads(p)
        self.norm_2, self.mlp = normalised(p), MLP(p)

    def forward(self, x: Tensor, redirect: Tensor | None, first: int) -> tuple[Tensor, Tensor]:
        """The stream from place ``first`` on, and the attention of states before it is
        redirected.
        """
        out, seen = self.heads(self.norm_1(x), redirect, first)
        x = x[:, first:] + out
        return x + self.mlp(self.norm_2(x)), seen


class Transformer(nn.Module):
    """Blocks of attention and MLP on a residual stream; torch's own initialisation."""

    def __init__(self, p: StandardParameters) -> None:
        super().__init__()
        self.p = p
        self.tokens = nn.Embedding(p.d_g + p.N, p.d_model)
        self.places = nn.Embedding(2 * p.L, p.d_model) if p.positions == "learned" else None
        self.blocks = nn.ModuleList(Block(p) for _ in range(p.blocks))
        self.norm = normalised(p)
        self.out = nn.Linear(p.d_model, p.N)

    def forward(self, actions: Tensor, states: Tensor, redirect: Tensor | None = None) -> Seen:
        """Logits of the next states under teacher forcing, with the attention.

        Parameters
        ----------
        actions : Tensor, shape (n, L)
            Actions 0..d_g-1.
        states : Tensor, shape (n, T)
            States s_0 .. s_{T-1}, 0..N-1.
        redirect : Tensor, shape (T, L), optional
            Intervention: how, at each step, every head distributes over the actions what it pays to
            them in total. What it pays to states stays.
        """
        x = self.tokens(torch.cat([actions, states + self.p.d_g], 1))
        if self.places is not None:
            x = x + self.places.weight[: x.shape[1]]
        seen, L = [], self.p.L
        for number, block in enumerate(self.blocks, 1):  # of the last, nobody asks actions
            x, attention = block(x, redirect, L if number == len(self.blocks) else 0)
            seen.append(attention)
        paid = torch.cat(seen, 1)
        itself = paid[..., L:].diagonal(dim1=2, dim2=3)
        return Seen(self.out(self.norm(x)), paid[..., :L], itself)


def drawn(p: StandardParameters, seed: int) -> Transformer:
    """A transformer with initial weights from a seed; torch's own random state is left as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Transformer(p)


class Learner(Module):
    """One standard transformer, on the data of the solvable student of its seed."""

    p: StandardParameters

    def build(self, permutations: np.ndarray | None = None) -> None:
        """Teachers are drawn if none are given."""
        p, seed, device = self.p, self.seed, self.device
        stream = task.streams(seed, p.data_draw)
        teachers = task.draw_permutations(p, stream["task"])
        teachers = teachers if permutations is None else np.asarray(permutations)
        self.data, self.test = (
            tuple(torch.as_tensor(x, device=device) for x in (sequences.actions, sequences.states))
            for n, which in ((p.n_train, "train"), (p.n_test, "test"))
            for sequences in [task.draw_sequences(teachers, n, p.L, stream[which])]
        )
        start = int(stream["initialisation"].integers(2**62))
        self.student = drawn(p, start).to(device, self.dtype)
        self.optimizer = solvable.optimizer(p, self.student)

    def step(self, number: int) -> None:
        """One step, or one epoch where those are counted."""
        for update in self.p.steps_of(number):
            chosen = torch.as_tensor(task.batch(self.p, self.seed, update))
            actions, states = (x[chosen.to(x.device)] for x in self.data)
            self.optimizer.zero_grad()
            logits = self.student(actions, states[:, :-1]).logits
            nn.functional.cross_entropy(logits.flatten(0, 1), states[:, 1:].flatten()).backward()
            if self.p.clip is not None:
                nn.utils.clip_grad_norm_(self.student.parameters(), self.p.clip)
            for group in self.optimizer.param_groups:
                group["lr"] = self.p.eta * self.p.share(update, self.p.updates)
            self.optimizer.step()

    def measure(self) -> dict[str, np.ndarray]:
        """Quantities in `MEANING`."""
        quantities = measure(self.student, *self.test)
        return {name: v.double().cpu().numpy() for name, v in quantities.items()}


def memory(p: StandardParameters, itemsize: int = 4) -> float:
    """Peak memory of one run in bytes, estimated from array shapes; ``itemsize`` bytes per
    weight.
    """
    width, length = p.heads * p.d_h, 2 * p.L
    scores = p.heads * length
    trained = p.blocks * (8 * p.d_model + 8 * width + 6 * p.d_ff + 5 * scores) + 4 * p.d_model
    tested = 4 * p.d_model + 4 * width + 3 * p.d_ff + 3 * scores + p.blocks * scores  # no gradients
    rows = max((p.batch_size or p.n_train) * trained, p.n_test * tested) * length
    logits = p.n_test * p.L * p.N * (7 * itemsize + 16)
    block = 4 * p.d_model * width + (2 + (p.mlp == "glu")) * p.d_model * p.d_ff
    weights = p.blocks * block + (p.d_g + 2 * p.N + 2 * p.L) * p.d_model
    data = 8 * (p.n_train + p.n_test) * (2 * p.L + 1) * 2 + 16 * p.n_train
    drawn_tables = 24 * p.d_g * p.N
    numbers = 12 + p.L**2 + p.L + p.blocks * p.heads
    # Weights, gradients, two moments, and copies of the state.
    kept = data + drawn_tables + training.records(p, numbers)
    return itemsize * (rows + 12 * weights) + logits + kept


def identity(p: StandardParameters, permutations: np.ndarray | None = None) -> dict[str, Any]:
    """Given permutations, if any, identify a run."""
    return solvable.tables(p, permutations)


SYSTEM = training.System(
    "state_tracking.standard",
    StandardParameters,
    partial(Unstacked, Learner),
    MEANING,
    memory,
    clock=StandardParameters.alpha,
    dimensions=DIMENSIONS,
    identity=identity,
    displayed=("A", "B", "R", "S", "heuristic", "logic", "accuracy", "rollout_accuracy"),
)
train = SYSTEM.train


# Solvable students, measured as standard transformers are


def seen(student: Student, actions: Tensor, states: Tensor, redirect: Tensor | None = None) -> Seen:
    """As `Transformer.forward`; one head, which sees actions alone."""
    attention = student.attention(actions, states)
    used = attention if redirect is None else redirect.expand_as(attention)
    logits = student.logic(student.retrieve(used, actions), states)
    return Seen(logits, attention[:, None], attention.new_zeros(len(actions), 1, states.shape[1]))


class Measured(solvable.Learner):
    """Solvable students, measured as standard transformers are."""

    def measure(self) -> dict[str, np.ndarray]:
        """Quantities in `MEANING`."""
        students = zip(self.students.members, *self.test_data, strict=True)
        each = [measure(partial(seen, one), *test) for one, *test in students]
        return {
            name: torch.stack([x[name] for x in each]).cpu().double().numpy() for name in each[0]
        }

    def finish(self, b: int) -> dict[str, Any]:
        """No final results."""
        return {}


MEASURED = dataclasses.replace(
    solvable.SYSTEM,
    name="state_tracking.measured",
    make=Measured,
    meaning=MEANING,
    dimensions=DIMENSIONS,
    stack=1,
    identity=lambda p: solvable.identity(p),
    data=None,
)
