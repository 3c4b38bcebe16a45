"""Every clock against autograd of its objective by the margin of the mean-field student;
gains of groups against all of their outcomes.
"""

import itertools

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical, kl_divergence

from rewards.parameters import Parameters
from rewards.theory import equations
from theory import state_tracking as labelled
from verify.checks.check import Sides
from verify.checks.report import derivations, sided

EXACT = 1e-9, "autograd in float64"
P = Parameters(N=6, L=4, d_g=5, rollouts=64, kl=0.2, pretrain=0.3)
MARGINS = (0.9, 1.7, 3.1)
BEFORE = 0.4  # margin of the right state where rewards took over
STATE = {"A": 0.6, "R": 1.2, "S": 0.2}


def policy(margin: Tensor) -> Categorical:
    """Next states of the mean-field student; the first is right."""
    return Categorical(logits=torch.cat([margin[None], margin.new_zeros(P.N - 1)]))


def right_after(success: Tensor) -> list[Tensor]:
    """Probability of the true state after each step. From a wrong state it is reached
    as any state that is not the right next one.
    """
    right = [torch.ones_like(success)]
    for _ in range(P.L):
        by_chance = (1 - right[-1]) * (1 - success) / (P.N - 1)
        right.append(right[-1] * success + by_chance)
    return right[1:]


def objectives(success: Tensor) -> dict[str, Tensor]:
    """Expected reward by name of its clock."""
    states = right_after(success)
    return {
        "rewards_clock": states[-1],
        "rewards_clock_step": success,
        "rewards_clock_true": torch.stack(states).mean(),
    }


@sided(*EXACT)
def clocks(sides: Sides) -> None:
    """Clocks, divergence, and the weight that stops students."""
    old = policy(torch.tensor(BEFORE, dtype=torch.float64))
    for value in MARGINS:
        margin = torch.tensor(value, dtype=torch.float64, requires_grad=True)
        new = policy(margin)
        s, cost = new.probs[0], P.L * kl_divergence(new, old)

        def slope(objective: Tensor, margin: Tensor = margin) -> float:
            (found,) = torch.autograd.grad(objective, margin, retain_graph=True)
            return float(found)

        learned = slope(s.log())  # of minus the supervised loss
        known = {"m": value, "success": s.item(), "success_0": old.probs[0].item()}
        numbers = P.values() | known
        numbers |= {"excess": sides.table["excess"].evaluate(numbers)}
        paid = objectives(s)
        last = paid["rewards_clock"]
        sides.add("success by the margin", "success", numbers, s.item())
        sides.add("expected reward", "expected_reward", numbers, last.item())
        for name, objective in paid.items():
            sides.add("clock", name, numbers, slope(objective) / learned)
        held = slope(last - P.kl * cost) / learned
        sides.add("divergence of a step", "divergence", numbers, cost.item() / P.L)
        sides.add("clock with a penalty", "penalty_clock", numbers, held)
        balance = slope(last) / slope(cost)
        sides.add("weight that stops students", "penalty_balance", numbers, balance)


@sided(*EXACT)
def rates(sides: Sides) -> None:
    """Rates of A, R and S: those of labels times the clock that autograd finds."""
    known = P.values() | STATE
    right, margin = (labelled.equations()[n] for n in ("logit_correct", "margin"))
    m = margin.number(known | {"z_k": right.evaluate(known)})
    z = torch.tensor(m, dtype=torch.float64, requires_grad=True)
    old = policy(torch.tensor(BEFORE, dtype=torch.float64))
    new = policy(z)
    s = new.probs[0]
    numbers = known | {"success_0": old.probs[0].item(), "g": 1 - s.item()}
    missing = 1 - 1 / P.rollouts  # the own reward is in the baseline
    objective = missing * right_after(s)[-1] - P.kl * P.L * kl_divergence(new, old)
    slopes = [torch.autograd.grad(f, z, retain_graph=True)[0] for f in (objective, s)]
    pace = (slopes[0] / slopes[1] * s).item()
    for name in ("dA_dalpha", "dR_dalpha", "dS_dalpha"):
        by_labels = labelled.flow("tau").equations()[name].evaluate(numbers)
        sides.add("rate under rewards", name, numbers, pace * by_labels)


@sided(*EXACT)
def groups(sides: Sides) -> None:
    """Mean over all outcomes of a group of advantage times score, the score of a
    rollout with an expected reward of slope 1: 1/J if right, -1/(1-J) if wrong.
    """
    J = 0.3
    for size in (2, 3, 6):
        plain = normalised = 0.0
        for outcome in itertools.product((0.0, 1.0), repeat=size):
            right = np.array(outcome)
            chance = np.prod(np.where(right == 1, J, 1 - J))
            score = np.where(right == 1, 1 / J, -1 / (1 - J))
            advantage = right - right.mean()
            plain += chance * (advantage * score).mean()
            spread = right.std() or 1.0
            normalised += chance * (advantage / spread * score).mean()
        numbers = {"G": size, "J": J}
        sides.add("gain of a baseline", "baseline_gain", numbers, plain)
        sides.add("gain of a normalisation", "normalised_gain", numbers, normalised)


@sided(*EXACT)
def rows(sides: Sides) -> None:
    """Two kinds of rows: mean push by rewards over that by labels, by autograd."""
    margins = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    s = margins.exp() / (margins.exp() + P.N - 1)
    by_rewards, by_labels = (
        torch.autograd.grad(f, margins, retain_graph=True)[0].mean()
        for f in (s.sum(), s.log().sum())
    )
    mean, variance = s.mean().item(), s.var(correction=0).item()
    numbers = {"success": mean, "success_variance": variance}
    gain = (by_rewards / by_labels).item() / mean
    sides.add("gain of rows that differ", "scatter_gain", numbers, gain)


checks, report = derivations((clocks, rates, groups, rows), equations)
