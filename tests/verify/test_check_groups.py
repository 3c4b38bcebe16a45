"""Faults in checks themselves: they compare the right quantities, and fail if a
measurement is wrong.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from simulate.associative_memory.gradient_steps import Outcome
from theory.associative_memory.factual_recall import Parameters as Recall
from theory.associative_memory.factual_recall import flow, time_of_share
from theory.associative_memory.factual_recall.dynamics import PARTS
from theory.models.registry import TABLE as MODELS
from theory.state_tracking import Parameters as Tracking
from theory.state_tracking.onset import equations as onset_equations
from verify.associative_memory import factual_recall as recall
from verify.associative_memory import gradient_steps, k_hop, superposition, trigger_task
from verify.checks.check import vanishing
from verify.checks.report import Request
from verify.state_tracking import ensemble
from verify.state_tracking import timescales as tracking


def row(checks, name):
    """The one check of that name."""
    (found,) = (c for c in checks if c.name.strip().startswith(name))
    return found


def test_height_of_the_plateau_is_compared_at_one_time():
    """Students that are the flow itself, on a plateau that is not flat: equal half way,
    unequal if either side looks elsewhere.
    """
    p = Recall(S=8, R=4, D=4, epsilon=1e-3, steps=4000)
    times = [
        time_of_share(p, part, share)
        for part, share in zip(PARTS, (0.1, 0.9), strict=True)
    ]
    end = 1.1 * max(time_of_share(p, part, 0.1) for part in PARTS)
    at = p.eta * np.arange(end / p.eta)  # one time a step
    curve = flow().solve(p, at=at, t=end)
    # The second seed is a millionth ahead, for a standard error.
    runs = xr.Dataset(
        {
            q: (
                ("seed", "t"),
                [np.interp(at * ahead, at, curve[q].values) for ahead in (1, 1 + 1e-6)],
            )
            for q in ("loss", "loss_relation", "loss_subject")
        },
        coords={
            "seed": [0, 1],
            "t": at,
            "step": ("t", np.round(at / p.eta).astype(int)),
        },
    )
    found, notes = recall.emergence(p, runs)
    plateau = row(found, "loss half way along the plateau")
    middle = sum(times) / 2
    exact = float(flow().solve(p, at=[middle], t=middle).loss[0])
    # Crossings are interpolated on these times.
    assert plateau.predicted == pytest.approx(
        exact, abs=1e-5
    ) and plateau.measured == pytest.approx(exact, abs=1e-5)
    steep = float(flow().solve(p, at=[times[0]], t=times[0]).loss[0])
    assert abs(steep - exact) > 0.02  # so that another time would show
    descent = flow().descend(p, p.eta, len(at)).isel(t=slice(len(at)))
    assert notes[1].endswith("flow (quadrature), full-batch descent, students")
    for part in PARTS:  # steps, in this order; both students are the flow
        steps = time_of_share(p, part, 0.5) / p.eta
        loss = -descent[f"loss_{part.name}"].values
        slow = float(np.interp(0.5 * loss[0], loss, np.arange(len(at))))
        (line,) = (x for x in notes if f"50% of the {part.name} loss" in x)
        assert line.endswith(f": {steps:.0f}, {slow:.1f}, {steps:.1f} (s.d. 0.0)")


@pytest.mark.parametrize(
    ("exponent", "passes"), [(-0.5, True), (-0.75, False), (-0.25, False)]
)
def test_zipf_exponent_is_compared_with_its_law(monkeypatch, exponent, passes):
    """Errors that fall as d^-1/2 at a = 1.5 agree with the equation's -(a - 1); other
    powers do not.
    """
    monkeypatch.setattr(
        superposition,
        "zipf_error",
        lambda d, a, keys, classes, stored, draws, seed=0: np.full(
            draws, (1.0 if stored < keys else 8.0) * d**exponent
        ),
    )
    found = row(
        superposition.zipf_checks(), "exponent of the error under Zipf frequencies in d"
    )
    assert found.predicted == pytest.approx(
        -0.5, abs=1e-14
    ) and found.measured == pytest.approx(exponent, abs=1e-12)
    assert found.within == passes


LAYERS = {
    "in_context_accuracy_of_one_layer": "one layer",
    "in_context_accuracy_of_two_layers": "two layers",
    "in_context_accuracy_of_two_layers_over_one": "gap",
}


@pytest.mark.parametrize(
    ("one", "two", "failing"),
    [
        (0.55, 0.99, ()),
        (0.45, 0.80, ("two layers",)),
        (0.55, 0.80, ("two layers", "gap")),
        (0.80, 0.99, ("one layer", "gap")),
        (0.30, 0.99, ("one layer",)),
        (0.64, 0.93, ("two layers", "gap")),
    ],
)
def test_layers_and_their_gap(monkeypatch, one, two, failing):
    """Each of the three conditions on in-context accuracy fails where it is not met,
    and only there.
    """
    runs = iter(
        [
            xr.Dataset({"in_context_accuracy": (("seed", "step"), [[0.1, x]])})
            for x in (one, two)
        ]
    )
    monkeypatch.setattr(trigger_task, "train", lambda p, seeds, progress: next(runs))
    failed = {LAYERS[c.id] for c in trigger_task.transformers() if not c.within}
    assert failed == set(failing)


@pytest.mark.parametrize(
    ("accuracy", "large", "failing"),
    [
        ((0.0, 0.1, 0.2, 1.0), (0.0, 0.9, 0.9, 0.1), None),
        ((0.0, 0.1, 0.2, 0.9), (0.0, 0.1, 0.1, 0.1), "accuracy after three steps"),
        ((0.0, 0.1, 0.9, 1.0), (0.0, 0.1, 0.1, 0.1), "accuracy after two steps only"),
        (
            (0.0, 0.1, 0.2, 1.0),
            (0.0, 0.1, 0.1, 0.9),
            "accuracy after a first step 30 times larger",
        ),
    ],
)
def test_three_steps_are_judged_where_they_end(monkeypatch, accuracy, large, failing):
    """Accuracy before and after each of three steps, of either run:
    one condition each.
    """
    runs = iter((accuracy, large))

    def run(p):
        return Outcome(accuracy=list(next(runs)), attention=[0.0, 0.0, 0.0, 1.0])

    monkeypatch.setattr(gradient_steps, "run", run)
    monkeypatch.setattr(gradient_steps, "gradient_checks", list)
    assert [c.name for c in gradient_steps.step_checks() if not c.within] == (
        [failing] if failing else []
    )


@pytest.mark.parametrize("late", [None, 2, 3, 7])
def test_time_per_hop_must_be_constant(monkeypatch, late):
    """One hop that takes a hundredth longer, the third, the fourth or the last, is seen
    (the second still meets fresh overlaps).
    """
    stages = np.full(8, 1.543)
    stages[0] = 1.372
    if late:
        stages[late] *= 1.01
    monkeypatch.setattr(k_hop, "mixture_time", lambda p: 1.0 * p.k)
    monkeypatch.setattr(
        k_hop, "curriculum_times", lambda p, kernels="sphere": list(np.cumsum(stages))
    )
    (slow,) = (
        c
        for c in k_hop.times()
        if c.equation == "curriculum" and "time per hop" in c.name
    )
    assert slow.within == (late is None)


@pytest.mark.parametrize(("growing", "passes"), [(0.0, True), (1e-3, False)])
def test_time_per_hop_of_the_mixture_must_not_grow(monkeypatch, growing, passes):
    """Hops 6 to 9 of equal length pass; a thousandth longer each time they do not, and
    the row shows the first beside the last.
    """
    monkeypatch.setattr(k_hop, "mixture_time", lambda p: p.k + growing * p.k**2)
    monkeypatch.setattr(
        k_hop, "curriculum_times", lambda p, kernels="sphere": [1.0, 2.0, 3.0]
    )
    (found,) = (c for c in k_hop.times() if c.equation == "mixture")
    assert found.predicted == pytest.approx(1 + 13 * growing, rel=1e-12)
    assert found.measured == pytest.approx(1 + 17 * growing, rel=1e-12)
    assert found.within == passes


def test_exact_solution_of_the_flow():
    """Every row: the time of A = 1/2 by two roads, the onset of a large system, where
    (81) departs.
    """
    found = tracking.exact_solution(Tracking.demo())
    assert len(found) > 2 and [c.name for c in found if not c.within] == []


@pytest.mark.parametrize("there", [0, 1, 2])
def test_a_time_that_theory_never_reaches(monkeypatch, there):
    """Students roll out rightly; theory of all seeds but some does not: a row says so
    and fails. The coefficient of alpha^2 fitted to the flow is the equation's, to the
    sixth order that the fit leaves out.
    """
    p, runs = ensemble.shipped("demo")
    runs = runs.isel(seed=slice(3))
    flat = runs[["A", "rollout_accuracy"]].copy(deep=True)
    flat["rollout_accuracy"][{"seed": slice(there, None)}] = 0.1
    monkeypatch.setattr(tracking, "own_start", lambda p, runs: flat)
    found, _ = tracking.emergence(p, runs)
    missing = [c.within for c in found if "theory gets there" in c.name]
    assert missing == ([False] if there < 2 else [])
    rate = row(found, "onset rate of the flow")
    exact = float(onset_equations()["onset_coefficient"].evaluate(p.values()))
    assert rate.predicted == exact and rate.measured == pytest.approx(exact, rel=1e-6)
    assert rate.within


def test_the_trigger_task_trains_only_in_full(monkeypatch):
    """Without ``--full`` no group that trains is asked, and the report says so."""
    trained = ("transformers", "order")
    for name in ("memories", *trained):
        row = vanishing(name, "slides", 0.0, 0.0, "why")
        monkeypatch.setattr(trigger_task, name, lambda row=row: [row])
    request = Request(MODELS["associative_memory.trigger_task"], full=False)
    quick = trigger_task.laws(request)
    assert [c.name for c in quick.checks] == ["memories"]
    assert quick.notes[1].startswith("not run without --full: trigger task")
    whole = trigger_task.laws(replace(request, full=True))
    assert [c.name for c in whole.checks] == ["memories", *trained] and not whole.notes
