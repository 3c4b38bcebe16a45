"""Students of every kind, two seeds each, end where they did, as `golden/numbers.json` has it.

Could see: a seed or random stream used for two purposes, a sample left out, another mean, in
training and in whatever is measured.
"""

from __future__ import annotations

import numpy as np
import pytest
from tiny import ALONE, STUDENTS, student

from tests import frozen


@pytest.mark.parametrize("name", STUDENTS)
def test_students_end_where_they_did(name, tmp_path):
    """In double precision, so that other machines round 10^9 times finer than the tolerance."""
    system, p = student(name)
    found = system.train(p, [0, 1], store=tmp_path, dtype="float64", **ALONE)
    for key, curve in found.data_vars.items():
        if curve.dtype.kind in "fiub":
            _hold(f"{name} | {key}", curve.astype(float), found.xindexes)


def _hold(key, curve, indexes):
    """Means at the end, and root mean squares of everything, seed by seed."""
    ends = curve.isel({d: -1 for d in curve.dims if d in indexes and d != "seed"})
    others = [d for d in curve.dims if d != "seed"]
    sizes = np.sqrt((curve**2).mean(others))
    frozen.hold(key, *np.atleast_1d(ends.mean([d for d in ends.dims if d != "seed"])))
    frozen.hold(f"{key} | all", *np.atleast_1d(sizes))
