"""Students that learn from rewards of their own rollouts, from scratch or after supervised
training: REINFORCE with the mean reward of a batch or of a group as baseline, GRPO, a reward per
step.
"""

import dataclasses
import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from simulate import learner
from simulate.state_tracking import learner as supervised
from simulate.state_tracking.gradients import Attention
from simulate.state_tracking.measure import MEANING
from simulate.streams import keyed
from theory.parameters import ParameterError
from theory.state_tracking import Parameters, task
from theory.state_tracking.parameters import REWARD_FIELDS

WEIGHTS = ("W_Q", "W_K", "M")
TESTED_AT_ONCE = 256  # test sequences whose transition probabilities are held at a time


def identity(
    p: Parameters, permutations: np.ndarray | None = None, start: xr.Dataset | None = None
) -> dict[str, Any]:
    """Identity of a run: reward and rollouts, given permutations, and the weights it starts from.

    Raises
    ------
    ParameterError
        For parameters without a reward, a learned embedding, or a start without weights.
    """
    if p.reward == "none":
        raise ParameterError(
            "reward = 'none': must be outcome, step or true for state_tracking.rewards"
        )
    if not p.fix_embedding:
        raise ParameterError("fix_embedding = False: must be True for state_tracking.rewards")
    identifying = {name: getattr(p, name) for name in REWARD_FIELDS}
    if p.kl:
        identifying["kl"] = p.kl
    identifying |= supervised.tables(p, permutations)
    if start is not None:
        identifying["start"] = digest(start)
    return identifying


def digest(start: xr.Dataset) -> str:
    """Digest of the weights that runs start from."""
    weights = final_weights(start)
    return hashlib.sha256(b"".join(weights[name].tobytes() for name in WEIGHTS)).hexdigest()[:16]


def final_weights(start: xr.Dataset) -> dict[str, np.ndarray]:
    """Final weights of supervised runs, over seeds."""
    if missing := [name for name in WEIGHTS if f"{name}_end" not in start]:
        raise ParameterError(f"start: {missing[0]}_end is missing; train it with keep=True")
    if "seed" not in start.dims:
        raise ParameterError("start: must be runs over seed")
    return {name: np.ascontiguousarray(start[f"{name}_end"].values) for name in WEIGHTS}


@torch.no_grad()
def go_on(learner_: supervised.Learner, start: xr.Dataset) -> None:
    """Give students the final weights of runs of the same seeds."""
    given = final_weights(start.sel(seed=list(learner_.seeds)))
    for name in WEIGHTS:
        weight = learner_.students.get_parameter(name)
        weight.copy_(torch.as_tensor(given[name]).reshape(weight.shape))


def memory(p: Parameters, itemsize: int = 4) -> float:
    """Peak memory of one run in bytes: that of supervised training, and of rollouts."""
    picked = p.rollouts * p.L * (p.N * (3 * itemsize) + 8 * 6)
    rolled = p.rollouts * p.L * p.N * 3 * itemsize
    tested = min(TESTED_AT_ONCE, p.n_test) * p.N**2 * 8 * (p.L + 2) * 2
    return supervised.memory(p, itemsize) + picked + rolled + tested + 8 * p.d_g * p.N**2


class Learner(supervised.Learner):
    """One student of `simulate.learner.Unstacked`, as those of a stack change over at different
    steps: supervised until its mean probability of the right state has reached ``p.pretrain`` at a
    measurement, then by policy gradient on fresh prompts.

    Parameters
    ----------
    p, seed, device, dtype, permutations
        As for supervised training.
    start : Dataset, optional
        Supervised runs with their final weights (``train(..., keep=True)``), whose student of the
        same seed goes on.
    """

    def __init__(
        self,
        p: Parameters,
        seed: int,
        device: torch.device,
        dtype: torch.dtype,
        permutations: np.ndarray | None = None,
        start: xr.Dataset | None = None,
    ) -> None:
        super().__init__(p, [seed], device, dtype, permutations)
        self.attention = Attention(p, dtype, device)
        self.table = torch.as_tensor(np.stack(self.permutations)[0], device=device)
        self.rewarded = p.pretrain == 0
        if start is not None:
            go_on(self, start)
        self.old = self.weights()

    def step(self, number: int) -> None:
        """One epoch of supervised training, or one step of ascent on rewards."""
        if not self.rewarded and number % self.p.eval_every == 0:
            self.rewarded = bool(self.success() >= self.p.pretrain)
            self.old = self.weights()
        if not self.rewarded:
            super().step(number)
            return
        self.ascend(*self.prompts(number))
        self.optimizer.step()

    def prompts(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        """Actions and first states of a step's rollouts, those of a group together, and the random
        numbers that sample states.
        """
        p = self.p
        rng = keyed(self.seeds[0], task.STREAMS.index("rollouts"), number)
        size = p.group or 1
        actions = rng.integers(p.d_g, size=(p.rollouts // size, p.L)).repeat(size, axis=0)
        first = rng.integers(p.N, size=p.rollouts // size).repeat(size)
        uniform = rng.random((p.rollouts, p.horizon or p.L))
        drawn = (actions, first, uniform)
        return tuple(torch.as_tensor(v, device=self.table.device) for v in drawn)  # type: ignore[return-value]

    def weights(self) -> dict[str, Tensor]:
        """Copy of the weights."""
        return {name: w.detach().clone() for name, w in self.students.named_parameters()}

    def _columns(self, M: Tensor | None = None) -> Tensor:
        """M by current state, action and next state."""
        M = self.students.M if M is None else M
        return M[0].detach().permute(2, 0, 1).contiguous()

    @torch.no_grad()
    def ascend(self, actions: Tensor, first: Tensor, uniform: Tensor) -> None:
        """Set ``.grad`` to minus the policy gradient of the mean reward, from sampled rollouts."""
        p, W_Q, W_K = self.p, self.students.W_Q, self.students.W_K
        columns = self._columns()
        pi = self.attention.forward(W_Q, W_K)
        steps = uniform.shape[1]
        states, probabilities = [first], []
        for t in range(steps):
            logits = torch.einsum("j,njr->nr", pi[0, t], columns[states[-1][:, None], actions])
            probabilities.append(torch.softmax(logits, 1))
            below = probabilities[-1].double().cumsum(1) < uniform[:, t, None]
            states.append(below.sum(1).clamp(max=p.N - 1))
        advantage = self.advantages(actions, torch.stack(states, 1)).to(columns)
        d_pi = torch.zeros_like(pi)
        d_columns = torch.zeros_like(columns)
        flat = d_columns.view(-1, p.N)
        if p.kl:
            old = self._columns(self.old["M"])
            old_pi = self.attention.forward(self.old["W_Q"], self.old["W_K"])
        for t in range(steps):
            error = probabilities[t].clone()
            error[torch.arange(len(error)), states[t + 1]] -= 1
            error *= advantage[:, t, None] / len(error)
            if p.kl:
                before = torch.einsum("j,njr->nr", old_pi[0, t], old[states[t][:, None], actions])
                error += p.kl * divergence_slope(probabilities[t], before) / len(error)
            d_pi[0, t] = torch.einsum("nr,njr->j", error, columns[states[t][:, None], actions])
            cell = states[t] * p.d_g
            for j in range(p.L):
                flat.index_add_(0, cell + actions[:, j], error, alpha=float(pi[0, t, j]))
        W_Q.grad, W_K.grad = self.attention.backward(W_Q, W_K, pi, d_pi)
        self.students.M.grad = d_columns.permute(1, 2, 0)[None].contiguous()

    def advantages(self, actions: Tensor, states: Tensor) -> Tensor:
        """Advantage of every sampled state, shape ``(rollouts, steps)``: its rewards less their
        mean over the group (or over all rollouts), over their standard deviation if asked.
        """
        p, steps = self.p, states.shape[1] - 1
        true = [states[:, 0]]
        for t in range(steps):
            true.append(self.table[actions[:, t], true[-1]])
        if p.reward == "outcome":
            to_come = (states[:, -1] == true[-1]).double()[:, None].expand(-1, steps)
        elif p.reward == "step":
            to_come = (states[:, 1:] == self.table[actions[:, :steps], states[:, :-1]]) / steps
        else:  # rewards from here on
            hits = (states[:, 1:] == torch.stack(true[1:], 1)) / steps
            to_come = hits.flip(1).cumsum(1).flip(1)
        grouped = to_come.double().reshape(-1, p.group or p.rollouts, steps)
        centred = grouped - grouped.mean(1, keepdim=True)
        if p.normalised:
            spread = centred.square().mean(1, keepdim=True).sqrt()
            centred = torch.where(spread > 0, centred / spread, torch.zeros_like(centred))
        return centred.reshape(-1, steps)

    @torch.no_grad()
    def policy(self) -> tuple[float, float, float]:
        """Mean and variance of the probability of the right next state, given the right one, and
        expected reward of the last state, on the test set; no states are sampled.
        """
        p, columns = self.p, self._columns().double()
        pi = self.attention.forward(self.students.W_Q, self.students.W_K)[0].double()
        right, reward = [], 0.0
        actions, states = (x[0].split(TESTED_AT_ONCE) for x in self.test_data)
        for acts, path in zip(actions, states, strict=True):
            rows = torch.arange(len(acts))
            law = torch.zeros(len(acts), p.N, dtype=torch.float64, device=acts.device)
            law[rows, path[:, 0]] = 1
            for t in range(p.horizon or p.L):
                logits = [pi[t, j] * columns[:, acts[:, j]] for j in range(p.L)]
                kernel = torch.softmax(torch.stack(logits).sum(0), 2).transpose(
                    0, 1
                )  # sequence, state, next state
                right.append(kernel[rows, path[:, t], path[:, t + 1]])
                law = torch.einsum("ns,nsr->nr", law, kernel)
            reward += float(law[rows, path[:, p.horizon or p.L]].sum())
        every = torch.cat(right)
        return float(every.mean()), float(every.var(correction=0)), reward / p.n_test

    def success(self) -> float:
        """Mean probability of the right next state."""
        return self.policy()[0]

    def measure(self) -> dict[str, np.ndarray]:
        """Quantities in `MEANING`."""
        names = ("success", "success_variance", "expected_reward", "rewarded")
        own = dict(zip(names, map(np.float64, (*self.policy(), self.rewarded)), strict=True))
        return {name: v[0] for name, v in super().measure().items()} | own

    def state(self, b: int = 0) -> learner.State:
        """Weights, optimiser state, and whether rewards have taken over."""
        taken_over = {"rewarded": self.rewarded}
        return {**super().state(b), **taken_over, **({"old": self.old} if self.p.kl else {})}

    def load(self, state: learner.State) -> None:  # type: ignore[override]
        """Restore the state."""
        super().load([state])
        self.rewarded = bool(state["rewarded"])
        self.old = state.get("old", self.old)

    def finish(self, b: int = 0) -> dict[str, Any]:
        """Final results, as of supervised training."""
        return super().finish(b)


def divergence_slope(probability: Tensor, old_logits: Tensor) -> Tensor:
    """Slope by logits of the divergence of next-state probabilities from old ones."""
    ratio = probability.log() - torch.log_softmax(old_logits, 1)
    return probability * (ratio - (probability * ratio).sum(1, keepdim=True))


SYSTEM = dataclasses.replace(
    supervised.SYSTEM,
    name="state_tracking.rewards",
    make=partial(learner.Unstacked, Learner),
    meaning={
        **MEANING,
        "success": "mean probability of the right next state, test set",
        "success_variance": "variance of that probability over rows",
        "expected_reward": "probability that the last state of a sampled rollout is right, test set",
        "rewarded": "1 from the first step with rewards on",
    },
    memory=memory,
    stack=1,
    identity=identity,
    data=None,
    displayed=("A", "R", "S", "success", "expected_reward", "rollout_accuracy", "rewarded"),
)


# Students that continue training from the final weights of earlier runs with other parameters,
# such as another weight decay


def continued_identity(p: Parameters, start: xr.Dataset | None = None) -> dict[str, Any]:
    """Identity of a run: the weights it starts from; it keeps its final weights.

    Raises
    ------
    ParameterError
        Without a start, or for learned embeddings.
    """
    if start is None:
        raise ParameterError("start: must be runs with their final weights (keep=True)")
    if not p.fix_embedding:
        raise ParameterError("fix_embedding = False: must be True for students that go on")
    return {**supervised.identity(p, keep=True), "start": digest(start)}


class ContinuedLearner(supervised.Learner):
    """A stack of students that go on.

    Parameters
    ----------
    p, seeds, device, dtype
        As for training from scratch. Teachers and data are those of the seeds.
    start : Dataset
        Runs of the same seeds with their final weights.
    """

    def __init__(
        self,
        p: Parameters,
        seeds: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
        start: xr.Dataset,
    ) -> None:
        super().__init__(p, seeds, device, dtype, keep=True)
        go_on(self, start)


CONTINUED = dataclasses.replace(
    supervised.SYSTEM,
    name="state_tracking.continued",
    make=ContinuedLearner,
    identity=continued_identity,
    data=None,
)
train = CONTINUED.train
