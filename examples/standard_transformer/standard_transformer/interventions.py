"""Order parameters of any architecture by intervention: attention on actions is moved,
and what the student then predicts is measured.

A student is a function ``student(actions, states, redirect)`` with the result of
`Transformer.forward`; for the solvable student, whose head sees actions alone, A, R and
S are those of the theory (R and S less zeta/N).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from simulate import state_tracking as solvable
from standard_transformer.transformer import Seen

MEANING = {
    "A": "attention on the right action, of what the best head pays to actions",
    "retrieval": "attention on the right action, best head",
    "visible": (
        "next-token accuracy of who knows the next state where a head looks at the"
        " right action (above 1/(2L), for the pair of state and action), and guesses"
        " it from the state elsewhere"
    ),
    "B": "attention of a state on itself, the head where it is largest",
    "R": (
        "overlap with the own teacher: logit of the right state less the mean logit,"
        " attention on actions moved to the right one"
    ),
    "S": (
        "overlap with the other teachers: the same logit, attention on actions moved"
        " to another one"
    ),
    "loss": "cross-entropy, test set",
    "accuracy": "next-token accuracy under teacher forcing, test set",
    "rollout_accuracy": "final accuracy of greedy rollouts, test set",
    "logic": "next-token accuracy with attention on actions moved to the right one",
    "heuristic": "next-token accuracy with attention on actions spread evenly",
}
Student = Callable[..., Seen]


@torch.no_grad()
def measure(student: Student, actions: Tensor, states: Tensor) -> dict[str, Tensor]:
    """Quantities in `MEANING`.

    Parameters
    ----------
    student : callable
        The student.
    actions, states : Tensor, shapes (n, L) and (n, L + 1)
        Test sequences.
    """
    L = actions.shape[1]
    now, then = states[:, :-1], states[:, 1:]
    seen = student(actions, now)
    right = torch.eye(L).to(seen.logits)
    retrieved = student(actions, now, right).logits
    averaged = student(actions, now, right.mean(0).expand(L, L)).logits
    mistaken = student(actions, now, right.roll(1, 1)).logits  # the action behind it
    differs = actions != actions.roll(-1, 1)
    paid = seen.attention.double().mean(0)  # head, step, action
    on_right = paid.diagonal(dim1=1, dim2=2)
    best = int(on_right.mean(1).argmax())
    cross_entropy = torch.nn.functional.cross_entropy
    end = rollout(student, actions, states[:, 0])
    return {
        "A": on_right[best].sum() / paid[best].sum(),
        "retrieval": on_right[best].mean(),
        "visible": visible(seen.attention, actions, states),
        "B": seen.itself.double().mean((0, 2)).max(),
        "R": excess(retrieved, then).mean(),
        "S": excess(mistaken, then)[differs].mean(),
        "loss": cross_entropy(seen.logits.flatten(0, 1), then.flatten()),
        "accuracy": accuracy(seen.logits, then),
        "rollout_accuracy": (end == then[:, -1]).double().mean(),
        "logic": accuracy(retrieved, then),
        "heuristic": accuracy(averaged, then),
    }


def accuracy(logits: Tensor, then: Tensor) -> Tensor:
    """Share of states whose logit is the largest."""
    return (logits.argmax(-1) == then).double().mean()


def excess(logits: Tensor, then: Tensor) -> Tensor:
    """Logit of the right state less the mean over states."""
    precise = logits.double()
    return precise.gather(2, then[..., None])[..., 0] - precise.mean(-1)


def visible(attention: Tensor, actions: Tensor, states: Tensor) -> Tensor:
    """Accuracy that attention allows: to a head that pays an action less than one that
    looks at all tokens alike, 1/(2L), all such actions are the same.

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
    on_right = attention.double().diagonal(dim1=2, dim2=3)
    paid = on_right.transpose(0, 1).flatten(1)  # head, place
    total = paid.new_zeros(len(paid), int(pair.max()) + 1).index_add(1, pair, paid)
    of_pair = (total / torch.bincount(pair)).amax(0)
    looked = of_pair[pair] > 1 / (2 * actions.shape[1])
    move = (now * N + then).flatten()
    led = torch.bincount(move[~looked], minlength=N * N).view(N, N)
    guessed = led.amax(1).sum()
    return (looked.sum() + guessed).double() / len(pair)


def rollout(student: Student, actions: Tensor, first: Tensor) -> Tensor:
    """Last state of greedy rollouts from the first states."""
    states = first[:, None]
    for _ in range(actions.shape[1]):
        logits = student(actions, states).logits
        guess = logits[:, -1].argmax(-1, keepdim=True)
        states = torch.cat([states, guess], 1)
    return states[:, -1]


def seen_by(
    student: solvable.Student,
    actions: Tensor,
    states: Tensor,
    redirect: Tensor | None = None,
) -> Seen:
    """As `Transformer.forward` of a solvable student: one head, which sees actions
    alone.
    """
    attention = student.attention(actions, states)
    used = attention if redirect is None else redirect.expand_as(attention)
    logits = student.logic(student.retrieve(used, actions), states)
    itself = attention.new_zeros(len(actions), 1, states.shape[1])
    return Seen(logits, attention[:, None], itself)
