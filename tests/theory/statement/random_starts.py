"""Statements whose weights start at random, one per kind of emergence."""

from __future__ import annotations

from theory.statement import (
    cross_entropy,
    draw,
    exp,
    gaussian,
    number,
    sample,
    sizes,
    sort,
    statement,
    teacher,
    total,
    weight,
)

TRAINED = dict(sigma=0.01, eta=0.5, eval_every=1)


def retrieval(heads=1, kinds=1, start=None, **values):
    """Pairs of keys and values: so many heads on each of so many kinds of keys find the
    value.
    """
    start = start or gaussian(number("sigma"))
    M, P = sizes("M P")
    value, place = sort("value", M), sort("place", P)
    y, asked, made = sample("y", (place,), value, injective=True), draw(place), []
    for k in range(kinds):
        key = sort(f"key{k}", sizes(f"N{k}"))
        x = sample(f"x{k}", (place,), key, injective=True)
        for h in range(heads):
            K = weight(f"K_{k}_{h}", key, key, start=start)
            V = weight(f"V_{k}_{h}", value, value, start=start)

            def read(v, K=K, V=V, x=x):
                score = lambda p: exp(K[x(asked), x(p)])
                return total(lambda p: score(p) * V[y(p), v], place) / total(
                    score, place
                )

            made.append((K, key, read))
    loss = cross_entropy(
        lambda v: sum(r(v) for _, _, r in made), over=value, target=y(asked)
    )
    seen = {}
    if kinds == 2:  # which kind of keys is attended to
        one, two = (_attends(K, key) for K, key, _ in made)
        seen = {"first": one**2 - two**2}
    return statement(loss, name="retrieval", observables=seen, values=TRAINED | values)


def _attends(K, key):
    i = draw(key)
    j = draw(key, distinct=i)
    return K[i, i] - K[i, j]


def chain(**values):
    """Two tables of logits behind a gate each, of different sizes, learned one after
    the other.
    """
    start, losses = gaussian(number("sigma")), []
    for k in (1, 2):
        token = sort(f"token{k}", sizes(f"N{k}"))
        W, a, z = (
            weight(f"W{k}", token, token, start=start),
            weight(f"a{k}", start=start),
            draw(token),
        )
        f = teacher(f"f{k}", (token,), token, injective=True)
        losses.append(
            cross_entropy(
                lambda y, W=W, a=a, z=z: a[()] * W[z, y], over=token, target=f(z)
            )
        )
    return statement(losses[0] + losses[1], name="chain", values=TRAINED | values)


def gated(gates=2, **values):
    """A table of logits behind gates: at zero, a saddle of one order more than there
    are gates.
    """
    start, token = gaussian(number("sigma")), sort("token", sizes("N"))
    W, z = weight("W", token, token, start=start), draw(token)
    gate = 1
    for k in range(gates):
        gate = gate * weight(f"a{k}", start=start)[()]
    f = teacher("f", (token,), token, injective=True)
    loss = cross_entropy(lambda y: gate * W[z, y], over=token, target=f(z))
    return statement(loss, name="gated", values=TRAINED | values)


KINDS = {
    "a saddle": lambda: retrieval(N0=3, M=3, P=3, steps=300),
    "no saddle": lambda **law: retrieval(N0=4, M=4, P=2, steps=150, **law),
    "four heads": lambda: retrieval(heads=4, N0=3, M=3, P=3, steps=300),
    "two circuits": lambda: retrieval(kinds=2, N0=3, N1=4, M=2, P=2, steps=300),
    "two plateaus": lambda: chain(N1=4, N2=8, steps=300),
    "third order": lambda: gated(N=4, steps=3000),
}
one_gate = gated(gates=1, N=4)

# By name, for the command line: python -m verify.trajectories FILE.py:third_order
globals().update({name.replace(" ", "_"): make() for name, make in KINDS.items()})
