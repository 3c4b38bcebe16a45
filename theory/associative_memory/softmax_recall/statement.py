"""Factual recall by softmax attention: subject and relation, an end token and noise are read."""

from collections.abc import Callable
from typing import Any

from theory.associative_memory.symbols import PAPER
from theory.statement import (
    Statement,
    cross_entropy,
    draw,
    exp,
    sample,
    sizes,
    sort,
    statement,
    teacher,
    total,
    weight,
)

S, R, D, T, n = sizes("S R D T n")  # subjects, relations, answers per relation, tokens, noise words


def tokens() -> Statement:
    """Cross-entropy of the answer, from all tokens of the input."""
    subject, relation, noise = sort("subject", S), sort("relation", R), sort("noise", n)
    place, choice = sort("place", T - 3), sort("choice", D, of=relation)
    f = teacher("f", (subject, relation), choice)
    z = sample("z", (place,), noise)
    s, r = draw(subject), draw(relation)
    kinds = {"s": [subject], "r": [relation], "n": [noise], "e": []}
    w = {k: weight(f"w_{k}", *x) for k, x in kinds.items()}
    V = {k: weight(f"V_{k}", *x, relation, choice) for k, x in kinds.items()}

    def summed(of: Callable[..., Any]) -> Any:
        """Sum over all tokens, each weighed by the exponential of its score."""

        def part(k: str, *token: Any) -> Any:
            return exp(w[k][token]) * of(V[k], *token)

        return part("s", s) + part("r", r) + part("e") + total(lambda p: part("n", z(p)), place)

    mass = summed(lambda V, *token: 1)
    return statement(
        cross_entropy(
            lambda q, d: summed(lambda V, *token: V[(*token, q, d)]) / mass,
            over=(relation, choice),
            target=(r, f(s, r)),
        ),
        name="softmax_recall",
        title="Factual recall by softmax attention",
        paper=PAPER,
        observables={"a_s": exp(w["s"][s]) / mass, "a_r": exp(w["r"][r]) / mass},
        values=dict(S=16, R=4, D=4, T=16, n=16, eta=1.0, steps=400, eval_every=4, batch_size=512),
    )


stated = tokens()
