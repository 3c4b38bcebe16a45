"""Students of every kind, two seeds each, end where they did, as `golden/numbers.json`
has it.

Could see: a seed or random stream used for two purposes, a sample left out, another
mean, in training and in whatever is measured.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tiny import ALONE, FIRST, STUDENTS, student

from tests import frozen
from theory.call.refusal import ParameterError

# Descent on a population that is the same for every seed.
SAME = ("nineteen", "reduced", "population", "histogram", "three", "bursty")


@pytest.mark.parametrize("name", STUDENTS)
def test_students_end_where_they_did(name, tmp_path):
    """In double precision, so that other machines round 10^9 times finer than the
    tolerance; the seeds are other students.
    """
    system, p = student(name)
    found = system.train(p, [0, 1], store=tmp_path, dtype="float64", **ALONE)
    if not any(x in name for x in SAME):
        moving = [
            x
            for x in found.data_vars.values()
            if "seed" in x.dims and x.dtype.kind == "f"
        ]
        ends = ([float(x[k].values.ravel()[-1]) for x in moving] for k in (0, 1))
        assert np.not_equal(*ends).any()
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


# One learner, of which fewer weights are trained.
OF_ALL = (
    "induction_heads.disentangled",
    "induction_heads.three",
    "induction_heads.nineteen",
)


def _others():
    """Every choice that a tiny student does not make, one at a time, as test
    parameters.
    """
    for name in FIRST:
        if name not in OF_ALL:
            system, p = student(name)
            for field in dataclasses.fields(p):
                allowed, now = field.metadata["allowed"], getattr(p, field.name)
                kinds = (
                    (False, True) if isinstance(now, bool) else allowed.choices or ()
                )
                if (
                    not field.metadata["theory_only"]
                    and field.name not in system.settings
                ):
                    yield from (
                        pytest.param(name, {field.name: k}) for k in kinds if k != now
                    )


@pytest.mark.parametrize(("name", "change"), [*_others()])
def test_every_choice_of_students_ends_where_it_did(name, change, tmp_path):
    """One seed; choices that need another one beside are refused in a line."""
    more = (
        {"eta": 0.25} if change == {"loss": "sum"} else {}
    )  # four times the slopes of the mean
    try:
        system, p = student(name, **change, **more)
        found = system.train(p, [1], store=tmp_path, dtype="float64", **ALONE)
    except ParameterError as refused:
        pytest.skip(str(refused))
    for key, curve in found.data_vars.items():
        if curve.dtype.kind in "fiub":
            _hold(f"{name}, {change} | {key}", curve.astype(float), found.xindexes)
