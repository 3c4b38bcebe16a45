"""Definition of the model: task, attention, logic module, loss and order parameters (Eqs. 1-9)."""

from functools import cache

import sympy as sp

from theory import Equation, array, function, symbol, table
from theory.state_tracking.symbols import (
    A,
    L,
    M,
    M_star,
    N,
    R,
    S,
    a,
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
)

state, action = array("s", means="states of a sequence"), array("g", means="its actions")
pi = array("pi", r"\pi", "attention; its first index, the position that attends, may be left out")
logit = array("l", means="attention scores")
output = array("o", means="output of attention: weights of the actions")
z = array("z", means="logits of the next state")
training_loss = symbol("training_loss", r"\mathcal{L}", "loss of a sequence", real=True)


def softmax_row() -> sp.Expr:
    """Attention entry pi_i of one row as a function of the attention logits l."""
    return sp.exp(logit[i]) / sp.Sum(sp.exp(logit[j]), (j, 1, L))


@cache
def equations() -> dict[str, Equation]:
    """Definitions from which everything else is derived."""
    entries = ((p, 1, N), (q, 1, N))
    on_own = sp.Sum(M_star[a, p, q] * M[a, p, q], *entries, (a, 1, d_g))
    pairs = sp.Sum(
        M_star[c, p, q] * M[a, p, q], *entries, (a, 1, d_g), (c, 1, d_g)
    )  # c labels teachers, a students
    step = function(r"\sigma", "permutation of the states by an action")
    cross_entropy = sp.log(sp.Sum(sp.exp(z[i + 1, r]), (r, 1, N))) - z[i + 1, state[i - L]]
    weights = sp.Sum(pi[i, j] * sp.KroneckerDelta(action[j], a), (j, 1, L))
    scores = sp.Sum(output[i, a] * M[a, r, s], (a, 1, d_g))
    cost = sp.Sum(cross_entropy, (i, L + 1, 2 * L)) / L
    return table(
        ref,
        status="exact",
        state=(state[t], step(action[t], state[t - 1]), "Eq. (1)"),
        attention=(pi[i], softmax_row(), "Eq. (4)", "one row, actions 1..L"),
        retrieved=(output[i, a], weights, "Eqs. (4), (27)"),
        logit=(z[i + 1, r], scores, "Eqs. (6), (26), (37)", "s is the current state x_i"),
        training_loss=(training_loss, cost, "Eq. (7)", "averaged over the training sequences"),
        A=(A, sp.Sum(pi[i, i - L], (i, L + 1, 2 * L)) / L, "Eq. (8)"),
        R=(R, on_own / (d_g * N), "Eq. (9a)"),
        S=(S, (pairs - on_own) / (d_g * (d_g - 1) * N), "Eq. (9b)", "d_g >= 2"),
    )
