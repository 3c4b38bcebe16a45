"""Group acting on itself: two numbers, R and S, are all entries of M, and the average over the
other actions of a sequence is a finite sum.
"""

from collections.abc import Iterator
from functools import cache

import sympy as sp
from sympy.utilities.iterables import partitions

from theory import Allowed, Flow, number
from theory.state_tracking import attention, mean_field
from theory.state_tracking.scope import flow_of
from theory.state_tracking.symbols import A_0, R_0, S_0, A, L, N, R, S, alpha, d_g, eta, ref

LENGTHS = Allowed(low=1, high=20)  # the sum has 97 terms at L = 10, 2,087 at L = 20
OTHERS = "the other actions get (1 - A)/(L - 1) of the attention each"


def occupancies(others: int) -> Iterator[tuple[sp.Expr, int, dict[int, int]]]:
    """Ways in which other actions, each leading to one of N states at random, share these states:
    weight, how many lead to the right state, and how many wrong states get so many of them.
    """
    for right in range(others + 1):
        to_wrong = others - right
        chance = sp.binomial(others, right) * (1 / N) ** right * (1 - 1 / N) ** to_wrong
        for shares in partitions(to_wrong):
            ways = sp.ff(N - 1, sum(shares.values())) * sp.factorial(to_wrong)
            for size, states in shares.items():
                ways /= sp.factorial(size) ** states * sp.factorial(states)
            yield chance * ways / (N - 1) ** to_wrong, right, dict(shares)


@cache
def loss(length: int) -> sp.Expr:
    """Mean loss at given attention. The logit of a state is S, plus R - S times the attention on
    the actions that lead there: on the right one, and on those of the others that happen to.
    """
    share = (1 - A) / (length - 1) if length > 1 else sp.S.Zero
    total = sp.S.Zero
    for weight, right, wrong in occupancies(length - 1):
        correct = (R - S) * (A + share * right)
        empty = N - 1 - sum(wrong.values())
        mass = sum(states * sp.exp((R - S) * share * n) for n, states in wrong.items()) + empty
        total += weight * (sp.log(sp.exp(correct) + mass) - correct)
    return total


@cache
def flow(length: int, states: int) -> Flow:
    """Flow of A, R and S for a group that acts on itself: descent on all entries of M, which are R
    where an action leads and S elsewhere, and the closure of attention.

    Parameters
    ----------
    length : int
        Actions per sequence L.
    states : int
        Number of states N, the order of the group.

    Raises
    ------
    ParameterError
        Unless 1 <= L <= 20 and N >= 2.
    """
    number("L", length, LENGTHS, int)
    number("N", states, Allowed(low=2), int)
    value = loss(length).subs(N, states)
    # An epoch moves an entry by -eta times the derivative; N^2 entries of M are R, N - 1 times as
    # many S.
    rates = {R: -value.diff(R), S: -value.diff(S) / (states - 1)}
    force = attention.equations()["c_closure"].rhs.subs({L: length, d_g: states})
    rates = {A: -force * value.diff(A), **rates}
    return Flow(
        name=f"state_tracking, group acting on itself, N = {states}, L = {length}",
        time=alpha,
        rhs={q: eta * rate for q, rate in rates.items()},
        initial={A: A_0, R: R_0, S: S_0},
        reference=ref("beyond Eq. (15): mean over the other actions"),
        status="closure",
        assumptions=(mean_field.UNIFORM, OTHERS, attention.CLOSURE, "gradient flow"),
        observables={"loss": value},
        scope=flow_of("regular", length, states),
    )
