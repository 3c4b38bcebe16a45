"""Students of the state-tracking task: full-batch or minibatch descent of a stack."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from simulate.state_tracking.gradients import engine
from simulate.state_tracking.measure import MEANING, measure
from simulate.state_tracking.student import Student, Students
from simulate.training import learner, plan, pool
from theory.call.refusal import ParameterError, shown
from theory.dynamics.optimisers import CLIPPED
from theory.state_tracking import Parameters
from theory.state_tracking.model import task
from theory.state_tracking.model.task import Words, read

GPU_STACK = 128  # seeds trained together; at Table 1 each needs about 10 MB


def tables(p: Parameters, permutations: np.ndarray | None) -> dict[str, Any]:
    """What given permutations add to the identity of a run.

    Raises
    ------
    ParameterError
        If they do not fit the parameters.
    """
    if permutations is None:
        return {}
    if p.teachers == "group":
        raise ParameterError(
            f"permutations = {p.permutations!r}: must be iid or distinct where a table"
            " is given"
        )
    return {"given_permutations": task.check_permutations(permutations, p).tolist()}


def identity(
    p: Parameters,
    permutations: np.ndarray | None = None,
    words: Words | None = None,
    keep: bool = False,
) -> dict[str, Any]:
    """Identity of a run: permutations or data, if given, and whether it keeps its final
    weights.

    Raises
    ------
    ParameterError
        For permutations or words that do not fit the parameters.
    """
    if type(p) is not Parameters:
        raise ParameterError(
            f"p = {shown(p)}: must be Parameters for the solvable student"
        )
    identifying: dict[str, Any] = {"keep": True} if keep else {}
    if words is not None:
        if permutations is not None:
            raise ParameterError(
                "permutations: must not be given with words, which have their own"
            )
        words.fits(p)
        permutations = words.permutations
        identifying["given_words"] = words.digest
    return identifying | tables(p, permutations)


def memory(p: Parameters, itemsize: int = 4) -> float:
    """Peak memory of one run in bytes, estimated from array shapes; ``itemsize`` bytes
    per weight.
    """
    rows, tested = p.n_train * p.L, p.n_test * p.L
    entries, heads = p.d_g * p.N**2, (2 * p.d_h + p.d_g + p.N) * p.d_model
    data = 16 * rows + 32 * tested + 8 * (p.n_train + 2 * p.n_test)
    # Drawn, stacked and transposed weights, gradients, optimiser moments; teachers and
    # overlaps in double precision; permutations, and all their pairs for the overlap.
    weights = entries * (48 + 8 * itemsize) + heads * (16 + 4 * itemsize)
    weights += p.d_g * p.N * (16 + p.d_g)
    if p.fix_embedding:
        # Rows sorted by state: 8-byte actions, then 2-byte ones; cosines and sines, in
        # double precision first.
        part = p.batch_size * p.L if p.batches > 1 and p.batch_size else 0
        grouped = (rows + part) * (10 * p.L + 40)
        grouped += p.L * p.N * (8 * p.L + p.d_g * itemsize)
        tables = p.L**2 * p.d_h * (16 + 2 * itemsize)
    else:  # rows of a slice, by autograd
        some = min(1024, p.n_train) * p.L
        grouped = some * (3 * p.N**2 + 8 * p.d_h + 4 * p.d_g + 4 * p.L) * itemsize
        tables = 8 * rows + tested * 6 * p.d_h * itemsize
    looked_up = p.n_test * (2 * p.L + 3) * p.N * itemsize + 8 * tested
    records = plan.records(p, p.L**2 + p.L + 24)
    return data + weights + grouped + tables + looked_up + records


class Learner(learner.Learner):
    """A stack of students with their data and optimiser.

    Parameters
    ----------
    p : Parameters
        Model and training settings.
    seeds : sequence of int
        Seeds; each fixes teachers, data and initial weights through separate streams.
    device : torch.device
        Device.
    dtype : torch.dtype
        Precision of the students.
    permutations : ndarray, shape (d_g, N), optional
        Given teachers instead of random permutations.
    words : Words, optional
        Given training and test set, with teachers of their own.
    keep : bool
        Whether to store the final weights.
    """

    def __init__(
        self,
        p: Parameters,
        seeds: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
        permutations: np.ndarray | None = None,
        words: Words | None = None,
        keep: bool = False,
    ) -> None:
        self.p, self.seeds, self.keep = p, seeds, keep
        permutations = permutations if words is None else words.permutations
        self.permutations, start = [], []
        self.train_data: list[task.Sequences] = []
        test: list[task.Sequences] = []
        for seed in seeds:
            stream = task.streams(seed, p.data_draw)
            drawn = task.draw_permutations(p, stream["task"])
            self.permutations.append(
                drawn if permutations is None else np.asarray(permutations)
            )
            for kept, n, which in (
                (self.train_data, p.n_train, "train"),
                (test, p.n_test, "test"),
            ):
                given = None if words is None else getattr(words, which)
                kept.append(
                    given
                    or task.draw_sequences(self.permutations[-1], n, p.L, stream[which])
                )
            start.append(task.draw_weights(p, stream["initialisation"]))
        self.students = Students(
            [
                Student(p, w, dtype, learn_embedding=not p.fix_embedding).to(device)
                for w in start
            ]
        )
        self.start = [{"W_Q": w["W_Q"][:, 0], "W_K": w["W_K"][:, 0]} for w in start]
        actions = np.stack([t.actions for t in test])
        states = np.stack([t.states for t in test])
        self.test_data = (
            torch.as_tensor(actions, device=device),
            torch.as_tensor(states, device=device),
        )
        teachers = np.stack([task.teacher_matrices(x) for x in self.permutations])
        self.teachers = torch.as_tensor(teachers, device=device)
        self.full = engine(self.students)(self.students, self.train_data, pool.share())
        self.optimizer = optimizer(p, self.students)

    def step(self, number: int) -> None:
        """One epoch, or one step where those are counted."""
        for update in self.p.steps_of(number):
            self.full.gradients(self.students, self.batch(update))
            self._clip()
            for group in self.optimizer.param_groups:
                group["lr"] = self.p.eta * self.p.share(update, self.p.updates)
            self.optimizer.step()

    def batch(self, update: int) -> list[np.ndarray] | None:
        """Sequences of a step by number, for every student; None for all."""
        if self.p.batches == 1:
            return None
        return [task.batch(self.p, seed, update) for seed in self.seeds]

    @torch.no_grad()
    def _clip(self) -> None:
        """Clip every student's gradient by its norm, as
        `torch.nn.utils.clip_grad_norm_` does.
        """
        if self.p.clip is None:
            return
        gradients = [w.grad for w in self.students.parameters() if w.grad is not None]
        square = torch.stack([g.square().flatten(1).sum(1) for g in gradients]).sum(0)
        share = (self.p.clip / (square.sqrt() + CLIPPED)).clamp(max=1)
        for g in gradients:
            g.mul_(share.view(-1, *[1] * (g.ndim - 1)))

    def measure(self) -> dict[str, np.ndarray]:
        """Quantities in `measure.MEANING`."""
        return measure(self.students, self.full, self.test_data, self.teachers)

    def state(self, b: int) -> learner.State:
        """Weights and optimiser state."""
        of_optimiser = {}
        for i, moments in self.optimizer.state_dict()["state"].items():
            tensors = {k: v for k, v in moments.items() if isinstance(v, Tensor)}
            of_optimiser[i] = {k: v[b] if v.ndim else v for k, v in tensors.items()}
        return {
            "weights": {name: w[b] for name, w in self.students.state_dict().items()},
            "optimizer": of_optimiser,
        }

    def load(self, states: Sequence[learner.State]) -> None:
        """Restore the states of all students."""
        with torch.no_grad():
            for name, w in self.students.named_parameters():
                w.copy_(torch.stack([state["weights"][name] for state in states]))
        optimisers = [state["optimizer"] for state in states]
        stacked: dict[int, dict[str, Tensor]] = {}
        for i, moments in optimisers[0].items():
            stacked[i] = dict(moments)
            for k, v in moments.items():
                if v.ndim:
                    stacked[i][k] = torch.stack([state[i][k] for state in optimisers])
        self.optimizer.load_state_dict(
            {**self.optimizer.state_dict(), "state": stacked}
        )

    def finish(self, b: int) -> dict[str, Any]:
        """Overlap of the drawn teachers, initial queries and keys, and final weights if
        asked.
        """
        results: dict[str, Any] = {"tau": task.teacher_overlap(self.permutations[b])}
        if self.p.fix_embedding:
            results |= {
                f"{name}_start": ("head", value)
                for name, value in self.start[b].items()
            }
        axes = {
            "W_Q": ("head", "model"),
            "W_K": ("head", "model"),
            "M": ("teacher", "next", "now"),
        }
        axes["embedding"] = ("token", "model")
        for name, value in self.students.named_parameters() if self.keep else ():
            results[f"{name}_end"] = (axes[name], value[b].detach().cpu().numpy())
        return results


def optimizer(p: Parameters, students: nn.Module) -> Any:
    """Optimiser of the weights of a module."""
    usual: Any = dict(lr=p.eta, weight_decay=p.weight_decay)
    if p.optimizer == "sgd":
        return learner.Descent(
            students.parameters(), **usual, momentum=p.momentum, nesterov=p.nesterov
        )
    kind: Any = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[p.optimizer]
    memories = (p.beta_1, p.beta_2)
    return kind(students.parameters(), **usual, betas=memories, eps=p.epsilon)


def on_words(
    p: Parameters, content: str, file: str
) -> tuple[Parameters, dict[str, Any]]:
    """Parameters and options for the word problem in a CSV file."""
    p, words = read(p, content, file)
    return p, {"words": words}


TINY = dict(N=6, L=4, d_g=5, d_h=8, n_train=64, n_test=32, epochs=24, eval_every=4)
SYSTEM = plan.System(
    "state_tracking",
    Parameters,
    Learner,
    MEANING,
    memory,
    clock=Parameters.alpha,
    dimensions={"step_accuracy": ("step",), "attention": ("step", "action")},
    stack=GPU_STACK,
    identity=identity,
    data=on_words,
    displayed=("A", "R", "S", "loss", "accuracy", "rollout_accuracy"),
    tiny={
        "": TINY,
        "adamw, minibatches": dict(TINY, optimizer="adamw", eta=0.02, batch_size=20),
        "embedding": dict(TINY, fix_embedding=False, d_model=3),
    },
)
