"""Theorem 1 without Monte Carlo: the gradient on ONE fixed sample, averaged over a
finite group (A.5-A.7).

The proof uses only properties of orthogonal matrices that signed permutations share.
Therefore the average over all signed permutations E of tokens and F of codes, at
arbitrary weights inside the 19 directions, lies in these directions up to rounding. For
subgroups that are too small, or for rotations that are not symmetries, it does not
(controls).
"""

import itertools
from collections.abc import Iterator

import numpy as np
import torch

from simulate.induction_heads import student
from simulate.induction_heads.student import (
    NAMES,
    Student,
    assemble,
    project,
    squared_error,
)
from theory.induction_heads import structure
from verify.checks.check import Check, at_least, identity, listed, vanishing
from verify.checks.report import Table
from verify.induction_heads.all_weights.all_weights_equations import CLOSE

Rotation = tuple[np.ndarray, np.ndarray, np.ndarray]  # of items, labels, codes
CHUNK = 2048  # number of group elements per batch


def whole_group(D: int) -> list[Rotation]:
    """E on items and labels alike, F on codes."""
    return [
        (e, e, f)
        for e, f in itertools.product(
            structure.group("token", D), structure.group("position", D)
        )
    ]


def only_diagonal_codes(D: int) -> list[Rotation]:
    """Control: F = diag(e, e) alone, which leaves codes a larger commutant."""
    half = D // 2
    return [(e, e, f) for e, _, f in whole_group(D) if not f[:half, half:].any()]


def only_signs(D: int) -> list[Rotation]:
    """Control: E = diag(+-1) alone, whose commutant holds every diagonal matrix."""
    return [(e, g, f) for e, g, f in whole_group(D) if (np.abs(e) == np.eye(D)).all()]


def labels_left_alone(D: int) -> list[Rotation]:
    """Control: items rotated, labels not, which is no symmetry of the loss."""
    return [(e, np.eye(D, dtype=int), f) for e, _, f in whole_group(D)]


CONTROLS = {
    "only block-diagonal F": only_diagonal_codes,
    "only sign-diagonal E": only_signs,
    "items rotated, labels not": labels_left_alone,
}


class Sample:
    """One fixed sample of arbitrary numbers, and arbitrary weights inside the 19
    directions.
    """

    def __init__(
        self, N: int, D: int, q: int, mask: str = "strict", seed: int = 0
    ) -> None:
        random = torch.Generator().manual_seed(seed)
        self.items, self.labels, self.codes = torch.randn(
            3, 1, N, D, generator=random, dtype=torch.float64
        )
        self.q = q
        values = torch.randn(len(NAMES), generator=random, dtype=torch.float64) / 2
        self.student = Student(D, mask, torch.float64)
        self.student.load_state_dict(assemble(dict(zip(NAMES, values, strict=True)), D))

    def gradient(self, rotations: list[Rotation]) -> dict[str, torch.Tensor]:
        """Gradient of the squared error (summed over D), averaged over rotations of the
        sample.
        """
        self.student.zero_grad()
        sample = self.items, self.labels, self.codes
        for k in range(0, len(rotations), CHUNK):
            part = rotations[k : k + CHUNK]
            rotated = []
            for vectors, matrices in zip(sample, zip(*part, strict=True), strict=True):
                matrix = torch.tensor(np.stack(matrices), dtype=torch.float64)
                rotated.append(vectors @ matrix)
            items, labels, codes = rotated
            queries = torch.full((len(part),), self.q)
            batch = student.batch_of(items, labels, codes, queries)
            error = squared_error(self.student(batch.X), batch.y, "sum")
            (error * len(part) / len(rotations)).backward()
        weights = self.student.weights().items()
        return {name: w.grad for name, w in weights if w.grad is not None}


def outside(gradient: dict[str, torch.Tensor]) -> float:
    """Largest entry outside the 19 directions, over the largest entry."""
    inside = assemble(
        dict(zip(NAMES, project(gradient), strict=True)), gradient["W3"].shape[1]
    )
    largest = max(float(g.abs().max()) for g in gradient.values())
    return max(float((gradient[k] - inside[k]).abs().max()) for k in gradient) / largest


# Theorem 1 by exact group averages of the gradient, and controls that it does not
# describe

FLOOR = 1e-3  # smallest part outside required of a control


def order(D: int) -> int:
    """Number of elements of the symmetry group."""
    return len(structure.group("token", D)) * len(structure.group("position", D))


@listed
def theorem_1(_: Table) -> Iterator[Check]:
    """Nineteen directions by exact group averages, the four that never become nonzero,
    and controls that must fail.
    """
    yield from [
        identity(
            "invariant directions, by characters",
            "Theorem 1",
            19,
            structure.dimension(D),
            0.0,
            f"integers; D = {D}, {order(D)} elements",
        )
        for D in (2, 4)
    ]
    why = "sum over the group in float64"
    for D, mask in ((2, "strict"), (2, "inclusive"), (4, "strict")):
        average = Sample(3, D, 1, mask).gradient(whole_group(D))
        yield vanishing(
            f"gradient outside the 19, D = {D}, {mask} mask",
            "Theorem 1",
            outside(average),
            CLOSE[0],
            why,
        )
        values = dict(zip(NAMES, project(average).tolist(), strict=True))
        yield vanishing(
            f"gradient along beta_3..beta_6, D = {D}, {mask} mask",
            "W2_22, W2_24",
            [values[name] for name in NAMES if name not in structure.reachable()],
            0.0,
            "exactly zero: the query has no position",
        )
        yield control(
            f"smallest of the other 15, D = {D}, {mask} mask",
            min(abs(values[name]) for name in structure.reachable()),
            1e-6,
            "the other 15 do move",
        )
    lone = Sample(3, 2, 1)
    yield control("single sample", outside(lone.gradient(whole_group(2)[:1])), FLOOR)
    for name, subgroup in CONTROLS.items():
        worst = [
            outside(Sample(3, 2, 1, seed=s).gradient(subgroup(2))) for s in range(10)
        ]
        yield control(name, np.median(worst), FLOOR)
    lone.student.W1.data[0, 2] += 0.3
    yield control(
        "0.3 in one forbidden entry of W1",
        outside(lone.gradient(whole_group(2))),
        FLOOR,
    )


def control(
    name: str,
    measured: float,
    floor: float,
    why: str = "control: the average must leave the 19 directions",
) -> Check:
    """Check of something that must NOT vanish."""
    return at_least(f"control by {name}", "Theorem 1", floor, measured, why)
