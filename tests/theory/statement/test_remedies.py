"""Statements that are refused: every change that the refusal proposes works when it is
made in the file, as a reader of the message would make it.
"""

import re

import pytest

from theory import ParameterError
from theory.statement import statement
from theory.statement.derivation import remedies
from theory.statement.derivation.derived import derive

HEAD = """from theory.statement import *
def softmax(score, read, over):
    return total(lambda p: exp(score(p)) * read(p), over) / total(lambda p: exp(score(p)), over)
"""
TOKENS = """
N, L = sizes("N L")
token, place = sort("token", N), sort("place", L)
x = sample("x", (place,), token)
W, at = weight("W", token, token), draw(place)
"""
KEYS = """
S, A, B = sizes("S A B")
key, left, right = sort("key", S), sort("left", A), sort("right", B)
f = teacher("f", (key,), left)
g = teacher("g", (key,), right)
W = weight("W", left, right)
k = draw(key)
"""
INSIDE = r"(?:[^()]|\([^()]*\))*"
REFUSED = {
    "coinciding keys": (
        """
N, M, P = sizes("N M P")
key, value, place = sort("key", N), sort("value", M), sort("place", P)
x = sample("x", (place,), key)
y = sample("y", (place,), value)
K, V, at = weight("K", key, key), weight("V", value, value), draw(place)
read = lambda v: softmax(lambda p: K[x(at), x(p)], lambda p: V[y(p), v], place)
loss, values = cross_entropy(read, over=value, target=y(at)), dict(N=6, M=5, P=3)
"""
    ),
    "a count": (
        f"""{TOKENS}
count = total(lambda p: eq(x(p), x(at)) * 1, place)
loss, values = (W[x(at), x(at)] - log(1 + count)) ** 2, dict(N=4, L=4)
"""
    ),
    "a mean over places": (
        f"""{TOKENS}
out = lambda v: total(lambda p: W[x(p), v], place)
loss, values = cross_entropy(out, over=token, target=x(at)), dict(N=4, L=3)
"""
    ),
    "one table for all actions": (
        """
N = sizes("N")
state, action = sort("state", N), sort("action", N)
g = teacher("g", (action, state), state, injective=(state,))
M = weight("M", action, state, state)
B = weight("B", state, state)
a, s = draw(action), draw(state)
logit = lambda c: M[a, s, c] + B[s, c]
loss, values = cross_entropy(logit, over=state, target=g(a, s)), dict(N=5)
"""
    ),
    "two values of one key": (
        f"""{KEYS}
U = weight("U", key, right)
logit = lambda r: W[f(k), r] + U[k, r]
loss, values = cross_entropy(logit, over=right, target=g(k)), dict(S=6, A=3, B=2)
"""
    ),
    "nothing over nothing": (
        """
N = sizes("N")
item = sort("item", N)
w = weight("w", item, item)
i = draw(item)
mean = total(lambda j: w[i, j], item)
loss, values = (mean - 1) ** 2 / total(lambda j: w[i, j] ** 2, item), dict(N=4)
"""
    ),
    "values in order": (
        """
n, m = sizes("n m")
item = sort("item", n)
place = sort("place", m, ordered=True)
g = teacher("g", (item,), place)
W, i = weight("W", item, item), draw(item)
loss, values = (W[i, i] - total(lambda j: eq(g(i), g(j)) * 1, item)) ** 2, dict(n=6, m=3)
"""
    ),
    "places that may be either side": (
        """
L = sizes("L")
place = sort("place", L, ordered=True)
p, q, d = fixed(place, L - 2), fixed(place, 3), draw(place)
w = weight("w")
loss, values = (w[()] - eq(d, p) - eq(d, q)) ** 2, dict(L=6)
"""
    ),
    "W off": (
        f"""{KEYS}
loss, values = cross_entropy(lambda r: W[f(k), r], over=right, target=g(k)), dict(S=6, A=3, B=2)
"""
    ),
    "several arguments": (
        """
N = sizes("N")
token, place = sort("token", N), sort("place", 3)
x, f = sample("x", (place,), token), teacher("f", (token, token), token)
K, V, p0 = weight("K", token, token), weight("V", token, token), draw(place)
p1 = draw(place, distinct=p0)
read = lambda v: softmax(lambda p: K[x(p0), x(p)], lambda p: V[x(p), v], place)
loss, values = cross_entropy(read, over=token, target=f(x(p0), x(p1))), dict(N=4)
"""
    ),
    "two samples": (
        f"""{TOKENS}
y = sample("y", (place,), token)
read = lambda v: softmax(lambda p: W[x(at), y(p)], lambda p: eq(x(p), v) * 1, place)
loss = total(lambda v: (read(v) - eq(y(at), v)) ** 2, token)
values = dict(N=4, L=3)
"""
    ),
    "a sum that cannot tell": (
        """
N = sizes("N")
one, two, label = sort("one", N), sort("two", N), sort("label", N)
f = teacher("f", (one, two), label)
W, U = weight("W", one, label), weight("U", two, label)
i, j = draw(one), draw(two)
loss, values = cross_entropy(lambda c: W[i, c] + U[j, c], over=label, target=f(i, j)), dict(N=4)
"""
    ),
    "two tables against one": (
        """
N = sizes("N")
state = sort("state", N)
f, g = teacher("f", (state,), state, injective=True), teacher("g", (state,), state, injective=True)
W, U, i = weight("W", state, state), weight("U", state, state), draw(state)
loss = cross_entropy(lambda c: W[f(i), c] + U[g(i), c], over=state, target=f(g(i)))
values = dict(N=5)
"""
    ),
    "two layers from random starts": (
        """
S, D, H = sizes("S D H")
item, label, unit = sort("item", S), sort("label", D), sort("unit", H)
f = teacher("f", (item,), label)
U = weight("U", item, unit, start=gaussian(0.1))
V = weight("V", unit, label, start=gaussian(0.1))
x = draw(item)
out = lambda c: total(lambda h: V[h, c] * U[x, h], unit)
loss, values = cross_entropy(out, over=label, target=f(x)), dict(S=6, D=3, H=4)
"""
    ),
    "two orthogonal layers": (
        """
N = sizes("N")
item = sort("item", N)
f = teacher("f", (item,), item, injective=True)
U = weight("U", item, item, start=orthogonal(1))
V = weight("V", item, item, start=orthogonal(1))
x = draw(item)
out = lambda y: total(lambda h: V[h, y] * U[x, h], item)
loss, values = cross_entropy(out, over=item, target=f(x)), dict(N=5)
"""
    ),
    "two tables of unequal sizes": (
        """
N, M, A = sizes("N M A")
one, two, label = sort("one", N), sort("two", M), sort("label", A)
f = teacher("f", (one, two), label)
W = weight("W", one, label)
U = weight("U", two, label)
i, j = draw(one), draw(two)
loss, values = cross_entropy(lambda c: W[i, c] + U[j, c], over=label, target=f(i, j)), dict(N=4, M=3, A=6)
"""
    ),
    "two tables, a Latin square": (
        """
N = sizes("N")
num = sort("num", N)
f = teacher("f", (num, num), num, injective=True)
W = weight("W", num, num)
U = weight("U", num, num)
i, j = draw(num), draw(num)
loss, values = cross_entropy(lambda c: W[i, c] + U[j, c], over=num, target=f(i, j)), dict(N=5)
"""
    ),
    "two tables and a bias": (
        """
N, A = sizes("N A")
one, two, label = sort("one", N), sort("two", N), sort("label", A)
f = teacher("f", (one, two), label)
W = weight("W", one, label)
U = weight("U", two, label)
b = weight("b", label)
i, j = draw(one), draw(two)
loss, values = total(lambda c: (W[i, c] + U[j, c] + b[c] - eq(f(i, j), c)) ** 2, label), dict(N=4, A=2)
"""
    ),
    "repeated keys and values": (
        """
N, L = sizes("N L")
token, place = sort("token", N), sort("place", L)
x = sample("x", (place,), token)
y = sample("y", (place,), token)
K = weight("K", token, token)
V = weight("V", token, token)
at = draw(place)
read = lambda v: softmax(lambda p: K[x(at), x(p)], lambda p: V[y(p), v], place)
loss, values = cross_entropy(read, over=token, target=y(at)), dict(N=6, L=8)
"""
    ),
    "causal copy of repeated tokens": (
        """
N, L = sizes("N L")
place, token = sort("place", L, ordered=True), sort("token", N)
x = sample("x", (place,), token)
K = weight("K", token, token)
V = weight("V", token, token)
i = draw(place)
top = lambda d: total(lambda j: exp(K[x(i), x(j)]) * V[x(j), d], place, upto=i)
logit = lambda d: top(d) / total(lambda j: exp(K[x(i), x(j)]), place, upto=i)
loss, values = cross_entropy(logit, over=token, target=x(i)), dict(N=4, L=4)
"""
    ),
    "noisy labels": (
        """
S, D = sizes("S D")
item, label = sort("item", S), sort("label", D)
eps = number("eps")
f = teacher("f", (item,), label)
g = teacher("g", (item,), label)
W = weight("W", item, label)
x = draw(item)
ce = lambda t: cross_entropy(lambda c: W[x, c], over=label, target=t)
loss, values = (1 - eps) * ce(f(x)) + eps * ce(g(x)), dict(S=6, D=3, eps=0.1)
"""
    ),
    "attention and a bigram table": (
        """
N, P = sizes("N P")
place, token = sort("place", P), sort("token", N)
x = sample("x", (place,), token)
f = teacher("f", (token,), token)
K = weight("K", token, token)
V = weight("V", token, token)
B = weight("B", token, token)
q = draw(place)
read = lambda v: softmax(lambda p: K[x(q), x(p)], lambda p: V[x(p), v], place) + B[x(q), v]
loss, values = cross_entropy(read, over=token, target=f(x(q))), dict(N=4, P=5)
"""
    ),
    "three teachers": (
        """
K, A, B, C = sizes("K A B C")
key, a, b, c = sort("key", K), sort("a", A), sort("b", B), sort("c", C)
f = teacher("f", (key,), a)
g = teacher("g", (key,), b)
h = teacher("h", (key,), c)
W = weight("W", a, b, c)
k = draw(key)
loss, values = cross_entropy(lambda z: W[f(k), g(k), z], over=c, target=h(k)), dict(K=12, A=3, B=2, C=2)
"""
    ),
    "a teacher read both ways": (
        """
N = sizes("N")
token = sort("token", N)
f = teacher("f", (token, token), token)
W = weight("W", token, token, token)
a, b = draw(token), draw(token)
loss, values = cross_entropy(lambda c: W[a, f(a, b), c], over=token, target=f(b, a)), dict(N=4)
"""
    ),
    "a read-out of two tokens": (
        """
N, P = sizes("N P")
place, token = sort("place", P), sort("token", N)
x = sample("x", (place,), token, injective=True)
K = weight("K", token, token)
V = weight("V", token, token)
q, r, s = draw(place), draw(place), draw(place)
f = teacher("f", (token, token), token)
read = lambda v: softmax(lambda p: K[x(q), x(p)], lambda p: V[x(p), v], place)
loss, values = cross_entropy(read, over=token, target=f(x(q), x(r))), dict(N=4, P=3)
"""
    ),
    "a mean over earlier tokens": (
        """
N, L = sizes("N L")
place, token = sort("place", L, ordered=True), sort("token", N)
x = sample("x", (place,), token)
f = teacher("f", (token,), token)
W = weight("W", token, token)
i = draw(place)
mix = lambda d: total(lambda j: W[x(j), d], place, upto=i)
loss, values = cross_entropy(mix, over=token, target=f(x(i))), dict(N=4, L=4)
"""
    ),
    "two tasks, shared tables": (
        """
S, A, B = sizes("S A B")
key, left, right = sort("key", S), sort("left", A), sort("right", B)
f = teacher("f", (key,), left)
g = teacher("g", (key,), right)
W = weight("W", key, left)
U = weight("U", left, right)
V = weight("V", key, right)
k = draw(key)
mid = lambda r: softmax(lambda l: W[k, l], lambda l: U[l, r], left)
loss, values = cross_entropy(lambda r: mid(r) + V[k, r], over=right, target=g(k)) + cross_entropy(lambda l: W[k, l], over=left, target=f(k)), dict(S=6, A=3, B=2)
"""
    ),
    "a function of Gaussian data": (
        """
D = sizes("D")
dim = sort("dim", D, vector=True)
x = gauss("x", dim)
w = weight("w", dim, start=1)
out = total(lambda i: w[i] * x[i], dim)
loss, values = exp(out) + log(1 + exp(-out)), dict(D=4)
"""
    ),
    "a ratio of Gaussian data": (
        """
D = sizes("D")
dim = sort("dim", D, vector=True)
x = gauss("x", dim)
e = gauss("e", dim)
W = weight("W", dim, dim, start=1)
out = lambda i: total(lambda j: W[i, j] * x[j], dim)
num = total(lambda i: (x[i] + e[i] - out(i)) ** 2, dim)
loss, values = num / (1 + total(lambda i: x[i] ** 2, dim)), dict(D=4)
"""
    ),
    "an exponential of Gaussian data": (
        """
D = sizes("D")
dim = sort("dim", D, vector=True)
x = gauss("x", dim)
w = weight("w", dim)
loss, values = exp(total(lambda i: w[i] * x[i], dim)), dict(D=4)
"""
    ),
    "a teacher of three": (
        """
N = sizes("N")
token, place = sort("token", N), sort("place", 3)
x, f = sample("x", (place,), token), teacher("f", (token, token, token), token)
A, B = weight("A", token, token), weight("B", token, token)
p, q, r = fixed(place, 1), fixed(place, 2), fixed(place, 3)
loss = cross_entropy(lambda c: A[x(p), c] + B[x(q), c], over=token, target=f(x(p), x(q), x(r)))
values = dict(N=4)
"""
    ),
}


def stated(text):
    """What a file states."""
    made = {}
    exec(f"{HEAD}{text}", made)
    closure = made["values"].pop("closure", None)
    return statement(made["loss"], values=made["values"], closure=closure)


def refusal(text):
    """Its refusal, one line."""
    with pytest.raises(ParameterError) as caught:
        _ = remedies.derived(stated(text)).flow
    assert "\n" not in str(caught.value)
    return str(caught.value)


def edited(text, change):
    """A file in which a proposed change is made."""
    for part in change.split(" and "):
        if found := re.fullmatch(r"the number (\d+) in place of the size (\w+)", part):
            number, n = found.groups()
            text = re.sub(rf"\b{n}=\d+(, )?", "", text)
            text = re.sub(r"(= sizes\(.*)", rf"\1\n{n} = {number}", text)
        elif found := re.fullmatch(r"the number (\d+) in place of weight (\w+)", part):
            number, w = found.groups()
            text = re.sub(rf"\n{w} = .*", "", re.sub(rf"\b{w}\[[^]]*\]", number, text))
        elif part == 'closure="mean logits", an approximation':
            text += 'values = values | {"closure": "mean logits"}\n'
        elif found := re.fullmatch(r"draw\((\w+)\) in place of (\w+)\(\.\.\.\)", part):
            of, f = found.groups()
            calls = re.findall(rf"(?<!\")\b{f}\({INSIDE}\)", text)
            for n, call in enumerate(dict.fromkeys(calls)):
                text = text.replace(call, f"of_{f}{n}")
                text = re.sub(
                    r"\nloss", f"\nof_{f}{n} = draw({of})\nloss", text, count=1
                )
        elif found := re.fullmatch(r"teacher (\w+) of its argument (\d) alone", part):
            f, k = found.groups()

            def cut(call, k=int(k)):
                before, inside, after = call.groups()
                return before + inside.split(", ")[k - 1] + after

            text = re.sub(rf'((?<!")\b{f}\()({INSIDE})(\))', cut, text)
            text = re.sub(rf'(teacher\("{f}", \()([^()]*)(\))', cut, text)
            text = re.sub(rf'(teacher\("{f}", \()(\w+)\)', r"\1\2,)", text)
        elif found := re.fullmatch(
            r"eq\(i, draw\((\w+)\)\) in place of (\w+)\[i\](, .*)?", part
        ):
            of, x, last = found.groups()
            text = re.sub(rf"\n{x} = .*", f"\nof_{x} = draw({of})", text)
            text = re.sub(rf"\b{x}\[(\w+)\]", rf"eq(\1, of_{x})", text)
            assert last in (None, f", {of} no vector")
            text = text.replace(", vector=True", "" if last else ", vector=True")
        elif found := re.fullmatch(r'sort\("(\w+)", \.\.\.\), not ordered', part):
            text = text.replace(", ordered=True", "")
        else:
            call, name, more, *room = re.fullmatch(
                r'(\w+)\("(\w+)", \.\.\., (.*)\)(?: with (\w+)=(\d+))?', part
            ).groups()
            if all(room):
                text = re.sub(rf"\b{room[0]}=\d+", f"{room[0]}={room[1]}", text)
            text, times = re.subn(rf'({call}\("{name}".*)\)\n', rf"\1, {more})\n", text)
            assert times == 1
    return text


LONG = ("two samples", "attention and a bigram table", "a read-out of two tokens")
LONG += ("two tasks, shared tables",)
CASES = [
    pytest.param(x, id=k, marks=[pytest.mark.slow] * (k in LONG))
    for k, x in REFUSED.items()
]


@pytest.mark.parametrize("text", CASES)
def test_every_proposed_change_works(text):
    """At least one is proposed, and something moves after it."""
    message = refusal(text)
    assert message.startswith("line ")
    for change in message.partition("; tried, and it works: ")[2].split("; or "):
        assert derive(stated(edited(text, change))).flow.state, change


def test_where_nothing_helps_it_is_said(monkeypatch):
    """In one line, with the lines that are concerned."""
    monkeypatch.setattr(remedies, "_changes", lambda stated: [])
    message = refusal(REFUSED["W off"])
    assert "W off" in message and message.endswith(remedies.NOTHING)
    assert message.startswith("line ")


def test_two_tables_of_one_key_whose_values_go_together_in_all_ways():
    """Stated by a draw of each value: a conjunction against the route that sees one of
    them.
    """
    text = """
N = sizes("N")
left, right, label = sort("left", N), sort("right", N), sort("label", N)
a, b = draw(left), draw(right)
f = teacher("f", (left, right), label, injective=True)
W, U = weight("W", left, right, label), weight("U", right, label)
logit = lambda c: W[a, b, c] + U[b, c]
loss, values = cross_entropy(logit, over=label, target=f(a, b)), dict(N=5)
"""
    made = derive(stated(text))
    assert [x.name for x in made.flow.state] == ["delta_W"]
