"""Every clock against autograd of its objective by the margin of the mean-field
student; gains of groups against all of their outcomes.
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
BEFORE = 0.4  # margin of the right state where rewards took over
STATES = (
    {"A": 0.6, "R": 1.2, "S": 0.2},
    {"A": 0.8, "R": 2.0, "S": 0.3},
    {"A": 0.97, "R": 3.4, "S": 0.3},
)


def policy(margin: Tensor) -> Categorical:
    """Next states of the mean-field student; the first is right."""
    return Categorical(logits=torch.cat([margin[None], margin.new_zeros(P.N - 1)]))


def last_is_right(success: Tensor) -> Tensor:
    """Probability of the true state after all steps. From a wrong state it is reached
    as any state that is not the right next one.
    """
    right = torch.ones_like(success)
    for _ in range(P.L):
        by_chance = (1 - right) * (1 - success) / (P.N - 1)
        right = right * success + by_chance
    return right


@sided(*EXACT)
def clocks(sides: Sides) -> None:
    """Clocks, divergence, the weight that stops students; and the rates of A, R and S:
    those of labels times the clock.
    """
    of_right, of_margin = (
        labelled.equations()[name] for name in ("logit_correct", "margin")
    )
    by_labels = labelled.flow("tau").equations()
    old = policy(torch.tensor(BEFORE, dtype=torch.float64))
    for state in STATES:
        known = P.values() | state | {"success_0": old.probs[0].item()}
        m = of_margin.number(known | {"z_k": of_right.evaluate(known)})
        margin = torch.tensor(m, dtype=torch.float64, requires_grad=True)
        new = policy(margin)
        s, divergence = new.probs[0], kl_divergence(new, old)
        reward, cost = last_is_right(s), P.L * divergence

        def slope(objective: Tensor, margin: Tensor = margin) -> float:
            (found,) = torch.autograd.grad(objective, margin, retain_graph=True)
            return float(found)

        learned = slope(s.log())  # of minus the supervised loss
        known |= {"m": m, "success": s.item(), "g": 1 - s.item()}
        after_right, after_wrong = s.item(), (1 - s.item()) / (P.N - 1)
        known |= {"excess": after_right - after_wrong}
        held = slope(reward - P.kl * cost) / learned
        for label, equation, measured in (
            ("success by the margin", "success", s.item()),
            ("gain of a step", "excess", known["excess"]),
            ("expected reward", "expected_reward", reward.item()),
            ("clock of the last state", "rewards_clock", slope(reward) / learned),
            ("clock per step", "rewards_clock_step", slope(s) / learned),
            ("divergence of a step", "divergence", divergence.item()),
            ("clock with a penalty", "penalty_clock", held),
            ("penalty that stops", "penalty_balance", slope(reward) / slope(cost)),
        ):
            sides.add(label, equation, known, measured)
        missing = slope(reward) / P.rollouts / learned  # the own reward is in the mean
        for q in state:
            name = f"d{q}_dalpha"
            rate = (held - missing) * by_labels[name].evaluate(known)
            sides.add(f"rate of {q} under rewards", name, known, rate)


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


checks, report = derivations((clocks, groups, rows), equations)
