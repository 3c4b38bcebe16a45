"""Words whose last state alone is asked for: networks that do not see the order of the actions, and
the solvable student.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from simulate.ensemble import ensemble
from simulate.state_tracking import Student
from theory.optimisers import Optimiser
from theory.state_tracking import Parameters, task
from theory.state_tracking.groups import table
from theory.state_tracking.order import without_order
from verify.check import Band, Check, listed, sampled, vanishing
from verify.measured import measured

WORDS, WIDTH = 2**16, 128
LENGTHS = {"S_3_regular": 12, "A_4_regular": 6, "D_4": 12}
SEEDS = range(5)
ADAM = Optimiser(optimizer="adam", schedule="cosine")
ETA, STEPS, BATCH = 0.003, 6000, 512
LATE = 0.02  # of the plateau: networks still learn
STARTS = range(3)


class Unordered(nn.Module):
    """Two hidden layers over the number of times that each action occurs, and the first state."""

    def __init__(self, d_g: int, N: int) -> None:
        super().__init__()
        sizes = [d_g + N, WIDTH, WIDTH]
        hidden = [(nn.Linear(n, m), nn.ReLU()) for n, m in itertools.pairwise(sizes)]
        self.layers = nn.Sequential(*itertools.chain(*hidden), nn.Linear(WIDTH, N))

    def loss(self, seen: Tensor, last: Tensor) -> Tensor:
        """Cross-entropy of the last state."""
        return nn.functional.cross_entropy(self.layers(seen), last)


def words(group: str, L: int, seed: int) -> tuple[Tensor, Tensor]:
    """What an unordered network sees of drawn words, and their last states."""
    perms = table(group)
    drawn = task.draw_sequences(perms, WORDS, L, np.random.default_rng(seed))
    d_g, N = perms.shape
    counts = np.eye(d_g)[drawn.actions].sum(1)
    seen = np.concatenate([counts, np.eye(N)[drawn.states[:, 0]]], 1)
    return torch.tensor(seen, dtype=torch.float32), torch.tensor(drawn.states[:, -1])


@measured
def accuracies(
    group: str, L: int, seeds: list[int], *, progress: bool = False, device: str | None = None
) -> np.ndarray:
    """Accuracy of trained networks, each on new words; on the CPU, whatever the device."""
    new, right = words(group, L, 1)
    runs = ensemble(
        lambda: Unordered(*table(group).shape),
        words(group, L, 0),
        seeds=seeds,
        eta=ETA,
        steps=STEPS,
        batch=BATCH,
        optimizer=ADAM,
        observables={
            "accuracy": lambda net, *_: (net.layers(new).argmax(1) == right).float().mean()
        },
        eval_every=STEPS,
        dtype="float32",
        progress=progress,
    )
    return np.round(runs.accuracy.values[:, -1], 5)


@listed
def unordered(**training: Any) -> Iterator[Check]:
    """Trained networks lie between the plateau of long words and the best that can be said of words
    of this length.
    """
    for group, L in LENGTHS.items():
        best = without_order(group, L).isel(length=-1)
        plateau = float(best.accuracy_plateau)
        yield sampled(
            f"accuracy without order, {group}, words of {L}",
            "without_order",
            plateau,
            accuracies(group, L, list(SEEDS), **training),
            band=Band(
                -LATE,
                float(best.accuracy) / plateau - 1,
                "few actions; networks still learn, to no order",
            ),
        )


@listed
def sums() -> Iterator[Check]:
    """The student whose logits are sums over actions, asked for the last state: no force on M at
    M = 0, on all words, under any attention.
    """
    perms, L = table("S_3"), 3
    d_g, N = perms.shape
    every = itertools.product(itertools.product(range(d_g), repeat=L), range(N))
    actions, first = map(np.array, zip(*every, strict=True))
    last = torch.as_tensor(task.visited(perms, actions, first)[:, -1])
    for seed in STARTS:
        p = Parameters(N=N, d_g=d_g, L=L, d_h=8, permutations="S_3")
        weights = task.draw_weights(p, np.random.default_rng(seed))
        student = Student(p, weights | {"M": np.zeros((d_g, N, N))}, torch.float64)
        logits = student(torch.as_tensor(actions), torch.as_tensor(first)[:, None])[:, 0]
        nn.functional.cross_entropy(logits, last).backward()
        yield vanishing(
            f"force on M by last states, start {seed}",
            "without_order",
            student.M.grad,
            1e-15,
            "rounding",
        )


GROUPS = {"words without order": unordered}
