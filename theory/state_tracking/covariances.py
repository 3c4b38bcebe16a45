"""Fixed-disorder theory: covariances of the weights within groups as one training set has them.

A group's rows are few, so that the covariance of its weights differs from the one expected of
independent uniform actions. To second order in the logits the loss is linear in this difference.
It is kept with the response of probabilities averaged over the groups of a state: what it
multiplies is then a sum over groups, which is counted once.
"""

from functools import cache

import sympy as sp

from theory.equation import Equation, table
from theory.notation import array, symbol
from theory.state_tracking import fixed_disorder
from theory.state_tracking.definitions import pi
from theory.state_tracking.fixed_disorder import GROUP, pairs, share, weight_covariance, within
from theory.state_tracking.symbols import L, M, N, a, b, c, d_g, i, j, k, q, r, ref, s

BEYOND = "beyond the paper: covariances of one training set"
AVERAGED = "response of probabilities averaged over the groups of a state"

triples = array(
    "triples", r"\nu", "share of the rows with a state, a step, and actions b and c at two places"
)
excess = array(
    "covariance_excess",
    r"\mathcal{E}",
    "covariance of the weights of two actions at two places beyond the expected",
)
mean_response = array("J_mean", r"\bar{J}", "response of probabilities, mean over a state's groups")
excess_loss = symbol("l_excess", r"\ell^{\mathcal{E}}", "what this adds to the mean loss")


def beyond_expected() -> sp.Expr:
    """Summed over the groups of a state and a step, with their shares: about the known mean of each
    group, less what independent uniform actions have.
    """
    rows, by_group = share[GROUP], (a, 1, d_g)
    means = pairs[s, i, j, a, b] * pairs[s, i, k, a, c] / rows
    same = sp.KroneckerDelta(j, k) * weight_covariance() * sp.Sum(rows * within(), by_group)
    return triples[s, i, j, b, k, c] - sp.Sum(means, by_group) - same


def loss() -> sp.Expr:
    """Half the response contracted with the covariance of logits."""
    elsewhere = (1 - sp.KroneckerDelta(i, j)) * (1 - sp.KroneckerDelta(i, k))
    entries = M[b, r, s] * mean_response[s, r, q] * M[c, q, s]
    groups, places, actions, states = (
        ((s, 1, N), (i, 1, L)),
        ((j, 1, L), (k, 1, L)),
        ((b, 1, d_g), (c, 1, d_g)),
        ((r, 1, N), (q, 1, N)),
    )
    weights = elsewhere * pi[i, j] * pi[i, k] * excess[s, i, j, b, k, c]
    return sp.Sum(weights * entries, *groups, *places, *actions, *states) / 2


@cache
def equations() -> dict[str, Equation]:
    """The excess of covariance, the mean response, and what both add to the loss."""
    groups = ((i, 1, L), (a, 1, d_g))
    response = fixed_disorder.equations()["response"].rhs
    plain = fixed_disorder.plain
    of_group = response.xreplace({fixed_disorder.prob[x]: plain[(*GROUP, x)] for x in (r, q)})
    mean = sp.Sum(share[GROUP] * of_group, *groups) / sp.Sum(share[GROUP], *groups)
    exact = table(
        ref(BEYOND), status="exact", covariance_excess=(excess[s, i, j, b, k, c], beyond_expected())
    )
    ordered = table(
        ref(BEYOND),
        fixed_disorder.SECOND_ORDER,
        status="leading order",
        mean_response=(mean_response[s, r, q], mean),
        excess_loss=(excess_loss, loss(), AVERAGED),
    )
    return exact | ordered
