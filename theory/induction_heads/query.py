"""Uniformly drawn query: averaged loss and flow, and the change of the N^2 law (beyond Assumption
8).
"""

import sympy as sp

from theory import Equation, symbol, table, written_as
from theory.called import cache
from theory.induction_heads import attention
from theory.induction_heads.network import ORTHONORMAL
from theory.induction_heads.symbols import N, alpha, beta, d, gamma, k, q, ref

UNIFORM = "queried pair uniform over the context"
slope = symbol("initial_slope", r"\left.\dot\beta\right|_{0}", "rate of beta at time 0", real=True)
gamma_E = symbol("gamma_E", r"\gamma_{\mathrm{E}}", "Euler's constant", positive=True)


def taken_out(summand: sp.Expr, limit: sp.Tuple) -> sp.Expr:
    """Split a sum into terms and move factors that do not depend on its index in front."""
    index, low, high = limit
    total = sp.S.Zero
    for term in sp.Add.make_args(sp.expand(summand)):
        before, summed = sp.factor_terms(term).as_independent(index)
        total += before * (high - low + 1 if summed == 1 else sp.Sum(summed, limit))
    return total


@cache
def initial_slope() -> sp.Expr:
    """Rate of beta at alpha = beta = 0 for queried pair q: (gamma/N) (score of the correct label -
    mean score), proved equal to -dL/dbeta.

    At beta = 0 attention is uniform, so that only the term of the loss linear in attention
    contributes.
    """
    start = {alpha: 0, beta: 0}
    c = {name: score.subs(start) for name, score in attention.key_scores("strict").items()}
    total = c["own_label"] + sp.Sum(c["later_item"] + c["later_label"], (d, 1, N - q))
    slope_at = gamma / N * (c["own_label"] - total / (2 * N))
    rate = -sp.diff(attention.loss_of_query("strict"), beta).subs(start)
    gap = sp.expand((rate - slope_at).replace(sp.Sum, taken_out))
    if gap != 0:
        raise ArithmeticError(f"initial slope: off by {gap}")
    return slope_at


@cache
def mean_initial_slope() -> sp.Expr:
    """Average of `initial_slope` over q. Pair k is a later pair for k - 1 queries, and the sum of
    its two scores times k - 1 is simple.
    """
    c = {name: score.subs(alpha, 0) for name, score in attention.key_scores("strict").items()}
    right = c["own_label"]
    later = sp.expand((c["later_item"] + c["later_label"]).subs(d, k - q))
    weighted = written_as(1 - right.subs(q, k) / 2, sp.simplify((k - 1) * later))
    own_sum = sp.Sum(right, (q, 1, N))
    later_sum = N - own_sum / 2 - weighted.subs(k, 1)  # k = 2..N, as the first pair is never later
    return gamma / N**2 * (own_sum - (own_sum + later_sum) / (2 * N))


@cache
def large_initial_slope() -> sp.Expr:
    """Limit of `mean_initial_slope` for large N, by sum of 1/(2q - 1) = H(2N) - H(N)/2 and H(n) =
    ln n + gamma_E + O(1/n).
    """
    total = sp.Symbol("total")
    scaled = sp.expand(
        (mean_initial_slope() * N**2 / gamma).subs(sp.Sum(1 / (2 * q - 1), (q, 1, N)), total)
    )
    size = sp.Symbol("size", positive=True)
    of_sum, constant = (sp.limit(scaled.coeff(total, k).subs(N, size), size, sp.oo) for k in (1, 0))
    harmonic = sp.log(2) + sp.log(N) + gamma_E - (sp.log(N) + gamma_E) / 2
    return gamma / (2 * N**2) * sp.expand(2 * (of_sum * harmonic + constant))


@cache
def equations() -> dict[str, Equation]:
    """Initial rate of beta, for any queried pair and on average."""
    given = (ORTHONORMAL, attention.THREE, "alpha = beta = 0", "strict mask")
    place = ref("beyond Assumption 8: any q")
    return table(
        place,
        *given,
        status="exact",
        initial_slope=(slope, initial_slope),
        mean_initial_slope=(slope, mean_initial_slope, UNIFORM),
        large_initial_slope=(slope, large_initial_slope, "leading order", UNIFORM, "large N"),
    )
