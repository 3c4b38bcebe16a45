"""Theorem 1 by exact group averages of the gradient, and controls that it does not describe."""

from collections.abc import Iterator

import numpy as np

from simulate.induction_heads.student import NAMES, project
from theory.induction_heads import structure
from verify.check import Check, at_least, identity, listed, vanishing
from verify.induction_heads import symmetry
from verify.induction_heads.points import CLOSE
from verify.report import Table

FLOOR = 1e-3  # smallest part outside required of a control


@listed
def theorem_1(_: Table) -> Iterator[Check]:
    """Nineteen directions by exact group averages, the four that never become nonzero, and controls
    that must fail.
    """
    yield from [
        identity(
            "invariant directions, by characters",
            "Theorem 1",
            19,
            float(structure.dimension(D)),
            0.0,
            f"integers; D = {D}, {len(structure.group('token', D)) * len(structure.group('position', D))} elements",
        )
        for D in (2, 4)
    ]
    why = "sum over the group in float64"
    for D, mask in ((2, "strict"), (2, "inclusive"), (4, "strict")):
        average = symmetry.Sample(3, D, 1, mask).gradient(symmetry.whole_group(D))
        yield vanishing(
            f"gradient outside the 19, D = {D}, {mask} mask",
            "Theorem 1",
            symmetry.outside(average),
            CLOSE[0],
            why,
        )
        values = dict(zip(NAMES, project(average).tolist(), strict=True))
        still = [values[name] for name in NAMES if name not in structure.reachable()]
        yield vanishing(
            f"gradient along beta_3..beta_6, D = {D}, {mask} mask",
            "W2_22, W2_24",
            still,
            0.0,
            "exactly zero: the query has no position",
        )
        smallest = min(abs(values[name]) for name in structure.reachable())
        yield control(
            f"smallest of the other 15, D = {D}, {mask} mask",
            smallest,
            1e-6,
            "the other 15 do move",
        )
    lone = symmetry.Sample(3, 2, 1)
    yield control(
        "single sample", symmetry.outside(lone.gradient(symmetry.whole_group(2)[:1])), FLOOR
    )
    for name, subgroup in symmetry.CONTROLS.items():
        worst = [
            symmetry.outside(symmetry.Sample(3, 2, 1, seed=s).gradient(subgroup(2)))
            for s in range(10)
        ]
        yield control(name, float(np.median(worst)), FLOOR)
    lone.student.W1.data[0, 2] += 0.3
    yield control(
        "0.3 in one forbidden entry of W1",
        symmetry.outside(lone.gradient(symmetry.whole_group(2))),
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
