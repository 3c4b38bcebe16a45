"""Three gradient steps build an induction head (slides; Bietti et al. 2023)."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import sympy as sp

from theory import (
    Allowed,
    BaseParameters,
    Chapter,
    Equations,
    Limit,
    ParameterError,
    Preset,
    Scope,
    number,
    parameter,
    proved,
    symbol,
    written_as,
)
from theory.associative_memory.symbols import DERIVED, N, T, ref
from theory.call import scope
from theory.dynamics.catalogue import catalogue
from theory.symbols.fractions import factored

__all__ = ["Parameters", "applies", "equations", "flows", "second_gradient", "sections"]


# Parameters of the three gradient steps that build an induction head, and which
# learners their theory describes


@dataclass(frozen=True)
class Parameters(BaseParameters):
    """Task (a trigger, its answer directly after it, and the trigger again at the end)
    and step sizes.

    Raises
    ------
    ParameterError
        For an unknown name, a value out of range, or too few tokens that are not
        triggers.
    """

    # A first step of 1 leaves the softmax unsaturated, too, though no longer linear; at
    # 30 it saturates and later steps fail.
    PRESETS = {
        "unsaturated": Preset("A first step so small that the theory holds."),
        "saturated": Preset(
            "A first step so large that probabilities saturate.", first_step=30.0
        ),
    }
    N: int = parameter(30, "tokens, triggers included", low=4)
    K: int = parameter(3, "triggers", low=1)
    T: int = parameter(32, "sequence length", low=5)
    samples: int = parameter(50000, "sequences per gradient", low=100)
    first_step: float = parameter(
        0.1, "learning rate of the first step, in units of N T", above=0
    )
    second_gain: float = parameter(
        20.0, "mean weight of trigger associations after the second step", above=0
    )
    third_gain: float = parameter(
        50.0, "mean weight of previous positions after the third step", above=0
    )

    def __post_init__(self) -> None:
        """Check single fields, then that there are at least two possible answers."""
        super().__post_init__()
        if self.N - self.K < 2:
            raise ParameterError(f"K = {self.K}: must be <= N - 2 = {self.N - 2}")

    def quantities(self) -> dict[str, Any]:
        """Numbers by symbol name."""
        return {"N": self.N, "K": self.K, "T": self.T, "n_plain": self.N - self.K}


# Students' second gradient over its formula, per unit of the first step: +4% at 0.1,
# +9% at 0.3, +16% at 1, 1% each (four data sets of 10^4 sequences).
SMALL = 0.1
LINEAR = Limit(
    "first_step",
    f"at most {SMALL:g}, where the softmax is linear",
    lambda p, runs: p.first_step <= SMALL,
)
STEPS = Scope(
    "the population gradients",
    "one step each, the first of them small",
    (LINEAR,),
    ("samples", "second_gain", "third_gain"),
)
applies = scope.applies({"steps": STEPS})


# Numerical value of the second gradient


@scope.pointwise(STEPS)
def second_gradient(p: Parameters) -> float:
    """Negative gradient of a trigger's own association in the second step, per unit
    learning rate of the first step.

    To leading order in the first step (linear softmax), otherwise exact. The value at
    position s contributes as far as the first step's matrix maps it to y; given t0, all
    expectations are sums over positions.

    Returns
    -------
    float
        Entry of W^2 in a trigger's column at the trigger's own remapped token. The
        entry at another trigger's remapped token is 0.

    Raises
    ------
    ParameterError
        For sequences longer than 10^4 (the sum over positions would take seconds).
    """
    number("T", p.T, Allowed(high=10**4), int)
    plain = p.N - p.K
    length = p.T
    positions = np.arange(1, length + 1)
    harmonic = np.cumsum(1 / positions)
    # Weight of every position in the averaged remap block.
    weight = (harmonic[-1] - np.append(0.0, harmonic[:-1])) / length
    starts = np.arange(1, length - 1)
    # Mean input given the answer, for (the answer, another plain token, a trigger);
    # token block and remap block.
    random = (length - 3) / (plain * length)
    token = (random + 1 / length, random, 2 / (p.K * length))
    answer = weight[starts].mean()
    trigger = (weight[starts - 1] + weight[-1]).mean()
    random = weight.sum() - answer - trigger
    remap = (random / plain + answer, random / plain, trigger / p.K)

    def parts(block: tuple[float, float, float]) -> np.ndarray:
        """Mean of (mean given y - (n/N) overall mean) at the answer, at a random plain
        token and at a trigger.
        """
        # A random plain token is the answer with probability 1/n.
        overall = (block[0] + (plain - 1) * block[1]) / plain
        share = plain / p.N
        at_answer = block[0] - share * overall
        return np.array([at_answer, (1 - share) * overall, (1 - share) * block[2]])

    slope = 0.0
    for t0 in starts:
        kind = np.full(length, 1)
        kind[t0 - 1] = kind[-1] = 2
        kind[t0] = 0
        remapped = np.cumsum(parts(remap)[kind]) / positions
        right = (parts(token)[kind] + remapped) / plain
        times = np.where(positions >= t0, 1.0, 0.0) + (positions == length)
        attended = times / positions
        slope += ((right - right.mean()) * attended).mean() / len(starts) / p.K
    return slope


# Population gradients of the first two steps

n = symbol(
    "n_plain", "n", "tokens that are no triggers, N - K", integer=True, positive=True
)
delta = symbol(
    "delta_kz", r"\delta_{kz}", "1 where token z is the answer k", nonnegative=True
)
mean_plain = symbol(
    "mean_plain", r"\mathbb{E}\bar{x}_{z}", "mean share of token z", positive=True
)
mean_given = symbol(
    "mean_given",
    r"\mathbb{E}[\bar{x}_{z}|y=k]",
    "its mean where the answer is k",
    positive=True,
)
slope_token = symbol(
    "slope_token",
    r"\partial L/\partial (W_O)_{kz}",
    "gradient from token z to output k",
    real=True,
)
slope_remap = symbol(
    "slope_remap",
    r"\partial L/\partial (W_O)_{k\tilde{z}}",
    "gradient from the remapped token z to output k",
    real=True,
)
reach = symbol(
    "reach",
    r"\bar{C}",
    "attention that reaches the answer's remapped copy",
    positive=True,
)
UNIFORM = "all weights zero: attention uniform in both layers"
STATEMENT = "slides, three gradient steps; set-up and formulas derived here"
s = symbol("s_position", "s", "a position", integer=True, positive=True)


def token_mean(known: bool) -> sp.Expr:
    """Mean of the averaged token block at a plain token z; with ``known``, conditional
    on the answer k.

    Of T positions, T - 3 are uniform on the plain tokens. The answer is z with
    certainty if k = z, and uniform if k is not given.
    """
    return factored(((T - 3) / n + (delta if known else 1 / n)) / T)


def weight_of_position() -> sp.Expr:
    """Total weight of position s in the averaged remap block: (1/T) sum over t >= s of
    1/t.
    """
    return (sp.harmonic(T) - sp.harmonic(s - 1)) / T


def mean_reach() -> sp.Expr:
    """Mean weight of the answer's position t0 + 1, uniform in 2..T-1."""
    summed = (T - 1) * sp.harmonic(T - 2) - (T - 2)  # sum of H_1 .. H_{T-2}, by parts
    step = sp.Symbol("step", integer=True, positive=True)
    growth = (summed.subs(T, step + 1) - summed.subs(T, step)).rewrite(sp.harmonic)
    gap = factored(sp.expand_func(growth - sp.harmonic(step - 1)))
    right = gap == 0 and summed.subs(T, 2) == 0
    proved(right, "the sum of harmonic numbers is wrong")
    form = sp.harmonic(T) / T - summed / (T * (T - 2))
    # of s - 1 = t0
    mean = weight_of_position().subs(sp.harmonic(s - 1), summed / (T - 2))
    return written_as(form, mean).rewrite(sp.digamma)


@cache
def population_equations() -> Equations:
    """Gradient of the output matrix at zero weights, token block and remap block."""
    # The lemma for averaged inputs: (1/N) E x - p(k) E[x | y = k], with p(k) = 1/n for
    # plain outputs.
    unconditional = token_mean(known=False)
    conditional = token_mean(known=True)
    slope = sp.expand(unconditional / N - conditional / n)
    gain = factored(slope.subs(delta, 0) - slope.subs(delta, 1))
    lead = written_as(1 / (n * T), gain)
    position = mean_reach()
    on = symbol(
        "slope_diagonal",
        r"\partial L/\partial (W_O)_{zz}",
        "gradient from a token to itself",
        real=True,
    )
    remapped = r"\partial L/\partial (W_O)_{z\tilde{z}}"
    means = "gradient from a remapped token to itself"
    on_remapped = symbol("slope_remap_diagonal", remapped, means, real=True)
    chapter = Chapter(ref, UNIFORM, status="exact")
    chapter.state("token_mean", mean_plain, unconditional, DERIVED, "z plain")
    chapter.state("token_mean_given", mean_given, conditional, DERIVED, "z, k plain")
    chapter.state(
        "first_gradient", slope_token, sp.factor(slope), STATEMENT, "z, k plain"
    )
    chapter.state(
        "first_gain",
        slope_token - on,
        lead,
        STATEMENT,
        "lead of z -> z after a unit step",
    )
    chapter.state(
        "answer_reach", reach, position, DERIVED, "first layer: inclusive causal mask"
    )
    chapter.state(
        "first_gain_remap",
        slope_remap - on_remapped,
        position / n,
        DERIVED,
        "the same in the remap block",
    )
    return chapter.equations


# No dynamics: three steps.
flows, sections, equations = catalogue(
    {"Three gradient steps: population gradients": [population_equations]}
)
