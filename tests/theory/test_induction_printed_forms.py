"""Every derived equation against the form printed in the paper (arXiv:2511.01033),
typed here by hand.
"""

from __future__ import annotations

from functools import cache

import pytest
import sympy as sp

from theory import induction_heads as ih
from theory.induction_heads import dynamics, network, structure
from theory.induction_heads.symbols import F, G, N, alpha, beta, gamma, k, l, p, q, r, s

GIVEN_r = {r: s + F}
E_ALPHA = sp.exp(alpha)


@cache
def derived(name: str) -> sp.Expr:
    """Right-hand side of one of the model's equations."""
    return ih.equations()[name].rhs


def same(left: sp.Expr, right: sp.Expr) -> bool:
    """Whether SymPy reduces the difference to zero."""
    return sp.simplify(sp.expand(left - right)) == 0


PRINTED = {
    # B.4.1 to B.4.6, in G, F, s and r
    "loss": gamma**2 * (s**2 + F) / r**2 - 2 * gamma * s / r + 1,
    "dloss_ds": 2 * F * (gamma**2 * (s - 1) / r**3 - gamma / r**2),
    "ds_dbeta": s * p,
    "ds_dalpha": s * 2 * (N - 1) * beta * p / G,
    "dloss_dgamma": 2 * gamma * (s**2 + F) / r**2 - 2 * s / r,
    "dloss_dbeta": 2 * F * s * p * (gamma**2 * (s - 1) / r**3 - gamma / r**2),
    "dloss_dalpha": (
        4 * beta * (N - 1) * F * s * p / G * (gamma**2 * (s - 1) / r**3 - gamma / r**2)
    ),
    # B.5
    "dgamma_dt": (
        2 * s / (s + 2 * N - 1) - 2 * gamma * (s**2 + 2 * N - 1) / (s + 2 * N - 1) ** 2
    ),
    "dbeta_dt": (
        2
        * (2 * N - 1)
        * s
        * p
        * (gamma / (s + 2 * N - 1) ** 2 - gamma**2 * (s - 1) / (s + 2 * N - 1) ** 3)
    ),
    "dalpha_dt": (
        2
        * beta
        * (2 * N - 2)
        * (2 * N - 1)
        * s
        * p
        / G
        * (gamma / (s + 2 * N - 1) ** 2 - gamma**2 * (s - 1) / (s + 2 * N - 1) ** 3)
    ),
}


@pytest.mark.parametrize("name", PRINTED)
def test_gradient_and_flow(name):
    """B.4 and B.5 as printed, with r = s + 2N - 1."""
    short = {r: s + F, F: 2 * N - 1}
    left, right = derived(name), PRINTED[name]
    for old, new in short.items():
        left, right = left.subs(old, new), right.subs(old, new)
    assert same(left, right)


def test_abbreviations():
    """B.4.1: G, F, s, r and the exponent of s."""
    short = dynamics.abbreviations()
    assert (
        same(short[G], E_ALPHA + 2 * N - 2)
        and same(short[F], 2 * N - 1)
        and short[r] == s + F
    )
    assert same(
        dynamics.spelled(short[s]), sp.exp(beta * E_ALPHA / (2 * N - 2 + E_ALPHA))
    )


def test_loss_in_the_parameters():
    """B.3: the loss at q = N, spelled out."""
    e = sp.exp(beta * E_ALPHA / (2 * N - 2 + E_ALPHA))
    printed = (
        gamma**2 * (e**2 + 2 * N - 1) / (e + 2 * N - 1) ** 2
        - 2 * gamma * e / (e + 2 * N - 1)
        + 1
    )
    S = sp.Symbol("S")
    assert same(
        dynamics.spelled(derived("loss").subs(r, s + F)).subs(e, S).subs(e**2, S**2),
        printed.subs(e, S).subs(e**2, S**2),
    )


def test_first_layer_attention():
    """B.3: the three cases of the first softmax,
    row i = 2k or 2k - 1 of the sequence.
    """
    assert same(derived("attention_own_item"), E_ALPHA / (2 * k - 2 + E_ALPHA))
    assert same(derived("attention_other_label"), 1 / (2 * k - 2 + E_ALPHA))
    assert same(derived("attention_of_item"), 1 / ((2 * k - 1) - 1))


def test_second_layer_at_the_last_pair():
    """B.3: the query attends to 2N rows, of which only the right label has a score."""
    assert same(
        derived("key_own_label").subs(q, N), beta * E_ALPHA / (2 * N - 2 + E_ALPHA)
    )
    assert (
        derived("key_own_item")
        == derived("key_earlier_item")
        == derived("key_earlier_label")
        == 0
    )
    Z = derived("query_normaliser").subs(q, N).doit()
    assert same(Z, sp.exp(beta * E_ALPHA / (2 * N - 2 + E_ALPHA)) + 2 * N - 1)


THEOREM_1 = {
    ("W1", 1, 1): ["alpha_1 I"],
    ("W1", 2, 2): ["alpha_2 I", "alpha_3 M"],
    ("W2", 1, 1): ["beta_1 I"],
    ("W2", 1, 3): ["beta_2 I"],
    ("W2", 2, 2): ["beta_3 I", "beta_4 M"],
    ("W2", 2, 4): ["beta_5 I", "beta_6 M"],
    ("W2", 3, 1): ["beta_7 I"],
    ("W2", 3, 3): ["beta_8 I"],
    ("W2", 4, 2): ["beta_9 I", "beta_10 M"],
    ("W2", 4, 4): ["beta_11 I", "beta_12 M"],
    ("W3", 1, 1): ["gamma_1 I"],
    ("W3", 3, 1): ["gamma_2 I"],
    ("W3", 5, 1): ["gamma_3 I"],
    ("W3", 7, 1): ["gamma_4 I"],
}


def test_theorem_1_blocks():
    """Equations (6)-(8): which block holds which pseudo-parameter."""
    found: dict[tuple[str, int, int], list[str]] = {}
    for x in structure.pseudo_parameters():
        found.setdefault((x.matrix, x.row + 1, x.column + 1), []).append(
            f"{x.name} {x.kernel}"
        )
    assert found == THEOREM_1
    assert len(structure.pseudo_parameters()) == 19


def test_initial_conditions():
    """Assumption 6: everything starts at zero, at loss 1."""
    flow = ih.flow()
    assert all(v == 0 for v in flow.initial.values())
    assert (
        dynamics.spelled(derived("loss").subs(r, s + F)).subs(
            {alpha: 0, beta: 0, gamma: 0}
        )
        == 1
    )


def test_invariant_along_the_flow():
    """Beyond the paper: the derivative of C along (B.5) is identically zero."""
    rates = ih.flow().rhs
    C = derived("invariant")
    along = sum(sp.diff(C, x) * rates[x] for x in (alpha, beta))
    assert sp.simplify(along.subs(G, E_ALPHA + 2 * N - 2)) == 0


def test_score_between_item_and_label():
    """Erratum of B.3: the score of an item on its own label is alpha as well, not 0;
    only the mask hides it.
    """
    same = sp.KroneckerDelta(k, l)
    assert derived("score_label_item") == derived("score_item_label") == alpha * same
    net = network.Network("strict", network.SHORT)
    for kind in ("item", "label"):
        row = net.row(kind, k)
        assert network.value(net.score("W1", row, row)) == 0
