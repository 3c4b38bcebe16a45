"""Factual recall, derived from the statement and given in printed form: the loss in two
parts, and a flow of two independent pairs, each with a conserved quantity.
"""

from dataclasses import dataclass
from functools import partial

import sympy as sp

from theory import (
    Equation,
    Flow,
    ParameterError,
    Preset,
    Scope,
    Stepped,
    array,
    parameter,
    written_as,
)
from theory.associative_memory.symbols import DERIVED, L, T, ref, t
from theory.call import scope
from theory.dynamics import prediction
from theory.dynamics.catalogue import cache
from theory.equations import equation
from theory.statement import (
    Statement,
    cross_entropy,
    draw,
    exp,
    log,
    sample,
    sort,
    statement,
    teacher,
    total,
    weight,
)
from theory.statement.derivation import printed, remedies
from theory.symbols.notation import symbol

# Factual recall, stated once

S = symbol("S", means="subjects", integer=True, positive=True)
R = symbol("R", means="relations", integer=True, positive=True)
D = symbol("D", means="answers per relation", integer=True, positive=True)
noise_tokens = symbol(
    "noise_tokens", means="tokens without meaning", integer=True, positive=True
)
epsilon = symbol("epsilon", means="initial value of every weight", positive=True)
w_r = symbol("w_r", means="attention on the relation", real=True)
w_s = symbol("w_s", means="attention on the subject", real=True)
delta_r = symbol(
    "delta_r", means="value of the relation: its answers minus the rest", real=True
)
delta_s = symbol(
    "delta_s", means="value of the subject: its answers minus the rest", real=True
)
NAMES = {"w_r": w_r, "delta_V_r": delta_r, "w_s": w_s, "delta_V_s": delta_s}


@cache
def recall() -> Statement:
    """Logits of answers (relation, choice): attention times value, summed over all
    tokens.
    """
    subject, relation = sort("subject", S), sort("relation", R)
    noise = sort("noise", noise_tokens)
    place = sort("place", T - 3)
    choice = sort("choice", D, of=relation)
    fact = teacher("fact", (subject, relation), choice)
    z = sample("z", (place,), noise)
    kinds = {"s": [subject], "r": [relation], "n": [noise], "e": []}
    w = {k: weight(f"w_{k}", *sorts, start=epsilon) for k, sorts in kinds.items()}
    V = {k: weight(f"V_{k}", *kinds[k], relation, choice, start=epsilon) for k in w}
    s, r = draw(subject), draw(relation)

    def logit(q, d):  # type: ignore[no-untyped-def]
        known = (
            w["s"][s] * V["s"][s, q, d]
            + w["r"][r] * V["r"][r, q, d]
            + w["e"][()] * V["e"][q, d]
        )
        return known + total(lambda p: w["n"][z(p)] * V["n"][z(p), q, d], place)

    right = exp(logit(r, fact(s, r)))
    every = total(lambda q, d: exp(logit(q, d)), relation, choice)
    of_relation = total(lambda d: exp(logit(r, d)), choice, of=r)
    return statement(
        cross_entropy(logit, over=(relation, choice), target=(r, fact(s, r))),
        name="factual_recall",
        title="Factual recall by linear attention",
        observables={
            "loss_relation": log(every / of_relation),
            "loss_subject": log(of_relation / right),
            "accuracy_relation": of_relation / every,
            "accuracy": right / every,
        },
    )


# Parameters of factual recall, by default the authors' reference run


@dataclass(frozen=True)
class Parameters(Stepped):
    """Sizes and training settings of the fact-lookup task (reference run of Nichani et
    al. 2024, authors' code).

    Used by both theory and students. Unit of time: gradient-flow time ``t = eta *
    steps``.

    Raises
    ------
    ParameterError
        For an unknown name, a value out of range, or a number of subjects that is not a
        multiple of the answers per relation.
    """

    PRESETS = {
        "reference": Preset("16 subjects, 4 relations, 8 answers each."),
        "small": Preset(
            "Trains in a second: few facts, larger initial weights.",
            **dict(S=8, R=2, D=4, noise_tokens=6, T=8, epsilon=1e-3, eta=0.2),
            **dict(batch_size=256, steps=1500, eval_every=5),
        ),
    }
    S: int = parameter(16, "subjects, a multiple of D", low=2)
    R: int = parameter(4, "relations", low=2)
    D: int = parameter(8, "possible answers per relation", low=2)
    noise_tokens: int = parameter(20, "tokens without meaning", low=1)
    T: int = parameter(
        32, "sequence length, with subject, relation and end token", low=3
    )
    epsilon: float = parameter(
        1e-5, "initial value of every weight", low=1e-100, high=1
    )
    eta: float = parameter(0.1, "learning rate", above=0)
    batch_size: int = parameter(1024, "sequences per step", low=1)
    steps: int = parameter(8192, "length of a run", low=1)
    eval_every: int = parameter(16, "steps between measurements", low=1)

    def __post_init__(self) -> None:
        """Check single fields, then that every answer has equally many subjects."""
        super().__post_init__()
        if self.S % self.D:
            raise ParameterError(
                f"S = {self.S}: must be a multiple of D = {self.D}, so that answers are"
                " balanced"
            )

    @property
    def answers(self) -> int:
        """Number of answers, ``R D``."""
        return self.R * self.D

    @property
    def vocabulary(self) -> int:
        """Number of tokens: subjects, relations, noise, end of sequence."""
        return self.S + self.R + self.noise_tokens + 1


# The weights of noise tokens do not change, and batches only add noise.
RECALL = Scope(
    "the flow of factual recall",
    "linear attention on balanced facts",
    (prediction.LINEAR,),
    ("noise_tokens", "steps", "eval_every"),
)
applies = scope.applies({"flow": RECALL})


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
# fmt: skip
attended, value = (
    array("w", means="attention on a token"),
    array("V", means="value of a token for an answer"),
)
token = array("z_token", "z", "tokens")
logit = array("logit", r"\ell", "logits of the answers")
SYMMETRIC = (
    "weights equal at the start, balanced facts: noise and end rows stay frozen, rows"
    " have two values each"
)


@dataclass(frozen=True)
class Part:
    """One of the two independent pairs: attention ``w``, value gain ``delta``, and
    their sizes.
    """

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
            f"loss_{self.name}",
            short,
            f"part of the loss from the {self.name}",
            real=True,
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
    """Exponential of a derived loss, in the gains ``X = w_r delta_r`` and ``Y = w_s
    delta_s``.
    """
    observables = printed.observables(remedies.derived(recall()), NAMES)[name]
    return sp.exp(observables.subs({part.delta: part.gain / part.w for part in PARTS}))


def total_loss() -> sp.Expr:
    """Cross-entropy as the sum of a part of the relation and a part of the subject."""
    written_as(RELATION.odds * SUBJECT.odds, observed("loss"))
    return sp.log(RELATION.odds) + sp.log(SUBJECT.odds)


@cache
def losses() -> dict[str, Equation]:
    """Logit, factorised normalisation, the two losses, plateau and start."""
    read = sp.Sum(
        attended[token[position]] * value[token[position], a], (position, 1, T)
    )
    start = symbol("initial_loss", r"\mathcal{L}(0)", "loss at time 0")
    height = symbol("plateau", r"\mathcal{L}_{\mathrm{plateau}}", "loss on the plateau")
    slides = ref("slides, factual recall: linear attention, one-hot embeddings")
    phase = ref(
        "slides, factual recall: phase of predicting by p(a|r); height derived here"
    )
    parts = {
        f"loss_{p.name}": (
            p.loss,
            lambda p=p: sp.log(written_as(p.odds, observed(f"loss_{p.name}"))),
        )
        for p in PARTS
    }
    # Relative to the weight of an answer that is wrong in relation and subject.
    form = (sp.exp(X) + R - 1) * (sp.exp(Y) + D - 1)
    partition = lambda: written_as(form, observed("loss") * sp.exp(X) * sp.exp(Y))
    small = sp.Symbol(
        "small", positive=True
    )  # e^-X: zero where the relation is certain
    known = sp.cancel(RELATION.odds.subs(sp.exp(X), 1 / small)).subs(small, 0)
    begun = lambda: sp.log(sp.exp(total_loss().subs({X: 0, Y: 0})))
    reduced = {
        "recall_partition": (Z, partition),
        **parts,
        "recall_loss": (L, total_loss),
        "initial_loss": (start, begun),
    }
    plateau = (
        height,
        sp.log(known * SUBJECT.odds.subs(Y, 0)),
        "relation known, subject not",
    )
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
    kept_ = next(
        k
        for k in printed.invariants(remedies.derived(recall()), NAMES)
        if k.has(part.w)
    )
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
            f"conserved_{name}": (
                epsilon**2,
                partial(conserved, part),
                SYMMETRIC,
                start,
            ),
        }
        by_name |= equation.table(ref(DERIVED), status="exact", **rows)
    return by_name


@cache
def flow() -> Flow:
    """Flow of attention and value gains in the time t = eta * steps.

    Observables: losses, gains, and the probabilities of the correct answer and of any
    answer of the correct relation.
    """
    made = equations()
    names = [f"{kind}_{part.name}" for kind in ("wrong", "gain") for part in PARTS]
    # In terms of e^-X, which does not overflow.
    odds = {p: 1 + (p.choices - 1) * sp.exp(-p.gain) for p in PARTS}
    for p, form in odds.items():
        written_as(form, p.odds)
    return printed.flow(
        remedies.derived(recall()),
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
