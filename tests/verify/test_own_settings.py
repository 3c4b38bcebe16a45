"""Commands that go over settings of their own reject flags that name students."""

import pytest

from theory.parameters import ParameterError
from theory.registry import find
from verify.report import Request

SYSTEMS = (
    "associative_memory.retrieval",
    "associative_memory.softmax_recall",
    "induction_heads.bursty",
    "induction_heads.in_weights",
    "induction_heads.markov",
    "induction_heads.text",
    "state_tracking.bypass",
)


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
    with pytest.raises(ParameterError, match=f"^{flag}: not for {name}, whose settings"):
        model.wing("verify", "timescales").report(Request(model, **given))
