"""The smallest affine subspace of the weights in which descent stays: classes of entries that stay
equal, and within them the directions of the gradient.

Classes come first: entries are split where their gradients differ, until nothing splits. Directions
are then looked for among means over classes, where rounding outside of the classes is gone.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import scipy.linalg

from theory.parameters import ParameterError
from theory.statement.tree import require

SPREADS = (1.0, 0.5, 0.25, 0.1)  # of random points about the start, in turn
DRAWS = len(SPREADS)  # points of a round
SURE = 4 * DRAWS  # points of a round that decides
CLEAR = 1e-2  # residual of directions, below which more points are drawn
FAR = 3.0  # largest displacement of an entry, in units of these
FLOOR = 1e-3  # gradients below this part of the largest so far are not scaled up to it
DIFFERENT = 1e-8  # relative to the gradient: larger is a difference
FAINT = 1e-5  # smallest accepted residual of directions, in which rounding grows
ROUNDING = 1e-10  # largest rejected residual
APART = 1e3  # smallest accepted over largest rejected residual
EQUAL = 1e-7  # of entries of directions, relative to the largest: equal up to rounding
PIVOT = 0.1  # directions are taken of which a round's residual is at least this part of the largest
SEVERAL = 10  # directions; more are looked for twice
MOST_CLASSES = 400
FEW = 12  # weights that may all start at different values
MOST_TRIES = 20
DENOMINATORS = (1, 24, 720, 5040)  # of coordinates, tried in turn
AGREE = 1e-7  # of a coordinate and its fraction, times the largest denominator
SYMMETRIC = "give a symmetric start, such as start=0, and all inputs instead of a sample"
UNEVEN = (
    "start: the weights of {} start at different values, so that {} classes of weights move "
    "differently, instead of {} from start=0, the symmetric start"
)
Gradient = Callable[[np.ndarray], tuple[float, np.ndarray]]


@dataclass(frozen=True)
class Gap:
    """Smallest accepted and largest rejected residual, relative to gradients."""

    accepted: float
    rejected: float

    def __str__(self) -> str:
        return f"{self.accepted:.1g} accepted, {self.rejected:.1g} rejected"

    def require(self, what: str, faint: float = 0) -> None:
        """Refuse residuals that are not orders of magnitude apart."""
        require(
            self.accepted >= max(APART * self.rejected, faint) and self.rejected <= ROUNDING,
            f"{what}: residuals cannot be told from rounding ({self}); {SYMMETRIC}",
        )


@dataclass
class Points:
    """Gradients at random points about the start."""

    gradient: Gradient
    start: np.ndarray
    rng: np.random.Generator
    largest: float = 0.0

    def draw(self, lift: Callable[[np.ndarray], np.ndarray], size: int, many: int) -> np.ndarray:
        """Rows of slopes in units of their norm, or of a part of the largest norm: where a softmax
        saturates, all that is seen is rounding.

        ``lift`` makes displacements of all weights from ``size`` normal numbers.
        """
        rows = list[np.ndarray]()
        for n in range(many + MOST_TRIES):
            z = SPREADS[n % DRAWS] * self.rng.normal(size=size)
            loss, slopes = self.gradient(self.start + lift(z))
            rows += [slopes] if np.isfinite([loss, *slopes]).all() else []
            if len(rows) == many:
                norms = np.linalg.norm(rows, axis=1, keepdims=True)
                self.largest = max(self.largest, float(norms.max()))
                return np.array(rows) / np.maximum(norms, FLOOR * self.largest or 1)
        raise ParameterError("loss: is not finite at random weights about the start")

    def moves(self, theta: np.ndarray) -> bool:
        """Whether descent from there moves."""
        return bool(np.linalg.norm(self.gradient(theta)[1]) > ROUNDING * self.largest)

    def partition(self) -> tuple[np.ndarray, Gap]:
        """Class of every entry, and how clear it is.

        Entries of a class start equal and stay equal under every optimiser that treats entries
        alike.
        """
        labels = np.unique(self.start, return_inverse=True)[1].ravel()
        accepted = np.inf
        while True:
            many = labels.max() + 1
            require(
                many <= MOST_CLASSES,
                f"start: {many} or more of {labels.size} weights move differently, so that the "
                f"subspace is everything, or nearly so (at most {MOST_CLASSES} are followed); "
                + SYMMETRIC,
            )
            for draws in (DRAWS, SURE):
                rows = self.draw(lambda z, labels=labels: z[labels], many, draws)  # type: ignore[misc]
                g = self.rng.normal(size=draws) @ rows
                order = np.lexsort((g, labels))
                same = np.diff(labels[order], prepend=-1) == 0
                steps = np.diff(g[order], prepend=0) * same
                split = steps > DIFFERENT
                if split.any():
                    break
            else:
                return by_size(labels), Gap(accepted, abs(float(steps.max())))
            accepted = min(accepted, float(steps[split].min()))
            labels[order] = np.cumsum(~same | split) - 1


@dataclass(frozen=True)
class Means:
    """Gradients among means over classes, scaled by roots of their sizes, which keeps angles."""

    points: Points
    labels: np.ndarray
    root: np.ndarray

    def draw(self, V: np.ndarray, many: int) -> np.ndarray:
        """Gradients at random points of the span of orthonormal columns, a row each.

        Entries of a class have the same gradient: where they do not, all is rounding.
        """

        def lift(z: np.ndarray) -> np.ndarray:
            moved = V @ z / self.root
            return FAR * np.abs(z).max(initial=0) / (np.abs(moved).max() or 1) * moved[self.labels]

        slopes = self.points.draw(lift, V.shape[1], many)
        means = np.stack([np.bincount(self.labels, row) for row in slopes]) / self.root**2
        scatter = np.abs(slopes - means[:, self.labels]).max(1)
        require(
            scatter.min() < ROUNDING,
            f"classes of weights: gradients in one differ by {scatter.min():.1g}, which cannot be told "
            f"from rounding; {SYMMETRIC}",
        )
        return means[scatter < ROUNDING] * self.root

    def span(self) -> tuple[np.ndarray, Gap]:
        """Orthonormal columns of the smallest subspace that holds gradients at all its points."""
        V, accepted = np.zeros((len(self.root), 0)), np.inf
        while True:
            for many in (max(DRAWS, V.shape[1] // 3) if V.size else 1, SURE):
                slopes = residual(V, self.draw(V, many))
                _, sizes, basis = np.linalg.svd(slopes, full_matrices=False)
                if sizes[0] > CLEAR:
                    break
            if sizes[0] < DIFFERENT or V.shape[1] == len(V):
                return V, Gap(accepted, float(sizes[0]))
            taken = sizes >= PIVOT * sizes[0]
            accepted = min(accepted, float(sizes[taken].min()))
            V = self.tidy(np.hstack([V, residual(V, basis[taken]).T]))

    def tidy(self, V: np.ndarray) -> np.ndarray:
        """Orthonormal columns whose rows are averaged where they are equal up to rounding."""
        rows, many = V / self.root[:, None], self.root**2
        group = alike(rows)
        mean = np.stack(
            [np.bincount(group, many * x) / np.bincount(group, many) for x in rows.T], 1
        )
        mean[np.abs(mean).max(1) < EQUAL * np.abs(mean).max()] = 0
        return np.linalg.qr(mean[group] * self.root[:, None])[0]


def residual(V: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Parts of rows outside of orthonormal columns, subtracted twice."""
    for _ in range(2):
        rows = rows - (rows @ V) @ V.T
    return rows


def alike(rows: np.ndarray) -> np.ndarray:
    """Class of every row: those that are equal up to rounding."""
    scaled = rows / (EQUAL * np.abs(rows).max() or 1)
    return np.unique(scaled.round(), axis=0, return_inverse=True)[1].ravel()


def first(labels: np.ndarray) -> np.ndarray:
    """Place of the first entry of every class."""
    return np.unique(labels, return_index=True)[1]


def by_size(labels: np.ndarray) -> np.ndarray:
    """Classes numbered by size, then by first entry."""
    order = np.lexsort((first(labels), np.bincount(labels)))
    return np.argsort(order)[labels]


def echelon(rows: np.ndarray) -> np.ndarray:
    """Reduced row echelon form, a pivot the first column that is not small: in fractions, if all
    are simple.
    """
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
    for largest in DENOMINATORS:
        exact = np.frompyfunc(lambda x: Fraction(x).limit_denominator(largest), 1, 1)(rows)  # noqa: B023
        if np.abs(exact.astype(float) - rows).max(initial=0) < AGREE / largest:
            return exact
    return np.where(np.abs(rows) < AGREE, 0, rows)


@dataclass(frozen=True)
class Subspace:
    """Where descent stays.

    Attributes
    ----------
    start : array
        All weights at the start.
    labels : array
        Class of every entry. Entries of a class start equal and move alike.
    forms : array
        Coordinates as combinations of means over classes, a row each: fractions, or floats.
    gap : Gap
        Of the directions, at fresh points, too; ``class_gap`` of the classes.
    """

    start: np.ndarray
    labels: np.ndarray
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
        return self.start + (self.lift @ (values - self.coordinates(self.start)))[self.labels]

    @functools.cached_property
    def conserved(self) -> np.ndarray:
        """Combinations of means over classes that move, but stay constant together: a row each."""
        rows = np.zeros((self.moving.sum() - len(self.rows), len(self.counts)), self.forms.dtype)
        moves = self.lift[self.moving].T
        rows[:, self.moving] = echelon(scipy.linalg.null_space(moves).T)
        return rows


def discovered(
    gradient: Gradient,
    start: np.ndarray,
    shapes: Mapping[str, tuple[int, ...]],
    places: Mapping[str, slice],
    seed: int,
) -> Subspace:
    """Classes, coordinates and their evidence.

    Raises
    ------
    ParameterError
        If the start has no symmetry, nothing moves, or residuals are not orders of magnitude apart.
    """
    points = Points(gradient, start, np.random.default_rng(seed))
    near = points.draw(lambda z: z, start.size, 1)[0]
    uneven = [k for k, x in places.items() if 2 < start[x].size < 2 * len(np.unique(start[x]))]
    for name in uneven:
        if len(np.unique(start[places[name]])) > FEW:
            say = f"{name}: the loss does not depend on it; freeze it, requires_grad_(False)"
            require(near[places[name]].any(), say)
            raise ParameterError(
                f"start: the weights of {name} start at different values, so that the subspace is "
                f"everything: no two weights move together; {SYMMETRIC}"
            )
    fine, class_gap = points.partition()
    if uneven:
        even = Points(gradient, 0 * start, np.random.default_rng(seed)).partition()[0]
        if even.max() < fine.max():
            counts = fine.max() + 1, even.max() + 1
            warnings.warn(UNEVEN.format(", ".join(uneven), *counts), stacklevel=3)
    if not points.moves(start):
        stuck = "start: the gradient is zero there, so that descent never moves; start elsewhere"
        for name, shape in shapes.items():
            moves = {"0.1": np.ones(shape)}
            if shape[1:] == shape[:1]:
                moves[f"0.1 * torch.eye({shape[0]})"] = np.eye(shape[0])
            for words, moved in moves.items():
                theta = start.copy()
                theta[places[name]] += 0.1 * moved.ravel()
                require(not points.moves(theta), f"{stuck}, such as start={{'{name}': {words}}}")
        raise ParameterError(stuck)
    class_gap.require("classes of weights")
    root = np.sqrt(np.bincount(fine))
    means = Means(points, fine, root)
    V, gap = means.span()
    if (many := V.shape[1]) > SEVERAL:  # in which rounding has grown: again, at other points
        again = means.span()[0].shape[1]
        other = f"order parameters: {many}, or {again} at other random points; {SYMMETRIC}"
        require(again == many, other)
    # classes that move alike are one class, and so are all that start equal and never move
    rows = V / root[:, None]
    both = np.column_stack([alike(rows), start[first(fine)]])
    labels = by_size(np.unique(both, axis=0, return_inverse=True)[1].ravel()[fine])
    forms = echelon(rows[fine[first(labels)]].T * np.bincount(labels))
    made = Subspace(start, labels, forms, gap, class_gap)
    Q = np.linalg.qr(made.lift[labels[first(fine)]] * root[:, None])[0]
    fresh = float(np.linalg.norm(residual(Q, means.draw(Q, DRAWS)), axis=1).max())
    gap = Gap(gap.accepted, max(gap.rejected, fresh))
    gap.require("order parameters", FAINT)
    return Subspace(start, labels, forms, gap, class_gap)
