"""An induction head whose context ends in a burst: its last B pairs are the queried one.

Scores between rows are those of three numbers (`theory.induction_heads.attention`): a label scores
``alpha`` on the item of its own place, the query ``beta`` times what a row retrieved of the queried
item, and ``gamma`` writes what the query attends to.
"""

from typing import Any

from theory.statement import Statement, exp, sizes, sort, statement, total, weight

N, B = sizes("N B")  # pairs in the context, right ones among them


def burst() -> Statement:
    """Loss of three numbers, from what every right pair retrieved."""
    right, other = sort("right", B, ordered=True), sort("other", N - B)
    alpha, beta, gamma = (weight(name)[()] for name in ("alpha", "beta", "gamma"))

    def before(k: Any) -> Any:
        """Right pairs before the k-th."""
        return total(lambda j: 1, right, below=k)

    def rows(k: Any) -> Any:
        """Rows before the k-th right pair."""
        return 2 * (N - B + before(k))

    def label(k: Any) -> Any:
        """What the label of the k-th right pair retrieved of the queried item."""
        return (exp(alpha) + before(k)) / (exp(alpha) + rows(k))

    def item(k: Any) -> Any:
        """What its item retrieved."""
        return before(k) / rows(k)

    def weighed(score: Any) -> Any:
        """Weight of all right labels, or of all right items: the same token, B times."""
        return total(lambda k: exp(beta * score(k)), right)

    labels, items = weighed(label), weighed(item)
    others = 2 * total(lambda o: 1, other)  # no right pair is before them
    every = labels + items + others
    squares = labels**2 + items**2 + others
    return statement(
        1 - 2 * gamma * labels / every + gamma**2 * squares / every**2,
        name="bursty",
        title="Induction head with a burst of right pairs",
        paper="musat2025",
        observables={"attention_second": labels / every},
        values=dict(N=32, B=4, eta=0.25, steps=800, eval_every=4),
    )


stated = burst()
