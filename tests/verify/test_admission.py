"""Every shipped ensemble obeys the rules of admission; one that breaks a rule is
refused.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import verify
from simulate.state_tracking import train
from simulate.store import runs as store
from theory.call.refusal import ParameterError
from theory.state_tracking import flow
from verify.checks.admission import CODE, admitted, rules
from verify.rates import rates
from verify.state_tracking.ensemble import SETTINGS, SHIPPED

COARSEST = ("d_g_4", "eta_1.5", "N_8", "mixed")  # their steps change most
FILES = [f for f in Path(verify.__file__).parent.rglob("*.nc") if "kept" not in f.parts]


def test_all_files_are_admitted():
    """Whatever comes with the code; every door to them asks."""
    assert len(FILES) >= 21
    for path in FILES:
        assert not [
            rule for rule, obeyed in rules(store.read(path)).items() if not obeyed
        ], path


@pytest.fixture(scope="module")
def demo():
    """Students that are admitted."""
    return store.read(SHIPPED / "demo.nc")


def moved(name, times=1):
    """How a step, or a multiple of it, changes A by the flow of a setting, and in which
    order.
    """
    p = SETTINGS[name].p.run_to(SETTINGS[name].alpha)
    system, end = flow(p.teachers), p.epochs * p.time_per_step

    def curve(step):
        return system.solve(
            p, at=step * np.arange(round(end / step) + 1), until=1.01 * end
        ).A

    def descent(step):
        return system.descend(p, step, round(end / step)).A

    return rates(curve, descent, p.time_per_step * times / np.array([1, 2, 4]))


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=[pytest.mark.slow] * (x not in COARSEST)) for x in SETTINGS],
)
def test_a_step_changes_little(name):
    """In first order, and A by less than half a percent."""
    assert moved(name).verdict == "agrees" and moved(name).differences[0] < 0.005


def test_larger_steps_would_be_seen():
    """Eight times those of two settings."""
    assert all(moved(name, 8).differences[0] > 0.005 for name in ("d_g_4", "N_8"))


def test_a_student_with_half_the_step():
    """At the step of a shipped setting and larger ones: what half of it changes is of
    order 1.
    """
    shipped, etas = SETTINGS["draws_2048"].p, (2.0, 1.0, 0.5)
    assert shipped.eta == etas[-1]

    def student(eta):
        p = shipped.replace(eta=eta, n_test=16).run_to(2.75 / eta)  # soon after A = 1/2
        runs = train(p.replace(eval_every=p.epochs // 88), seeds=[0], progress=False)
        return (
            runs[["A", "R", "S"]]
            .isel(seed=0, drop=True)
            .assign_coords(alpha=eta * runs.alpha)
        )

    runs = {eta: student(eta) for eta in (*etas, etas[-1] / 2)}
    assert runs[0.5].A[0] < 0.2 and runs[0.5].A[-1] > 0.9
    halves, whole = ([runs[eta / k] for eta in etas] for k in (2, 1))
    found = rates(halves, whole, etas)
    assert found.verdict == "agrees" and found.differences[-1] < 0.001
    assert rates(halves, whole, etas, 2).verdict == "FAIL"


def hole(x):
    """With a value missing."""
    return x.assign(loss=x.loss.where(x.alpha != x.alpha[7]))


@pytest.mark.parametrize(
    ("words", "change"),
    [
        (
            "a seed is there twice",
            lambda x: x.assign_coords(seed=np.maximum(x.seed, 1)),
        ),
        (
            "command",
            lambda x: x.drop_attrs().assign_attrs(parameters=x.parameters, versions=""),
        ),
        (
            "the code that",
            lambda x: x.drop_attrs().assign_attrs(
                {k: v for k, v in x.attrs.items() if k not in CODE}
            ),
        ),
        ("value is missing", hole),
        ("ends before its runs do", lambda x: x.isel(alpha=slice(0, -1))),
        ("too far apart", lambda x: x.isel(alpha=[*range(0, x.alpha.size, 3), -1])),
        (
            "steps are too large",
            lambda x: x.assign_attrs(
                parameters=json.dumps(json.loads(x.parameters) | {"eval_every": 5})
            ),
        ),
    ],
)
def test_a_broken_rule_is_named(demo, words, change):
    """One at a time."""
    changed = change(demo)
    with pytest.raises(ParameterError, match=f"demo.nc: not admitted: .*{words}"):
        admitted(SHIPPED / "demo.nc", changed)


def test_runs_of_several_settings_that_end_early():
    """All seeds of a setting end together."""
    loss = np.ones((2, 2, 5))
    loss[1, :, 3:] = np.nan
    whole = xr.Dataset(
        {"loss": (("setting", "seed", "step"), loss)},
        {"seed": [0, 1], "setting": ["a", "b"]},
        {"command": "renew"},
    )
    assert all(rules(whole).values())
    whole.loss[0, 1, 4] = np.nan
    assert not rules(whole)["a run ends before the others"]


@pytest.mark.parametrize(
    ("module", "door", "named"), [("state_tracking.ensemble", "shipped", ["demo"])]
)
def test_every_door_asks(monkeypatch, module, door, named):
    """Whoever reads a shipped file has it admitted."""
    room = importlib.import_module(f"verify.{module}")

    def refused(*_):
        raise ParameterError("not admitted")

    monkeypatch.setattr(room, "admitted", refused)
    with pytest.raises(ParameterError, match="not admitted"):
        getattr(room, door)(*named)
