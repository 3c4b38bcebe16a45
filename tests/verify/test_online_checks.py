"""Checks of one-pass descent pass, see faults, and follow students."""

from dataclasses import replace

import numpy as np
import pytest

from simulate.positional_semantic.online import train
from theory.parameters import ParameterError
from theory.positional_semantic import online
from theory.positional_semantic.online import Parameters, predict
from verify.check import failed
from verify.positional_semantic import online as checks


@pytest.fixture(scope="module")
def rows():
    """All rows on the derived equations."""
    return checks.checks()


def test_derivations_pass(rows):
    """Loss, noise, rates, growth."""
    assert not failed(rows), [c.name for c in rows if not c.within]
    assert set(online.equations()) == {c.equation for c in rows}


def names_of(group):
    """Equations of a group of checks."""
    early = {n for n in online.equations() if n.startswith("growth_")}
    rest = online.equations().keys() - early - {"T_escape"}
    return {"growth": early, "escape": {"T_escape"}, "rates_of_overlaps": rest}[group.__name__]


@pytest.mark.parametrize("group", [checks.growth, checks.escape])
def test_a_factor_is_seen(group):
    """Five percent on any equation of a group fails its rows."""
    for name in names_of(group):
        right = online.equations()[name]
        table = {**online.equations(), name: replace(right, rhs=right.rhs * 1.05)}
        wrong = [c for c in group(table) if not c.within]
        assert wrong and {c.equation for c in wrong} == {name}


def test_a_factor_on_a_rate_is_seen():
    """On all rates at once, for the cost of one pass."""
    names = names_of(checks.rates_of_overlaps)
    table = {
        name: replace(e, rhs=e.rhs * 1.05) if name in names else e
        for name, e in online.equations().items()
    }
    assert {c.equation for c in checks.rates_of_overlaps(table) if not c.within} == names


@pytest.mark.slow
def test_students_follow_the_flow(tmp_path):
    """Eight seeds at two sizes, extrapolated: every order parameter within four standard errors,
    none of which exceeds 15% of its curve.
    """
    p = Parameters(d=120, steps=300, eval_every=30, eta=24.0)
    runs = {
        d: train(
            p.replace(d=d, steps=p.steps * d // p.d, eval_every=p.eval_every * d // p.d),
            8,
            store=tmp_path,
            workers=1,
            progress=False,
        )
        for d in (p.d, p.d // 2)
    }
    rows = checks.at_many_dimensions(predict(p, runs[p.d]), runs)
    assert len(rows) == 9 and not failed(rows)
    off = predict(p.replace(omega=0.9), None).interp(t=runs[p.d].t)
    assert failed(checks.at_many_dimensions(off, runs))


def test_held_students_keep_their_norm(tmp_path):
    """And start at their cosines."""
    p = Parameters.sphere(d=50, steps=20, eval_every=10, cos_p=-0.2, cos_teacher=0.5)
    runs = train(p, 2, store=tmp_path, workers=1, progress=False)
    assert runs.q.values == pytest.approx(np.ones((2, 3)))
    start = runs.isel(t=0)
    assert start.m.values == pytest.approx([-0.2] * 2)
    assert start.theta.values == pytest.approx([0.5] * 2)


def test_students_need_sentences(tmp_path):
    """The population gradient is theory's alone."""
    with pytest.raises(ParameterError, match="batch = None: must be a number"):
        train(Parameters(batch=None, steps=1), 1, store=tmp_path, workers=1, progress=False)
