"""Factual recall, stated once: linear attention from the end token, on balanced facts."""

from theory.associative_memory.symbols import T
from theory.called import cache
from theory.notation import symbol
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

S = symbol("S", means="subjects", integer=True, positive=True)
R = symbol("R", means="relations", integer=True, positive=True)
D = symbol("D", means="answers per relation", integer=True, positive=True)
noise_tokens = symbol("noise_tokens", means="tokens without meaning", integer=True, positive=True)
epsilon = symbol("epsilon", means="initial value of every weight", positive=True)
w_r = symbol("w_r", means="attention on the relation", real=True)
w_s = symbol("w_s", means="attention on the subject", real=True)
delta_r = symbol("delta_r", means="value of the relation: its answers minus the rest", real=True)
delta_s = symbol("delta_s", means="value of the subject: its answers minus the rest", real=True)
NAMES = {"w_r": w_r, "delta_V_r": delta_r, "w_s": w_s, "delta_V_s": delta_s}


@cache
def recall() -> Statement:
    """Logits of answers (relation, choice): attention times value, summed over all tokens."""
    subject, relation = sort("subject", S), sort("relation", R)
    noise, place = sort("noise", noise_tokens), sort("place", T - 3)
    choice = sort("choice", D, of=relation)
    fact, z = teacher("fact", (subject, relation), choice), sample("z", (place,), noise)
    kinds = {"s": [subject], "r": [relation], "n": [noise], "e": []}
    w = {k: weight(f"w_{k}", *sorts, start=epsilon) for k, sorts in kinds.items()}
    V = {k: weight(f"V_{k}", *kinds[k], relation, choice, start=epsilon) for k in w}
    s, r = draw(subject), draw(relation)

    def logit(q, d):  # type: ignore[no-untyped-def]
        known = (
            w["s"][s] * V["s"][s, q, d] + w["r"][r] * V["r"][r, q, d] + w["e"][()] * V["e"][q, d]
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
