"""Fixed-disorder theory to fourth order in the scatter of logits within a group, and the rollout of
one student.

Weights of the actions at other places are independent. The loss of a row is the generating function
of cumulants under the softmax of the group's mean logits, so that its mean over the group is a sum
of products of two cumulants: of the weights, and of entries of M under the softmax.
"""

from functools import cache
from math import prod

import sympy as sp

from theory import Equation, array, table, written_as
from theory.state_tracking import fixed_disorder
from theory.state_tracking.definitions import pi
from theory.state_tracking.fixed_disorder import GROUP, SIZE, UNIFORM, mean_M, plain
from theory.state_tracking.symbols import L, M, M_star, N, a, b, c, d_g, i, j, k, q, r, ref, s, t

BEYOND = "beyond the paper: fixed-disorder theory to fourth order"
FOURTH = "cumulants of the weights in a group up to the fourth"

kept = array("kept", r"\chi", "share of a cumulant that remains about the known mean of a group")
moved = array("x", means="entry of M less its means over actions and over states of the softmax")
powers = array(
    "powers", r"\mathcal{T}", "cumulant of a group's logits per cumulant of M over actions"
)
K = array("kappa_entries", r"\kappa", "cumulant of the entries of an action under the softmax")
both = array("kappa_both", r"\kappa^{2,2}", "joint cumulant, two of each action, under the softmax")
group_loss = array("l_fourth", r"\ell^{(4)}", "mean loss of a group to fourth order")
right = array("right", r"\mathcal{A}", "accuracy by step, right state and action")
mass = array("right_mass", r"\varrho", "probability to be in a state and right, by step")
mean_right = array("right_mean", r"\bar{\mathcal{A}}", "accuracy by step")


def remaining(order: int) -> sp.Expr:
    """Cumulant of the deviation of one row from the mean of n independent rows, over the cumulant
    of a row: the weights 1 - 1/n of the row itself and -1/n of the others, to this power.
    """
    n = sp.Symbol("rows", positive=True)
    by_itself, other = 1 - 1 / n, -1 / n
    return sp.factor(by_itself**order + (n - 1) * other**order).subs(n, SIZE)


def cumulant(*orders: int) -> sp.Expr:
    """Joint cumulant in moments about the mean, `moment`: the coefficient of the logarithm of
    their generating function, whose series ends since the function begins at second order.
    """
    along = sp.symbols(f"u:{len(orders)}")
    every = sp.utilities.iterables.cartes(*(range(n + 1) for n in orders))
    whole = sum(
        moment(*n) * prod(u**m / sp.factorial(m) for u, m in zip(along, n, strict=True))
        for n in every
        if sum(n) > 1
    )
    logarithm = sum(-((-whole) ** n) / n for n in range(1, sum(orders) // 2 + 1))
    coefficient = sp.Poly(logarithm, *along).coeff_monomial(orders)
    return sp.expand(coefficient * prod(map(sp.factorial, orders)))


def moment(*orders: int) -> sp.Symbol:
    """Symbol of a moment about the mean."""
    return sp.Symbol("moment_" + "_".join(map(str, orders)))


def over_states(form: sp.Expr, *actions: sp.Symbol) -> sp.Expr:
    """Moments as means under the softmax."""
    means = {}
    for x in form.free_symbols:
        orders = [int(n) for n in x.name.split("_")[1:]]
        mass_of = plain[r] * prod(moved[e, r] ** n for e, n in zip(actions, orders, strict=True))
        means[x] = sp.Sum(mass_of, (r, 1, N))
    return form.xreplace(means)


def weights() -> sp.Expr:
    """Mean of the fourth power of a sum over independent places in cumulants of one: places alone,
    and pairs of places, in sums of powers of attention.
    """
    x, y, u, v = sp.symbols("x y u v")
    mixed = sp.expand((u * x + v * y) ** 4).coeff(x, 2).coeff(y, 2) / (u * v) ** 2
    # Ordered pairs of different places: all pairs less the places themselves.
    pairs = powers[2, *GROUP] ** 2 - powers[4, *GROUP]
    return mixed / 2 * pairs


def loss() -> sp.Expr:
    """Mean loss: that of mean logits, and means over actions of cumulants."""
    known = fixed_disorder.equations()["group_loss"].rhs.subs(fixed_disorder.scatter[GROUP], 0)
    alone = sum(
        powers[n, *GROUP] / sp.factorial(n) * sp.Sum(K[n, b], (b, 1, d_g)) / d_g for n in (2, 3, 4)
    )
    pairs = weights() / sp.factorial(4) * sp.Sum(both[b, c], (b, 1, d_g), (c, 1, d_g)) / d_g**2
    return known + alone + pairs


def next_mass() -> sp.Expr:
    """Probability of being right in a state after the next step: right predictions lead on from
    right states; from a wrong state a rollout returns to all right states with equal probability.
    """
    step = right[t, s, a] * M_star[a, r, s] * mass[t, s] / d_g
    back = (1 - mean_right[t]) / (N - 1) * (1 - sp.Sum(mass[t, s], (s, 1, N))) / N
    return sp.Sum(step, (s, 1, N), (a, 1, d_g)) + back


@cache
def equations() -> dict[str, Equation]:
    """Cumulants, the mean loss of a group, and the rollout over the states of one student."""
    mean = sp.Sum(plain[q] * (M[b, q, s] - mean_M[s, q]), (q, 1, N))
    elsewhere = 1 - sp.KroneckerDelta(i, j)
    both_forms = moment(2, 2) - moment(2, 0) * moment(0, 2) - 2 * moment(1, 1) ** 2
    exact = table(
        ref(BEYOND),
        status="exact",
        moved=(moved[b, r], M[b, r, s] - mean_M[s, r] - mean),
        **{
            f"kept_{n}": (kept[n], remaining(n), "the mean of a group's rows is known")
            for n in (2, 3, 4)
        },
        powers=(powers[k, *GROUP], kept[k] * sp.Sum(elsewhere * pi[i, j] ** k, (j, 1, L)), UNIFORM),
        **{f"cumulant_{n}": (K[n, b], over_states(cumulant(n), b)) for n in (2, 3, 4)},
        cumulant_both=(both[b, c], over_states(written_as(both_forms, cumulant(2, 2)), b, c)),
    )
    ordered = table(
        ref(BEYOND), FOURTH, status="leading order", loss_fourth=(group_loss, loss(), UNIFORM)
    )
    rolled = table(
        ref("beyond the paper: rollout of one student"),
        "wrong states lead anywhere alike",
        status="closure",
        right_mass=(mass[t + 1, r], next_mass()),
        mean_right=(mean_right[t], sp.Sum(right[t, s, a], (s, 1, N), (a, 1, d_g)) / (N * d_g)),
    )
    return exact | ordered | rolled
