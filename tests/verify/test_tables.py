"""Curves of somebody else's students, read from a CSV file."""

from __future__ import annotations

import json

import numpy as np
import pytest

from theory import state_tracking as st
from theory.parameters import ParameterError
from verify import tables, trajectories
from verify.trajectories import compare

P = st.Parameters.demo()
COLUMNS = "alpha=seen/4,A=attention*0.5,R=overlap,seed=run"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Ten noisy copies of the flow as a stranger might store them: other names, units and order,
    and rows of another setting.
    """
    curve = st.flow().solve(P, alpha=6.0, at=np.linspace(0, 6, 13))
    rng, lines = np.random.default_rng(0), ["run,seen,attention,overlap,width"]
    for run in range(10):
        for k, alpha in enumerate(curve.alpha.values):
            A, R = (float(v[k]) * (1 + 0.01 * rng.standard_normal()) for v in (curve.A, curve.R))
            lines += [f"{run},{4 * alpha},{2 * A},{R},64", f"{run},{4 * alpha},0,0,128"]
    path = tmp_path_factory.mktemp("table") / "theirs.csv"
    path.write_text("\n".join([lines[0], *rng.permutation(lines[1:])]))
    return path


def test_a_table_is_read_as_curves_over_seed_and_time(table):
    """Names, factors, rows; whatever the order of the lines."""
    runs = tables.read(table, tables.mapped("--columns", COLUMNS), {"width": "64.0"})
    assert dict(runs.sizes) == {"seed": 10, "alpha": 13} and set(runs.data_vars) == {"A", "R"}
    assert runs.alpha.values.tolist() == np.linspace(0, 6, 13).tolist()
    curve = st.flow().solve(P, alpha=6.0, at=runs.alpha.values)
    np.testing.assert_allclose(runs.A.mean("seed"), curve.A, rtol=0.015)
    assert all(c.within for c in compare(curve, runs).checks)


def test_the_command_sees_another_learning_rate(table, capsys):
    """At their parameters the flow agrees; at a tenth more of eta it fails."""
    given = [f"--runs={table}", f"--columns={COLUMNS}", "--rows=width=64", "--preset=demo"]
    assert trajectories.main(["state_tracking", *given]) == 0
    assert "A, largest deviation" in capsys.readouterr().out
    assert trajectories.main(["state_tracking", *given, "--set=eta=0.55", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert {c["equation"] for c in found["checks"]} == {"A", "R"} and found["failed"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (dict(columns="alpha=seen,A=atention"), "no column 'atention'; did you mean 'attention'"),
        (dict(columns="alpha=seen,A=attention"), "seed=COLUMN tells students apart"),
        (dict(columns="A=attention,alpha=seen,seed=run"), "every A, the first of --columns"),
        (dict(columns="alpha=seen,seed"), "must be NAME=WORD"),
        (dict(columns="alpha=seen"), "a time and a quantity"),
        (dict(columns="alpha=seen/x,A=attention"), "no column 'seen/x'"),
        (dict(columns="alpha=seen/1e999,A=attention"), "must be"),
        (dict(columns="t=seen,A=attention,seed=run"), "the first must be alpha=COLUMN"),
        (dict(rows="width=65"), "no row has"),
        (dict(rows="length=65"), "no column 'length'"),
        (dict(more="--seeds=3"), "--seeds: not together with --columns"),
        (dict(runs=""), "needs --runs FILE.csv"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(table, change, words):
    """Naming the column, row or flag."""
    given = {"runs": f"--runs={table}", "columns": COLUMNS, "rows": "width=64", **change}
    flags = [given["runs"], f"--columns={given['columns']}", f"--rows={given['rows']}"]
    flags = [*filter(None, [*flags, given.get("more")])]
    with pytest.raises(ParameterError, match=words) as caught:
        trajectories.main(["state_tracking", "--preset=demo", *flags])
    assert "\n" not in str(caught.value)


def test_one_curve_and_a_model_without_a_flow(tmp_path):
    """Without seeds a single curve; text where a number should be; no flow, no command."""
    path = tmp_path / "one.csv"
    path.write_text("t,x\n0,1\n2,3\n1,\n")
    runs = tables.read(path, {"alpha": "t", "theta": "x"})
    assert runs.theta.dims == ("alpha",) and np.isnan(runs.theta[1])
    path.write_text("t,x\n0,one\n")
    with pytest.raises(ParameterError, match="column 'x' holds a value that is not a number"):
        tables.read(path, {"alpha": "t", "theta": "x"})
    path.write_text("t,x\n0,1\n2,3\n")
    with pytest.raises(ParameterError, match="has no flow"):
        trajectories.main(["positional_semantic", f"--runs={path}", "--columns=alpha=t,theta=x"])


@pytest.mark.parametrize(
    ("content", "columns", "words"),
    [
        (b"t,x\n", "alpha=t,A=x", "has no rows"),
        (b"t,x\n0,1\n1,inf\n", "alpha=t,A=x", "column 'x' holds an infinite number"),
        (bytes(range(256)), "alpha=t,A=x", "must be a text file in UTF-8"),
        (b"s,t\n0,1\n", "seed=s,A=t", "the time first"),
        (b"s,t,x\n0,1,1\n1,2,1\n", "alpha=t,A=x,seed=s", "must have a row at every alpha"),
    ],
)
def test_broken_tables(tmp_path, content, columns, words):
    """No rows, infinity, no text, no time; students measured at times of their own, whose mean
    would be that of others at every time.
    """
    path = tmp_path / "broken.csv"
    path.write_bytes(content)
    with pytest.raises(ParameterError, match=words):
        tables.read(path, tables.mapped("--columns", columns))


def test_a_table_of_one_time_and_one_without_columns(tmp_path):
    """A single late row is compared with the flow there; a forgotten flag is named."""
    path = tmp_path / "late.csv"
    late = st.flow().solve(P, alpha=4.0, at=np.array([0.0, 4.0])).A.values[1]
    path.write_text(f"t,x\n4,{late}\n")
    given = ["state_tracking", f"--runs={path}", "--preset=demo"]
    assert trajectories.main([*given, "--columns=alpha=t,A=x"]) == 0
    with pytest.raises(ParameterError, match="needs --columns"):
        trajectories.main(given)
