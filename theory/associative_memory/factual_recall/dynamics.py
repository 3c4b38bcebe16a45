"""Factual recall, derived from the statement and given in printed form: the loss in two
parts, and a flow of two independent pairs, each with a conserved quantity.
"""

from dataclasses import dataclass
from functools import partial

import sympy as sp

from theory import (
    Chapter,
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
    subject = sort("subject", S)
    relation = sort("relation", R)
    noise = sort("noise", noise_tokens)
    place = sort("place", T - 3)
    choice = sort("choice", D, of=relation)
    fact = teacher("fact", (subject, relation), choice)
    z = sample("z", (place,), noise)
    kinds = {"s": [subject], "r": [relation], "n": [noise], "e": []}
    w = {k: weight(f"w_{k}", *sorts, start=epsilon) for k, sorts in kinds.items()}
    V = {k: weight(f"V_{k}", *kinds[k], relation, choice, start=epsilon) for k in w}
    s = draw(subject)
    r = draw(relation)

    def logit(q, d):  # type: ignore[no-untyped-def]
        known = w["s"][s] * V["s"][s, q, d] + w["r"][r] * V["r"][r, q, d]
        known += w["e"][()] * V["e"][q, d]
        return known + total(lambda p: w["n"][z(p)] * V["n"][z(p), q, d], place)

    right = exp(logit(r, fact(s, r)))
    of_all = total(lambda q, d: exp(logit(q, d)), relation, choice)
    of_relation = total(lambda d: exp(logit(r, d)), choice, of=r)
    observables = {
        "loss_relation": log(of_all / of_relation),
        "loss_subject": log(of_relation / right),
        "accuracy_relation": of_relation / of_all,
        "accuracy": right / of_all,
    }
    return statement(
        cross_entropy(logit, over=(relation, choice), target=(r, fact(s, r))),
        name="factual_recall",
        title="Factual recall by linear attention",
        observables=observables,
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


X = symbol("X", means="logit gained by the right relation", real=True)
Y = symbol("Y", means="logit gained by the right subject", real=True)
g_r = symbol("g_r", means="probability of answers of wrong relations", positive=True)
g_s = symbol("g_s", means="probability of wrong answers of the relation", positive=True)
Z = symbol("Z", means="partition function of the answers", positive=True)
INVARIANT = symbol("c_recall", "c", "ratio c_r or c_s", positive=True)
a = symbol("a", means="an answer", integer=True, positive=True)
position = symbol("n_position", "n", "a position", integer=True, positive=True)
attended = array("w", means="attention on a token")
value = array("V", means="value of a token for an answer")
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
        name = self.name
        short = rf"\mathcal{{L}}_{{\mathrm{{{name[:3]}}}}}"
        means = f"part of the loss from the {name}"
        return symbol(f"loss_{name}", short, means, real=True)

    @property
    def odds(self) -> sp.Expr:
        """Exponential of its part of the loss."""
        right = sp.exp(self.gain)
        return (right + self.choices - 1) / right


RELATION = Part("relation", w_r, delta_r, X, g_r, R, D)
SUBJECT = Part("subject", w_s, delta_s, Y, g_s, D, R)
PARTS = (RELATION, SUBJECT)


@cache
def observed(name: str) -> sp.Expr:
    """Exponential of a derived loss, in the gains ``X = w_r delta_r`` and ``Y = w_s
    delta_s``.
    """
    observable = printed.observables(remedies.derived(recall()), NAMES)[name]
    return sp.exp(observable.subs({part.delta: part.gain / part.w for part in PARTS}))


def total_loss() -> sp.Expr:
    """Cross-entropy as the sum of a part of the relation and a part of the subject."""
    written_as(RELATION.odds * SUBJECT.odds, observed("loss"))
    return sp.log(RELATION.odds) + sp.log(SUBJECT.odds)


def part_of_loss(part: Part) -> sp.Expr:
    """A part of the loss in its gain."""
    return sp.log(written_as(part.odds, observed(f"loss_{part.name}")))


def partition() -> sp.Expr:
    """Partition function relative to the weight of an answer that is wrong in relation
    and subject.
    """
    form = (sp.exp(X) + R - 1) * (sp.exp(Y) + D - 1)
    return written_as(form, observed("loss") * sp.exp(X) * sp.exp(Y))


def initial_loss() -> sp.Expr:
    """Loss before anything is gained."""
    return sp.log(sp.exp(total_loss().subs({X: 0, Y: 0})))


@cache
def losses() -> dict[str, Equation]:
    """Logit, factorised normalisation, the two losses, plateau and start."""
    chapter = Chapter(ref, status="exact")
    state = chapter.state
    key = token[position]
    read = sp.Sum(attended[key] * value[key, a], (position, 1, T))
    slides = "slides, factual recall: linear attention, one-hot embeddings"
    state("recall_logit", logit[a], read, slides)
    state("recall_partition", Z, partition, DERIVED, SYMMETRIC)
    for part in PARTS:
        loss = partial(part_of_loss, part)
        state(f"loss_{part.name}", part.loss, loss, DERIVED, SYMMETRIC)
    state("recall_loss", L, total_loss, DERIVED, SYMMETRIC)
    start = symbol("initial_loss", r"\mathcal{L}(0)", "loss at time 0")
    state("initial_loss", start, initial_loss, DERIVED, SYMMETRIC)
    small = sp.Symbol("small", positive=True)  # e^-X: zero where the relation is known
    known = sp.cancel(RELATION.odds.subs(sp.exp(X), 1 / small)).subs(small, 0)
    loss = sp.log(known * SUBJECT.odds.subs(Y, 0))
    height = symbol("plateau", r"\mathcal{L}_{\mathrm{plateau}}", "loss on the plateau")
    phase = "slides, factual recall: phase of predicting by p(a|r); height derived here"
    state("plateau", height, loss, phase, SYMMETRIC, "relation known, subject not")
    return chapter.equations


def wrong_mass(part: Part) -> sp.Expr:
    """Probability g of wrong choices in a part, from its loss -ln(1 - g)."""
    form = (part.choices - 1) / (sp.exp(part.gain) + part.choices - 1)
    return written_as(form, 1 - 1 / observed(f"loss_{part.name}"))


@cache
def ratio(part: Part) -> sp.Expr:
    """c, so that w^2 - c delta^2 is conserved."""
    invariants = printed.invariants(remedies.derived(recall()), NAMES)
    invariant = next(form for form in invariants if form.has(part.w))
    c = -sp.diff(invariant, part.delta, 2) / sp.diff(invariant, part.w, 2)
    return written_as(part.others * (part.choices - 1) / part.choices, c)


def conserved(part: Part) -> sp.Expr:
    """Conserved quantity of a part."""
    return part.w**2 - ratio(part) * part.delta**2


@cache
def equations() -> dict[str, Equation]:
    """Probability of wrong choices, gain, and the conserved quantity of each part."""
    chapter = Chapter(ref(DERIVED), status="exact")
    state = chapter.state
    start = "gradient flow from w = epsilon, delta = 0"
    for part in PARTS:
        name = part.name
        state(f"wrong_{name}", part.wrong, partial(wrong_mass, part), SYMMETRIC)
        state(f"gain_{name}", part.gain, part.w * part.delta, SYMMETRIC)
        means = f"ratio that makes {part.w}^2 - c {part.delta}^2 conserved"
        c = symbol(f"c_{name}", f"c_{{{name[0]}}}", means, positive=True)
        state(f"ratio_{name}", c, partial(ratio, part), "w^2 - c delta^2 is conserved")
        invariant = partial(conserved, part)
        state(f"conserved_{name}", epsilon**2, invariant, SYMMETRIC, start)
    return chapter.equations


@cache
def flow() -> Flow:
    """Flow of attention and value gains in the time t = eta * steps.

    Observables: losses, gains, and the probabilities of the correct answer and of any
    answer of the correct relation.
    """
    abbreviations = {}
    for name in ("wrong_relation", "wrong_subject", "gain_relation", "gain_subject"):
        equation = equations()[name]
        abbreviations[equation.lhs] = equation.rhs
    # In terms of e^-X, which does not overflow.
    odds = {p: 1 + (p.choices - 1) * sp.exp(-p.gain) for p in PARTS}
    for p, form in odds.items():
        written_as(form, p.odds)
    relation, subject = odds.values()
    observables = {
        "loss": sp.log(relation) + sp.log(subject),
        "loss_relation": sp.log(relation),
        "loss_subject": sp.log(subject),
        "gain_relation": X,
        "gain_subject": Y,
        "accuracy_relation": 1 / relation,
        "accuracy": 1 / relation / subject,
    }
    return printed.flow(
        remedies.derived(recall()),
        NAMES,
        abbreviations,
        name="factual_recall",
        time=t,
        reference=ref(DERIVED),
        assumptions=(SYMMETRIC, "gradient flow on the population loss"),
        observables=observables,
        scope=RECALL,
    )
