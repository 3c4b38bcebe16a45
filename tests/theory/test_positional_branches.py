"""Branches of the positional-semantic state evolution: continuation, ends, and what is
refused.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from theory import onset as onset_command
from theory.call.refusal import ParameterError
from theory.positional_semantic import Parameters, State, fixed_point, general, solve
from theory.positional_semantic.channel import averages
from theory.positional_semantic.errors import test_error as error_of
from theory.positional_semantic.fixed_point import transverse
from theory.positional_semantic.state_evolution import update


def test_onset_json(capsys):
    """Top-level numbers, nested fixed points, and alpha from the command line."""
    assert (
        onset_command.main(
            [
                "positional_semantic",
                "--set",
                "order=8",
                "--set",
                "omega=0.3",
                "--alpha",
                "2",
                "--json",
                "--quiet",
            ]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert (
        found["omega"] == 0.3
        and found["prox"] == "global"
        and found["alpha_c"] == pytest.approx(1.25, rel=0.02)
    )
    for place in ("at_alpha_c", "at_alpha"):
        for branch in ("positional", "semantic"):
            assert {"q", "m", "V", "theta", "train_loss", "test_mse_half"} <= set(
                found[place][branch]
            )
            assert (
                found[place][branch]["along"] < 1
                and found[place][branch]["transverse"] < 1
            )
    both = found["at_alpha_c"]
    assert both["positional"]["train_loss"] == pytest.approx(
        both["semantic"]["train_loss"], rel=1e-6
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"rank": 2}, "rank = 2: must be 1"),
        ({"tied": False}, "tied = False: must be True"),
        ({"correlation": 0.5}, "correlation = 0.5: must be 0"),
        ({}, "alpha = None"),
    ],
)
def test_theory_refuses_what_it_does_not_cover(words, message):
    """One line, naming field and value."""
    with pytest.raises(ParameterError, match=message):
        solve(Parameters(**words), "semantic")


def test_bad_parameters():
    """Ranges and combinations."""
    for words in (
        {"omega": 1.2},
        {"order": 7},
        {"prox": "best"},
        {"lam": 0.0},
        {"start": "mixed"},
    ):
        with pytest.raises(ParameterError):
            Parameters(**words)


def test_asymmetric_target_has_no_positional_branch():
    """Entries beyond one half cannot be had from p_1 = -p_2: m vanishes with the global
    minimiser.
    """
    p = Parameters(target="alternative", omega=0.1, order=8)
    assert (
        not solve(p.replace(alpha=1.0), "positional").exists
        and solve(p.replace(alpha=1.0), "semantic").exists
    )


def test_continuation_ends_where_cold_starts_do():
    """A sweep over alpha across the transition, from point to point, against each on
    its own, to ten times what solutions may leave; below its end the branch is gone
    either way.
    """
    p, alphas = Parameters(order=8), [2.0, 1.0, 0.6]
    for branch in ("positional", "semantic"):
        followed = None
        for alpha in alphas:
            cold = solve(p.replace(alpha=alpha), branch).summary()
            followed = solve(p.replace(alpha=alpha), branch, near=followed)
            for x in ("q", "m", "V", "theta", "train_loss"):
                assert followed.summary()[x] == pytest.approx(
                    cold[x], rel=5e-4, abs=1e-9
                )


def test_a_far_or_unstable_neighbour_is_not_followed(monkeypatch):
    """A neighbour whose map would leave the solution, and one far away, give the cold
    answer.
    """
    p = Parameters(order=8, alpha=2.0)
    near = solve(p.replace(alpha=1.9), "semantic")
    assert fixed_point._continued(fixed_point._Map(p, "semantic"), near) is not None
    unstable = dataclasses.replace(near, jacobian=near.jacobian + 2 * np.eye(3))
    far = dataclasses.replace(near, state=near.state._replace(q=2 * near.state.q))
    for other in (unstable, far):
        found = solve(p, "semantic", other)
        assert found.state == pytest.approx(solve(p, "semantic").state, rel=5e-4)
    assert fixed_point._continued(fixed_point._Map(p, "semantic"), far) is None


@pytest.mark.parametrize(
    "state",
    [
        State(-0.1, 0.2, 10.0, 0.0),
        State(0.1, 0.0, 10.0, 0.2),  # a cosine of 1.26 with the teacher
        State(0.1, math.nan, 10.0, 0.0),
    ],
)
def test_order_parameters_of_no_student_have_no_error(state):
    """A variance is not negative, a cosine is at most one."""
    with pytest.raises(ParameterError, match="must have q >= 0"):
        error_of(Parameters(), state)


def test_a_start_of_another_shape_is_refused():
    """Of three tokens, for a system of two."""
    system = general.headline(Parameters(alpha=2.0), 2)
    start = general.Order(np.ones((3, 1, 1, 1)), *[np.ones((2, 1, 1, 1))] * 3)
    with pytest.raises(
        ParameterError, match=r"start.q: has shape \(3, 1, 1, 1\), must have"
    ):
        general.solve(system, start)


@pytest.mark.parametrize(("branch", "unit"), [("positional", 1.0), ("semantic", 0.5)])
def test_a_branch_exists_with_its_overlap(branch, unit):
    """m, or theta by sigma, relative to the weights."""
    point = solve(Parameters(alpha=2.0, sigma=0.5, order=4), branch)
    name = {"positional": "m", "semantic": "theta"}[branch]
    for share, exists in ((1.1, True), (-1.1, True), (0.9, False)):
        overlap = share * fixed_point.VANISHED * unit * math.sqrt(point.state.q)
        state = point.state._replace(m=0.0, theta=0.0)._replace(**{name: overlap})
        assert replace(point, state=state).exists is exists


def test_the_agnostic_branch_is_left_by_the_faster_overlap():
    """Both overlaps vanish there; at small omega and large alpha that with the teacher
    grows faster.
    """
    point = solve(Parameters(alpha=3.0, omega=0.05), "agnostic")
    assert point.exists
    size, coarse = 1e-3, point.p.replace(order=fixed_point.COARSE)
    growth = {}
    for name in ("m", "theta"):
        state = point.state._replace(**{name: size})
        new = update(coarse, state, averages(coarse, state))
        growth[name] = getattr(new, name) / size
    assert growth["theta"] > 1.1 * growth["m"]
    # The step is linear in a small overlap, up to its square.
    assert transverse(point) == pytest.approx(growth["theta"], rel=1e-3)
