"""Students of the extensions beside their theory, and published fixed points beside the rule."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import xarray as xr

from theory.parameters import ParameterError
from theory.positional_semantic import Parameters, variants
from theory.positional_semantic.extensions import solve
from verify.positional_semantic import extensions, published


def test_measurements_of_a_student():
    """At its minimum, with those of its value matrix; the training loss is the risk, from below
    that of doing nothing but the teacher's norm.
    """
    p = extensions.EXTENDED.replace(d=20, alpha=2.0, value=True, n_test=200)
    found = extensions.end(p, 0)
    assert found["gradient"] < 1e-5
    assert 0 < found["theta_W"] < 1 and found["theta_W"] ** 2 < found["q_W"]
    other = extensions.end(p.replace(value=False), 0)
    assert set(found) - set(other) == {"theta_W", "q_W"}
    # A ridge on d^2 further weights costs lambda/2 q_W per dimension.
    assert found["train_loss"] > p.lam / 2 * found["q_W"]


def test_a_wrong_prediction_fails(monkeypatch):
    """Students made up around the theory agree; around a theory without the extension they fail."""
    solved = functools.cache(lambda p: solve(p, points=64))
    monkeypatch.setattr(extensions, "solve_extended", lambda p, points: solved(p))
    plain = False

    def limits(p, sizes, seeds):
        q = extensions.EXTENDED.replace(start=p.start, alpha=p.alpha) if plain else p
        noise = 1 + 0.02 * np.random.default_rng(1).normal(size=len(seeds))
        truth = extensions.predicted(q, solved(q))
        return xr.Dataset({k: ("seed", v * noise) for k, v in truth.items()})

    monkeypatch.setattr(extensions, "limits", limits)
    assert all(c.within for c in extensions.checks(range(24), ["correlation 0.2"]))
    plain = True  # the nearest number is 2.5% off, six standard errors
    assert not any(c.within for c in extensions.checks(range(24), ["correlation 0.2"]))


@pytest.mark.slow
@pytest.mark.parametrize("what", extensions.CASES)
def test_students_agree(what):
    """Four seeds: no row fails."""
    assert all(c.within for c in extensions.checks(range(7000, 7004), [what]))


def written(folder, name, p, branch, degree=7, change=1.0):
    """A file as theirs, of fixed points of a rule at two sample complexities."""
    rows = [",q,m,V,theta,mse,alpha,lambda,Phi"]
    for k, alpha in enumerate((2.0, 1.5)):
        x = variants.solve_low_degree(p.replace(alpha=alpha), branch, degree=degree).state
        rows.append(f"{k},{x.q * change},{x.m},{x.V},{x.theta},0,{alpha},{p.lam},0")
    (folder / name).write_text("\n".join(rows))
    return folder / name


def test_published_fixed_points(tmp_path):
    """Files of a rule's own fixed points stand still under that rule, with the matrix they were
    made with, whatever their name says; with other weights they move.
    """
    p = Parameters(omega=0.4)
    name = "repl_softmax_Mixed_sig0.5_lamb0.01_omega0.4_Aalt.csv"
    found = published.changes(written(tmp_path, name, p, "semantic", 9))
    assert (found["target"], found["degree"]) == ("standard", 9) and found["largest"] < 1e-8
    said = published.table(tmp_path).splitlines()[-1].split()
    assert said[:6] == ["0.4", "alternative", "semantic", "2", "standard", "9"]
    found = published.changes(written(tmp_path, name, p, "semantic", 7))
    assert (found["target"], found["degree"]) == ("standard", 7) and found["largest"] < 1e-8
    found = published.changes(written(tmp_path, name, p, "semantic", 7, 1.1))
    assert found["largest"] > 1e-3
    agnostic = "repl_softmax_Mixed_sig0.7_lamb0.02_omega0.3_agno.csv"
    (tmp_path / agnostic).write_text((tmp_path / name).read_text())
    q, branch, theirs = published.read(tmp_path / agnostic)
    assert (q, branch) == (Parameters(sigma=0.7, lam=0.02), "agnostic")
    assert theirs.alpha.values.tolist() == [1.5, 2.0]


def test_files_that_are_not_theirs_are_refused(tmp_path):
    """One line naming the file."""
    with pytest.raises(ParameterError, match=r"other\.csv: must be named repl_softmax"):
        published.read(tmp_path / "other.csv")
    with pytest.raises(ParameterError, match="has no repl_softmax"):
        published.table(tmp_path)
