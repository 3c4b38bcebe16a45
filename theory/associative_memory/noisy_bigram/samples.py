"""Sample complexity of each path: O(1/a) for the feed-forward path, of order N for the value
memory.
"""

from functools import cache

import sympy as sp

from theory import Equation, symbol, table, written_as
from theory.associative_memory.symbols import DERIVED, N, T, ref

a = symbol("a_noise", "a", "probability that the token behind the trigger is noise", positive=True)
n = symbol("n_samples", "n", "samples", integer=True, positive=True)
rate = symbol("lambda_labels", r"\lambda", "samples with a given clean label", positive=True)
others = symbol(
    "Lambda_chance", r"\Lambda", "chance occurrences of a token with other labels", positive=True
)
fail = symbol(
    "p_fail",
    r"P_{\mathrm{fail}}",
    "probability that the feed-forward part misses the noise",
    positive=True,
)
recovered = symbol(
    "recovered", r"\varrho", "part of the value memory that is recovered", positive=True
)
count = symbol("c_count", "c", integer=True, nonnegative=True)
STATEMENT = "Chen et al. 2024: feed-forward part after O(1) samples, attention after order N; model and formula derived here"
STEP = "one gradient step from zero"


def poisson(mean: sp.Expr, value: sp.Expr) -> sp.Expr:
    """Probability that a Poisson variable takes a value."""
    return mean**value * sp.exp(-mean) / sp.factorial(value)


@cache
def equations() -> dict[str, Equation]:
    """Failure probability of the feed-forward path, its sample size, and the recovered fraction of
    the value memory.
    """
    # For n << sqrt(N) all other labels occur at most once, so that the noise token must occur
    # twice.
    binomial = sp.binomial(n, count) * a**count * (1 - a) ** (n - count)
    failing = sum(binomial.subs(count, sp.Integer(c)) for c in (0, 1))
    failing = written_as((1 - a) ** n + n * a * (1 - a) ** (n - 1), failing)
    small = symbol("x_na", "x", positive=True)  # n a, fixed as a -> 0
    limit = sp.simplify(sp.limit(failing.subs(n, small / a), a, 0))
    # The association z -> z has a Poisson(lambda) number of samples labelled z. Any other label has
    # z by chance, at most once as N grows. A single own sample ties with Poisson(Lambda) chance
    # ones, and the winner is drawn evenly.
    at_least_two = 1 - poisson(rate, sp.Integer(0)) - poisson(rate, sp.Integer(1))
    tie = sp.simplify(sp.summation(poisson(others, count) / (count + 1), (count, 0, sp.oo)))
    share = sp.expand(at_least_two) + poisson(rate, sp.Integer(1)) * written_as(
        (1 - sp.exp(-others)) / others, tie
    )
    share = share.subs(others, rate * (T - 1))
    one_value = "part of the tokens z whose largest value entry among answers is z, noise row aside"
    ratio = "N -> infinity at fixed n/N: depends on n and N through their ratio alone"
    scaling = "a -> 0 at fixed n a: the sample size is O(1/a), whatever N"
    return table(
        ref,
        status="leading order",
        bigram_fail=(fail, failing, STATEMENT, STEP, "n well below sqrt(N)"),
        bigram_fail_scaled=(fail, limit.subs(small, n * a), DERIVED, STEP, scaling),
        labels_per_answer=(rate, n * (1 - a) / N, DERIVED, "exact"),
        value_recovered=(recovered, share, STATEMENT, STEP, ratio, one_value),
    )
