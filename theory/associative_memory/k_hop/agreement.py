"""Probability that two sets of hidden permutations give the same answer; exact, by a two-state
Markov chain.
"""

import sympy as sp

from theory import Equation, array, symbol, table, written_as
from theory.associative_memory.symbols import DERIVED, N, j, ref
from theory.called import cache

agree = array("a_agree", "a", "probability of agreement after j hops")
phi = array("phi_fixed", r"\phi", "fixed points of one permutation against the other, by hop")
k = symbol("k", means="hops", integer=True, positive=True)
UNIFORM = "input permutations and starting point uniform"
agreement = symbol(
    "agreement", r"\Pr[f_{\pi}=f_{\pi'}]", "probability that two tasks agree", positive=True
)
before, fixed = (
    symbol("a_before", r"a_{j-1}", "probability of agreement before hop j", positive=True),
    symbol("phi_j", r"\phi_{j}", "fixed points at hop j", nonnegative=True),
)


def one_hop() -> sp.Expr:
    """Agreement after a hop as a function of the agreement before it.

    The input permutation maps an agreeing pair to a uniform point, and a differing pair to a
    uniform pair of distinct points. Agreeing points stay in agreement with probability phi/N.
    Distinct points x, x' are mapped to the same point if x' is the image of x under pi'^-1 pi; the
    image differs from x with probability 1 - phi/N, and x' is any of N - 1 points.
    """
    return before * fixed / N + (1 - before) * (1 - fixed / N) / (N - 1)


@cache
def equations() -> dict[str, Equation]:
    """One hop, the product over hops, derangements, and the mean square over random maps."""
    # One hop shrinks the deviation of the agreement from 1/N by a factor.
    ratio = written_as((fixed - 1) / (N - 1), (one_hop() - 1 / N) / (before - 1 / N))
    product = 1 / N + (1 - 1 / N) * sp.Product(ratio.subs(fixed, phi[j]), (j, 1, k))
    derangements = 1 / N + (1 - 1 / N) * ratio.subs(fixed, 0) ** k
    # phi of a random permutation: mean 1; mean of phi (phi - 1): ordered pairs of points, each
    # fixed w.p. 1/(N(N-1)).
    falling = N * (N - 1) / (N * (N - 1))
    square = sp.simplify(falling + 1 - 2 + 1)  # E phi(phi-1) + E phi - 2 E phi + 1
    typical = sp.simplify((square / (N - 1) ** 2) ** k)
    wang = "Wang et al. 2025, correlation behind the lower bound; identity derived here"
    square_means = "mean squared correlation of two tasks"
    corr = symbol("corr2", r"\mathbb{E}\,\mathrm{corr}^{2}", square_means)
    drawn = "hidden permutations independent and uniform"
    return table(
        ref,
        status="exact",
        agreement_hop=(agree[j], one_hop(), DERIVED, UNIFORM),
        agreement=(agreement, product, wang, UNIFORM),
        agreement_derangements=(agreement, derangements, DERIVED, UNIFORM, "no hop alike anywhere"),
        correlation_square=(corr, typical, DERIVED, drawn, "corr: product of (phi_j - 1)/(N - 1)"),
    )
