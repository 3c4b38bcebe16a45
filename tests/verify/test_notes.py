"""Numbers in notes and tables, recomputed by loops from the stored runs that they are
made of, in the unit and relative to what their words say.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import verify
from theory import state_tracking as st
from verify.checks import check_table
from verify.checks.check import Band, at_least, identity, near, sampled
from verify.state_tracking import fidelity, trajectories

NUMBER = r"-?\d+(?:\.\d+)?"


@pytest.fixture(scope="module")
def demo():
    return verify.ensembles("demo")


def numbers(line: str) -> list[float]:
    """Those after the last colon."""
    return [float(x) for x in re.findall(NUMBER, line.rpartition(":")[2])]


def half_time(alpha, A):
    """By the straight line between two measurements."""
    k = next(k for k in range(len(A)) if A[k] >= 0.5)
    return alpha[k - 1] + (0.5 - A[k - 1]) / (A[k] - A[k - 1]) * (
        alpha[k] - alpha[k - 1]
    )


def test_kurtoses_of_logits(demo):
    """Correct and other logits in this order, before, when attention is locked, and at
    the end.
    """
    _, runs = demo
    _, *lines = trajectories.kurtoses(runs)
    locked = [
        next(k for k, a in enumerate(run) if a > trajectories.LOCKED)
        for run in runs.A.values
    ]
    for line, at in zip(
        lines, ([0] * len(locked), locked, [-1] * len(locked)), strict=True
    ):
        for name, found in zip(("correct", "other"), numbers(line), strict=True):
            values = runs[f"kurtosis_{name}"].values
            mean = np.mean([run[k] for run, k in zip(values, at, strict=True)])
            assert found == pytest.approx(mean, abs=0.0051), (line, name)


def test_attention_factors_are_relative_to_the_measured_one(demo):
    """In per cent."""
    p, runs = demo
    measured = runs.c_A.values.ravel()
    A, c_omega = runs.A.values.ravel(), st.equations()["c_omega"].evaluate(p.values())
    curves = (runs.c_ansatz.values.ravel(), p.L * c_omega * A * (1 - A))
    _, *lines = trajectories.closures(p, runs)
    for line, curve in zip(lines, curves, strict=True):
        off = np.sqrt(sum((curve - measured) ** 2) / sum(measured**2))
        assert line.endswith("%") and numbers(line) == [
            pytest.approx(100 * off, abs=0.051)
        ]


def test_levels_of_theory_are_off_by_what_the_table_says(demo):
    """Times relative to those of the students; curves to the largest predicted size."""
    p, runs = demo
    curve = st.predict(p, runs, level="flow", accuracies=False)
    found = fidelity.climb(p, runs, ["flow"])["flow"]
    alpha, predicted = (
        runs.alpha.values,
        curve.A.values.reshape(-1, runs.sizes["alpha"])[0],
    )
    times = [half_time(alpha, run) for run in runs.A.transpose("seed", "alpha").values]
    off = [half_time(alpha, predicted) / time - 1 for time in times]
    assert found["half_time"] == pytest.approx(
        np.sqrt(np.mean(np.square(off))), rel=1e-6
    )
    gap = runs.A.mean("seed").values - predicted
    largest = max(gap, key=abs) / max(abs(predicted))
    assert found["A"] == pytest.approx(largest, rel=1e-6)
    head, ((level, *cells),) = fidelity.table({"flow": found})
    assert (level, *head[:3]) == ("flow", "level", "half-time", "A")
    for cell, value in zip(cells, found.values(), strict=False):
        assert cell.endswith("%") and float(cell[:-1]) == pytest.approx(
            100 * value, abs=0.51
        )


def test_cells_of_a_wide_table_are_the_numbers_of_the_check():
    """Read back from their text."""
    drawn = np.random.default_rng(0).standard_normal(9)
    band = Band(0.01, 0.3, "known")
    for check in (
        identity("a", "A", 2.0, 2.0 + 1e-9, 1e-6, ""),
        near("b", "A", 2.0, 2.04, 0.1, ""),
        near("c", "A", 2.0, 2.04, 0.1, "", 4.0, band),
        sampled("d", "A", 10.0, 10 + 0.01 * drawn),
        sampled("e", "A", 10.0, 10.5 + 0.3 * drawn, scale=20.0),
        at_least("f", "A", 2.0, 2.5, ""),
    ):
        cells = [*check_table._row(check), *check_table._more(check)]
        row = dict(zip(check_table.WIDE, cells, strict=True))
        measured, *error = map(float, row["measured"].split(" +- "))
        assert float(row["predicted"].removeprefix(check.bound)) == check.predicted
        assert measured == pytest.approx(check.measured, rel=1e-3)
        assert error == [
            pytest.approx(e, rel=0.05) for e in [check.standard_error] if e
        ]
        assert float(row["tolerance"]) == pytest.approx(check.tolerance, rel=0.1)
        for name, value in (("off", check.deviation), ("detectable", check.detectable)):
            if row[name]:
                number, unit = row[name][:-1], row[name][-1]
                assert unit == "%" and float(number) == pytest.approx(
                    100 * value, rel=0.03, abs=0.06
                )
        if row["error"]:
            assert float(row["error"]) == pytest.approx(check.error, rel=0.05)
