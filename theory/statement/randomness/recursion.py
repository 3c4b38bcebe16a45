"""Second moments of all entries along descent, step by step: what
`theory.statement.randomness.fluctuations` derives, as numbers that are compared with
listed inputs before they are used.
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import sympy as sp

from theory.numbers import numeric
from theory.statement.derivation import check, symmetry
from theory.statement.evaluation import arrays, wick
from theory.statement.randomness.fluctuations import Moments
from theory.statement.words.tree import require

ZERO = 1e-9  # of its terms: a variance that is none
SHIFT = 1e-3  # of entries, in a difference of slopes
AGREE = 1e-8  # of that difference, of fourth order


class Recursion:
    """Second moments of all entries and the shifts of class means that they cause, step
    by step.

    Parameters
    ----------
    found : Moments
    made : Derived
        At sizes, if sums have to be written out.
    numbers : mapping of str to float
        Sizes and numbers.

    Attributes
    ----------
    values, bias : array, shape (classes,)
        Of descent on all inputs from the mean of the start, and what is added to the
        mean over students.
    moments : array, shape (orbits,)
        Covariance of two entries.
    """

    def __init__(self, found: Moments, made: Any, numbers: Mapping[str, Any]) -> None:
        known = {s: sp.nsimplify(numbers[s.name]) for s in made.statement.symbols}
        sizes = {s: n for s, n in known.items() if s.is_integer}
        write = lambda x: wick.at_size(x, sizes).xreplace(known)
        numbers_of = np.vectorize(lambda x: float(write(sp.S.Zero + x)), otypes=[float])
        orbits = found.orbits
        tables: list[Collection[sp.Expr]] = [
            made.rates.values(),
            (made.loss, *made.observables.values()),
            [o.squares for o in orbits],
        ]
        for name in made.statement.trees:
            tables.append([o.curvature[name] for o in orbits])
        self._parts = np.cumsum([len(table) for table in tables])[:-1]
        expressions = itertools.chain.from_iterable(tables)
        written = [write(sp.S.Zero + x) for x in expressions]
        self._evaluate = numeric.system([c.symbol for c in made.classes], written)
        class_places = {c.symbol: n for n, c in enumerate(found.made.classes)}
        ends = [[class_places[x] for x in o.ends] for o in orbits]
        self.ends = tuple(np.array(ends).T)
        self.sizes = numbers_of([c.size for c in made.classes])
        self.pairs = numbers_of([o.size for o in orbits])
        orbit_places = {o.symbol: n for n, o in enumerate(orbits)}
        triples = [[orbit_places[x] for x in triple] for triple in found.triples]
        self.triples = np.array(triples).T
        self.some = np.maximum(self.pairs, 1)  # of empty orbits all sums are zero
        counts = numbers_of([*found.triples.values()])
        self.weights = counts / self.some[self.triples[0]]
        self.values = numbers_of([c.weight.mean for c in made.classes])
        self.bias = np.zeros(len(self.sizes))
        self.moments = numbers_of([o.start for o in orbits])

    def from_means(self) -> None:
        """Start from known class means: leave out how they scatter, before the first
        step.
        """
        one, two = self.ends
        inside = one == two
        sums = (self.pairs * self.moments)[inside]
        of_class = np.bincount(one[inside], sums, len(self.sizes))
        self.moments = self.moments - inside * (of_class / self.sizes**2)[one]

    def product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Product of two matrices over entries, given by their values on orbits."""
        to, left, right = self.triples
        return np.bincount(to, self.weights * a[left] * b[right], len(self.pairs))

    def here(self) -> None:
        """Evaluate rates, curvature and noise, and their slopes along all classes."""
        shape = len(self.values), len(self.values) + 1
        moved = self.values[:, None] + symmetry.STEP * np.eye(*shape, 1)
        with np.errstate(all="ignore"):  # of states that diverge, or empty orbits
            rows = self._evaluate(*moved)
        table = np.array([np.broadcast_to(row, shape[1]) for row in rows])
        values = table[:, 0].real
        slopes = table[:, 1:].imag / abs(symmetry.STEP)
        self.rates, self.shown, squares, *self.curved = np.split(values, self._parts)
        self.jacobian, self.slopes, _, *steeper = np.split(slopes, self._parts)
        self.hessian, self.squares = self.curved[0] / self.some, squares / self.some
        self.steeper = steeper[0] / self.some[:, None]
        one, two = (self.rates[x] for x in self.ends)
        self.noise = (self.squares - one * two) * (self.pairs > 0)

    def step(self, eta: float, batch: int) -> None:
        """One step of descent on batches, or on all inputs (0), after `here`."""
        bent = (self.pairs * self.moments) @ self.steeper / self.sizes
        self.bias = self.bias + eta * (self.jacobian @ self.bias - bent / 2)
        left = self.moments - eta * self.product(self.hessian, self.moments)
        self.moments = left - eta * self.product(left, self.hessian)
        if batch:
            self.moments = self.moments + eta**2 / batch * self.noise
        self.values = self.values + eta * self.rates

    def state(self, order: np.ndarray) -> np.ndarray:
        """Order parameters, loss and observables: values, bias, standard deviation, and
        that which noise gives them per step of a batch of one input and learning rate
        one.
        """
        slopes = np.vstack([order, self.slopes])
        shift = slopes @ self.bias
        shift[len(order) :] += np.array(self.curved) @ self.moments / 2

        def form(slopes: np.ndarray, moments: np.ndarray) -> np.ndarray:
            along = (slopes / self.sizes)[:, self.ends].prod(1)
            return along @ (self.pairs * moments)

        def spread(moments: np.ndarray) -> np.ndarray:
            variance = form(slopes, moments)
            terms = form(abs(slopes), abs(moments))
            return np.sqrt(np.where(variance > ZERO * terms, variance, 0))

        values = [*order @ self.values, *self.shown]
        return np.array([values, shift, spread(self.moments), spread(self.noise)])


def compared(
    found: Moments, data: arrays.Data, seed: int = 0
) -> dict[str, tuple[Any, Any]]:
    """Quadratic forms of a random direction of all entries, over orbits and over listed
    inputs.
    """
    made = check.written(found.made)
    told = check.predicted(made, data, seed)
    rng = np.random.default_rng(seed)
    here = Recursion(found, made, data.numbers)
    here.values = np.array([*told.values.values()])
    here.here()
    along = {w: rng.normal(size=x.shape) for w, x in told.weights.items()}
    number = {o.symbol: n for n, o in enumerate(found.orbits)}
    blocks = collections.defaultdict(list)
    for (w, other), of in found.pairs.items():
        places = np.array([number[x] for x in of.symbols.values()])
        shape = along[w].size, along[other].size
        blocks[w].append(places[arrays.class_numbers(of, data)].reshape(shape))
    of_pair = np.block([*blocks.values()])
    u = np.concatenate([x.ravel() for x in along.values()])

    def slopes(tree: Any, shift: float) -> np.ndarray:
        moved = {
            w: x + (shift + symmetry.STEP) * along[w] for w, x in told.weights.items()
        }
        each = arrays.Evaluation(data, moved).value(tree)
        return np.imag(each) / abs(symmetry.STEP) * np.ones_like(data.chances)

    sides = {}
    for (name, tree), curved in zip(
        made.statement.trees.items(), here.curved, strict=True
    ):
        rise = [slopes(tree, k * SHIFT) - slopes(tree, -k * SHIFT) for k in (1, 2)]
        second = data.chances @ (8 * rise[0] - rise[1]) / (12 * SHIFT)
        sides[f"curvature of {name}"] = u @ (curved / here.some)[of_pair] @ u, second
    h, squares = here.hessian, here.squares
    loss = slopes(made.statement.loss, 0.0)
    sides["noise"] = u @ squares[of_pair] @ u, data.chances @ loss**2
    both = u @ h[of_pair] @ squares[of_pair] @ u
    return sides | {"product": (u @ here.product(h, squares)[of_pair] @ u, both)}


@functools.cache
def confirmed(found: Moments) -> Moments:
    """The same, once compared with all inputs listed at tiny sizes.

    Raises
    ------
    ParameterError
        Naming what differs by more than rounding.
    """
    stated = found.made.statement
    many = check.TEACHERS if any(f.kept for f in stated.functions) else check.SIZES
    listings = itertools.islice(check.listed(check.written(found.made)), many)
    for n, data in enumerate(listings):
        for what, (one, two) in compared(found, data, n).items():
            close = abs(one - two) < AGREE * max(abs(one), abs(two), symmetry.SMALL)
            message = (
                f"statement {stated.name}: fluctuations: {what} over orbits of pairs is"
                f" {one:.6g}, over all entries {two:.6g}; train students"
            )
            require(close, message)
    return found
