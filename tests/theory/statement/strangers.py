"""Further systems, each stated once, that the engine has to derive: their gradients of
all weights are compared with listed inputs in every derivation.
"""

from __future__ import annotations

from sympy import Rational

from theory.statement import (
    cross_entropy,
    draw,
    eq,
    exp,
    fixed,
    gauss,
    log,
    sample,
    sizes,
    sort,
    statement,
    teacher,
    total,
    weight,
)


def softmax(score, read, over):
    """Attention: mean of ``read`` in the softmax of ``score``."""
    return total(lambda p: exp(score(p)) * read(p), over) / total(
        lambda p: exp(score(p)), over
    )


def two_teachers():
    """Names and answers of persons: one table from names to answers."""
    n, A = sizes("n A")
    person, name, answer = sort("person", n), sort("name", n), sort("answer", A)
    called = teacher("called", (person,), name, injective=True)
    of = teacher("of", (person,), answer)
    W, i = weight("W", name, answer), draw(person)
    return statement(
        cross_entropy(lambda a: W[called(i), a], over=answer, target=of(i))
    )


def more_names():
    """The same with more names than persons: names that nobody has."""
    n, m, A = sizes("n m A")
    person, name, answer = sort("person", n), sort("name", m), sort("answer", A)
    called = teacher("called", (person,), name, injective=True)
    of = teacher("of", (person,), answer)
    W, i = weight("W", name, answer), draw(person)
    back = total(lambda b: exp(W[b, of(i)]), name)
    return statement(
        cross_entropy(lambda a: W[called(i), a], over=answer, target=of(i))
        + log(back)
        - W[called(i), of(i)]
    )


def two_hop():
    """A softmax over entities, then a table: composition of two teachers."""
    n, m, A = sizes("n m A")
    person, city, land = sort("person", n), sort("city", m), sort("land", A)
    lives, lies = teacher("lives", (person,), city), teacher("lies", (city,), land)
    Q, V, i = weight("Q", person, city), weight("V", city, land), draw(person)
    logit = lambda a: softmax(lambda c: Q[i, c], lambda c: V[c, a], city)
    hop = cross_entropy(lambda c: Q[i, c], over=city, target=lives(i))
    return statement(cross_entropy(logit, over=land, target=lies(lives(i))) + hop)


def kernel():
    """A kernel memory over all items of balanced classes."""
    S, D = sizes("S D")
    item, label = sort("item", S), sort("label", D)
    f = teacher("f", (item,), label)
    K, V, x = weight("K", item, item), weight("V", item, label), draw(item)
    logit = lambda d: softmax(lambda j: K[x, j], lambda j: V[j, d], item)
    own = cross_entropy(lambda d: V[x, d], over=label, target=f(x))
    return statement(cross_entropy(logit, over=label, target=f(x)) + own)


def orthogonal():
    """Two attributes of one item, seen by one kernel: they must not go together."""
    S, D, E = sizes("S D E")
    item, colour, shape = sort("item", S), sort("colour", D), sort("shape", E)
    f, g = teacher("f", (item,), colour), teacher("g", (item,), shape)
    W, x = weight("W", item, item), draw(item)
    same = lambda t: total(lambda j: exp(W[x, j]) * eq(t(x), t(j)), item)
    return statement(
        2 * log(total(lambda j: exp(W[x, j]), item)) - log(same(f)) - log(same(g))
    )


def square_head():
    """Squared loss of a softmax head on distinct tokens."""
    N, M, P = sizes("N M P")
    place, key, value = sort("place", P), sort("key", N), sort("value", M)
    x = sample("x", (place,), key, injective=True)
    y = sample("y", (place,), value, injective=True)
    K, V, p0 = weight("K", key, key), weight("V", value, value), draw(place)
    out = lambda d: softmax(lambda p: K[x(p0), x(p)], lambda p: V[y(p), d], place)
    return statement(total(lambda d: (eq(y(p0), d) - out(d)) ** 2, value))


def heads():
    """Several equal softmax heads with a read-out each."""
    N, P, H = sizes("N P H")
    place, token, head = sort("place", P), sort("token", N), sort("head", H)
    x = sample("x", (place,), token, injective=True)
    K, V, p0 = (
        weight("K", head, token, token),
        weight("V", head, token, token),
        draw(place),
    )

    def logit(d):
        one = lambda h: softmax(
            lambda p: K[h, x(p0), x(p)], lambda p: V[h, x(p), d], place
        )
        return total(one, head)

    return statement(cross_entropy(logit, over=token, target=x(p0)))


def in_context_facts():
    """Keys in the context, values by a teacher of the keys."""
    N, M, P = sizes("N M P")
    place, key, value = sort("place", P), sort("key", N), sort("value", M)
    x = sample("x", (place,), key, injective=True)
    g = teacher("g", (key,), value, injective=True)
    K, V, p0 = weight("K", key, key), weight("V", value, value), draw(place)
    logit = lambda d: softmax(lambda p: K[x(p0), x(p)], lambda p: V[g(x(p)), d], place)
    return statement(cross_entropy(logit, over=value, target=g(x(p0))))


def masked_copy():
    """Distinct tokens in order: the one at a drawn place attends to those before it."""
    N, L = sizes("N L")
    place, token = sort("place", L, ordered=True), sort("token", N)
    x = sample("x", (place,), token, injective=True)
    K, V, i = weight("K", token, token), weight("V", token, token), draw(place)

    def logit(d):
        above = total(lambda j: exp(K[x(i), x(j)]) * V[x(j), d], place, upto=i)
        return above / total(lambda j: exp(K[x(i), x(j)]), place, upto=i)

    return statement(cross_entropy(logit, over=token, target=x(i)))


def previous_token():
    """The last place holds the query,
    masked attention with a bias to one known place.
    """
    N, L = sizes("N L")
    place, token = sort("place", L, ordered=True), sort("token", N)
    x = sample("x", (place,), token, injective=True)
    b, V = weight("b"), weight("V", token, token)
    last, first = fixed(place, L), fixed(place, 1)
    score = lambda j: exp(b[()] * eq(j, first))
    logit = lambda d: (
        total(lambda j: score(j) * V[x(j), d], place, below=last)
        / total(score, place, below=last)
    )
    return statement(cross_entropy(logit, over=token, target=x(first)))


def begin_token():
    """One token is the beginning of a sequence and predicts nothing."""
    N = sizes("N")
    token = sort("token", N)
    begin = fixed(token, 1)
    W = weight("W", token, token)
    z = draw(token, distinct=begin)
    return statement(
        cross_entropy(lambda y: W[z, y], over=token, target=z)
        + cross_entropy(lambda y: W[begin, y], over=token, target=z)
    )


def modular():
    """A Latin square learned by a table of pairs."""
    n = sizes("n")
    number = sort("number", n)
    g = teacher("g", (number, number), number, injective=True)
    W, a, b = weight("W", number, number, number), draw(number), draw(number)
    return statement(cross_entropy(lambda c: W[a, b, c], over=number, target=g(a, b)))


def pairs():
    """Two different tokens have to be told from two equal ones by a bilinear form."""
    N = sizes("N")
    token = sort("token", N)
    W, c = weight("W", token, token), weight("c")
    a = draw(token)
    b, d = draw(token, distinct=a), draw(token)
    square = lambda i, j: (W[i, j] + c[()] - eq(i, j)) ** 2
    return statement(square(a, b) + square(a, d) / 2)


def counting():
    """How often does the query occur among independent tokens? Squared loss, linear
    head.
    """
    M, P = sizes("M P")
    place, token = sort("place", P), sort("token", M)
    z = sample("z", (place,), token)
    q, A, B = draw(token), weight("A", token, token), weight("B")
    count = total(lambda p: eq(z(p), q), place)
    return statement((count - total(lambda p: A[q, z(p)], place) - B[()]) ** 2)


def label_mean():
    """Linear attention over independent labelled tokens, squared loss."""
    M, P, C = sizes("M P C")
    place, token, label = sort("place", P), sort("token", M), sort("label", C)
    z, g = sample("z", (place,), token), teacher("g", (token,), label)
    K, V, p0 = (
        weight("K", token, token, start=1),
        weight("V", token, label),
        draw(place),
    )
    out = lambda c: total(lambda p: K[z(p0), z(p)] * V[z(p), c], place) / P
    return statement(total(lambda c: (eq(g(z(p0)), c) - out(c)) ** 2, label))


def few_tokens():
    """Independent tokens under a softmax, four places."""
    N = sizes("N")
    place, token = sort("place", 4), sort("token", N)
    x = sample("x", (place,), token)
    K, V, p0 = weight("K", token, token), weight("V", token, token), draw(place)
    logit = lambda d: softmax(lambda p: K[x(p0), x(p)], lambda p: V[x(p), d], place)
    return statement(cross_entropy(logit, over=token, target=x(p0)))


def hidden():
    """Two layers of a linear network on one-hot data, from equal weights."""
    N, H = sizes("N H")
    item, unit = sort("item", N), sort("unit", H)
    U, V, x = (
        weight("U", unit, item, start=1),
        weight("V", item, unit, start=1),
        draw(item),
    )
    out = lambda y: total(lambda h: V[y, h] * U[h, x], unit)
    return statement(Rational(1, 2) * total(lambda y: (eq(x, y) - out(y)) ** 2, item))


def choices():
    """A relation's choices, one drawn as the target."""
    R, D = sizes("R D")
    relation = sort("relation", R)
    choice = sort("choice", D, of=relation)
    r = draw(relation)
    d = draw(choice, of=r)
    V, u = weight("V", relation, relation, choice), weight("u", relation, choice)
    logit = lambda q, c: V[r, q, c] + u[q, c]
    return statement(cross_entropy(logit, over=(relation, choice), target=(r, d)))


def ridge():
    """Linear regression on Gaussian data with a bias."""
    D = sizes("D")
    dim = sort("dim", D, vector=True)
    x, e = gauss("x", dim), gauss("e", dim, var=2)
    W, b = weight("W", dim, dim, start=1), weight("b", dim)
    out = lambda i: total(lambda j: W[i, j] * x[j], dim) + b[i]
    return statement(total(lambda i: (x[i] + e[i] - out(i)) ** 2, dim))


def two_steps():
    """Two tables follow a permutation: the first one step, both of them two."""
    N = sizes("N")
    token = sort("token", N)
    after = teacher("after", (token,), token)
    A, B, z = weight("A", token, token), weight("B", token, token), draw(token)
    logit = lambda y: softmax(lambda u: A[z, u], lambda u: B[u, y], token)
    first = cross_entropy(lambda u: A[z, u], over=token, target=after(z))
    return statement(first + cross_entropy(logit, over=token, target=after(after(z))))


def occurs_twice():
    """Does the query occur exactly twice among four independent tokens?"""
    M = sizes("M")
    place, token = sort("place", 4), sort("token", M)
    z, q = sample("z", (place,), token), draw(token)
    A, c = weight("A", token, token), weight("c")
    count = total(lambda p: eq(z(p), q), place)
    out = total(lambda p: A[q, z(p)], place) + c[()]
    return statement((eq(count, 2) - out) ** 2)


def clusters():
    """Linear maps of Gaussian inputs, one per group of tasks, chosen by a table of
    tasks.
    """
    n, G, D = sizes("n G D")
    task, group, dim = sort("task", n), sort("group", G), sort("dim", D, vector=True)
    g, x, e, t = (
        teacher("g", (task,), group),
        gauss("x", dim, var=2),
        gauss("e", dim),
        draw(task),
    )
    W, V = weight("W", group, dim, dim, start=1), weight("V", task, group, start=1)
    one = lambda h, i: total(lambda j: W[h, i, j] * x[j], dim)
    out = lambda i: total(lambda h: V[t, h] * one(h, i), group)
    own = lambda i: one(g(t), i) * V[t, g(t)]
    return statement(total(lambda i: (x[i] + e[i] - out(i) - own(i)) ** 2, dim))


def masked_mean():
    """Gaussian inputs in order: each is predicted from those before it."""
    N, D = sizes("N D")
    place, dim = sort("place", N, ordered=True), sort("dim", D, vector=True)
    x, i, U, c = (
        gauss("x", place, dim),
        draw(place),
        weight("U", dim, dim, start=1),
        weight("c"),
    )
    before = lambda a: total(lambda p: read(a, p), place, below=i)
    read = lambda a, p: total(lambda b: U[a, b] * x[p, b], dim)
    target = lambda a: x[i, a] + total(lambda p: x[p, a], place, below=i)
    return statement(total(lambda a: (target(a) - c[()] * before(a)) ** 2, dim))


def coinciding_values():
    """Places with coinciding values that distinct keys tell apart."""
    N, M = sizes("N M")
    place, key, value = sort("place", 3), sort("key", N), sort("value", M)
    z = sample("z", (place,), key, injective=True)
    y = sample("y", (place,), value)
    A, W, s = weight("A", key, key), weight("W", value, value), draw(place)
    return statement(exp(total(lambda p: W[y(p), y(s)] * (1 + A[z(s), z(p)]), place)))


def coinciding_pairs():
    """Pairs of different places with values that may coincide."""
    place, value = sort("place", 3), sort("value", sizes("M"))
    y, W = sample("y", (place,), value), weight("W", value, value)
    return statement(
        exp(total(lambda p, q: W[y(p), y(q)] * (1 - 2 * eq(p, q)), place, place))
    )


def burstiness():
    """Induction with the asked pair at two of four places: which comes first, and sums
    that run over no place.
    """
    pair = sort("pair", 4, ordered=True)
    alpha, beta = (weight(name)[()] for name in ("alpha", "beta"))
    first = draw(pair)
    asked = (first, draw(pair, distinct=first))

    def here(i):
        return eq(i, asked[0]) + eq(i, asked[1])

    def before(i):
        return total(lambda j: 1, pair, below=i)

    def label(i):
        earlier = total(here, pair, below=i)
        return (here(i) * exp(alpha) + earlier) / (exp(alpha) + 2 * before(i))

    def item(i):
        return total(here, pair, below=i) / (2 * before(i) + eq(i, fixed(pair, 1)))

    every = total(lambda i: exp(beta * label(i)) + exp(beta * item(i)), pair)
    return statement(1 - total(lambda i: here(i) * exp(beta * label(i)), pair) / every)


ALL = (
    burstiness,
    coinciding_values,
    coinciding_pairs,
    occurs_twice,
    clusters,
    masked_mean,
    two_steps,
    two_teachers,
    more_names,
    two_hop,
    kernel,
    orthogonal,
    square_head,
    heads,
    in_context_facts,
    masked_copy,
    previous_token,
    begin_token,
    modular,
    pairs,
    counting,
    label_mean,
    few_tokens,
    hidden,
    choices,
    ridge,
)
