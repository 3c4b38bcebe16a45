"""Learned embeddings: how queries move, and what stays. Queries are W_Q times embeddings of states,
keys W_K times those of actions; the loss depends on embeddings only through queries and keys.

Embeddings are independent at the start. A token therefore responds to its own force with the factor
d_model, but to the mean force of the n tokens of its kind with d_model/n only: queries of single
tokens move apart before their mean moves. No theory here describes the attention of such students.
"""

from functools import cache

import sympy as sp

from theory import Equations, array, delta_gradient, delta_sum, proved, symbol, table, vanishes
from theory.state_tracking.symbols import alpha, d_h, eta, ref

BEYOND = "beyond the paper: learned embeddings"
tokens = symbol("tokens", "n", "states (for W_Q) or actions (for W_K)", integer=True, positive=True)
d_model = symbol("d_model", means="dimension of embeddings", integer=True, positive=True)
one, two, last = (
    symbol(x, means="an entry of an embedding", integer=True, positive=True)
    for x in ("one", "two", "last")
)
token, other = (
    symbol(x, means="a state (for W_Q) or action (for W_K)", integer=True, positive=True)
    for x in ("token", "other")
)
head = symbol("head", means="an entry of a query or key", integer=True, positive=True)
E = array("embedding", "E", "embedding of a token")
W = array("head_weights", "W", "W_Q or W_K, with the tokens of its kind")
x = array("head_vector", "x", "query of a state or key of an action")
force = array("token_force", "f", "minus the derivative of the loss by a query or key")
kept = array("embedding_kept", r"\mathcal{K}", "what training keeps of embeddings and weights")
gained = symbol("embedding_gain", r"\Delta\mathcal{K}", "change of what is kept by a step")
own_share = symbol("own_share", means="answer to the own force over that to the mean force")


def vector(which: sp.Expr, entry: sp.Expr) -> sp.Expr:
    """Query or key of a token."""
    return sp.Sum(W[entry, last] * E[which, last], (last, 1, d_model))


@cache
def slopes() -> tuple[sp.Expr, sp.Expr]:
    """Minus derivatives of the loss by an entry of W and of E, by the chain rule."""
    linear = sp.Sum(
        force[token, head] * W[head, last] * E[token, last],
        (token, 1, tokens),
        (head, 1, d_h),
        (last, 1, d_model),
    )
    by_W = delta_gradient(linear, W[two, one])
    by_E = delta_gradient(linear, E[other, one])
    return by_W.subs(two, head), by_E.subs(other, token)


def product(entry: sp.Expr, index: sp.Symbol, size: sp.Expr) -> sp.Expr:
    """Sum over an index of an entry at column one times that at column two."""
    return sp.Sum(entry * entry.xreplace({one: two}), (index, 1, size))


@cache
def drift() -> sp.Expr:
    """Change of ``sum_tokens E E - sum_heads W W`` in one step; it vanishes to first order.

    Raises
    ------
    ArithmeticError
        If the first order is not zero.
    """
    by_W, by_E = slopes()

    def first(entry: sp.Expr, slope: sp.Expr) -> sp.Expr:
        return entry * slope.xreplace({one: two}) + entry.xreplace({one: two}) * slope

    embeddings = _flat(first(E[token, one], by_E), token, tokens)
    weights = _flat(first(W[head, one], by_W), head, d_h)
    proved(vanishes(embeddings - weights), "embeddings and weights are not balanced")
    return eta**2 * (product(by_E, token, tokens) - product(by_W, head, d_h))


def _flat(expr: sp.Expr, index: sp.Symbol, size: sp.Expr) -> sp.Expr:
    """Sum over an index, with all inner sums written over tokens and heads."""
    total = sp.S.Zero
    for term in sp.Add.make_args(sp.expand(expr)):
        factor, (inner,) = term.as_independent(sp.Sum)[0], term.atoms(sp.Sum)
        total += sp.Sum(
            factor * inner.function, *sorted([(index, 1, size), *inner.limits], key=str)
        )
    return total


def rate() -> sp.Expr:
    """Change of a query or key per unit of step: through W and through its own embedding."""
    by_W, by_E = slopes()
    through_W = by_W.xreplace({one: last, token: other})
    (summed,) = through_W.atoms(sp.Sum)
    gram = sp.Sum(E[token, last] * E[other, last], (last, 1, d_model))
    proved(summed.function == force[other, head] * E[other, last], "W moves in another way")
    towards = sp.Sum(gram * force[other, head], (other, 1, tokens))
    through_E = sp.Sum(W[head, last] * by_E.xreplace({one: last, head: two}), (last, 1, d_model))
    return towards + through_E


def shares() -> sp.Expr:
    """Response to the own force over the response to a mean force, which acts on all tokens alike,
    from the mean Gram matrix of independent embeddings of unit variance.
    """
    gram = delta_sum(
        sp.KroneckerDelta(token, other) * sp.KroneckerDelta(one, two),
        (one, 1, d_model),
        (two, 1, d_model),
    )
    by_own = gram.subs(sp.KroneckerDelta(token, other), 1)
    mean = delta_sum(gram, (other, 1, tokens)) / tokens
    return sp.cancel(by_own / mean)


@cache
def equations() -> Equations:
    """The conserved matrix, its drift per step, and the rates of queries and keys."""
    columns = product(E[token, one], token, tokens) - product(W[head, one], head, d_h)
    return table(
        ref(BEYOND),
        status="exact",
        head_vector=(x[token, head], vector(token, head)),
        embedding_kept=(kept[one, two], columns, "constant along the gradient flow"),
        embedding_drift=(gained, drift, "one step of descent"),
        head_vector_rate=(sp.Derivative(x[token, head], alpha), rate, "per unit of step size"),
        own_share=(own_share, shares, "mean over embeddings at the start"),
    )
