"""In-context against in-weights learning: a head races a memory (arXiv:2412.00104).

A pool has C items of each of L labels. A context shows B copies of the queried item
and R other items of every label. Equal items have one score; the memory is a table.
"""

from theory.statement import *

L, C, R, B = sizes("L C R B")  # labels, items of each, other pairs of each, copies
c_0 = number("c_0")
head_decay, fading = number("head_decay"), number("fading")  # weight decays
label = sort("label", L)
item = sort("item", C, of=label)
answer = draw(label)
asked = draw(item, of=answer)
beta, w = weight("beta")[()], weight("w")[()]  # score and read-out of the head
M = weight("M", label, item, label)  # memory
c = weight("c", start=c_0)[()]  # its read-out
copies = B * exp(beta)
mass = copies + L * R


def logit(a):
    """Attention of the head to a label, plus the memory of the item."""
    return w * (copies * eq(a, answer) + R) / mass + c * M[answer, asked, a]


loss = cross_entropy(logit, over=label, target=answer)
squares = total(lambda a, k, b: M[a, k, b] ** 2, label, item, label)
decay = head_decay / 2 * (w**2 + beta**2) + fading / 2 * (c**2 + squares)
stated = statement(
    loss + decay,
    name="in_weights",
    title="In-context against in-weights learning",
    observables={"attention": copies / mass, "residual": 1 - exp(-loss)},
    values=dict(L=2, C=256, R=8, B=1, c_0=1.0, head_decay=0.0, fading=0.0)
    | dict(eta=0.25, steps=400, eval_every=2, batch_size=256),
    bounds=dict(c_0=(0, 100), head_decay=(0, 1), fading=(0, 1)),
)
