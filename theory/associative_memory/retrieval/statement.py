"""Retrieval by a head: P pairs of a key and a value are shown, and a query equal to one key."""

from collections.abc import Callable
from typing import Any

from theory.associative_memory.symbols import PAPER
from theory.notation import symbol
from theory.statement import (
    Statement,
    cross_entropy,
    draw,
    exp,
    sample,
    sizes,
    sort,
    statement,
    total,
    weight,
)

N, M, P = sizes("N M P")  # keys, values, pairs that are shown
epsilon = symbol("epsilon", means="initial weights of the linear head", positive=True)


def head(
    name: str, title: str, score: Callable[[Any], Any], start: Any, **values: Any
) -> Statement:
    """Attention with scores of query and key, normalised by the sum of scores at zero weights."""
    key, value, place = sort("key", N), sort("value", M), sort("place", P)
    x = sample("x", (place,), key, injective=True)
    y = sample("y", (place,), value, injective=True)
    K, V = weight("K", key, key, start=start), weight("V", value, value, start=start)
    asked = draw(place)

    def scored(p: Any) -> Any:
        return score(K[x(asked), x(p)])

    mass = total(scored, place) if score is exp else 1
    loss = cross_entropy(
        lambda v: total(lambda p: scored(p) * V[y(p), v], place) / mass, over=value, target=y(asked)
    )
    seen = {"A": scored(asked) / mass} if score is exp else {}
    return statement(loss, name=name, title=title, paper=PAPER, observables=seen, values=values)


stated = head(
    "retrieval",
    "Retrieval by a softmax head",
    exp,
    0,
    **dict(N=32, M=32, P=4, eta=2.0, steps=200, eval_every=2, batch_size=512),
)
linear = head(
    "linear_retrieval",
    "Retrieval by a linear head",
    lambda x: x,
    epsilon,
    **dict(N=32, M=32, P=4, epsilon=0.01),
)
