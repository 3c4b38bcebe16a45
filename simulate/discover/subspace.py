"""The smallest affine subspace of the weights in which descent stays: classes of entries that stay
equal, and within them the directions of the gradient.

Classes come first: entries are split where their gradients differ, until nothing splits. Directions
are then looked for among means over classes, where rounding outside of the classes is gone. A
second bound, from above, are the directions that gradients have at any values of the classes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import sympy as sp

from theory.parameters import ParameterError

SPREADS = (1.0, 0.5, 0.25)  # of random points about the start, in turn
FAR = 3.0  # largest displacement of an entry, in units of these
DIFFERENT = 1e-8  # relative to the largest gradient: larger is a difference
FAINT = 1e-7  # smallest accepted residual
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
EXACT = 1e-10  # largest residual outside of rational coordinates


@dataclass(frozen=True)
class Gap:
    """Smallest accepted and largest rejected residual, relative to gradients."""

    accepted: float
    rejected: float

    def __str__(self) -> str:
        return f"{self.accepted:.1g} accepted, {self.rejected:.1g} rejected"

    def require(self, what: str) -> None:
        """Refuse residuals that are not orders of magnitude apart."""
        if self.accepted < max(APART * self.rejected, FAINT) or self.rejected > ROUNDING:
            raise ParameterError(
                f"{what}: cannot be told from rounding: the smallest accepted residual is "
                f"{self.accepted:.1g}, the largest rejected one {self.rejected:.1g}; "
                "give fewer weights, or a more symmetric start"
            )


class Points:
    """Gradients at random points, those that are finite."""

    def __init__(
        self, gradient: Callable[[np.ndarray], tuple[float, np.ndarray]], seed: int
    ) -> None:
        self.gradient, self.rng, self.drawn = gradient, np.random.default_rng(seed), 0

    def draw(
        self, of: Callable[[np.ndarray], np.ndarray], size: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """A point, a function of ``size`` normal numbers, and the gradient there."""
        for _ in range(MOST_TRIES):
            spread = SPREADS[self.drawn % len(SPREADS)]
            self.drawn += 1
            theta = of(spread * self.rng.normal(size=size))
            loss, slopes = self.gradient(theta)
            if np.isfinite(loss) and np.isfinite(slopes).all():
                return theta, slopes
        raise ParameterError("loss: is not finite at random weights about the start")


def random_start(start: np.ndarray, places: Mapping[str, slice]) -> None:
    """Refuse a start without any symmetry."""
    for name, place in places.items():
        values = start[place]
        if values.size > FEW and len(np.unique(values)) > values.size // 2:
            raise ParameterError(
                f"start: the weights of {name} start at different values, so that the subspace is "
                "everything: no two weights move together; give a symmetric start, such as start=0"
            )


def partition(points: Points, start: np.ndarray) -> tuple[np.ndarray, np.ndarray, Gap]:
    """Class of every entry, gradients at points that are constant on classes, and how clear it is.

    Entries of a class start equal and stay equal under every optimiser that treats entries alike.
    """
    labels = np.unique(start, return_inverse=True)[1].ravel()
    accepted, quiet, rows = np.inf, 0, []
    while quiet < len(SPREADS):
        many = labels.max() + 1
        if many > MOST_CLASSES:
            raise ParameterError(
                f"start: {many} or more of {start.size} weights move differently, so that the "
                f"subspace is everything, or nearly so (at most {MOST_CLASSES} are followed); give "
                "a symmetric start, such as start=0"
            )
        _, g = points.draw(lambda z: start + z[labels], many)  # noqa: B023, called at once
        scale = np.abs(g).max() or 1.0
        order = np.lexsort((g, labels))
        same = np.diff(labels[order]) == 0
        steps = np.diff(g[order]) / scale
        split = same & (steps > DIFFERENT)
        rows.append(g / scale)
        quiet += 1
        if split.any():
            accepted, quiet = min(accepted, _clearest(rows, labels)), 0
            labels = labels.copy()
            labels[order] = np.cumsum(np.append(True, ~same | split)) - 1
            rows = []
    spread = [np.ptp(np.array(rows)[:, labels == c], axis=1).max() for c in range(labels.max() + 1)]
    return labels, np.array(rows), Gap(accepted, float(max(spread)))


def _clearest(rows: Sequence[np.ndarray], labels: np.ndarray) -> float:
    """Smallest step between neighbouring values of a class that counts as a difference."""
    g = rows[-1]
    order = np.lexsort((g, labels))
    steps = np.diff(g[order])[np.diff(labels[order]) == 0]
    return float(steps[steps > DIFFERENT].min())


def residual(V: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Parts of unit vectors (rows) outside of orthonormal columns, subtracted twice."""
    for _ in range(2):
        rows = rows - (rows @ V) @ V.T
    return rows


def unit(rows: Any) -> np.ndarray:
    """Rows of norm one; those that are zero stay."""
    rows = np.atleast_2d(rows)
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(size > 0, size, 1)


def tidy(V: np.ndarray, root: np.ndarray) -> np.ndarray:
    """Orthonormal columns whose rows are averaged where they are equal up to rounding."""
    rows = V / root[:, None]
    along = rows @ np.random.default_rng(1).normal(size=V.shape[1])
    order = np.argsort(along)
    near = np.diff(along[order]) < EQUAL * np.abs(along).max()
    group = np.empty(len(rows), int)
    group[order] = np.cumsum(np.append(0, ~near))
    weight = np.bincount(group, root**2)
    mean = np.stack([np.bincount(group, root**2 * x) / weight for x in rows.T], 1)
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
        rows = residual(V, unit([draw(V) for _ in range(many)]))
        largest = float(np.linalg.norm(rows, axis=1).max())
        if largest < DIFFERENT or V.shape[1] == len(root):
            return V, Gap(accepted, largest)
        _, sizes, basis = np.linalg.svd(rows, full_matrices=False)
        taken = sizes >= PIVOT * sizes[0]
        accepted = min(accepted, float(sizes[taken].min()))
        V = tidy(np.hstack([V, residual(V, unit(basis[taken])).T]), root)


def fractions(values: np.ndarray, largest: int) -> np.ndarray | None:
    """The values as fractions with small denominators; none if they are no such fractions."""
    near = np.array([[Fraction(x).limit_denominator(largest) for x in row] for row in values])
    return near if np.abs(near.astype(float) - values).max(initial=0) < AGREE else None


def echelon(rows: np.ndarray) -> np.ndarray:
    """Reduced row echelon form; a pivot is the first column that is not small."""
    rows, k = rows.copy(), 0
    for j in range(rows.shape[1]):
        if k == len(rows):
            break
        i = k + int(np.abs(rows[k:, j]).argmax())
        if abs(rows[i, j]) < 1e-6 * np.abs(rows[k:]).max():
            continue
        rows[[k, i]] = rows[[i, k]]
        rows[k] /= rows[k, j]
        rows[k, j] = 1
        others = np.arange(len(rows)) != k
        rows[others] -= np.outer(rows[others, j], rows[k])
        rows[others, j] = 0
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
        Of the directions; ``class_gap`` of the classes.
    residual : float
        Largest part of a gradient outside of the coordinates, at fresh points.
    """

    start: np.ndarray
    labels: np.ndarray
    fine: np.ndarray
    forms: np.ndarray
    gap: Gap
    class_gap: Gap
    residual: float

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
        return self.forms.astype(float).reshape(len(self.forms), len(self.counts))

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
        return self.rows @ (np.bincount(self.labels, theta, len(self.counts)) / self.counts)

    def weights(self, values: np.ndarray) -> np.ndarray:
        """Weights of order parameters."""
        moved = self.lift @ (values - self.coordinates(self.start))
        return self.start + moved[self.labels]

    def conserved(self) -> np.ndarray:
        """Combinations of means over classes that move, but stay constant together: a row each."""
        places = np.flatnonzero(self.moving)
        if not self.rational:
            return np.empty((0, len(self.counts)))
        exact = sp.Matrix(
            [[sp.Rational(f.numerator, f.denominator) for f in row] for row in self.forms]
        )
        scaled = exact * sp.diag(*(sp.Rational(1, int(n)) for n in self.counts))
        found = []
        for vector in scaled.extract(list(range(len(self.forms))), places.tolist()).nullspace():
            row = np.full(len(self.counts), Fraction(0), object)
            row[places] = [Fraction(int(x.p), int(x.q)) for x in vector / max(vector, key=abs)]
            found.append(row / min(abs(x) for x in row if x))
        return np.array(found, object).reshape(len(found), len(self.counts))


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
    if not np.abs(gradient(start)[1]).max() > 0:
        raise ParameterError(
            "start: the gradient is zero there, so that descent never moves; start elsewhere, "
            f"such as start={{'{next(iter(places))}': 0.1}}"
        )
    random_start(start, places)
    points = Points(gradient, seed)
    fine, _, class_gap = partition(points, start)
    class_gap.require("classes of weights")
    fine = _by_size(fine)
    counts = np.bincount(fine)
    root = np.sqrt(counts)

    def draw(V: np.ndarray) -> np.ndarray:
        def at(z: np.ndarray) -> np.ndarray:
            moved = V @ z / root
            size = np.abs(moved).max(initial=0) / FAR
            return start + (moved / size * np.abs(z).max() if size > 0 else moved)[fine]

        return np.bincount(fine, points.draw(at, V.shape[1])[1], len(counts)) / root

    V, gap = grown(draw, root)
    gap.require("order parameters")
    # classes that move alike are one class, and so are all that start equal and never move
    near = np.round(np.column_stack([start[_first(fine)], V / root[:, None] / EQUAL]))
    near[:, 0] = np.unique(start[_first(fine)], return_inverse=True)[1].ravel()
    labels = _by_size(np.unique(near, axis=0, return_inverse=True)[1].ravel()[fine])
    many = np.bincount(labels)
    forms = echelon((V / root[:, None])[fine[_first(labels)]].T * many)

    def outside(rows: np.ndarray) -> float:
        """Largest part of fresh gradients outside of some coordinates."""
        of = (rows / many)[:, labels[_first(fine)]] * root
        return float(
            np.linalg.norm(
                residual(np.linalg.qr(of.T)[0], unit([draw(V) for _ in range(DRAWS)])), axis=1
            ).max()
        )

    for largest in DENOMINATORS:
        exact = fractions(forms, largest)
        if exact is not None and (remainder := outside(exact.astype(float))) < EXACT:
            return Subspace(start, labels, fine, exact, gap, class_gap, remainder)
    remainder = outside(forms)
    Gap(gap.accepted, remainder).require("order parameters")
    return Subspace(start, labels, fine, forms, gap, class_gap, remainder)


def _first(labels: np.ndarray) -> np.ndarray:
    """Place of the first entry of every class."""
    return np.unique(labels, return_index=True)[1]


def _by_size(labels: np.ndarray) -> np.ndarray:
    """Classes numbered by size, then by first entry."""
    order = np.lexsort((_first(labels), np.bincount(labels)))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place[labels]
