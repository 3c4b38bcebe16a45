"""The registry's models that follow from statements: their checks pass,
and can fail.
"""

import pytest

from simulate.training.pool import one_thread
from theory.models.registry import find
from verify.checks.check import Band, failed
from verify.checks.report import Request, collect
from verify.statement import emergence as module

NAMES = ["induction_heads.bursty"]


@pytest.mark.parametrize("name", NAMES)
def test_derivation_against_all_weights(name):
    """Loss, gradients of all weights, classes, steps of descent: exact, or drawn and
    agreeing.
    """
    with one_thread():
        found = collect(Request(find(name)), "gradients").checks
    assert len(found) >= 9 and {c.verdict for c in found} <= {"exact", "agrees"}
    steps = [c for c in found if c.name.startswith("all weights after")]
    assert steps and all(c.verdict == "exact" for c in steps)


@pytest.mark.parametrize(
    ("system", "sizes", "variable", "name", "seeds"),
    [("bursty", dict(N=16, B=2, eta=2.0, eval_every=2), "alpha", "burst_time", (0, 1))],
)
def test_times_of_students(system, sizes, variable, name, seeds, tmp_path, monkeypatch):
    """Agreement with the formula; a formula off by 5% is seen, in the flow and in the
    students.
    """
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_RUNS", str(tmp_path))
    theory = find(f"induction_heads.{system}").wing("theory")
    settings = [theory.Parameters(**sizes)]
    band = Band(-0.02, 0.02, "next order")

    def checked(share):
        time = lambda p: share * theory.emergence_time(p)
        monkeypatch.setattr(module, "LONGER", 1.2 / share)  # of the same students
        return module.emergence(
            theory.stated, settings, variable, time, name, band, seeds=seeds
        )

    (good, _), (bad, (title, line)) = checked(1.0), checked(1.05)
    assert not failed(good) and [c.within for c in bad] == [False, False, True]
    assert title.endswith(": formula, flow, descent, students")
    times = [1.05 * theory.emergence_time(settings[0]), bad[0].measured]
    times += [bad[2].predicted, bad[2].measured]
    assert [float(x) for x in line.rpartition(": ")[2].split(", ")] == pytest.approx(
        times, rel=1e-4
    )
