"""Factual recall by softmax attention over the tokens.

The input is a subject, a relation, an end token and T - 3 words of noise. The answer
is a choice of the relation, which subject and relation determine together.
"""

from theory.statement import *

S, R, D, T, n = sizes("S R D T n")  # subjects, relations, choices, tokens, noise words
subject, relation, noise = sort("subject", S), sort("relation", R), sort("noise", n)
place = sort("place", T - 3)
choice = sort("choice", D, of=relation)
fact = teacher("f", (subject, relation), choice)
word = sample("z", (place,), noise)
s, r = draw(subject), draw(relation)
kinds = {"s": [subject], "r": [relation], "n": [noise], "e": []}
w = {k: weight(f"w_{k}", *sorts) for k, sorts in kinds.items()}  # scores
V = {k: weight(f"V_{k}", *sorts, relation, choice) for k, sorts in kinds.items()}


def summed(read):
    """Sum over all tokens of what is read, times the exponential of the score."""
    part = lambda k, *token: exp(w[k][token]) * read(V[k], *token)
    words = total(lambda p: part("n", word(p)), place)
    return part("s", s) + part("r", r) + part("e") + words


mass = summed(lambda V, *token: 1)
logit = lambda q, d: summed(lambda V, *token: V[(*token, q, d)]) / mass
stated = statement(
    cross_entropy(logit, over=(relation, choice), target=(r, fact(s, r))),
    name="softmax_recall",
    title="Factual recall by softmax attention",
    observables={"a_s": exp(w["s"][s]) / mass, "a_r": exp(w["r"][r]) / mass},
    values=dict(S=16, R=4, D=4, T=16, n=16, eta=1.0, steps=400, eval_every=4)
    | dict(batch_size=512),
)
