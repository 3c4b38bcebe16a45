"""Statements that the tests of the engine share."""

from __future__ import annotations

from sympy import Rational

from theory.statement import (
    cross_entropy,
    draw,
    eq,
    exp,
    fixed,
    gauss,
    number,
    sample,
    sizes,
    sort,
    spectrum,
    statement,
    teacher,
    total,
    weight,
)


def bigram():
    """A table of logits learns which token follows which."""
    N = sizes("N")
    token = sort("token", N)
    follows = teacher("follows", (token,), token, injective=True)
    W, z = weight("W", token, token), draw(token)
    return statement(
        cross_entropy(lambda y: W[z, y], over=token, target=follows(z)), name="bigram"
    )


def recall(attention="linear"):
    """Factual recall: subject and relation among noise tokens ask for an answer."""
    S, R, D, T, n = sizes("S R D T n")
    eps = number("epsilon")
    subject, relation, noise = sort("subject", S), sort("relation", R), sort("noise", n)
    place, choice = sort("place", T - 3), sort("choice", D, of=relation)
    f = teacher("f", (subject, relation), choice)
    z = sample("z", (place,), noise)
    kinds = {"s": [subject], "r": [relation], "n": [noise], "e": []}
    w = {k: weight(f"w_{k}", *x, start=eps) for k, x in kinds.items()}
    V = {k: weight(f"V_{k}", *w[k].sorts, relation, choice, start=eps) for k in w}
    s, r = draw(subject), draw(relation)
    score = exp if attention == "softmax" else (lambda x: x)

    def summed(of):
        fixed = of("s", s) + of("r", r) + of("e")
        return fixed + total(lambda p: of("n", z(p)), place)

    def logit(q, d):
        out = summed(lambda k, *t: score(w[k][t]) * V[k][(*t, q, d)])
        if attention == "softmax":
            return out / summed(lambda k, *t: score(w[k][t]))
        return out

    loss = cross_entropy(logit, over=(relation, choice), target=(r, f(s, r)))
    return statement(loss, name=f"recall_{attention}")


def retrieval(places=None, injective=True):
    """Retrieval by a softmax head: P keys with values, a query equal to one key."""
    N, M, P = sizes("N M P")
    place = sort("place", P if places is None else places)
    key, value = sort("key", N), sort("value", M)
    x = sample("x", (place,), key, injective=injective)
    y = sample("y", (place,), value, injective=injective)
    K, V = weight("K", key, key), weight("V", value, value)
    asked = draw(place)

    def attended(of):
        scores = lambda p: exp(K[x(asked), x(p)])
        return total(lambda p: scores(p) * of(p), place) / total(scores, place)

    loss = cross_entropy(
        lambda d: attended(lambda p: V[y(p), d]), over=value, target=y(asked)
    )
    return statement(loss, name="retrieval")


def regression(white=False):
    """In-context linear regression by linear attention, key and query in one matrix."""
    D, N = sizes("D N")
    a, half = number("a"), Rational(1, 2)
    lam = 1 if white else spectrum("lambda")
    dim, place = sort("dim", D, vector=True), sort("place", N)
    x, q, t = gauss("x", place, dim, var=lam), gauss("q", dim, var=lam), gauss("t", dim)
    v, U = weight("v", start=a), weight("U", dim, dim, start=a)
    b, c = weight("b", dim), weight("c", dim)
    label = lambda p: total(lambda k: t[k] * x[p, k], dim)

    def score(p):
        matched = total(lambda i, j: x[p, i] * U[i, j] * q[j], dim, dim)
        return matched + label(p) * total(lambda l: c[l] * q[l], dim)

    def read(p):
        return v[()] * label(p) + total(lambda m: b[m] * x[p, m], dim)

    out = total(lambda p: score(p) * read(p), place) / N
    loss = half * (total(lambda i: t[i] * q[i], dim) - out) ** 2
    return statement(loss, name="regression")


def induction(query="last", size=None, inclusive=False):
    """Induction head: a label attends to its item's place, the query to what labels
    retrieved.

    Scores between rows are typed: a label scores ``alpha`` on the item of its place,
    the query ``beta`` times what a row retrieved of the query's item; ``gamma`` writes
    the retrieved label.
    """
    N = sizes("N") if size is None else size
    pair = sort("pair", N, ordered=True)
    alpha, beta, gamma = (weight(name)[()] for name in ("alpha", "beta", "gamma"))
    q = draw(pair) if query is None else fixed(pair, N if query == "last" else query)
    before = lambda i: total(lambda j: 1, pair, below=i)
    earlier = lambda i, x: total(lambda j: eq(j, q) * x, pair, below=i)

    def label(i):
        rows = exp(alpha) + 2 * before(i) + int(inclusive)
        return (eq(i, q) * exp(alpha) + earlier(i, 1)) / rows

    def item(i):
        own = eq(i, q) / (2 * before(i) + 1) if inclusive else 0
        return own + earlier(i, 1 / (2 * before(i) + int(inclusive)))

    every = total(lambda i: exp(beta * label(i)) + exp(beta * item(i)), pair)
    square = total(lambda i: exp(2 * beta * label(i)) + exp(2 * beta * item(i)), pair)
    if inclusive:  # the query's own row holds the item's token a second time
        own = exp(beta * Rational(2) / (2 * N + 1))
        every, square = every + own, square + own**2 + 2 * own * exp(beta * item(q))
    loss = gamma**2 * square / every**2 - 2 * gamma * exp(beta * label(q)) / every + 1
    return statement(loss, name="induction")


def tracking(attention=None, closure="mean logits", regular=False):
    """State tracking at given attention: permutations of N states, one per action."""
    N, d = sizes("N d")
    A = number("A") if attention is None else attention
    action, state = sort("action", N if regular else d), sort("state", N)
    g = teacher("g", (action, state), state, injective=True if regular else (state,))
    M, a, s = weight("M", action, state, state), draw(action), draw(state)

    def logit(r):
        other = total(lambda b: M[b, r, s], action) / action.size
        return A * M[a, r, s] + (1 - A) * other

    loss = cross_entropy(logit, over=state, target=g(a, s))
    return statement(loss, name="tracking", closure=closure)
