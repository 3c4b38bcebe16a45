"""Linear regression of one-hot inputs on labels with noise."""

from __future__ import annotations

from theory.statement import draw, eq, fixed, number, sizes, sort, statement, weight

token, sign = sort("token", sizes("N")), sort("sign", 2)
w, z, b = weight("w", token), draw(token), draw(sign)
label = 1 + number("s") * (1 - 2 * eq(b, fixed(sign, 1)))
stated = statement(
    (number("a") * w[z] - label) ** 2 / 2,
    name="noisy",
    observables={"square": w[z] ** 2},
    values=dict(N=3, s=0.5, a=0.8, eta=0.5, steps=60, eval_every=10, batch_size=16),
)
