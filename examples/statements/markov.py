"""Markov chains in context: unigrams first, then bigrams (arXiv:2402.11004).

A chain moves among m of k symbols: along a permutation with probability rho, else to
any of the m. Contexts are long, and lags beyond the first have forgotten the chain.
"""

from theory.statement import *

k, m, D, U = sizes("k m D U")  # symbols, states, lags, outputs that are never right
rho = number("rho")
symbol, state, lag = sort("symbol", k), sort("state", m), sort("lag", D)
x = sample("x", (state,), symbol, injective=True)  # symbols of the states
before = sample("before", (state,), state, injective=True)  # inverse permutation
target = draw(state)
now = before(target)
W = weight("W", symbol, symbol)  # scores of the second layer, by content
v = weight("v", lag)  # scores of the first layer, by lag
c = weight("c")[()]  # read-out
previous = exp(v[fixed(lag, 1)]) / total(lambda d: exp(v[d]), lag)
score = lambda s: exp(previous * W[x(now), x(s)])  # of tokens that follow state s
mass = total(score, state)


def attention(s):
    """Attention of the second layer to all tokens that are in state s."""
    return rho * score(before(s)) / mass + (1 - rho) / m


known = total(lambda s: exp(c * attention(s)), state)
normaliser = known + k - m + U
stated = statement(
    log(normaliser) - rho * c * attention(target) - (1 - rho) * c / m,
    name="markov",
    title="Markov chains in context: unigrams, then bigrams",
    observables={"first": previous, "unigrams": known / normaliser},
    values=dict(k=16, m=4, D=32, U=1, rho=0.8, eta=0.5, steps=500, eval_every=2)
    | dict(batch_size=512),
    bounds=dict(rho=(0, 1)),
)
