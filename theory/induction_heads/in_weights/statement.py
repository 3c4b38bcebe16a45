"""In-context against in-weights learning (Nguyen and Reddy, arXiv:2412.00104): a head that attends
to the queried item, and a memory of the labels of a pool of items, whose logits add.

The pool has ``C`` items of each of ``L`` labels. A context shows ``B`` copies of the queried item
and ``R`` other items of every label, so that these tell nothing of the answer. Items are
orthonormal and their match has one score ``beta``: attention is not learnt item by item, the
memory is.
"""

from typing import Any

from theory.notation import symbol
from theory.statement import (
    Statement,
    cross_entropy,
    draw,
    eq,
    exp,
    number,
    sizes,
    sort,
    statement,
    total,
    weight,
)

L, C, R, B = sizes("L C R B")  # labels, items and other pairs of each, copies of the queried pair
c_0 = number("c_0", "read-out of the memory at the start")
decay = symbol("head_decay", r"\lambda", "weight decay of the head", real=True)
fading = symbol("fading", r"\mu", "weight decay of the memory", real=True)


def pool() -> Statement:
    """Cross-entropy of the sum of both logits, and weight decay."""
    label, other, copy = sort("label", L), sort("other", R), sort("copy", B)
    item = sort("item", C, of=label)
    beta, w, c = weight("beta")[()], weight("w")[()], weight("c", start=c_0)[()]
    M = weight("M", label, item, label)
    answer = draw(label)
    asked = draw(item, of=answer)
    right = exp(beta) * total(lambda k: 1, copy)
    others = total(lambda k: 1, other)  # of every label
    every = right + L * others

    def logit(a: Any) -> Any:
        """Logit of a label: attention of the head to it, plus the memory of the item."""
        return w * (right * eq(a, answer) + others) / every + c * M[answer, asked, a]

    mean = total(lambda b: M[answer, asked, b], label) / L
    learnt = c * (M[answer, asked, answer] - mean) * L / (L - 1)  # right minus wrong
    squares = total(lambda a, k, b: M[a, k, b] ** 2, label, item, label)
    loss = cross_entropy(logit, over=label, target=answer)
    return statement(
        loss + decay / 2 * (w**2 + beta**2) + fading / 2 * (c**2 + squares),
        name="in_weights",
        title="In-context against in-weights learning",
        paper="musat2025",
        observables={
            "attention": right / every,
            "in_context": w * right / every,
            "in_weights": learnt,
            "logit": w * right / every + learnt,
            "residual": 1 - exp(-loss),
        },
        values=dict(L=2, C=256, R=8, B=1, c_0=1.0, head_decay=0.0, fading=0.0)
        | dict(eta=0.25, steps=400, eval_every=2, batch_size=256),
        bounds=dict(c_0=(0, 100), head_decay=(0, 1), fading=(0, 1)),
    )


stated = pool()
