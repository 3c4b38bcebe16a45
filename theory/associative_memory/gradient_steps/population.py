"""Population gradients of the first two steps: output matrix and trigger associations.

Setting: a trigger q (uniform among K) at position t0 (uniform in 1..T-2), its answer y (uniform
among the n = N - K other tokens) at t0 + 1, q again at T, all other positions uniform among the n
plain tokens; loss at position T. Features are one-hot in two blocks: the token, and the average of
the tokens that layer 1 attends to.
"""

from functools import cache

import sympy as sp

from theory import Equation, proved, symbol, table, written_as
from theory.associative_memory.symbols import DERIVED, N, T, ref

n = symbol("n_plain", "n", "tokens that are no triggers, N - K", integer=True, positive=True)
delta = symbol("delta_kz", r"\delta_{kz}", "1 where token z is the answer k", nonnegative=True)
mean_plain = symbol("mean_plain", r"\mathbb{E}\bar{x}_{z}", "mean share of token z", positive=True)
mean_given = symbol(
    "mean_given", r"\mathbb{E}[\bar{x}_{z}|y=k]", "its mean where the answer is k", positive=True
)
slope_token = symbol(
    "slope_token", r"\partial L/\partial (W_O)_{kz}", "gradient from token z to output k", real=True
)
slope_remap = symbol(
    "slope_remap",
    r"\partial L/\partial (W_O)_{k\tilde{z}}",
    "gradient from the remapped token z to output k",
    real=True,
)
reach = symbol(
    "reach", r"\bar{C}", "attention that reaches the answer's remapped copy", positive=True
)
UNIFORM = "all weights zero: attention uniform in both layers"
STATEMENT = "slides, three gradient steps; set-up and formulas derived here"
s = symbol("s_position", "s", "a position", integer=True, positive=True)


def token_mean(known: bool) -> sp.Expr:
    """Mean of the averaged token block at a plain token z; with ``known``, conditional on the
    answer k.

    Of T positions, T - 3 are uniform on the plain tokens. The answer is z with certainty if k = z,
    and uniform if k is not given.
    """
    random = (T - 3) / n
    return sp.simplify((random + (delta if known else 1 / n)) / T)


def weight_of_position() -> sp.Expr:
    """Total weight of position s in the averaged remap block: (1/T) sum over t >= s of 1/t."""
    return (sp.harmonic(T) - sp.harmonic(s - 1)) / T


def mean_reach() -> sp.Expr:
    """Mean weight of the answer's position t0 + 1, uniform in 2..T-1."""
    summed = (T - 1) * sp.harmonic(T - 2) - (T - 2)  # sum of H_1 .. H_{T-2}, by parts
    step = sp.Symbol("step", integer=True, positive=True)
    proved(
        sp.simplify(
            sp.expand_func(
                (summed.subs(T, step + 1) - summed.subs(T, step)).rewrite(sp.harmonic)
                - sp.harmonic(step - 1)
            )
        )
        == 0
        and summed.subs(T, 2) == 0,
        "the sum of harmonic numbers is wrong",
    )
    form = sp.harmonic(T) / T - summed / (T * (T - 2))
    mean = weight_of_position().subs(sp.harmonic(s - 1), summed / (T - 2))  # of s - 1 = t0
    # Uses digamma functions, because SymPy's NumPy printer drops brackets around a harmonic number.
    return written_as(form, mean).rewrite(sp.digamma)


@cache
def equations() -> dict[str, Equation]:
    """Gradient of the output matrix at zero weights, token block and remap block."""
    # The lemma for averaged inputs: (1/N) E x - p(k) E[x | y = k], with p(k) = 1/n for plain
    # outputs.
    slope = sp.expand(token_mean(known=False) / N - token_mean(known=True) / n)
    diagonal, other = slope.subs(delta, 1), slope.subs(delta, 0)
    gain = sp.simplify(other - diagonal)
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
    lead = written_as(1 / (n * T), gain)
    return table(
        ref,
        UNIFORM,
        status="exact",
        token_mean=(mean_plain, token_mean(known=False), DERIVED, "z plain"),
        token_mean_given=(mean_given, token_mean(known=True), DERIVED, "z, k plain"),
        first_gradient=(slope_token, sp.factor(slope), STATEMENT, "z, k plain"),
        first_gain=(slope_token - on, lead, STATEMENT, "lead of z -> z after a unit step"),
        answer_reach=(reach, position, DERIVED, "first layer: inclusive causal mask"),
        first_gain_remap=(
            slope_remap - on_remapped,
            position / n,
            DERIVED,
            "the same in the remap block",
        ),
    )
