"""A softmax head finds a key and reads out its value.

The head is shown P different keys with different values, and a query equal to one of
the keys. Attention starts at 1/P, hence no initial weights are needed.
"""

from theory.statement import *

N, M, P = sizes("N M P")  # keys, values, pairs that are shown
key, value, place = sort("key", N), sort("value", M), sort("place", P)
x = sample("x", (place,), key, injective=True)
y = sample("y", (place,), value, injective=True)
K = weight("K", key, key)  # scores
V = weight("V", value, value)  # read-out
asked = draw(place)  # the place of the query's key


def score(p):
    """Weight of a place in the softmax."""
    return exp(K[x(asked), x(p)])


mass = total(score, place)
read_out = lambda v: total(lambda p: score(p) * V[y(p), v], place) / mass
stated = statement(
    cross_entropy(read_out, over=value, target=y(asked)),
    name="retrieval",
    title="Retrieval by a softmax head",
    observables={"A": score(asked) / mass},
    values=dict(N=32, M=32, P=4, eta=2.0, steps=200, eval_every=2, batch_size=512),
)
