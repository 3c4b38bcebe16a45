"""Fixed points, thresholds and limits of the positional-semantic state evolution."""

from __future__ import annotations

import math

import numpy as np
import pytest

from theory.call.refusal import ParameterError
from theory.positional_semantic import (
    Parameters,
    State,
    curve,
    onset,
    phase_diagram,
    solve,
)
from theory.positional_semantic.branches import thresholds
from theory.positional_semantic.channel import averages
from theory.positional_semantic.fixed_point import transverse

# Converged values of an independent solver: q, own overlap, V, training loss, half test
# error; then how well it knows them.
TABLE = [
    (
        0.3,
        2.0,
        "semantic",
        (0.114817, 0.15816, 12.668, 0.0035906, 0.001404),
        (0.005, 0.005, 0.01),
    ),
    (
        0.3,
        2.0,
        "positional",
        (0.05105, 0.2583, 11.36, 0.0045127, 0.003473),
        (0.01, 0.005, 0.01),
    ),
    (
        0.3,
        1.0,
        "semantic",
        (0.06811, 0.0946, 21.61, 0.0023288, 0.002855),
        (0.005, 0.005, 0.01),
    ),
    (
        0.1,
        1.0,
        "positional",
        (0.0626, 0.174, 21.18, 0.0026677, 0.004629),
        (0.01, 0.02, 0.012),
    ),
]


@pytest.mark.parametrize(("omega", "alpha", "branch", "expected", "tolerance"), TABLE)
def test_table_of_fixed_points(omega, alpha, branch, expected, tolerance):
    """Order parameters within the reference's own uncertainty, 0.1 % in the loss, 0.5 %
    in the test error.
    """
    point = solve(Parameters(omega=omega, alpha=alpha), branch)
    own = point.state.m if branch == "positional" else point.state.theta
    found = (
        point.state.q,
        abs(own),
        point.state.V,
        point.train_loss,
        point.test_mse_half,
    )
    for value, reference, allowed in zip(
        found, expected, (*tolerance, 1e-3, 5e-3), strict=True
    ):
        assert value == pytest.approx(reference, rel=allowed)
    assert point.exists and point.residual < 1e-6


@pytest.mark.parametrize(
    ("omega", "alpha", "branch", "values"),
    [
        (0.3, 0.57, "semantic", {"theta": 0.0600, "train_loss": 0.001506}),
        pytest.param(
            0.5,
            1.005,
            "semantic",
            {"theta": 0.0783, "train_loss": 0.002424},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            0.3,
            1.0,
            "semantic",
            {"theta": 0.0993, "train_loss": 0.002334},
            marks=pytest.mark.slow,
        ),
        (0.3, 2.0, "semantic", {"theta": 0.1581, "train_loss": 0.0035906}),
        (0.1, 1.0, "positional", {"m": 0.219, "q": 0.0541, "train_loss": 0.00273}),
        pytest.param(
            0.3,
            1.0,
            "positional",
            {"m": 0.2534, "q": 0.0421, "train_loss": 0.002179},
            marks=pytest.mark.slow,
        ),
        (0.3, 2.0, "positional", {"m": 0.2616, "q": 0.0494, "train_loss": 0.004520}),
    ],
)
def test_local_selection(omega, alpha, branch, values):
    """The well of the informed start, against an independent solver with ten nodes per
    axis, good to 1.5 %.
    """
    point = solve(Parameters(omega=omega, alpha=alpha, prox="local"), branch).summary()
    for name, reference in values.items():
        assert point[name] == pytest.approx(reference, rel=0.015)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("omega", "alpha", "branch"), [(0.1, 1.0, "positional"), (0.3, 2.0, "semantic")]
)
def test_error_estimate(omega, alpha, branch):
    """What is printed as the error of the quadrature covers the distance from forty
    nodes, within a factor of two.
    """
    point = solve(Parameters(omega=omega, alpha=alpha), branch, error=True)
    best = solve(point.p.replace(order=40), branch, point)
    for name in ("q", "m", "V", "theta"):
        # Below 1e-5 nothing is seen that matters.
        assert (
            abs(getattr(point.state, name) - getattr(best.state, name))
            <= 2 * abs(point.error[name]) + 1e-5
        )


# Converged thresholds of the same solver; alpha_c and alpha_l are known to 0.5 % and 1
# %, of the local selection to 1.5 %.
THRESHOLDS = [
    ("global", 0.0, 0.6144, 0.744),
    ("global", 0.1, 0.7510, 0.892),
    ("global", 0.2, 0.9481, 1.117),
    ("global", 0.3, 1.2515, 1.492),
    ("global", 0.425, 1.9646, None),
    ("local", 0.1, 0.701, 0.871),
    ("local", 0.2, 0.916, 1.103),
    ("local", 0.3, 1.238, 1.492),
]


@pytest.mark.parametrize(
    ("prox", "omega", "alpha_c", "alpha_l"),
    [
        r if r[:2] == ("global", 0.3) else pytest.param(*r, marks=pytest.mark.slow)
        for r in THRESHOLDS
    ],
)
def test_thresholds(prox, omega, alpha_c, alpha_l):
    """Both thresholds over omega, both selections; at alpha_c both branches have the
    same loss.
    """
    found = thresholds(Parameters(prox=prox, omega=omega, order=12))
    assert found.alpha_c == pytest.approx(
        alpha_c, rel=5e-3 if prox == "global" else 1.5e-2
    )
    if alpha_l is not None:
        assert found.alpha_l == pytest.approx(
            alpha_l, rel=1e-2 if prox == "global" else 1.5e-2
        )
    assert found.alpha_l > found.alpha_c and not found.reasons
    assert found.at_alpha_c["positional"].train_loss == pytest.approx(
        found.at_alpha_c["semantic"].train_loss, rel=1e-3
    )


@pytest.mark.slow
def test_narrow_range_of_both_branches():
    """Asymmetric target at omega = 0.05: both branches exist for alpha in 0.5 to 0.6
    only, and the search finds the crossing.
    """
    p = Parameters(target="alternative", omega=0.05, order=8)
    found = thresholds(p)
    assert 0.48 < found.alpha_c < 0.6
    for factor, first in ((0.97, "positional"), (1.03, "semantic")):
        losses = {
            k: solve(p.replace(alpha=factor * found.alpha_c), k).train_loss
            for k in ("positional", "semantic")
        }
        assert min(losses, key=losses.get) == first


@pytest.mark.slow
@pytest.mark.parametrize(
    ("branch", "omega", "alpha"),
    [("positional", 0.15, 1.25375), ("semantic", 0.5, 1.08791667)],
)
def test_a_node_at_the_end_of_a_local_well(branch, omega, alpha):
    """Here one node falls out of its well every other step: the residual stays at 1e-5
    and the branch goes on.
    """
    point = solve(Parameters(omega=omega, alpha=alpha, prox="local"), branch)
    assert point.exists and point.residual < 5e-5
    beside = solve(point.p.replace(alpha=1.01 * alpha), branch)
    assert beside.state.q == pytest.approx(point.state.q, rel=0.02)


def test_phase_diagram():
    """A small grid: the same fixed points as alone, loss gap on both sides of alpha_c,
    and ends of the positional branch.
    """
    p = Parameters(order=8)
    data = phase_diagram(p, [0.1, 0.3], [1.0, 2.0], jobs=1)
    gap = data.train_loss.sel(branch="positional") - data.train_loss.sel(
        branch="semantic"
    )
    assert (
        float(gap.sel(omega=0.3, alpha=1.0)) < 0 < float(gap.sel(omega=0.3, alpha=2.0))
    )
    # At omega = 0.1 the positional branch lives below alpha = 1.3 only, and the
    # semantic one wins from 0.75 on.
    positional = data.sel(branch="positional", omega=0.1)
    assert (
        np.isnan(positional.q.sel(alpha=2.0))
        and float(gap.sel(omega=0.1, alpha=1.0)) > 0
    )
    for branch, omega, alpha in (
        ("positional", 0.1, 1.0),
        ("semantic", 0.3, 1.0),
        ("positional", 0.3, 2.0),
    ):
        alone, found = (
            solve(p.replace(omega=omega, alpha=alpha), branch),
            data.sel(branch=branch, omega=omega, alpha=alpha),
        )
        for name, value in alone.summary().items():
            # Both stop at a small residual, and flat directions magnify it.
            assert float(found[name]) == pytest.approx(value, rel=1e-4), (branch, name)


def test_crossing_at_large_omega():
    """At omega = 0.6 the gap falls with alpha at first,
    and the crossing lies beyond.
    """
    p = Parameters(omega=0.6, order=8)
    found = thresholds(p)
    points = found.at_alpha_c
    assert 6 < found.alpha_c < 8 and points["positional"].train_loss == pytest.approx(
        points["semantic"].train_loss, rel=1e-3
    )


def test_no_crossing_says_why():
    """A purely positional target has no semantic branch."""
    found = thresholds(Parameters(omega=1.0, order=8))
    assert (
        math.isnan(found.alpha_c) and "no semantic branch" in found.reasons["alpha_c"]
    )
    result = onset(Parameters(omega=1.0, order=8))
    assert result.details["at_alpha_c"] is None and "none" not in result.table()


def test_small_alpha():
    """Without data: no weights, V = sigma^2/lambda,
    and the error of uniform attention.
    """
    point = solve(Parameters(alpha=1e-4, order=8), "agnostic")
    assert point.state.V == pytest.approx(25, rel=0.01) and point.state.q < 1e-3
    zero = Parameters(alpha=1e-3)
    from theory.positional_semantic import test_error as error

    assert error(zero, State(1e-12, 0.0, 25.0, 0.0)) == pytest.approx(
        0.0044146, abs=5e-8
    )


@pytest.mark.slow
def test_semantic_branch_ends():
    """With the global minimiser, theta vanishes between alpha = 0.70 and 0.75 at omega
    = 0.3, and m grows below 0.83; the local one goes on to alpha = 0.01.
    """
    p = Parameters()
    assert (
        solve(p.replace(alpha=0.75), "semantic").exists
        and not solve(p.replace(alpha=0.7), "semantic").exists
    )
    low, high = (
        transverse(solve(p.replace(alpha=a, order=8), "semantic")) for a in (0.82, 0.84)
    )
    assert high < 1 < low
    thetas = [
        solve(p.replace(alpha=a, prox="local"), "semantic").state.theta
        for a in (0.6, 0.01)
    ]
    assert thetas == pytest.approx([0.0625, 0.00119], rel=0.01)
    data = curve(p, "semantic", [0.6, 1.0])
    assert np.isnan(data.theta[0]) and (data.theta[1:] > 0.05).all()


def test_a_strong_ridge_leaves_no_semantic_branch():
    """At lambda = 0.1 and alpha = 2 all weights vanish; the positional branch has the
    overlaps of students.
    """
    p = Parameters(lam=0.1, alpha=2.0, order=8)
    with pytest.raises(
        ParameterError, match=r"lam = 0.1, .*weights of the semantic branch vanish"
    ):
        solve(p, "semantic")
    # Students: simulate.positional_semantic --alpha 2 --seeds 6 --set lam=0.1 --set
    # d=800 --set steps=300, either start.
    state = solve(p, "positional").state
    assert state.q == pytest.approx(0.00956, rel=0.02) and abs(
        state.m
    ) == pytest.approx(0.18, rel=0.02)


def test_signs_are_free():
    """m -> -m and theta -> -theta change nothing else."""
    p = Parameters(alpha=1.3, order=8)
    for branch, overlap, moment in (
        ("positional", "m", "E_g"),
        ("semantic", "theta", "E_geta"),
    ):
        state = solve(p, branch).state
        a, b = (
            averages(p, state),
            averages(p, state._replace(**{overlap: -getattr(state, overlap)})),
        )
        assert b.numbers[moment] == pytest.approx(-a.numbers[moment], rel=1e-6)
        for name in a.numbers.keys() - {moment}:
            assert b.numbers[name] == pytest.approx(a.numbers[name], rel=1e-9), name


def test_the_other_overlap_stays_zero():
    """theta = 0 and m = 0 are kept: what would move the other overlap falls with it, to
    zero.
    """
    p = Parameters(alpha=1.3, order=8)
    for branch, other, moment in (
        ("positional", "theta", "E_geta"),
        ("semantic", "m", "E_g"),
    ):
        state = solve(p, branch).state
        assert getattr(state, other) == 0
        found = [
            averages(p, state._replace(**{other: x})).numbers for x in (1e-4, 1e-6)
        ]
        own = abs(found[0]["E_g" if branch == "positional" else "E_geta"])
        assert abs(found[0][moment]) < 0.01 * own and abs(found[1][moment]) < 1e-4 * own
