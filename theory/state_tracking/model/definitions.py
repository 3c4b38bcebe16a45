"""Definition of the model: task, attention, logic module, loss and order parameters
(Eqs. 1-9).
"""

from functools import cache

import sympy as sp

from theory import Equations, array, delta_sum, function, symbol, table, written_as
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


def softmax_row() -> sp.Expr:
    """Attention entry pi_i of one row as a function of the attention logits l."""
    return sp.exp(logit[i]) / sp.Sum(sp.exp(logit[j]), (j, 1, L))


@cache
def equations() -> Equations:
    """Definitions from which everything else is derived."""
    entries = ((p, 1, N), (q, 1, N))
    on_own = sp.Sum(M_star[a, p, q] * M[a, p, q], *entries, (a, 1, d_g))
    pairs = sp.Sum(
        M_star[c, p, q] * M[a, p, q], *entries, (a, 1, d_g), (c, 1, d_g)
    )  # c labels teachers, a students
    step = function(r"\sigma", "permutation of the states by an action")
    cross_entropy = (
        sp.log(sp.Sum(sp.exp(z[i + 1, r]), (r, 1, N))) - z[i + 1, state[i - L]]
    )
    weights = sp.Sum(pi[i, j] * sp.KroneckerDelta(action[j], a), (j, 1, L))
    scores = sp.Sum(output[i, a] * M[a, r, s], (a, 1, d_g))
    cost = sp.Sum(cross_entropy, (i, L + 1, 2 * L)) / L
    return table(
        ref,
        status="exact",
        state=(state[t], step(action[t], state[t - 1]), "Eq. (1)"),
        attention=(pi[i], softmax_row(), "Eq. (4)", "one row, actions 1..L"),
        retrieved=(output[i, a], weights, "Eqs. (4), (27)"),
        logit=(
            z[i + 1, r],
            scores,
            "Eqs. (6), (26), (37)",
            "s is the current state x_i",
        ),
        training_loss=(
            training_loss,
            cost,
            "Eq. (7)",
            "averaged over the training sequences",
        ),
        A=(A, sp.Sum(pi[i, i - L], (i, L + 1, 2 * L)) / L, "Eq. (8)"),
        R=(R, on_own / (d_g * N), "Eq. (9a)"),
        S=(S, (pairs - on_own) / (d_g * (d_g - 1) * N), "Eq. (9b)", "d_g >= 2"),
    )


# Overlap of distinct teachers

delta = sp.KroneckerDelta
sigma_overlap = symbol(
    "sigma_overlap", r"\sigma", "mean overlap of a teacher with the rest", real=True
)
tau_bar = symbol(
    "tau_bar", r"\bar{\tau}", "expected overlap of distinct teachers", real=True
)
tau_ab = symbol("tau_ab", r"\tau_{ab}", "overlap of the teachers a and b", real=True)
acted = function(r"\sigma", "permutation of the states by an action")
back = function(r"\sigma^{-1}", "its inverse")
GROUP = ("teachers are all elements of a group that can send any state to any other",)


def mean_overlap(first: sp.Symbol, second: sp.Symbol) -> sp.Expr:
    """Normalised overlap Tr[M*^T M*]/N of two teachers: 1 for equal indices, otherwise
    tau on average.
    """
    return delta(first, second) + (1 - delta(first, second)) * tau


def mean_of_triples() -> sp.Expr:
    """Eq. (58): every pair (a, c) is counted once for each b different from both, d_g -
    2 times.
    """
    triples = delta_sum(
        (1 - delta(a, b)) * (1 - delta(a, c)) * (1 - delta(b, c)) * tau,
        (b, 1, d_g),
        (c, 1, d_g),
        (a, 1, d_g),
    )
    return sp.cancel(triples / (d_g * (d_g - 1) * (d_g - 2)))


@cache
def all_fixed_points() -> sp.Expr:
    """Sum of the traces of all permutations in S_N, in units of N!; (N-1)! permutations
    fix a given state.
    """
    return sp.combsimp(sp.Sum(sp.factorial(N - 1), (r, 1, N)).doit() / sp.factorial(N))


def distinct_overlap() -> sp.Expr:
    """Mean overlap of two different permutations: the identity, with N fixed points, is
    excluded from the average.
    """
    size = sp.factorial(N)
    overlap = (all_fixed_points() * size - N) / (size - 1) / N
    return written_as(1 / N - (N - 1) / (N * (size - 1)), overlap)


def fixed_points() -> sp.Expr:
    """Tr[M*_a^T M*_b]/N: entries are deltas, and sigma_a(s) = sigma_b(s) wherever s is
    a fixed point of sigma_a^-1 sigma_b.
    """
    entries = delta(r, acted(a, s)) * delta(r, acted(b, s))
    met = delta_sum(entries, (r, 1, N)).subs(
        delta(acted(a, s), acted(b, s)), delta(s, moved())
    )
    return sp.Sum(met, (s, 1, N)) / N


def moved() -> sp.Expr:
    """State to which the composed permutation sends s."""
    return back(a, acted(b, s))


def group_overlap() -> sp.Expr:
    """Mean overlap of different elements of a group: of d_g elements, d_g/N fix a given
    state, as those that lead to each of the N states are equally many; the identity
    fixes all.
    """
    fixed = sp.Sum(d_g / N, (r, 1, N)).doit()
    overlap = written_as((d_g - N) / (N * (d_g - 1)), (fixed - N) / (d_g - 1) / N)
    written_as(
        distinct_overlap(), overlap.subs(d_g, sp.factorial(N))
    )  # all permutations
    return overlap


@cache
def overlap_equations() -> Equations:
    """Equations 57-58 and 74-77, with the value for independent draws."""
    trace = sp.Sum(M_star[a, p, q] * M_star[c, p, q], (p, 1, N), (q, 1, N))
    pairs = sp.Sum((1 - delta(a, c)) * trace, (a, 1, d_g), (c, 1, d_g)) / (
        d_g * (d_g - 1) * N
    )
    distinct = "permutations uniform and distinct"
    iid = "permutations uniform and independent, duplicates allowed"
    return table(
        ref,
        status="exact",
        tau=(tau, pairs, "Eq. (57)", "d_g >= 2"),
        sigma_overlap=(sigma_overlap, mean_of_triples, "Eq. (58)", "d_g >= 3"),
        tau_bar_distinct=(tau_bar, distinct_overlap, "Eqs. (74)-(77)", distinct),
        tau_bar_iid=(
            tau_bar,
            lambda: all_fixed_points() / N,
            "App. B, replacing Eq. (77)",
            iid,
        ),
        tau_pair=(tau_ab, fixed_points, "beyond Eq. (57): one pair", *GROUP),
        tau_bar_group=(tau_bar, group_overlap, "beyond Eq. (77): a group", *GROUP),
    )
