"""Definition of the model: task, attention, logic module, loss and order parameters
(Eqs. 1-9).
"""

from functools import cache

import sympy as sp

from theory import Chapter, Equations, array, delta_sum, function, symbol, written_as
from theory.state_tracking.model.symbols import (
    A,
    L,
    M,
    M_star,
    N,
    R,
    S,
    a,
    b,
    c,
    d_g,
    i,
    j,
    p,
    q,
    r,
    ref,
    s,
    t,
    tau,
)

state = array("s", means="states of a sequence")
action = array("g", means="its actions")
pi = array(
    "pi",
    r"\pi",
    "attention; its first index, the position that attends, may be left out",
)
logit = array("l", means="attention scores")
output = array("o", means="output of attention: weights of the actions")
z = array("z", means="logits of the next state")
training_loss = symbol("training_loss", r"\mathcal{L}", "loss of a sequence", real=True)
acted = function(r"\sigma", "permutation of the states by an action")

delta = sp.KroneckerDelta
chapter = Chapter(ref, status="exact")
chapter.state("state", state[t], acted(action[t], state[t - 1]), "Eq. (1)")


@chapter.derives(pi[i], "Eq. (4)", "one row, actions 1..L", name="attention")
def softmax_row() -> sp.Expr:
    """Attention entry pi_i of one row as a function of the attention logits l."""
    return sp.exp(logit[i]) / sp.Sum(sp.exp(logit[j]), (j, 1, L))


@chapter.derives(output[i, a], "Eqs. (4), (27)")
def retrieved() -> sp.Expr:
    """Attention on all positions of an action."""
    return sp.Sum(pi[i, j] * delta(action[j], a), (j, 1, L))


@chapter.derives(
    z[i + 1, r], "Eqs. (6), (26), (37)", "s is the current state x_i", name="logit"
)
def scores() -> sp.Expr:
    """Logit of a state: matrices of the actions, by their weights."""
    return sp.Sum(output[i, a] * M[a, r, s], (a, 1, d_g))


@chapter.derives(
    training_loss,
    "Eq. (7)",
    "averaged over the training sequences",
    name="training_loss",
)
def cross_entropy() -> sp.Expr:
    """Cross-entropy of the next state, averaged over the steps of a sequence."""
    normaliser = sp.log(sp.Sum(sp.exp(z[i + 1, r]), (r, 1, N)))
    of_step = normaliser - z[i + 1, state[i - L]]
    return sp.Sum(of_step, (i, L + 1, 2 * L)) / L


chapter.state("A", A, sp.Sum(pi[i, i - L], (i, L + 1, 2 * L)) / L, "Eq. (8)")


def own_overlaps() -> sp.Expr:
    """Overlap of every matrix with its own teacher, summed over actions."""
    own = M_star[a, p, q] * M[a, p, q]
    return sp.Sum(own, (p, 1, N), (q, 1, N), (a, 1, d_g))


@chapter.derives(R, "Eq. (9a)", name="R")
def on_target() -> sp.Expr:
    """Mean overlap of a matrix with its own teacher."""
    return own_overlaps() / (d_g * N)


@chapter.derives(S, "Eq. (9b)", "d_g >= 2", name="S")
def off_target() -> sp.Expr:
    """Mean overlap of a matrix with the teachers of other actions."""
    pair = M_star[c, p, q] * M[a, p, q]  # c labels teachers, a students
    pairs = sp.Sum(pair, (p, 1, N), (q, 1, N), (a, 1, d_g), (c, 1, d_g))
    return (pairs - own_overlaps()) / (d_g * (d_g - 1) * N)


def equations() -> Equations:
    """Definitions from which everything else is derived."""
    return chapter.equations


# Overlap of distinct teachers

sigma_overlap = symbol(
    "sigma_overlap", r"\sigma", "mean overlap of a teacher with the rest", real=True
)
tau_bar = symbol(
    "tau_bar", r"\bar{\tau}", "expected overlap of distinct teachers", real=True
)
tau_ab = symbol("tau_ab", r"\tau_{ab}", "overlap of the teachers a and b", real=True)
back = function(r"\sigma^{-1}", "its inverse")
GROUP = ("teachers are all elements of a group that can send any state to any other",)

overlaps = Chapter(ref, status="exact")


@overlaps.derives(tau, "Eq. (57)", "d_g >= 2", name="tau")
def mean_pair_overlap() -> sp.Expr:
    """Overlap of two distinct teachers, averaged over all pairs."""
    trace = sp.Sum(M_star[a, p, q] * M_star[c, p, q], (p, 1, N), (q, 1, N))
    pairs = sp.Sum((1 - delta(a, c)) * trace, (a, 1, d_g), (c, 1, d_g))
    return pairs / (d_g * (d_g - 1) * N)


def mean_overlap(first: sp.Symbol, second: sp.Symbol) -> sp.Expr:
    """Normalised overlap Tr[M*^T M*]/N of two teachers: 1 for equal indices, otherwise
    tau on average.
    """
    return delta(first, second) + (1 - delta(first, second)) * tau


@overlaps.derives(sigma_overlap, "Eq. (58)", "d_g >= 3", name="sigma_overlap")
def mean_of_triples() -> sp.Expr:
    """Eq. (58): every pair (a, c) is counted once for each b different from both, d_g -
    2 times.
    """
    distinct = (1 - delta(a, b)) * (1 - delta(a, c)) * (1 - delta(b, c))
    triples = delta_sum(distinct * tau, (b, 1, d_g), (c, 1, d_g), (a, 1, d_g))
    return sp.cancel(triples / (d_g * (d_g - 1) * (d_g - 2)))


@cache
def all_fixed_points() -> sp.Expr:
    """Sum of the traces of all permutations in S_N, in units of N!; (N-1)! permutations
    fix a given state.
    """
    fixed = sp.Sum(sp.factorial(N - 1), (r, 1, N)).doit()
    return sp.combsimp(fixed / sp.factorial(N))


@overlaps.derives(
    tau_bar,
    "Eqs. (74)-(77)",
    "permutations uniform and distinct",
    name="tau_bar_distinct",
)
def distinct_overlap() -> sp.Expr:
    """Mean overlap of two different permutations: the identity, with N fixed points, is
    excluded from the average.
    """
    size = sp.factorial(N)
    overlap = (all_fixed_points() * size - N) / (size - 1) / N
    return written_as(1 / N - (N - 1) / (N * (size - 1)), overlap)


@overlaps.derives(
    tau_bar,
    "App. B, replacing Eq. (77)",
    "permutations uniform and independent, duplicates allowed",
    name="tau_bar_iid",
)
def independent_overlap() -> sp.Expr:
    """Mean overlap of two independent permutations."""
    return all_fixed_points() / N


@overlaps.derives(tau_ab, "beyond Eq. (57): one pair", *GROUP, name="tau_pair")
def fixed_points() -> sp.Expr:
    """Tr[M*_a^T M*_b]/N: entries are deltas, and sigma_a(s) = sigma_b(s) wherever s is
    a fixed point of sigma_a^-1 sigma_b.
    """
    entries = delta(r, acted(a, s)) * delta(r, acted(b, s))
    agree = delta(acted(a, s), acted(b, s))
    fixed = delta_sum(entries, (r, 1, N)).subs(agree, delta(s, moved()))
    return sp.Sum(fixed, (s, 1, N)) / N


def moved() -> sp.Expr:
    """State to which the composed permutation sends s."""
    return back(a, acted(b, s))


@overlaps.derives(tau_bar, "beyond Eq. (77): a group", *GROUP, name="tau_bar_group")
@cache
def group_overlap() -> sp.Expr:
    """Mean overlap of different elements of a group: of d_g elements, d_g/N fix a given
    state, as those that lead to each of the N states are equally many; the identity
    fixes all.
    """
    fixed = sp.Sum(d_g / N, (r, 1, N)).doit()
    overlap = written_as((d_g - N) / (N * (d_g - 1)), (fixed - N) / (d_g - 1) / N)
    all_permutations = sp.factorial(N)
    written_as(distinct_overlap(), overlap.subs(d_g, all_permutations))
    return overlap


def overlap_equations() -> Equations:
    """Equations 57-58 and 74-77, with the value for independent draws."""
    return overlaps.equations
