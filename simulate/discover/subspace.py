"""The smallest affine subspace of the weights in which descent stays: classes of entries that stay
equal, and within them the directions of the gradient.

Classes come first: entries are split where their gradients differ, until nothing splits. Directions
are then looked for among means over classes, where rounding outside of the classes is gone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import sympy as sp

from theory.parameters import ParameterError
from theory.statement.tree import require

SPREADS = (1.0, 0.5, 0.25)  # of random points about the start, in turn
FAR = 3.0  # largest displacement of an entry, in units of these
DIFFERENT = 1e-8  # relative to the largest gradient: larger is a difference
FAINT = 1e-7  # smallest accepted residual of classes
FAINT_DIRECTION = 1e-5  # of directions, in which rounding grows
ROUNDING = 1e-10  # largest rejected residual
APART = 1e3  # smallest accepted over largest rejected residual
EQUAL = 1e-7  # of entries of directions, relative to the largest: equal up to rounding
PIVOT = 0.1  # directions are taken of which a round's residual is at least this part of the largest
DRAWS = 4  # points of a round
MOST_CLASSES = 400
FEW = 12  # weights that may all start at different values
MOST_TRIES = 20
DENOMINATORS = (1, 24, 720, 5040)  # of coordinates, tried in turn
AGREE = 1e-7  # of a coordinate and its fraction; that they span the subspace is then checked
SYMMETRIC = "give a symmetric start, such as start=0"


@dataclass(frozen=True)
class Gap:
    """Smallest accepted and largest rejected residual, relative to gradients."""

    accepted: float
    rejected: float

    def __str__(self) -> str:
        return f"{self.accepted:.1g} accepted, {self.rejected:.1g} rejected"

    def require(self, what: str, faint: float) -> None:
        """Refuse residuals that are not orders of magnitude apart."""
        require(
            self.accepted >= max(APART * self.rejected, faint) and self.rejected <= ROUNDING,
            f"{what}: cannot be told from rounding: the smallest accepted residual is "
            f"{self.accepted:.1g}, the largest rejected one {self.rejected:.1g}; give fewer "
            "weights, or a more symmetric start",
        )


class Points:
    """Gradients at random points, those that are finite."""

    def __init__(
        self, gradient: Callable[[np.ndarray], tuple[float, np.ndarray]], seed: int
    ) -> None:
        self.gradient, self.rng, self.drawn = gradient, np.random.default_rng(seed), 0

    def draw(self, of: Callable[[np.ndarray], np.ndarray], size: int) -> np.ndarray:
        """Gradient at a random point, a function of ``size`` normal numbers."""
        for _ in range(MOST_TRIES):
            self.drawn += 1
            spread = SPREADS[self.drawn % len(SPREADS)]
            loss, slopes = self.gradient(of(spread * self.rng.normal(size=size)))
            if np.isfinite([loss, *slopes]).all():
                return slopes
        raise ParameterError("loss: is not finite at random weights about the start")


def partition(points: Points, start: np.ndarray) -> tuple[np.ndarray, Gap]:
    """Class of every entry, and how clear it is.

    Entries of a class start equal and stay equal under every optimiser that treats entries alike.
    """
    labels = np.unique(start, return_inverse=True)[1].ravel()
    accepted, rejected, quiet = np.inf, 0.0, 0
    while quiet < len(SPREADS):
        many = labels.max() + 1
        require(
            many <= MOST_CLASSES,
            f"start: {many} or more of {start.size} weights move differently, so that the subspace "
            f"is everything, or nearly so (at most {MOST_CLASSES} are followed); {SYMMETRIC}",
        )
        g = points.draw(lambda z, labels=labels: start + z[labels], many)  # type: ignore[misc]
        order = np.lexsort((g, labels))
        same = np.diff(labels[order], prepend=-1) == 0
        steps = np.diff(g[order], prepend=0) * same / (np.abs(g).max() or 1)
        split, quiet = steps > DIFFERENT, quiet + 1
        rejected = max(rejected, float(steps.max()))
        if split.any():
            accepted, rejected, quiet = min(accepted, float(steps[split].min())), 0.0, 0
            labels = np.empty_like(labels)
            labels[order] = np.cumsum(~same | split) - 1
    return labels, Gap(accepted, rejected)


def residual(V: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Parts of unit vectors (rows) outside of orthonormal columns, subtracted twice."""
    for _ in range(2):
        rows = rows - (rows @ V) @ V.T
    return rows


def unit(rows: Any) -> np.ndarray:
    """Rows of norm one; those that are zero stay."""
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.array(rows) / np.where(size > 0, size, 1)


def tidy(V: np.ndarray, root: np.ndarray) -> np.ndarray:
    """Orthonormal columns whose rows are averaged where they are equal up to rounding."""
    rows = V / root[:, None]
    along = rows @ np.random.default_rng(1).normal(size=V.shape[1])
    order = np.argsort(along)
    group = np.empty(len(rows), int)
    group[order] = np.cumsum(
        np.diff(along[order], prepend=along.min()) >= EQUAL * np.abs(along).max()
    )
    mean = np.stack([np.bincount(group, root**2 * x) for x in rows.T], 1)
    mean = mean / np.bincount(group, root**2)[:, None]
    mean[np.abs(mean).max(1) < EQUAL * np.abs(mean).max()] = 0
    return np.linalg.qr(mean[group] * root[:, None])[0]


def grown(draw: Callable[[np.ndarray], np.ndarray], root: np.ndarray) -> tuple[np.ndarray, Gap]:
    """Orthonormal columns of the smallest subspace that holds gradients at all of its points.

    Parameters
    ----------
    draw : callable
        Of orthonormal columns, the gradient at a random point of what they span.
    root : array
        Roots of the numbers of entries of classes, by which means over these are scaled.
    """
    V, accepted = np.zeros((len(root), 0)), np.inf
    while True:
        many = max(DRAWS, V.shape[1] // 3) if V.size else 1
        _, sizes, basis = np.linalg.svd(
            residual(V, unit([draw(V) for _ in range(many)])), full_matrices=False
        )
        if sizes[0] < DIFFERENT or V.shape[1] == len(root):
            return V, Gap(accepted, float(sizes[0]))
        taken = sizes >= PIVOT * sizes[0]
        accepted = min(accepted, float(sizes[taken].min()))
        V = tidy(np.hstack([V, residual(V, basis[taken]).T]), root)


def echelon(rows: np.ndarray) -> np.ndarray:
    """Reduced row echelon form; a pivot is the first column that is not small."""
    rows, k = rows.copy(), 0
    for j in range(rows.shape[1]):
        i = k + int(np.abs(rows[k:, j]).argmax()) if k < len(rows) else k
        if k == len(rows) or abs(rows[i, j]) < 1e-6 * np.abs(rows[k:]).max():
            continue
        rows[[k, i]] = rows[[i, k]]
        rows[k] /= rows[k, j]
        others = np.arange(len(rows)) != k
        rows[others] -= np.outer(rows[others, j], rows[k])
        k += 1
    return rows


@dataclass(frozen=True)
class Subspace:
    """Where descent stays.

    Attributes
    ----------
    start : array
        All weights at the start.
    labels : array
        Class of every entry. Entries of a class start equal and move alike.
    fine : array
        Classes that stay under every optimiser that treats entries alike, such as Adam.
    forms : array
        Coordinates as combinations of means over classes, a row each: fractions, or floats.
    gap : Gap
        Of the directions, at fresh points, too; ``class_gap`` of the classes.
    """

    start: np.ndarray
    labels: np.ndarray
    fine: np.ndarray
    forms: np.ndarray
    gap: Gap
    class_gap: Gap

    @functools.cached_property
    def counts(self) -> np.ndarray:
        """Numbers of entries of the classes."""
        return np.bincount(self.labels)

    @property
    def rational(self) -> bool:
        """Whether coordinates are fractions."""
        return self.forms.dtype == object

    @functools.cached_property
    def rows(self) -> np.ndarray:
        """Coordinates as floats."""
        return self.forms.astype(float)

    @functools.cached_property
    def lift(self) -> np.ndarray:
        """Moves of classes from moves of coordinates."""
        scaled = self.rows / self.counts
        return scaled.T @ np.linalg.inv(scaled @ self.rows.T)

    @functools.cached_property
    def moving(self) -> np.ndarray:
        """Which classes move."""
        return (self.rows != 0).any(0)

    def coordinates(self, theta: np.ndarray) -> np.ndarray:
        """Order parameters of weights."""
        return self.rows @ (np.bincount(self.labels, theta) / self.counts)

    def weights(self, values: np.ndarray) -> np.ndarray:
        """Weights of order parameters."""
        moved = self.lift @ (values - self.coordinates(self.start))
        return self.start + moved[self.labels]

    def conserved(self) -> list[np.ndarray]:
        """Combinations of means over classes that move, but stay constant together: a row each."""
        places, rows = np.flatnonzero(self.moving), []
        scaled = self.forms[:, places] / self.counts[places] if self.rational else np.empty((0, 0))
        exact = [[sp.Rational(x.numerator, x.denominator) for x in row] for row in scaled]
        for vector in sp.Matrix(exact).nullspace():
            row = np.zeros(len(self.counts), object)
            row[places] = [Fraction(int(x.p), int(x.q)) for x in vector]
            rows.append(row / min((x for x in row if x), key=abs))
        return rows


def discovered(
    gradient: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    places: Mapping[str, slice],
    seed: int = 0,
) -> Subspace:
    """Classes, coordinates and their evidence.

    Raises
    ------
    ParameterError
        If the start has no symmetry, nothing moves, or residuals are not orders of magnitude apart.
    """
    require(
        gradient(start)[1].any(),
        "start: the gradient is zero there, so that descent never moves; start elsewhere, such as "
        f"start={{'{next(iter(places))}': 0.1}}",
    )
    for name, place in places.items():
        values = start[place]
        require(
            values.size <= FEW or len(np.unique(values)) <= values.size // 2,
            f"start: the weights of {name} start at different values, so that the subspace is "
            f"everything: no two weights move together; {SYMMETRIC}",
        )
    points = Points(gradient, seed)
    fine, class_gap = partition(points, start)
    class_gap.require("classes of weights", FAINT)
    fine = _by_size(fine)
    counts = np.bincount(fine)
    root, begun = np.sqrt(counts), start[_first(fine)]

    def draw(V: np.ndarray) -> np.ndarray:
        def at(z: np.ndarray) -> np.ndarray:
            moved = V @ z / root
            far = FAR * np.abs(z).max(initial=0) / (np.abs(moved).max() or 1)
            return start + (far * moved)[fine]

        return np.bincount(fine, points.draw(at, V.shape[1])) / root

    V, gap = grown(draw, root)
    # classes that move alike are one class, and so are all that start equal and never move
    near = np.column_stack([np.unique(begun, return_inverse=True)[1], V / root[:, None] / EQUAL])
    labels = _by_size(np.unique(near.round(), axis=0, return_inverse=True)[1].ravel()[fine])
    many, first = np.bincount(labels), _first(labels)
    forms = echelon((V / root[:, None])[fine[first]].T * many)
    for largest in DENOMINATORS:
        exact = np.vectorize(lambda x: Fraction(x).limit_denominator(largest), [object])(forms)  # noqa: B023
        if np.abs(exact.astype(float) - forms).max(initial=0) < AGREE:
            forms = exact
            break
    Q = np.linalg.qr(((forms.astype(float) / many)[:, labels[_first(fine)]] * root).T)[0]
    fresh = np.linalg.norm(residual(Q, unit([draw(Q) for _ in range(DRAWS)])), axis=1).max()
    gap = Gap(gap.accepted, max(gap.rejected, float(fresh)))
    gap.require("order parameters", FAINT_DIRECTION)
    return Subspace(start, labels, fine, forms, gap, class_gap)


def _first(labels: np.ndarray) -> np.ndarray:
    """Place of the first entry of every class."""
    return np.unique(labels, return_index=True)[1]


def _by_size(labels: np.ndarray) -> np.ndarray:
    """Classes numbered by size, then by first entry."""
    order = np.lexsort((_first(labels), np.bincount(labels)))
    return np.argsort(order)[labels]
