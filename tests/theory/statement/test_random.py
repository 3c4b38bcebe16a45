"""Statements drawn at random: derived, and then right at further sizes and teachers, or
refused.
"""

from __future__ import annotations

import itertools
import random

import pytest

from theory.call.refusal import ParameterError
from theory.statement import (
    cross_entropy,
    draw,
    eq,
    exp,
    sample,
    sizes,
    sort,
    statement,
    teacher,
    total,
    weight,
)
from theory.statement.derivation import check
from theory.statement.derivation.derived import derive
from theory.statement.evaluation import world

SEEDS = range(20)
MOST = 3000  # inputs of a comparison
ROUNDING = 1e-8  # relative to the largest gradient, which may be small


class Stranger:
    """A random statement over two sorts, places, three teachers, two samples and five
    weights.
    """

    def __init__(self, seed):
        self.rnd = rnd = random.Random(seed)
        n, m, P = sizes("n m P")
        self.A, self.B = sort("A", n), sort("B", m)
        self.place = sort("place", rnd.choice([P, P, 2, 3]), ordered=rnd.random() < 0.3)
        A, B = self.A, self.B
        self.f = teacher("f", (A,), B, injective=rnd.random() < 0.5)
        self.g = teacher("g", (B,), A, injective=rnd.random() < 0.3)
        self.h = teacher("h", (A, A), B, injective=rnd.choice([False, True, (A,)]))
        self.x = sample(
            "x", (self.place,), A, injective=rnd.choice([True, True, False])
        )
        self.y = sample("y", (self.place,), B, injective=rnd.choice([True, False]))
        shapes = {"W": (A, B), "U": (A, A), "V": (B, B), "T": (A, A, B), "c": ()}
        self.weights = [weight(k, *s) for k, s in shapes.items()]
        first = draw(A)
        self.drawn = [
            first,
            draw(A, distinct=first if rnd.random() < 0.5 else ()),
            draw(B),
        ]
        self.p0 = draw(self.place)

    def index(self, of, inside, depth=0):
        """An index of a sort: summed, drawn, or a function's value."""
        rnd, places = self.rnd, [self.p0, *(i for i in inside if i.sort is self.place)]
        if depth < 1 and rnd.random() < (0.25 if of is self.A else 0.5):
            if of is self.A:
                return self.g(self.index(self.B, inside, 1))
            one, other = (self.index(self.A, inside, 1) for _ in range(2))
            return self.f(one) if rnd.random() < 0.5 else self.h(one, other)
        read = self.x if of is self.A else self.y
        own = [i for i in inside if i.sort is of] * 3 + [
            i for i in self.drawn if i.sort is of
        ]
        return rnd.choice([*own, *(read(p) for p in places)])

    def entry(self, inside):
        """An entry of a weight."""
        w = self.rnd.choice(self.weights)
        return w[tuple(self.index(s, inside) for s in w.sorts)]

    def number(self, inside, depth):
        """A random expression."""
        rnd, again = self.rnd, lambda more=(): self.number([*inside, *more], depth - 1)
        kind = rnd.random() if depth else 0
        if kind < 0.35:
            return self.entry(inside)
        if kind < 0.5:
            return again() * again()
        if kind < 0.6:
            return again() + again()
        if kind < 0.7:
            of = rnd.choice([self.A, self.B])
            return (
                eq(self.index(of, inside), self.index(of, inside)) * again() + again()
            )
        over = rnd.choice([self.A, self.B, self.place])
        if kind < 0.85:
            return total(lambda i: again([i]), over)
        score, key = self.weights[1], self.index(self.A, inside)
        of = {self.A: lambda i: i, self.B: self.g, self.place: self.x}[over]
        up = total(lambda i: exp(score[key, of(i)]) * again([i]), over)
        return up / total(lambda i: exp(score[key, of(i)]), over)

    def stated(self):
        """Cross-entropy or squared loss."""
        W = self.weights[0]
        if self.rnd.random() < 0.6:
            seed = self.rnd.random()

            def logit(b):
                self.rnd.seed(seed)  # the same student for every answer
                return self.number([b], 2) + W[self.drawn[0], b]

            target = self.index(self.B, [])
            return statement(cross_entropy(logit, over=self.B, target=target))
        return statement(
            (self.number([], 3) + W[self.drawn[0], self.drawn[2]] - 1) ** 2
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_derived_right_or_refused(seed, monkeypatch):
    """Loss, gradients of all weights and sizes at further sizes,
    with other teachers.
    """
    monkeypatch.setattr(
        world, "MOST_BRANCHES", 1500
    )  # what takes long is refused early
    stated = Stranger(seed).stated()
    try:
        made = derive(stated)
    except ParameterError as error:
        assert "\n" not in str(error)
        return
    for n, data in enumerate(itertools.islice(check.listed(made, seed=99), 8)):
        if data.chances.size <= MOST:
            assert max(check.compare(made, data, n).values()) < ROUNDING


def test_most_are_derived(monkeypatch):
    """The test above compares something."""
    derived = 0
    monkeypatch.setattr(world, "MOST_BRANCHES", 1500)
    for seed in SEEDS[::4]:
        try:
            derive(Stranger(seed).stated(), confirmed=False)
            derived += 1
        except ParameterError:
            pass
    assert derived > len(SEEDS[::4]) / 3
