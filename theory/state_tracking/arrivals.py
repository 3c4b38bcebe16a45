"""Theory for any optimiser from sizes alone: entries of M by what they stand for. From a state,
some of the d_g actions lead to another state (its arrivals). An entry of M is right or wrong, and
its state has a number of arrivals and a mean entry at the start; these make its kind. All entries
of one kind have the same mean gradient and therefore move together under every optimiser, also
under one that normalises gradients by their size.

Where the mean gradient of a kind is close to zero, the sign of every single gradient matters under
Adam. This is the case for wrong entries to states with one arrival: they fall because the state is
not the right one, and rise because it is as frequent as the right states of other actions. Single
gradients differ by the initial value of the entry and by the counts of the training set, both of
which are fixed during training.
"""

from functools import cache

import sympy as sp

from theory import Equation, array, delta_sum, symbol, table, written_as
from theory.state_tracking.logits import pi_i
from theory.state_tracking.symbols import L, N, d_g, n_train, ref

BEYOND = "beyond the paper: entries by arrivals"
LARGE = "many states: of every kind there are as many as on average"

c = symbol("c_kind", "c", "kind of a state: arrivals, and mean entry at the start", integer=True)
e = symbol("e_kind", "e", "kind of a wrong state", integer=True)
kinds = symbol("kinds", r"n_{c}", "number of kinds", integer=True, positive=True)
share = array("P_kind", "P", "share of states of a kind")
arrivals = array("k_kind", "k", "actions that lead to a state of a kind")
offset = array("offset", r"\delta", "mean over actions of the entries to a state at the start")
right = array("v_right", r"v^{+}", "right entry of M to a state of a kind, less its start")
wrong = array("v_wrong", r"v^{-}", "wrong entry of M to a state of a kind, less its start")
mean = array(
    "v_mean", r"\bar v", "mean over actions of the entries to a state of a kind, less its start"
)
z_right = array("z_right", r"z^{+}", "logit of a right state by kind")
z_wrong = array("z_wrong", r"z^{-}", "logit of a wrong state by kind")
Z = array("Z_kind", "Z", "normalisation, by kind of the right state")
squares = symbol("squares", r"\Sigma", "mean sum of squared probabilities", positive=True)
V = symbol("V_0", r"V_{0}", "variance of entries of M at the start", positive=True)
T = symbol("T_all", r"T_{\Sigma}", "sum of squared attention of a position", positive=True)
kind_loss = symbol("loss_kinds", r"\ell", "loss of a position by kinds", real=True)
chance = symbol("chance", "P_{k}", "share of states with k arrivals", positive=True)
k = symbol("k_arrivals", "k", "arrivals", integer=True, nonnegative=True)
one = symbol("arriving", "j", "an arrival", integer=True, nonnegative=True)
p_kind = symbol("p_kind", "p", "mean probability of a state of a kind", positive=True)
arriving = symbol("k_share", r"\hat k", "arrivals over the number of actions", nonnegative=True)
answer = symbol("answer", "a", "slope of a single gradient in its own entry", nonnegative=True)
counted = symbol("counted", r"b^{2}", "variance of single gradients over training sets")
off_square = symbol("off_square", r"\langle\Delta^{2}\rangle", "its mean square", positive=True)
gap = symbol("gap_kind", r"v^{+}-v^{-}", "right less wrong entry of a kind", real=True)
scatter = symbol("scatter_kind", "V", "variance over actions of entries to a state", positive=True)


def mean_entry() -> sp.Expr:
    """Mean over actions: those that lead to the state have their right entry there, the others a
    wrong one.
    """
    return (arrivals[c] * right[c] + (d_g - arrivals[c]) * wrong[c]) / d_g


def logit(entry: sp.Indexed) -> sp.Expr:
    """The right action counts with its attention, the mean over all actions with the remaining
    attention; the initial value of an entry is replaced by its mean over actions.
    """
    return pi_i * entry + (1 - pi_i) * mean[c] + offset[c]


def binomial() -> sp.Expr:
    """Each action leads to a state with probability 1/N."""
    ways = sp.Product((d_g - one) / (one + 1), (one, 0, k - 1))
    return ways * (1 / N) ** k * (1 - 1 / N) ** (d_g - k)


def over_states(power: int) -> sp.Expr:
    """Sum of powers of exp(logit): all states as if they were wrong, one of them replaced by the
    right state.
    """
    everyone = N * sp.Sum(share[e] * sp.exp(power * z_wrong[e]), (e, 1, kinds))
    return everyone - sp.exp(power * z_wrong[c]) + sp.exp(power * z_right[c])


def over_right(form: sp.Expr) -> sp.Expr:
    """Mean over actions of a function of the kind of the right state."""
    return sp.Sum(N * share[c] * arrivals[c] / d_g * form, (c, 1, kinds))


def loss() -> sp.Expr:
    """Cross-entropy over right states, and the contribution of random entries of M to second order
    in their size.
    """
    known = over_right(sp.log(Z[c]) - z_right[c])
    return known + T * V / 2 * (1 - 1 / d_g) * (1 - squares)


def squared_weight() -> sp.Expr:
    """Mean square of the weight of an action: from one place, and from pairs of places that both
    show it.
    """
    place, b = sp.symbols("at b", integer=True, positive=True)
    here = delta_sum(sp.KroneckerDelta(place, b), (place, 1, d_g)) / d_g
    return T * here + (1 - T) * here**2


def deviation() -> sp.Expr:
    """Slope of a single gradient in its own entry, less the slope of the mean over actions: squared
    weight times the derivative of the probability by the logit, at one of N states.
    """
    logit_ = sp.Symbol("x", real=True)
    others = sp.Symbol("others", positive=True)
    soft = sp.exp(logit_) / (sp.exp(logit_) + others)
    rise = sp.diff(soft, logit_).subs(others, sp.exp(logit_) * (1 - p_kind) / p_kind)
    rise = written_as(p_kind * (1 - p_kind), rise)
    spread = written_as(T / d_g * (1 - 1 / d_g), squared_weight() - 1 / d_g**2)
    return spread * rise / N


def over_sets() -> sp.Expr:
    """Variance of the mean over rows of weight times (p - y). A row of the entry's own action,
    where its state is wrong, has the attention on it and chance; another row has chance alone, and
    the state is right (y = y^2 = 1) for the share of the other actions that arrive.
    """
    y, w, T_elsewhere = sp.symbols("y w at")
    elsewhere = squared_weight().subs(T, T_elsewhere)
    # Mean and mean square of the weight at the places other than the own one, which has pi_i.
    chance = (elsewhere * (1 - pi_i) ** 2).subs(T_elsewhere, (T - pi_i**2) / (1 - pi_i) ** 2)
    both = sp.expand((pi_i + w) ** 2).subs(w**2, chance).subs(w, (1 - pi_i) / d_g)
    others = arriving * d_g / (d_g - 1)
    square = sp.expand((p_kind - y) ** 2).subs(y**2, y).subs(y, others)
    whole = both * p_kind**2 / d_g + (1 - 1 / d_g) * chance * square
    return sp.simplify(whole) / (N * n_train * L)


def entry_scatter() -> sp.Expr:
    """Variance of an entry that is right for the share of actions that arrive."""
    start = V * (1 - 1 / d_g)
    at_right, at_wrong = start + gap**2, off_square
    mean = arriving * gap
    form = (1 - arriving) * off_square + arriving * start + arriving * (1 - arriving) * gap**2
    return written_as(form, arriving * at_right + (1 - arriving) * at_wrong - mean**2)


@cache
def equations() -> dict[str, Equation]:
    """Shares, logits and loss by kinds."""
    return table(
        ref(BEYOND),
        LARGE,
        status="leading order",
        arrivals=(chance, binomial()),
        kind_mean=(mean[c], mean_entry()),
        kind_right=(z_right[c], logit(right[c])),
        kind_wrong=(z_wrong[c], logit(wrong[c])),
        kind_normalisation=(Z[c], over_states(1)),
        kind_squares=(squares, over_right(over_states(2) / Z[c] ** 2)),
        kind_loss=(kind_loss, loss()),
        entry_answer=(answer, deviation(), "by position"),
        entry_counts=(counted, over_sets(), "by position", "rows independent"),
        entry_scatter=(scatter, entry_scatter(), "deviations at right entries as at the start"),
    )
