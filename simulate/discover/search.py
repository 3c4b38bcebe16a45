"""Search for the subspace in which descent stays: classes of entries that stay equal,
and within them the directions of the gradient.

Classes come first: entries are split where their gradients differ, until nothing
splits. Directions are then looked for among means over classes, where rounding outside
of the classes is gone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simulate.discover.loss import Loss
from simulate.discover.subspace import (
    FAINT,
    ROUNDING,
    SYMMETRIC,
    Array,
    Gap,
    Subspace,
    averaged,
    echelon,
)
from theory.call.refusal import ParameterError
from theory.statement.words.tree import require

SPREADS = (1.0, 0.5, 0.25, 0.1)  # of random points about the start, in turn
DRAWS = len(SPREADS)  # points of a round
SURE = 4 * DRAWS  # points of a round that decides
CLEAR = 1e-2  # residual of directions, below which more points are drawn
FAR = 3.0  # largest displacement of an entry, in units of these
FLOOR = 1e-3  # gradients below this part of the largest so far are not scaled up to it
DIFFERENT = 1e-8  # relative to the gradient: larger is a difference
EQUAL = 1e-7  # of entries of directions, relative to the largest: equal up to rounding
# directions are taken of which a round's residual is at least this part of the largest
PIVOT = 0.1
SEVERAL = 10  # directions; more are looked for twice
MOST_CLASSES = 400
FEW = 12  # weights that may all start at different values
MOST_TRIES = 20
UNEVEN = (
    "start: the weights of {} start at different values, so that {} classes of weights"
    " move differently, instead of {} from start=0, the symmetric start"
)


@dataclass
class Points:
    """Gradients at random points about the start."""

    loss: Loss
    start: Array
    rng: np.random.Generator
    largest: float = 0.0

    def draw(self, lift: Callable[[Array], Array], size: int, many: int) -> Array:
        """Rows of slopes in units of their norm, or of a part of the largest norm:
        where a softmax saturates, all that is seen is rounding.

        ``lift`` makes displacements of all weights from ``size`` normal numbers.
        """
        rows = list[Array]()
        for n in range(many + MOST_TRIES):
            z = SPREADS[n % DRAWS] * self.rng.normal(size=size)
            loss, slopes = self.loss.gradient(self.start + lift(z))
            rows += [slopes] if np.isfinite([loss, *slopes]).all() else []
            if len(rows) == many:
                norms = np.linalg.norm(rows, axis=1, keepdims=True)
                self.largest = max(self.largest, float(norms.max()))
                return np.array(rows) / np.maximum(norms, FLOOR * self.largest or 1)
        raise ParameterError("loss: is not finite at random weights about the start")

    def moves(self, theta: Array) -> bool:
        """Whether descent from there moves."""
        return bool(
            np.linalg.norm(self.loss.gradient(theta)[1]) > ROUNDING * self.largest
        )

    def partition(self) -> tuple[Array, Gap]:
        """Class of every entry, and how clear it is.

        Entries of a class start equal and stay equal under every optimiser that treats
        entries alike.
        """
        labels, accepted = alike(self.start[:, None], 0), np.inf
        while True:
            many = labels.max() + 1
            require(
                many <= MOST_CLASSES,
                f"start: {many} or more of {labels.size} weights move differently, so"
                " that the subspace is everything, or nearly so (at most"
                f" {MOST_CLASSES} are followed); " + SYMMETRIC,
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

    def span(self, labels: Array) -> tuple[Array, Gap]:
        """Orthonormal columns of the smallest subspace of means over classes (times
        roots of their sizes, which keeps angles) that holds gradients at all its
        points.
        """
        root = np.sqrt(np.bincount(labels))[:, None]
        V, accepted = np.zeros((len(root), 0)), np.inf
        while True:
            for many in (max(DRAWS, V.shape[1] // 3) if V.size else 1, SURE):
                slopes = residual(V, self.means(labels, V, many))
                _, sizes, basis = np.linalg.svd(slopes, full_matrices=False)
                if sizes[0] > CLEAR:
                    break
            if sizes[0] < DIFFERENT or V.shape[1] == len(V):
                return V, Gap(accepted, float(sizes[0]))
            taken = sizes >= PIVOT * sizes[0]
            accepted = min(accepted, float(sizes[taken].min()))
            rows = np.hstack([V, residual(V, basis[taken]).T]) / root
            # rows that are equal up to rounding are averaged, or rounding grows
            group = alike(rows)
            mean = averaged(group[labels], rows.T[:, labels])
            mean[:, np.abs(mean).max(0) < EQUAL * np.abs(mean).max()] = 0
            V = np.linalg.qr(mean.T[group] * root)[0]

    def means(self, labels: Array, V: Array, many: int) -> Array:
        """Gradients at random points of the span of orthonormal columns, as means over
        classes.

        Entries of a class have the same gradient: where they do not, all is rounding.
        """
        root = np.sqrt(np.bincount(labels))

        def lift(z: Array) -> Array:
            moved = V @ z / root
            return (
                FAR
                * np.abs(z).max(initial=0)
                / (np.abs(moved).max() or 1)
                * moved[labels]
            )

        slopes = self.draw(lift, V.shape[1], many)
        means = averaged(labels, slopes)
        scatter = np.abs(slopes - means[:, labels]).max(1)
        require(
            scatter.min() < ROUNDING,
            f"classes of weights: gradients in one differ by {scatter.min():.1g}, which"
            f" cannot be told from rounding; {SYMMETRIC}",
        )
        return means[scatter < ROUNDING] * root


def residual(V: Array, rows: Array) -> Array:
    """Parts of rows outside of orthonormal columns, subtracted twice."""
    for _ in range(2):
        rows = rows - (rows @ V) @ V.T
    return rows


def alike(rows: Array, apart: float = EQUAL) -> Array:
    """Class of every row: those that are equal, or nearly so relative to the largest
    entry.
    """
    scaled = (rows / (apart * np.abs(rows).max() or 1)).round() if apart else rows
    return np.unique(scaled, axis=0, return_inverse=True)[1].ravel()


def first(labels: Array) -> Array:
    """Place of the first entry of every class."""
    return np.unique(labels, return_index=True)[1]


def by_size(labels: Array) -> Array:
    """Classes numbered by size, then by first entry."""
    order = np.lexsort((first(labels), np.bincount(labels)))
    return np.argsort(order)[labels]


def uneven_weights(loss: Loss, points: Points) -> list[str]:
    """Weights most of which start at different values.

    Raises
    ------
    ParameterError
        If these are many.
    """
    near = loss.named(points.draw(lambda z: z, loss.size, 1)[0])
    uneven = []
    for name, x in loss.named(loss.start).items():
        different = len(np.unique(x))
        if 2 < x.size < 2 * different:
            uneven.append(name)
            many = different > FEW
            unused = (
                f"{name}: the loss does not depend on it; freeze it,"
                " requires_grad_(False)"
            )
            require(near[name].any() or not many, unused)
            require(
                not many,
                f"start: the weights of {name} start at different values, so that the"
                f" subspace is everything: no two weights move together; {SYMMETRIC}",
            )
    return uneven


def elsewhere(loss: Loss, points: Points) -> str:
    """A start from which descent moves, if it does not move from this one."""
    own, start = (loss.named(x) for x in (loss.own, loss.start))
    for name, x in start.items():
        others = {
            k: y
            for k, y in start.items()
            if k != name and not np.array_equal(y, own[k])
        }
        if any(np.ptp(y) for y in others.values()):
            continue
        moves: dict[str, Array] = {"0.1": np.ones(x.shape)}
        if x.shape[1:] == x.shape[:1]:
            moves[f"0.1 * torch.eye({len(x)})"] = np.eye(len(x))
        for words, moved in moves.items():
            theta = loss.start.copy()
            loss.named(theta)[name][...] = 0.1 * moved
            if points.moves(theta):
                also = "".join(f", '{k}': {y.flat[0]:g}" for k, y in others.items())
                return f", such as start={{'{name}': {words}{also}}}"
    return ""


def discovered(loss: Loss, seed: int) -> Subspace:
    """Classes, coordinates and their evidence.

    Raises
    ------
    ParameterError
        If the start has no symmetry, nothing moves, or residuals are not orders of
        magnitude apart.
    """
    start = loss.start
    points = Points(loss, start, np.random.default_rng(seed))
    uneven = uneven_weights(loss, points)
    fine, class_gap = points.partition()
    if uneven:
        zero = Points(loss, 0 * start, np.random.default_rng(seed)).partition()[0]
        if zero.max() < fine.max():
            counts = fine.max() + 1, zero.max() + 1
            warnings.warn(UNEVEN.format(", ".join(uneven), *counts), stacklevel=3)
    if not points.moves(start):
        stuck = (
            "start: the gradient is zero there, so that descent never moves; start"
            " elsewhere"
        )
        raise ParameterError(stuck + elsewhere(loss, points))
    class_gap.require("classes of weights")
    V, gap = points.span(fine)
    if (
        many := V.shape[1]
    ) > SEVERAL:  # in which rounding has grown: again, at other points
        again = points.span(fine)[0].shape[1]
        other = (
            f"order parameters: {many}, or {again} at other random points; {SYMMETRIC}"
        )
        require(again == many, other)
    root = np.sqrt(np.bincount(fine))[:, None]
    rows = V / root
    # classes that move alike are one class, and so are all that start equal and never
    # move
    both = np.column_stack([alike(rows), start[first(fine)]])
    labels = by_size(alike(both, 0)[fine])
    forms = echelon(rows[fine[first(labels)]].T * np.bincount(labels))
    made = Subspace(loss, labels, forms, gap, class_gap)
    Q = np.linalg.qr(made.lift[labels[first(fine)]] * root)[0]
    fresh = np.linalg.norm(residual(Q, points.means(fine, Q, DRAWS)), axis=1).max()
    gap.rejected = max(gap.rejected, float(fresh))
    gap.require("order parameters", FAINT)
    return made
