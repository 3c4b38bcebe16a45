"""Factual recall, derived from the statement and given in printed form: the loss in two parts, and
a flow of two independent pairs, each with a conserved quantity.
"""

from dataclasses import dataclass
from functools import partial

import sympy as sp

from theory import Equation, Flow, array, equation, symbol, written_as
from theory.associative_memory.factual_recall.parameters import RECALL
from theory.associative_memory.factual_recall.statement import (
    NAMES,
    D,
    R,
    delta_r,
    delta_s,
    epsilon,
    recall,
    w_r,
    w_s,
)
from theory.associative_memory.symbols import DERIVED, L, T, ref, t
from theory.called import cache
from theory.statement import kept, printed

X, Y = (
    symbol(x, means=f"logit gained by the right {of}", real=True)
    for x, of in zip("XY", ("relation", "subject"), strict=True)
)
g_r = symbol("g_r", means="probability of answers of wrong relations", positive=True)
g_s = symbol("g_s", means="probability of wrong answers of the relation", positive=True)
Z = symbol("Z", means="partition function of the answers", positive=True)
INVARIANT = symbol("c_recall", "c", "ratio c_r or c_s", positive=True)
a = symbol("a", means="an answer", integer=True, positive=True)
position = symbol("n_position", "n", "a position", integer=True, positive=True)
attended, value = array("w", means="attention on a token"), array("V", means="value of a token for an answer")  # fmt: skip
token, logit = array("z_token", "z", "tokens"), array("logit", r"\ell", "logits of the answers")
SYMMETRIC = "weights equal at the start, balanced facts: noise and end rows stay frozen, rows have two values each"


@dataclass(frozen=True)
class Part:
    """One of the two independent pairs: attention ``w``, value gain ``delta``, and their sizes."""

    name: str
    w: sp.Symbol
    delta: sp.Symbol
    gain: sp.Symbol
    wrong: sp.Symbol
    choices: sp.Symbol
    others: sp.Symbol

    @property
    def loss(self) -> sp.Symbol:
        """Its part of the loss."""
        short = rf"\mathcal{{L}}_{{\mathrm{{{self.name[:3]}}}}}"
        return symbol(
            f"loss_{self.name}", short, f"part of the loss from the {self.name}", real=True
        )

    @property
    def odds(self) -> sp.Expr:
        """Exponential of its part of the loss."""
        return (sp.exp(self.gain) + self.choices - 1) / sp.exp(self.gain)


RELATION = Part("relation", w_r, delta_r, X, g_r, R, D)
SUBJECT = Part("subject", w_s, delta_s, Y, g_s, D, R)
PARTS = (RELATION, SUBJECT)


@cache
def observed(name: str) -> sp.Expr:
    """Exponential of a derived loss, in the gains ``X = w_r delta_r`` and ``Y = w_s delta_s``."""
    observables = printed.observables(kept.derived(recall()), NAMES)[name]
    return sp.exp(observables.subs({part.delta: part.gain / part.w for part in PARTS}))


def total_loss() -> sp.Expr:
    """Cross-entropy as the sum of a part of the relation and a part of the subject."""
    written_as(RELATION.odds * SUBJECT.odds, observed("loss"))
    return sp.log(RELATION.odds) + sp.log(SUBJECT.odds)


@cache
def losses() -> dict[str, Equation]:
    """Logit, factorised normalisation, the two losses, plateau and start."""
    read = sp.Sum(attended[token[position]] * value[token[position], a], (position, 1, T))
    start = symbol("initial_loss", r"\mathcal{L}(0)", "loss at time 0")
    height = symbol("plateau", r"\mathcal{L}_{\mathrm{plateau}}", "loss on the plateau")
    slides = ref("slides, factual recall: linear attention, one-hot embeddings")
    phase = ref("slides, factual recall: phase of predicting by p(a|r); height derived here")
    parts = {
        f"loss_{p.name}": (
            p.loss,
            lambda p=p: sp.log(written_as(p.odds, observed(f"loss_{p.name}"))),
        )
        for p in PARTS
    }
    # Relative to the weight of an answer that is wrong in relation and subject.
    form = (sp.exp(X) + R - 1) * (sp.exp(Y) + D - 1)
    partition = lambda: written_as(form, observed("loss") * sp.exp(X) * sp.exp(Y))  # noqa: E731
    small = sp.Symbol("small", positive=True)  # e^-X: zero where the relation is certain
    known = sp.cancel(RELATION.odds.subs(sp.exp(X), 1 / small)).subs(small, 0)
    begun = lambda: sp.log(sp.exp(total_loss().subs({X: 0, Y: 0})))  # noqa: E731
    reduced = {
        "recall_partition": (Z, partition),
        **parts,
        "recall_loss": (L, total_loss),
        "initial_loss": (start, begun),
    }
    plateau = height, sp.log(known * SUBJECT.odds.subs(Y, 0)), "relation known, subject not"
    return {
        **equation.table(slides, status="exact", recall_logit=(logit[a], read)),
        **equation.table(ref(DERIVED), SYMMETRIC, status="exact", **reduced),
        **equation.table(phase, SYMMETRIC, status="exact", plateau=plateau),
    }


def wrong_mass(part: Part) -> sp.Expr:
    """Probability g of wrong choices in a part, from its loss -ln(1 - g)."""
    form = (part.choices - 1) / (sp.exp(part.gain) + part.choices - 1)
    return written_as(form, 1 - 1 / observed(f"loss_{part.name}"))


@cache
def ratio(part: Part) -> sp.Expr:
    """c, so that w^2 - c delta^2 is conserved."""
    kept_ = next(k for k in printed.invariants(kept.derived(recall()), NAMES) if k.has(part.w))
    c = -sp.diff(kept_, part.delta, 2) / sp.diff(kept_, part.w, 2)
    return written_as(part.others * (part.choices - 1) / part.choices, c)


def conserved(part: Part) -> sp.Expr:
    """Conserved quantity of a part."""
    return part.w**2 - ratio(part) * part.delta**2


@cache
def equations() -> dict[str, Equation]:
    """Probability of wrong choices, gain, and the conserved quantity of each part."""
    by_name: dict[str, Equation] = {}
    for part in PARTS:
        means = f"ratio that makes {part.w}^2 - c {part.delta}^2 conserved"
        letter, name = part.name[0], part.name
        c = symbol(f"c_{name}", f"c_{{{letter}}}", means, positive=True)
        start = "gradient flow from w = epsilon, delta = 0"
        rows = {
            f"wrong_{name}": (part.wrong, partial(wrong_mass, part), SYMMETRIC),
            f"gain_{name}": (part.gain, part.w * part.delta, SYMMETRIC),
            f"ratio_{name}": (c, partial(ratio, part), "w^2 - c delta^2 is conserved"),
            f"conserved_{name}": (epsilon**2, partial(conserved, part), SYMMETRIC, start),
        }
        by_name |= equation.table(ref(DERIVED), status="exact", **rows)
    return by_name


@cache
def flow() -> Flow:
    """Flow of attention and value gains in the time t = eta * steps.

    Observables: losses, gains, and the probabilities of the correct answer and of any answer of the
    correct relation.
    """
    made = equations()
    names = [f"{kind}_{part.name}" for kind in ("wrong", "gain") for part in PARTS]
    # In terms of e^-X, which does not overflow.
    odds = {p: 1 + (p.choices - 1) * sp.exp(-p.gain) for p in PARTS}
    for p, form in odds.items():
        written_as(form, p.odds)
    return printed.flow(
        kept.derived(recall()),
        NAMES,
        {made[name].lhs: made[name].rhs for name in names},
        name="factual_recall",
        time=t,
        reference=ref(DERIVED),
        assumptions=(SYMMETRIC, "gradient flow on the population loss"),
        observables={
            "loss": sp.log(odds[RELATION]) + sp.log(odds[SUBJECT]),
            **{f"loss_{p.name}": sp.log(form) for p, form in odds.items()},
            **{f"gain_{p.name}": p.gain for p in PARTS},
            "accuracy_relation": 1 / odds[RELATION],
            "accuracy": 1 / odds[RELATION] / odds[SUBJECT],
        },
        scope=RECALL,
    )
