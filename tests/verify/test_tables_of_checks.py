"""Tables of checks: identifiers, summaries, columns and exit codes."""

import json

import numpy as np
import pytest
from test_check import OFF, VERDICTS, scattered

from verify.checks import check, check_table
from verify.checks import verdict as verdict_module
from verify.checks.check import estimated, identity, near, sampled
from verify.checks.report import Report, merged

IDS = {
    "mean correct logit": "mean_correct_logit",
    "  at one position": "at_one_position",
    "c_omega, Table 2": "c_omega",
    "time of A = 1/2 by the exact solution": "time_of_A_half_by_the_exact_solution",
    "closure at A = 1/L, tiny": "closure",
    "plateau length at epsilon = 0.01": "plateau_length",
    "initial logit variance at Table 1, 20 seeds": "initial_logit_variance_at_Table_1",
    "load N ln N / d^2 of half recall, d = 1e9": "load_N_ln_N_d_2_of_half_recall",
    "in-context accuracy: two layers": "in_context_accuracy",
}


def test_ids_say_what_without_where():
    assert {name: identity(name, "e", 1, 1, 0, "why").id for name in IDS} == IDS


def test_report_exit_code_and_json():
    good, bad = (
        identity("a, here", "e", 1, 1, 0, "why"),
        identity("b", "e", 1, 2, 0, "why"),
    )
    assert Report([good]).exit_code == 0
    out = json.loads(
        json.dumps(Report([good], ["note"], numbers={"more": 1}).as_dict())
    )
    assert out["failed"] is False and out["notes"] == ["note"] and out["more"] == 1
    assert set(out["checks"][0]) >= {
        "id",
        "name",
        "equation",
        "predicted",
        "measured",
        "error",
        "tolerance",
        "reason",
        "detectable",
        "within",
        "verdict",
    }
    assert (out["checks"][0]["id"], out["checks"][0]["verdict"]) == ("a", "exact")
    both = merged([Report([good], ["first"]), Report([bad], ["second"])])
    assert both.exit_code == 1 and both.as_dict()["failed"] is True
    assert "1 exact, 1 FAIL" in str(both) and str(both).endswith("first\nsecond")


def test_summary_counts_every_verdict():
    every = [c for found in VERDICTS.values() for c in found]
    assert check_table.summary(every) == ", ".join(
        f"{len(VERDICTS[v])} {v}" for v in verdict_module.VERDICTS
    )
    assert check_table.summary(VERDICTS["agrees"]) == "7 agrees, 0 FAIL"
    assert check.failed(every) and not check.failed(
        [c for c in every if c.verdict != "FAIL"]
    )


def test_nothing_checked_is_not_a_success():
    assert check.failed([])
    assert Report([]).exit_code == 1


LONG = "logit_correct with noise of M, largest deviation, at alpha = 5.08"


def test_undecided_rows_that_are_far_off_are_quoted():
    """Few samples decide nothing, but a unit or a parameter may be wrong."""
    row = check.sampled("A", "e", 0.25, np.array([0.85, 1.0, 0.4]))
    assert row.verdict == "undecided"
    assert "A: off by +200%, too few samples to decide" in check_table.result([row])[1]
    near = check.sampled("A", "e", 1.0, np.array([0.85, 1.3, 0.9]))
    assert near.verdict == "undecided" and "check units" not in check_table.table(
        [near]
    )


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_the_table_fits_the_terminal(columns, monkeypatch):
    """Names and reasons go on below; nothing is wider, whatever the terminal."""
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = [
        identity("mean logit", "e", [1.0], [1.0], 1e-12, "float64"),
        sampled(LONG, "e", 1.0, scattered(20, 1e-3, 1.15), band=OFF),
        sampled("loss", "e", 1.0, scattered(20, 1e-3)),
    ]
    text = check_table.table(rows)
    assert max(map(len, text.splitlines())) <= columns
    assert "off by +10.0% to +20.0%: mean field" in " ".join(text.split())
    assert "+15.0%" in text and "float64" not in text
    assert text.count("distance in standard errors") == 1  # z is explained once, below
    assert "float64" in check_table.table(rows, wide=True)


def test_z_and_relative_errors_have_columns_of_their_own():
    """A reader never takes one for the other."""
    head = ["check", "predicted", "measured", "off", "z", "verdict"]
    exact = near("x", "e", 2.0, 2.02, 0.02, "why")
    noisy = estimated("y", "e", 2.0, 2.02, 0.01)
    assert (exact.statistic, noisy.statistic) == ("error", "z")
    assert check_table._row(exact) == ["x", "2", "2.02", "+1.0%", "", "agrees"]
    assert check_table._row(noisy) == [
        "y",
        "2",
        "2.020 +- 0.010",
        "+1.0%",
        "2.0",
        "agrees",
    ]
    assert check_table.table([exact, noisy]).split("\n")[2].split() == head
    assert check_table.table([exact]).split("\n")[2].split() == [
        x for x in head if x != "z"
    ]
    assert "standard errors" not in check_table.table([exact])
    assert exact.deviation == pytest.approx(0.01) == noisy.deviation


def test_a_bound_says_so():
    assert check_table._row(check.at_most("x", "e", 0.25, 0.03, "why"))[1] == "<= 0.25"
    assert check_table._row(check.at_least("x", "e", 0.25, 0.3, "why"))[1] == ">= 0.25"
