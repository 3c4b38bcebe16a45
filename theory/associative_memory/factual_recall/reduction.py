"""Reduction of the loss of the linear-attention student to a part of the relation and a part of the
subject.
"""

from __future__ import annotations

from functools import cache

import sympy as sp

from theory.algebra import vanishes, written_as
from theory.associative_memory.symbols import DERIVED, L, T, ref
from theory.equation import Equation
from theory.notation import array, symbol

S = symbol("S", means="subjects", integer=True, positive=True)
R = symbol("R", means="relations", integer=True, positive=True)
D = symbol("D", means="answers per relation", integer=True, positive=True)
X = symbol("X", means="logit gained by the right relation", real=True)
Y = symbol("Y", means="logit gained by the right subject", real=True)
w_r = symbol("w_r", means="attention on the relation", real=True)
w_s = symbol("w_s", means="attention on the subject", real=True)
delta_r = symbol("delta_r", means="value of the relation: its answers minus the rest", real=True)
delta_s = symbol("delta_s", means="value of the subject: its answers minus the rest", real=True)
# Value entries of the relation's answers and of all others; the same for the subject.
V_r, V_r_not = (
    symbol("V_r_plus", r"V_{r}^{+}", real=True),
    symbol("V_r_minus", r"V_{r}^{-}", real=True),
)
V_s, V_s_not = (
    symbol("V_s_plus", r"V_{s}^{+}", real=True),
    symbol("V_s_minus", r"V_{s}^{-}", real=True),
)
L_r = symbol(
    "loss_relation", r"\mathcal{L}_{\mathrm{rel}}", "part of the loss from the relation", real=True
)
L_s = symbol(
    "loss_subject", r"\mathcal{L}_{\mathrm{sub}}", "part of the loss from the subject", real=True
)
Z = symbol("Z", means="partition function of the answers", positive=True)
background = symbol("b_noise", "b", real=True)  # contribution of noise and end token to every logit
a = symbol("a", means="an answer", integer=True, positive=True)
position = symbol("n_position", "n", "a position", integer=True, positive=True)
weight = array("w", means="attention on a token")
value = array("V", means="value of a token for an answer")
token, logit = array("z_token", "z", "tokens"), array("logit", r"\ell", "logits of the answers")
SYMMETRIC = "weights equal at the start, balanced facts: noise and end rows stay frozen, rows have two values each"

# Number and logit of answers, by (of this relation, of this subject).
KINDS = {
    (True, True): (sp.Integer(1), w_r * V_r + w_s * V_s),
    (True, False): (D - 1, w_r * V_r + w_s * V_s_not),
    (False, True): (R - 1, w_r * V_r_not + w_s * V_s),
    (False, False): ((R - 1) * (D - 1), w_r * V_r_not + w_s * V_s_not),
}
# Number of weights with each of the symmetric values.
SHARED = {
    V_r: R * D,
    V_r_not: R * (R - 1) * D,
    V_s: S * R,
    V_s_not: S * R * (D - 1),
    w_r: R,
    w_s: S,
}


def loss_of_weights() -> sp.Expr:
    """Cross-entropy of any fact in the symmetric weights; noise and end token cancel."""
    right = KINDS[True, True][1]
    return (
        sp.log(sum(count * sp.exp(value + background) for count, value in KINDS.values()))
        - right
        - background
    )


def by_gains(expr: sp.Expr) -> sp.Expr:
    """Substitute gains for values; only ``X = w_r delta_r`` and ``Y = w_s delta_s`` remain."""
    return expr.subs({V_r: V_r_not + X / w_r, V_s: V_s_not + Y / w_s})


RELATION, SUBJECT = (
    (sp.exp(q) + n - 1) / sp.exp(q) for q, n in ((X, R), (Y, D))
)  # exponentials of the two losses


def partition() -> sp.Expr:
    """Normalisation relative to the weight of an answer that is wrong in relation and subject."""
    raw = by_gains(
        sum(count * sp.exp(value - KINDS[False, False][1]) for count, value in KINDS.values())
    )
    return written_as(
        (sp.exp(X) + R - 1) * (sp.exp(Y) + D - 1),
        sp.expand(raw).replace(sp.exp, lambda q: sp.exp(sp.expand(q))),
    )


@cache
def total_loss() -> sp.Expr:
    """Cross-entropy as the sum of a part of the relation and a part of the subject.

    Raises
    ------
    ArithmeticError
        If the normalisation does not factorise.
    """
    # exp(L) contains no logarithms, so that equality of the losses is an identity of rational
    # functions of e^X, e^Y.
    written_as(RELATION * SUBJECT, partition() / sp.exp(X + Y))
    spelled = sp.exp(loss_of_weights()).expand()
    if not vanishes(
        by_gains(spelled).replace(sp.exp, lambda q: sp.exp(sp.expand(q))) - RELATION * SUBJECT
    ):
        raise ArithmeticError("the loss does not factorise")
    return sp.log(RELATION) + sp.log(SUBJECT)


def plateau() -> sp.Expr:
    """Loss with the relation known with certainty (X to infinity) and the subject ignored."""
    small = sp.Symbol("small", positive=True)  # e^-X
    return sp.log(
        sp.cancel(RELATION.subs(sp.exp(X), 1 / small)).subs(small, 0) * SUBJECT.subs(Y, 0)
    )


@cache
def equations() -> dict[str, Equation]:
    """Logit, factorised normalisation, the two losses, plateau and start."""
    assumed = (SYMMETRIC,)
    found = [
        Equation(
            "recall_logit",
            logit[a],
            sp.Sum(weight[token[position]] * value[token[position], a], (position, 1, T)),
            ref("slides, factual recall: linear attention, one-hot embeddings"),
            "exact",
        ),
        Equation("recall_partition", Z, partition, ref(DERIVED), "exact", assumed),
        Equation("loss_relation", L_r, sp.log(RELATION), ref(DERIVED), "exact", assumed),
        Equation("loss_subject", L_s, sp.log(SUBJECT), ref(DERIVED), "exact", assumed),
        Equation("recall_loss", L, total_loss, ref(DERIVED), "exact", assumed),
        Equation(
            "initial_loss",
            symbol("initial_loss", r"\mathcal{L}(0)", "loss at time 0"),
            lambda: sp.log(sp.exp(total_loss().subs({X: 0, Y: 0}))),
            ref(DERIVED),
            "exact",
            assumed,
        ),
        Equation(
            "plateau",
            symbol("plateau", r"\mathcal{L}_{\mathrm{plateau}}", "loss on the plateau"),
            plateau,
            ref("slides, factual recall: phase of predicting by p(a|r); height derived here"),
            "exact",
            (*assumed, "relation known, subject not"),
        ),
    ]
    return {e.name: e for e in found}
