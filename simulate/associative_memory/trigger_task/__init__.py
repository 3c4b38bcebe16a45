"""Students of the trigger-token task.

To use your own text instead of the shipped table::

    table, alphabet = table_of_text(Path("input.txt").read_text())
    runs = train(Parameters(N=len(alphabet)), table=table)
"""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
import xarray as xr

from simulate.associative_memory.trigger_task import student
from simulate.associative_memory.trigger_task.student import (
    TRAINED,
    Simplified,
    Table,
    Transformer,
    sample,
    synthetic_table,
    table_of_text,
)
from simulate.training import plan
from simulate.training.learner import Module, Unstacked, losses
from simulate.training.streams import keyed
from theory.associative_memory.trigger_task import Parameters
from theory.call.refusal import ParameterError

__all__ = [
    "Learner",
    "Parameters",
    "Simplified",
    "Table",
    "Transformer",
    "sample",
    "synthetic_table",
    "table_of_text",
    "train",
]


def train(
    p: Parameters,
    seeds: Iterable[int] = (0,),
    *,
    table: Table | None = None,
    **options: Any,
) -> xr.Dataset:
    """Train one student per seed (see `simulate.training.plan.System.train`).

    Parameters
    ----------
    p : Parameters
        Task, student, training.
    seeds : iterable of int
        Seeds.
    table : Table, optional
        Bigram statistics of N tokens; the shipped synthetic table by default. Runs are
        stored under its digest.

    Raises
    ------
    ParameterError
        If the table is of another size than ``p.N``.
    """
    if table is not None and len(table.unigram) != p.N:
        raise ParameterError(
            f"N = {p.N}: must be {len(table.unigram)}, the number of tokens of the"
            " given table"
        )
    return (SYSTEM if table is None else on(table)).train(p, seeds, **options)


# Training of the trigger-task students, measured by in-context accuracy and memory
# probes

MEANING = {
    "loss": "cross-entropy at predictable positions, test set",
    "in_context_accuracy": "accuracy where a trigger recurs, test set",
    "bigram_loss": "cross-entropy at positions that are no triggers, test set",
    "probe_W_O2": "recall of every token by the output matrix; NaN for the transformer",
    "probe_W_K2": "recall of triggers by the second layer's keys, among the K triggers",
    "probe_W_K1": "recall of the previous position by the first layer's keys",
    "probe_W_K1_early": "the same for the first half of the positions",
}


def memory(p: Parameters, itemsize: int = 4) -> float:
    """Peak memory of one run in bytes, estimated from array shapes; ``itemsize`` bytes
    per weight.
    """
    drawn = max(p.batch_size, p.n_test)
    table = 8 * 4 * p.N**2
    laws = drawn * p.N * (8 * (3 * p.K + 4) + 4)
    stream = p.batch_size * p.T * p.d
    scores = p.batch_size * p.T**2
    layers = 2 if p.student == "simplified" else 3 * p.layers
    logits = p.T * p.N * (4 * p.batch_size + 3 * p.n_test)
    weights = 6 * (2 * p.N + p.T) * p.d + 40 * layers * p.d**2
    numbers = (
        layers * (8 * stream + 5 * scores) + logits + weights + (3 * (p.N**2 + p.T**2))
    )
    return (
        table
        + laws
        + itemsize * numbers
        + drawn * p.T * (8 * 3 + p.K)
        + plan.records(p, 2 * len(MEANING))
    )


class Learner(Module):
    """Online training; the batch of every step is drawn from (seed, step)."""

    p: Parameters

    def build(self, table: student.Table | None = None) -> None:
        """By default the bigram statistics are the shipped synthetic table."""
        p, seed = self.p, self.seed
        self.table = table or student.synthetic_table(p.N)
        torch.manual_seed(seed)
        simplified = p.student == "simplified"
        student_ = Simplified(p, keyed(seed, 0)) if simplified else Transformer(p)
        self.student = student_.to(self.device, self.dtype)
        descent = partial(torch.optim.SGD, momentum=0.9, weight_decay=1e-4)
        adam = partial(torch.optim.AdamW, weight_decay=0.01)
        self.optimizer = (descent if simplified else adam)(
            self.student.parameters(), lr=p.eta
        )
        self.test = student.sample(p, p.n_test, self.table, keyed(seed, 1))
        self.triggers = self._put(student.fixed_triggers(p, self.table))

    def _put(self, array: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(array, device=self.device)

    def step(self, number: int) -> None:
        """One optimiser step on one batch."""
        data = student.sample(
            self.p, self.p.batch_size, self.table, keyed(self.seed, 2, number)
        )
        tokens = self._put(data.tokens)
        each = losses(self.student(tokens[:, :-1]), tokens)
        repeats = self.p.loss_on == "repeats"
        kept = self._put(data.predictable) if repeats else torch.ones_like(each)
        self.optimizer.zero_grad()
        (each * kept).sum().div(kept.sum().clamp(min=1)).backward()
        if (
            self.p.schedule == "staged"
        ):  # a third of the run for each, in the order of emergence
            active = TRAINED[min(3 * number // self.p.steps, 2)]
            for name, weight in self.student.named_parameters():
                if name in TRAINED and name != active:
                    weight.grad = None
        self.optimizer.step()

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """All quantities in `MEANING` on the test set."""
        tokens = self._put(self.test.tokens)
        known = self._put(self.test.predictable)
        logits = torch.cat([self.student(part) for part in tokens[:, :-1].split(128)])
        each = losses(logits, tokens)
        free = ~(tokens[:, :-1, None] == self._put(self.test.triggers)[:, None]).any(-1)
        hits = (logits.argmax(-1) == tokens[:, 1:])[known].double()
        measured = {
            "loss": each[known].mean(),
            "in_context_accuracy": hits.mean(),
            "bigram_loss": each[free].mean(),
        }
        probes: dict[str, Any] = {x: np.nan for x in MEANING if x.startswith("probe")}
        if isinstance(self.student, Simplified):
            every = torch.arange(
                self.p.N, device=self.device
            )  # each may be a trigger, if drawn
            probes = self.student.probes(
                self.triggers if self.p.triggers == "fixed" else every
            )
        return measured | probes


def on(table: student.Table) -> plan.System:
    """The same system with other bigram statistics; runs are stored under the digest of
    the table.
    """
    digest = hashlib.sha256(
        table.unigram.tobytes() + table.bigram.tobytes()
    ).hexdigest()[:16]
    return replace(
        SYSTEM,
        name=f"{SYSTEM.name}, table {digest}",
        make=partial(Unstacked, Learner, table=table),
    )


def on_text(p: Parameters, text: str) -> tuple[Parameters, plan.System]:
    """Parameters for the alphabet of a text (characters as tokens), and the system with
    its bigram statistics.
    """
    table, alphabet = student.table_of_text(text)
    return p.replace(N=len(alphabet)), on(table)


TINY = dict(N=8, K=2, T=6, d=8, batch_size=4, n_test=16, **plan.FEW_STEPS)
SYSTEM = plan.System(
    "associative_memory.trigger_task",
    Parameters,
    partial(Unstacked, Learner),
    MEANING,
    memory,
    default_dtype="float32",
    text=on_text,
    tiny={"": TINY, "transformer": dict(TINY, student="transformer")},
)
