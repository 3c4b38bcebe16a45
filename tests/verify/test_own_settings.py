"""Commands that go over settings of their own reject flags that name students."""

import pytest

from theory.call.refusal import ParameterError
from theory.models.registry import find
from verify.checks.check import Check
from verify.checks.report import Request, reporting

SYSTEMS = ("induction_heads.bursty",)


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize(
    ("flag", "given"),
    [
        ("--seeds", {"seeds": "3"}),
        ("--set", {"assignments": ("eta=1",)}),
        ("--runs", {"runs": "students.nc"}),
    ],
)
def test_flags_of_students_are_rejected(name, flag, given):
    """In one line, before anything is trained."""
    model = find(name)
    with pytest.raises(
        ParameterError, match=f"^{flag}: not for {name}, whose settings"
    ):
        model.command("timescales")(Request(model, **given))


def test_a_report_made_of_groups():
    """Has the rows of all groups, each given the equations, and rejects such flags as
    well.
    """

    def one(table):
        return [Check("one", table["name"], 1.0, 1.0, 0.0, 0.1, "")]

    def two(table):
        return [*one(table), *one(table)]

    report, model = (
        reporting(one, two, equations=lambda: {"name": "e"}),
        find("state_tracking"),
    )
    assert [c.equation for c in report(Request(model)).checks] == 3 * ["e"]
    with pytest.raises(ParameterError, match="^--seeds: not for state_tracking"):
        report(Request(model, seeds="3"))
