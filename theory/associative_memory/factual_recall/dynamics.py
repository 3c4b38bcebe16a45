"""Gradient flow of the symmetric weights: two independent pairs, each with a conserved quantity."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial

import sympy as sp

from theory.algebra import written_as
from theory.associative_memory.factual_recall import reduction
from theory.associative_memory.factual_recall.reduction import (
    D,
    L_r,
    L_s,
    R,
    X,
    Y,
    delta_r,
    delta_s,
    w_r,
    w_s,
)
from theory.associative_memory.factual_recall.scope import RECALL
from theory.associative_memory.symbols import DERIVED, ref, t
from theory.entries import Entries
from theory.equation import Equation
from theory.flow import Flow
from theory.notation import symbol

epsilon = symbol("epsilon", means="initial value of every weight", positive=True)
g_r = symbol("g_r", means="probability of answers of wrong relations", positive=True)
g_s = symbol("g_s", means="probability of wrong answers of the relation", positive=True)
INVARIANT = symbol("c_recall", "c", "ratio c_r or c_s", positive=True)


@dataclass(frozen=True)
class Part:
    """One of the two independent pairs: attention ``w``, value gain ``delta``, and their sizes."""

    name: str
    w: sp.Symbol
    delta: sp.Symbol
    gain: sp.Symbol
    values: tuple[sp.Symbol, sp.Symbol]
    wrong: sp.Symbol
    choices: sp.Symbol
    loss: sp.Symbol
    letter: str


RELATION = Part("relation", w_r, delta_r, X, (reduction.V_r, reduction.V_r_not), g_r, R, L_r, "r")
SUBJECT = Part("subject", w_s, delta_s, Y, (reduction.V_s, reduction.V_s_not), g_s, D, L_s, "s")
PARTS = (RELATION, SUBJECT)


def wrong_mass(part: Part) -> sp.Expr:
    """Probability g of wrong choices in a part, from its loss -ln(1 - g)."""
    return sp.factor(1 - sp.exp(-reduction.equations()[f"loss_{part.name}"].rhs))


@cache
def slopes_of(part: Part) -> dict[sp.Symbol, sp.Expr]:
    """Derivative of the loss by one weight of each value in a part."""
    total = reduction.equations()["recall_loss"].rhs
    gain = part.w * (
        part.values[0] - part.values[1]
    )  # the other part of the loss does not depend on these weights
    whole = total.subs(part.gain, gain)
    return {x: sp.diff(whole, x) / reduction.SHARED[x] for x in (part.w, *part.values)}


def entries() -> Entries:
    """The weights behind the flow: attention, values of own answers and of others, per part."""
    slopes = {x: form for part in PARTS for x, form in slopes_of(part).items()}
    order = {q.w: q.w for q in PARTS} | {q.delta: q.values[0] - q.values[1] for q in PARTS}
    kept = {x: order[x] for x in (w_r, delta_r, w_s, delta_s)}
    return Entries(
        slopes, {x: reduction.SHARED[x] for x in slopes}, dict.fromkeys(slopes, epsilon), kept
    )


@cache
def descent(part: Part) -> tuple[sp.Expr, sp.Expr]:
    """Rates of delta and w: every weight follows its share of the derivative of the
    symmetric loss.
    """
    slopes = slopes_of(part)

    def rate(weight: sp.Symbol) -> sp.Expr:
        return -slopes[weight].subs(part.values[0], part.values[1] + part.delta)

    mass = wrong_mass(part).subs(part.gain, part.w * part.delta)
    rates = (rate(part.values[0]) - rate(part.values[1]), rate(part.w))
    return tuple(sp.factor(q / mass) * part.wrong for q in rates)  # type: ignore[return-value]


@cache
def ratio(part: Part) -> sp.Expr:
    """c = d(w^2)/d(delta^2), so that w^2 - c delta^2 is conserved."""
    of_delta, of_w = descent(part)
    form = {"r": D * (R - 1) / R, "s": R * (D - 1) / D}[part.letter]
    return written_as(form, part.w * of_w / (part.delta * of_delta))


@cache
def equations() -> dict[str, Equation]:
    """Probability of wrong choices, rates, and the conserved quantity of each part."""
    found = []
    for part in PARTS:
        assumed = (reduction.SYMMETRIC,)
        means = f"ratio that makes {part.w}^2 - c {part.delta}^2 conserved"
        c = symbol(f"c_{part.name}", f"c_{{{part.letter}}}", means, positive=True)
        mass = (part.choices - 1) / (sp.exp(part.gain) + part.choices - 1)
        found += [
            Equation(
                f"wrong_{part.name}",
                part.wrong,
                partial(_proved, mass, part),
                ref(DERIVED),
                "exact",
                assumed,
            ),
            Equation(
                f"gain_{part.name}", part.gain, part.w * part.delta, ref(DERIVED), "exact", assumed
            ),
            Equation(
                f"ratio_{part.name}",
                c,
                partial(ratio, part),
                ref(DERIVED),
                "exact",
                ("w^2 - c delta^2 is conserved",),
            ),
            Equation(
                f"conserved_{part.name}",
                epsilon**2,
                partial(conserved, part),
                ref(DERIVED),
                "exact",
                (*assumed, "gradient flow from w = epsilon, delta = 0"),
            ),
        ]
    return {e.name: e for e in found}


def _proved(mass: sp.Expr, part: Part) -> sp.Expr:
    return written_as(mass, wrong_mass(part))


def conserved(part: Part) -> sp.Expr:
    """Conserved quantity of a part."""
    return part.w**2 - ratio(part) * part.delta**2


@cache
def flow() -> Flow:
    """Flow of attention and value gains in the time t = eta * steps.

    Observables: losses, gains, and the probabilities of the correct answer and of any answer of the
    correct relation.
    """
    rates, eq = {}, reduction.equations()
    for part in PARTS:
        rates[part.delta], rates[part.w] = descent(part)
    made = equations()
    shorts = {
        e.lhs: e.rhs
        for e in (
            *(made[f"wrong_{q.name}"] for q in PARTS),
            *(made[f"gain_{q.name}"] for q in PARTS),
        )
    }
    # Losses from the probability of wrong choices in terms of e^-X, which does not overflow.
    gained = {
        q: sp.log(1 + (n - 1) * sp.exp(-g)) for q, n, g in (("relation", R, X), ("subject", D, Y))
    }
    for name, form in gained.items():
        written_as(sp.exp(form), sp.exp(eq[f"loss_{name}"].rhs))
    right = {
        q: 1 / (1 + (n - 1) * sp.exp(-g)) for q, n, g in (("relation", R, X), ("subject", D, Y))
    }
    return Flow(
        name="factual_recall",
        time=t,
        rhs={q: rates[q] for q in (w_r, delta_r, w_s, delta_s)},
        initial={w_r: epsilon, delta_r: sp.S.Zero, w_s: epsilon, delta_s: sp.S.Zero},
        reference=ref(DERIVED),
        status="exact",
        assumptions=(reduction.SYMMETRIC, "gradient flow on the population loss"),
        where=shorts,
        observables={
            "loss": gained["relation"] + gained["subject"],
            "loss_relation": gained["relation"],
            "loss_subject": gained["subject"],
            "gain_relation": X,
            "gain_subject": Y,
            "accuracy_relation": right["relation"],
            "accuracy": right["relation"] * right["subject"],
        },
        scope=RECALL,
        entries=entries,
    )
