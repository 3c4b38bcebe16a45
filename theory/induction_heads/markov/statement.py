"""In-context Markov chains (Edelman et al., arXiv:2402.11004): a chain drawn for every input, and a
student that attends by position in its first layer and by content in its second.

A chain moves among ``m`` of ``k`` symbols: with probability ``rho`` along a permutation, else to a
state drawn at random. The context is so long that its statistics are those of the chain. The
first layer reads the previous token or one of ``D - 1`` tokens so far back that the chain has
forgotten them; what these add to a score is then the same for every token, and drops out of the
softmax of the second layer.
"""

from typing import Any

from theory.statement import (
    Statement,
    draw,
    exp,
    fixed,
    log,
    number,
    sample,
    sizes,
    sort,
    statement,
    total,
    weight,
)

k, m, D, U = sizes("k m D U")  # symbols, states of a chain, lags, outputs that are never right
rho = number("rho", "probability of a step along the permutation")


def chain() -> Statement:
    """Cross-entropy of the symbol after the present state."""
    letter, state, lag, unused = (
        sort("symbol", k),
        sort("state", m),
        sort("lag", D),
        sort("unused", U),
    )
    x = sample("x", (state,), letter, injective=True)  # the symbol of every state
    before = sample("before", (state,), state, injective=True)  # inverse of the permutation
    target = draw(state)
    now = before(target)
    W, v, c = weight("W", letter, letter), weight("v", lag), weight("c")[()]
    previous = exp(v[fixed(lag, 1)]) / total(lambda d: exp(v[d]), lag)

    def score(s: Any) -> Any:
        """Weight of a token in the second layer that comes after state s."""
        return exp(previous * W[x(now), x(s)])

    every = total(score, state)

    def attention(s: Any) -> Any:
        """Attention to all tokens of state s: after its predecessor, or after any state."""
        return rho * score(before(s)) / every + (1 - rho) / m

    known = total(lambda s: exp(c * attention(s)), state)
    others = k - m + total(lambda o: 1, unused)
    return statement(
        log(known + others) - rho * c * attention(target) - (1 - rho) * c / m,
        name="markov",
        title="In-context Markov chains: unigrams, then bigrams",
        paper="musat2025",
        observables={
            "attention_first": previous,
            "attention_second": score(now) / every,
            "unigrams": known / (known + others),
        },
        values=dict(
            k=16, m=4, D=32, U=1, rho=0.8, eta=0.5, steps=500, eval_every=2, batch_size=512
        ),
        bounds=dict(rho=(0, 1)),
    )


stated = chain()
