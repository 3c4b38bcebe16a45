"""Check: verdicts, errors, z-scores, tables, exit codes."""

import json

import numpy as np
import pytest

from verify import check
from verify.check import identity, sampled


def test_identity_is_relative_to_the_largest_entry():
    c = identity("x", "e", [1.0, 200.0], [1.0 + 2e-10, 200.0], 1e-9, "why")
    assert c.error == pytest.approx(1e-12, rel=1e-3)  # 2e-10 / 200, up to the rounding of 1 + 2e-10
    assert c.passed
    assert c.verdict == "pass"


def test_identity_shows_the_worst_entry_and_fails():
    c = identity("x", "e", [1.0, 2.0], [1.0, 3.0], 1e-9, "why")
    assert (c.predicted, c.measured) == (2.0, 3.0)
    assert not c.passed
    assert c.verdict == "FAIL"


def test_nan_never_passes():
    assert not identity("x", "e", [1.0, np.nan], [1.0, 1.0], 1e9, "why").passed
    assert not sampled("x", "e", 0.0, [np.nan, 1.0]).passed
    assert not sampled("x", "e", 0.0, [1.0]).passed  # one sample has no standard error


def test_sampled_accepts_truth_and_refuses_five_per_cent():
    """10,000 draws of relative spread 0.3: a 5% error is 16 standard errors."""
    x = np.random.default_rng(0).normal(1.0, 0.3, 10_000)
    assert sampled("x", "e", 1.0, x).passed
    assert not sampled("x", "e", 1.05, x).passed


def test_few_samples_are_judged_by_student_t():
    """t = 6 from two values is nothing unusual (p = 0.1), from a thousand it is."""
    assert check.normal_z(6.0, 2) == pytest.approx(1.62, abs=0.01)  # isf of atan tail 1/2 - atan(6)/pi, by hand
    assert check.normal_z(6.0, 1000) > 5.5
    assert np.isnan(check.normal_z(6.0, 1))


def test_known_limit_is_reported_not_failed():
    c = sampled("x", "e", 2.0, [1.0, 1.1, 0.9] * 5, known_limit="mean field")
    assert c.passed
    assert c.verdict == "known limit"
    assert not c.within
    assert "mean field" in check.table([c])


def test_report_exit_code_and_json(capsys):
    good, bad = identity("a", "e", 1, 1, 0, "why"), identity("b", "e", 1, 2, 0, "why")
    assert check.report("m", [good], as_json=True) == 0
    out = json.loads(capsys.readouterr().out)
    assert out["passed"] is True
    assert set(out["checks"][0]) >= {
        "name",
        "equation",
        "predicted",
        "measured",
        "error",
        "tolerance",
        "reason",
        "passed",
    }
    assert check.report("m", [good, bad], as_json=False) == 1
    assert "1 pass, 0 known limits, 1 fail" in capsys.readouterr().out


def test_nothing_checked_is_not_a_success():
    assert not check.passed([])
