"""Rates: exponents of synthetic differences, faults that must fail, too little power,
wrong input; the command on all models, and a fault in a flow.
"""

import dataclasses
import json

import numpy as np
import pytest
import sympy as sp
import xarray as xr

from theory import Flow, state_tracking
from theory.call.refusal import ParameterError
from theory.models import registry
from verify.checks.check import failed
from verify.compare.exponents import Rate
from verify.rates import flow_rows, main, of_flow, rates
from verify.state_tracking.rates import of_sizes

STEPS = (0.1, 0.05, 0.025, 0.0125)
x, y, t = sp.symbols("x y t", real=True)
PENDULUM = Flow("pendulum", t, {x: y, y: -sp.sin(x)}, {x: 1, y: 0}, "textbook", "exact")


def power(order, share=0.5):
    """A measurement that approaches 1 with a power, and a next order."""
    return lambda h: 1 + 0.3 * h**order * (1 + share * h)


def curve(step, flow=PENDULUM):
    """Solution of a flow."""
    return flow.solve({}, t=5)


def steps(step, flow=PENDULUM):
    """Descent on a flow."""
    return flow.descend({}, step, round(5 / step))


@pytest.mark.parametrize("order", [0.5, 1, 1.5, 2])
@pytest.mark.parametrize("share", [0.0, 0.5, -2.0])
@pytest.mark.parametrize("count", [3, 4])
def test_powers_are_recovered(order, share, count):
    """From three steps and from four, in any order; to the error, and better with a
    fourth step.
    """
    found = rates(1.0, power(order, share), STEPS[:count][::-1], order)
    assert found.verdict == "agrees" and found.steps == STEPS[:count]
    assert abs(found.exponent - order) < max(found.error, 1e-6)
    assert len(found.local) == count - 1
    assert rates(1.0, power(order, share), STEPS, order + 0.5).verdict == "FAIL"


@pytest.mark.parametrize("seeds", [8, 32])
def test_seeds_give_a_standard_error(seeds):
    """Of different seeds at every step: the error covers the deviation, a wrong order
    fails.
    """
    rng, away = np.random.default_rng(seeds), []
    for number in range(16):

        def network(h, number=number):
            values = power(1)(h) + 0.01 * h * rng.normal(size=seeds)
            names = [f"{number} {h} {k}" for k in range(seeds)]
            return xr.DataArray(values, dims="seed", coords={"seed": names})

        found = rates(1.0, network, [0.4, 0.1, 0.025, 0.00625])
        away.append((found.exponent - 1) / found.error)
        assert found.verdict == "agrees" if seeds > 8 else found.verdict != "FAIL"
    assert found.seeds == seeds and 0.2 < np.std(away) < 1.3 and np.abs(away).max() < 4
    assert rates(1.0, network, [0.4, 0.1, 0.025, 0.00625], 1.5).verdict in (
        ["FAIL"] if seeds > 8 else ["FAIL", "undecided"]
    )


def test_the_same_seeds_are_compared_with_themselves():
    """Seeds that differ twofold, each of which shrinks with the step: as exact as one
    of them.
    """
    size = np.linspace(0.5, 1.5, 16)

    def network(h):
        return xr.DataArray(1 + size * h * (1 + h * size), dims="seed")

    same = rates(1.0, network, STEPS)
    assert same.verdict == "agrees" and same.error < 0.05 < size.std() / 4


@pytest.mark.parametrize("count", [3, 4])
@pytest.mark.parametrize("order", [1, 2])
def test_a_constant_error_fails(count, order):
    """A theory that is off by a constant, large or as small as was promised; a lower
    order.
    """
    right = rates(1.0, power(order), STEPS[:count], order)
    assert rates(2.0, power(order), STEPS[:count], order).verdict == "FAIL"
    for sign in (-1, 1):
        off = 1.0 + sign * 1.1 * right.offset * 1.0
        found = rates(off, power(order), STEPS[:count], order)
        assert found.verdict in ("FAIL", "undecided")
    assert right.offset < 0.3 * right.differences[-1]
    lower = lambda h: power(2)(h) + 0.03 * h
    assert rates(1.0, lower, STEPS[:count], 2).verdict == "FAIL"


def test_too_little_power_is_undecided():
    """A difference that drowns in rounding or in the scatter of seeds; steps that are
    too large.
    """
    assert rates(1.0, lambda h: 1 + 1e-11 * h, STEPS).verdict == "undecided"
    assert (
        rates(1.0, lambda h: 1 + h * np.exp(30 * h), STEPS[:3]).verdict == "undecided"
    )
    rng = np.random.default_rng(0)

    def network(h):
        values = 1 + 0.01 * h + 0.01 * rng.normal(size=8)
        return xr.DataArray(values, dims="seed", coords={"seed": range(8)})

    found = rates(1.0, network, STEPS)
    assert found.verdict == "undecided" == found.check("a rate").verdict
    assert found.check("a rate").samples_needed > 8


def test_no_difference_is_a_verdict_of_its_own():
    """Whatever is expected; without order, none beyond rounding, which a real one
    fails.
    """
    assert rates(1.0, lambda h: 1.0, STEPS).verdict == "none"
    exact = rates(1.0, lambda h: 1 + 1e-12, STEPS, None)
    assert exact.verdict == "none" and exact.check("a rate").verdict == "agrees"
    wrong = rates(1.0, lambda h: 1 + 1e-6, STEPS, None)
    assert wrong.verdict == "FAIL" == wrong.check("a rate").verdict
    rng = np.random.default_rng(0)

    def network(h, off=0.0):
        return xr.DataArray(1 + off + 0.01 * rng.normal(size=16), dims="seed")

    assert rates(1.0, network, STEPS, None).check("a rate").verdict == "agrees"
    assert rates(1.0, lambda h: network(h, 0.05), STEPS, None).verdict == "FAIL"


def test_a_row_shows_the_difference_that_decides():
    """A small one that is far beyond its error, beside a larger one within its own."""
    at = Rate(
        None,
        0.0,
        1.0,
        (2.0, 1.0),
        (1e-3, 1e-5),
        (1e-2, 1e-9),
        (0.0,),
        1.0,
        np.inf,
        np.inf,
    )
    row = at.check("no difference")
    assert at.verdict == row.verdict == "FAIL" and row.measured == 1e-5


def test_a_flow_of_ones_own():
    """Curves over time of different steps; functions, lists; every term counts."""
    found = rates(curve, steps, STEPS)
    assert found.verdict == "agrees" and found.offset < 1e-3
    listed = rates([curve(h) for h in STEPS], [steps(h) for h in STEPS], STEPS)
    assert listed == found and rates(curve(0), steps, STEPS) == found
    assert "agrees" in str(found) and "0.0125" in str(found)
    for wrong in (-sp.sin(x) + sp.Float(0.005) * y, -sp.Float(1.005) * sp.sin(x)):
        off = dataclasses.replace(PENDULUM, rhs={x: y, y: wrong})
        assert rates(curve, lambda h, off=off: steps(h, off), STEPS).verdict == "FAIL"


SEEDS = xr.DataArray([1.0, 2.0], dims="seed", coords={"seed": [0, 1]})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": (0.1, 0.05)}, "must be three or more different sizes"),
        ({"steps": (0.1, 0.05, 0.05)}, "must be three or more different sizes"),
        ({"steps": (0.1, 0.05, 0.0)}, "must be > 0"),
        ({"steps": (0.1, 0.05, np.nan)}, "must be finite"),
        ({"steps": 0.1}, "must be a list of numbers"),
        ({"measured": [1.0, 2.0]}, "a function of the step, or 3 values"),
        ({"theory": [1.0, 2.0]}, "a function of the step, or 3 values"),
        ({"measured": lambda h: np.nan}, "must be finite"),
        ({"theory": lambda h: np.inf}, "must be finite"),
        ({"order": "one"}, "order = 'one'"),
        ({"rounding": 0}, "rounding = 0"),
        ({"measured": lambda h: SEEDS[:1]}, "seeds must be two or more"),
        ({"measured": lambda h: SEEDS[: 1 + (h > 0.03)]}, "as many at every step"),
        (
            {
                "measured": lambda h: xr.Dataset({"y": 1.0}),
                "theory": lambda h: xr.Dataset({"x": 1.0}),
            },
            "theory, measured: cannot align",
        ),
        (
            {
                "measured": lambda h: np.ones(round(1 / h))[: int(1 / h)],
                "theory": lambda h: np.ones(3),
            },
            "theory, measured: ",
        ),
    ],
)
def test_wrong_input_is_one_line(changes, said):
    """What is wrong, and what to type."""
    given = {"theory": 1.0, "measured": power(1), "steps": STEPS[:3]} | changes
    with pytest.raises(ParameterError, match=said) as caught:
        rates(**given)
    assert "\n" not in str(caught.value)


def rows(name):
    """Rows of the flows of a model."""
    return [row for row in flow_rows(registry.find(name)) if not isinstance(row, str)]


@pytest.mark.parametrize("name", ["state_tracking"])
def test_every_flow_of_a_model_is_of_first_order(name):
    """Curves and half-way times of every flow, and a constant error of 5e-4 would be
    seen.
    """
    found = rows(name)
    assert len(found) == 2 * len(registry.find(name).wing("theory").flows())
    assert all(c.verdict == "agrees" and c.detectable < 6e-4 for c in found)


def test_a_wrong_sign_in_one_term_of_descent_fails(monkeypatch):
    """In each rate of the flow of state tracking, in descent alone."""
    flow = dataclasses.replace(state_tracking.flow(), name="one wrong sign")
    p = state_tracking.Parameters.demo()
    right = Flow.descend
    assert not failed([*of_flow(flow, p, 8.0)])
    for moved in flow.state:
        first, *others = sp.Add.make_args(flow.rhs[moved].expand())
        wrong = dataclasses.replace(
            flow, rhs={**flow.rhs, moved: sp.Add(-first, *others)}
        )
        monkeypatch.setattr(
            Flow, "descend", lambda _, *a, wrong=wrong: right(wrong, *a)
        )
        assert failed([*of_flow(flow, p, 8.0)]), moved


def test_the_command_on_one_model_and_without_rows(capsys):
    """As JSON; a model that has nothing to measure is told in one line."""
    name = "associative_memory.gradient_memory"
    assert main([name, "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"] == name and len(found["checks"]) == 2
    with pytest.raises(
        ParameterError, match="positional_semantic has no flow, and states no order"
    ):
        main(["positional_semantic", "--quiet"])


def test_limits_of_state_tracking_are_approached_as_stated():
    """What three limits leave out falls with the stated powers of the sizes."""
    rows = of_sizes()
    endless = "state_tracking, thermodynamic limit"
    limits = ["alpha_level_large_L", "alpha_star", endless]
    assert [row.equation for row in rows] == limits
    assert {row.verdict for row in rows} == {"agrees"}


@pytest.mark.slow
def test_the_command_on_all_models(capsys):
    """All orders that are stated hold, and no flow is left out."""
    assert main(["--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {c["verdict"] for c in found["checks"]} <= {"agrees", "exact"} and not found[
        "notes"
    ]
    flows = {
        f"{m.name} {f}"
        for m in registry.TABLE.values()
        if not m.systems
        for f in getattr(m.wing("theory"), "flows", dict)()
    }
    assert sum("order of descent" in c["name"] for c in found["checks"]) == 2 * len(
        flows
    )


def test_sides_that_do_not_fit_are_refused():
    """Other dimensions, in place of all pairs of their entries; complex numbers."""
    u, v = (xr.DataArray(np.arange(5.0), dims=name) for name in "uv")
    for theory, measured in ((u, lambda h: v * (1 + h)), (1.0, lambda h: 1 + 1j * h)):
        with pytest.raises(ParameterError, match="must be the same, and values real"):
            rates(theory, measured, [0.1, 0.05, 0.025])


def test_sparse_curves_are_not_failed():
    """The error of interpolation is one of the curve; where it is small,
    verdicts stay.
    """
    steps, at = [0.1, 0.05, 0.025, 0.0125], np.linspace(0, 6, 1200)

    def curve(points, step=0.0):
        t = np.linspace(0, 6, points)
        return xr.DataArray(np.cos(20 * t) + step * t, {"t": t}, ["t"])

    with pytest.raises(ParameterError, match="too few times to interpolate between"):
        rates(curve(61), lambda h: curve(len(at), h), steps)
    assert rates(curve(6001), lambda h: curve(len(at), h), steps).verdict == "agrees"
    wrong = rates(curve(6001) + 0.1, lambda h: curve(len(at), h), steps)
    assert wrong.verdict == "FAIL" and "inf" not in str(wrong)
    one, other = (rates(of, lambda h: 1 + h, steps) for of in (1.0, np.array(1.0)))
    assert one == other and one.verdict == "agrees"
