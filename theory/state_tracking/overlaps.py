"""Overlap of distinct teachers: definition, the identity sigma = tau, and its mean over seeds (App.
F).
"""

from __future__ import annotations

from functools import cache

import sympy as sp

from theory.algebra import delta_sum, written_as
from theory.equation import Equation, table
from theory.notation import symbol
from theory.state_tracking.symbols import M_star, N, a, b, c, d_g, p, q, r, ref, tau

delta = sp.KroneckerDelta
sigma_overlap = symbol(
    "sigma_overlap", r"\sigma", "mean overlap of a teacher with the rest", real=True
)
tau_bar = symbol("tau_bar", r"\bar{\tau}", "expected overlap of distinct teachers", real=True)


def mean_overlap(first: sp.Symbol, second: sp.Symbol) -> sp.Expr:
    """Normalised overlap Tr[M*^T M*]/N of two teachers: 1 for equal indices, otherwise tau on
    average.
    """
    return delta(first, second) + (1 - delta(first, second)) * tau


def mean_of_triples() -> sp.Expr:
    """Eq. (58): every pair (a, c) is counted once for each b different from both, d_g - 2 times."""
    triples = delta_sum(
        (1 - delta(a, b)) * (1 - delta(a, c)) * (1 - delta(b, c)) * tau,
        (b, 1, d_g),
        (c, 1, d_g),
        (a, 1, d_g),
    )
    return sp.cancel(triples / (d_g * (d_g - 1) * (d_g - 2)))


@cache
def all_fixed_points() -> sp.Expr:
    """Sum of the traces of all permutations in S_N, in units of N!; (N-1)! permutations fix a given
    state.
    """
    return sp.combsimp(sp.Sum(sp.factorial(N - 1), (r, 1, N)).doit() / sp.factorial(N))


def distinct_overlap() -> sp.Expr:
    """Mean overlap of two different permutations: the identity, with N fixed points, is excluded
    from the average.
    """
    size = sp.factorial(N)
    found = (all_fixed_points() * size - N) / (size - 1) / N
    return written_as(1 / N - (N - 1) / (N * (size - 1)), found)


@cache
def equations() -> dict[str, Equation]:
    """Equations 57-58 and 74-77, with the value for independent draws."""
    trace = sp.Sum(M_star[a, p, q] * M_star[c, p, q], (p, 1, N), (q, 1, N))
    pairs = sp.Sum((1 - delta(a, c)) * trace, (a, 1, d_g), (c, 1, d_g)) / (d_g * (d_g - 1) * N)
    distinct = "permutations uniform and distinct"
    iid = "permutations uniform and independent, duplicates allowed"
    return table(
        ref,
        status="exact",
        tau=(tau, pairs, "Eq. (57)", "d_g >= 2"),
        sigma_overlap=(sigma_overlap, mean_of_triples, "Eq. (58)", "d_g >= 3"),
        tau_bar_distinct=(tau_bar, distinct_overlap, "Eqs. (74)-(77)", distinct),
        tau_bar_iid=(tau_bar, lambda: all_fixed_points() / N, "App. B, replacing Eq. (77)", iid),
    )
