"""A wrong sign, or a factor off by 5%, in any derived derivative is caught by the checks that cover it."""

from dataclasses import replace

import pytest

from simulate.pool import one_thread
from theory.state_tracking import equations
from verify.state_tracking import gradients

CASES = [(group, name) for group, names in gradients.COVERS.items() for name in names]


@pytest.mark.parametrize("factor", [-1, 1.05])
@pytest.mark.parametrize(("group", "name"), CASES, ids=[name for _, name in CASES])
def test_injected_fault_is_caught(group, name, factor):
    table = equations()
    faulty = {**table, name: replace(table[name], rhs=factor * table[name].rhs)}
    with one_thread():
        assert not all(check.within for check in group(faulty)), f"{name} times {factor} went unnoticed"


def test_all_checks_pass_on_the_derived_equations():
    found = gradients.checks()
    assert [c.name for c in found if not c.within] == []
    assert len(found) > 40


def test_every_derivative_of_the_model_is_covered():
    """What descends, is a derivative or a rate must be held against autograd."""
    covered = {name for names in gradients.COVERS.values() for name in names}
    derivatives = {
        name for name in equations() if name.startswith(("d", "update", "delta", "softmax")) and name != "d_g"
    }
    assert derivatives <= covered
