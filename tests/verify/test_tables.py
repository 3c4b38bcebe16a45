"""Curves of somebody else's students, read from a CSV file."""

from __future__ import annotations

import io
import json
import os
import re
import time
import zipfile

import numpy as np
import pytest
import xarray as xr

from theory import state_tracking as st
from theory.call.refusal import ParameterError
from verify import trajectories
from verify.checks import command
from verify.compare import tables
from verify.trajectories import compare

P = st.Parameters.demo()
COLUMNS = "alpha=seen/4,A=attention*0.5,R=overlap,seed=run"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Ten noisy copies of the flow as a stranger might store them: other names, units
    and order, and rows of another setting.
    """
    curve = st.flow().solve(P, alpha=6.0, at=np.linspace(0, 6, 13))
    rng, lines = np.random.default_rng(0), ["run,seen,attention,overlap,width"]
    for run in range(10):
        for k, alpha in enumerate(curve.alpha.values):
            A, R = (
                float(v[k]) * (1 + 0.01 * rng.standard_normal())
                for v in (curve.A, curve.R)
            )
            lines += [f"{run},{4 * alpha},{2 * A},{R},64", f"{run},{4 * alpha},0,0,128"]
    path = tmp_path_factory.mktemp("table") / "theirs.csv"
    path.write_text("\n".join([lines[0], *rng.permutation(lines[1:])]))
    return path


def test_a_table_is_read_as_curves_over_seed_and_time(table):
    """Names, factors, rows; whatever the order of the lines."""
    runs = tables.read(table, command.mapped("--columns", COLUMNS), {"width": "64.0"})
    assert dict(runs.sizes) == {"seed": 10, "alpha": 13} and set(runs.data_vars) == {
        "A",
        "R",
    }
    assert runs.alpha.values.tolist() == np.linspace(0, 6, 13).tolist()
    curve = st.flow().solve(P, alpha=6.0, at=runs.alpha.values)
    np.testing.assert_allclose(runs.A.mean("seed"), curve.A, rtol=0.015)
    assert all(c.within for c in compare(curve, runs).checks)


def test_the_command_sees_another_learning_rate(table, capsys):
    """At their parameters the flow agrees; at a tenth more of eta it fails."""
    given = [
        f"--runs={table}",
        f"--columns={COLUMNS}",
        "--rows=width=64",
        "--preset=demo",
    ]
    assert trajectories.main(["state_tracking", *given]) == 0
    assert "2 agrees, 0 FAIL" in capsys.readouterr().out
    assert (
        trajectories.main(["state_tracking", *given, "--set=eta=0.55", "--json"]) == 1
    )
    found = json.loads(capsys.readouterr().out)
    assert {c["equation"] for c in found["checks"]} == {"A", "R"} and found["failed"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            dict(columns="alpha=seen,A=atention"),
            "no column 'atention'; did you mean 'attention'",
        ),
        (
            dict(columns="alpha=seen,A=attention"),
            "seed=COLUMN tells students apart, --rows picks",
        ),
        (
            dict(columns="A=attention,alpha=seen,seed=run"),
            "every A, the first of --columns",
        ),
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
    given = {
        "runs": f"--runs={table}",
        "columns": COLUMNS,
        "rows": "width=64",
        **change,
    }
    flags = [given["runs"], f"--columns={given['columns']}", f"--rows={given['rows']}"]
    flags = [*filter(None, [*flags, given.get("more")])]
    with pytest.raises(ParameterError, match=words) as caught:
        trajectories.main(["state_tracking", "--preset=demo", *flags])
    assert "\n" not in str(caught.value)
    named = re.match(r"--\w+(?=:)", str(caught.value))  # the flag that is wrong
    assert not named or named[0][2:] in [
        *change,
        *re.findall(r"\w+", change.get("more", "")),
    ]


def test_one_curve_and_a_model_without_a_flow(tmp_path):
    """Without seeds a single curve; text where a number should be;
    no flow, no command.
    """
    path = tmp_path / "one.csv"
    path.write_text("t,x\n0,1\n2,3\n1,\n")
    runs = tables.read(path, {"alpha": "t", "theta": "x"})
    assert runs.theta.dims == ("alpha",) and np.isnan(runs.theta[1])
    path.write_text("t,x\n0,one\n")
    with pytest.raises(
        ParameterError, match="column 'x' holds a value that is not a number"
    ):
        tables.read(path, {"alpha": "t", "theta": "x"})
    path.write_text("t,x\n0,1\n2,3\n")
    with pytest.raises(ParameterError, match="has no flow"):
        trajectories.main(
            ["positional_semantic", f"--runs={path}", "--columns=alpha=t,theta=x"]
        )


@pytest.mark.parametrize(
    ("content", "columns", "words"),
    [
        (b"t,x\n", "alpha=t,A=x", "has no rows"),
        (b"t,x\n0,1\n1,inf\n", "alpha=t,A=x", "column 'x' holds an infinite number"),
        (bytes(range(256)), "alpha=t,A=x", "must be a text file in UTF-8"),
        (b"s,t\n0,1\n", "seed=s,A=t", "the time first"),
        (
            b"s,t,x\n0,1,1\n1,2,1\n",
            "alpha=t,A=x,seed=s",
            "must have a row at every alpha",
        ),
    ],
)
def test_broken_tables(tmp_path, content, columns, words):
    """No rows, infinity, no text, no time; students measured at times of their own,
    whose mean would be that of others at every time.
    """
    path = tmp_path / "broken.csv"
    path.write_bytes(content)
    with pytest.raises(ParameterError, match=words):
        tables.read(path, command.mapped("--columns", columns))


def test_a_table_of_one_time_and_one_without_columns(tmp_path):
    """A single late row is compared with the flow there; a forgotten flag is named."""
    path = tmp_path / "late.csv"
    late = st.flow().solve(P, alpha=4.0, at=np.array([0.0, 4.0])).A.values[1]
    path.write_text(f"t,x\n4,{late}\n")
    given = ["state_tracking", f"--runs={path}", "--preset=demo"]
    assert trajectories.main([*given, "--columns=alpha=t,A=x"]) == 0
    with pytest.raises(ParameterError, match="needs --columns"):
        trajectories.main(given)


def test_another_unit_of_time_is_suspected(tmp_path, capsys):
    """Epochs for alpha: after rows that fail, and where no time is common; else not."""
    curve = st.flow().solve(P, alpha=12.0)
    hint = (
        r"another unit of time\? The runs end at alpha = .*, in training time alpha ="
        r" epochs / "
    )
    for factor, suspected in ((1, False), (256, True), (1 / 256, True)):
        theirs = tables.arrays({"alpha": factor * curve.alpha, "A": curve.A})
        assert (
            bool(re.search(hint, str(trajectories.compare(curve, theirs)))) == suspected
        )
    late = tables.arrays({"alpha": 256 * curve.alpha[50:], "A": curve.A[50:]})
    with pytest.raises(ParameterError, match=f"lies outside the curve, .*; {hint}"):
        trajectories.compare(curve, late)
    path = tmp_path / "epochs.csv"
    for factor, code in ((1, 0), (256, 1)):
        rows = zip(factor * curve.alpha.values, curve.A.values, strict=True)
        path.write_text("t,A\n" + "".join(f"{t},{A}\n" for t, A in rows))
        words = [
            "state_tracking",
            f"--runs={path}",
            "--preset=demo",
            "--columns=alpha=t,A=A",
        ]
        assert trajectories.main(words) == code
        assert ("another unit" in capsys.readouterr().out) == bool(code)


def written(tmp_path, content, name="theirs.csv"):
    """Path of a file with this content."""
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


READ = [  # file, columns, values of x (or of several students)
    ("step,attn,attn/2\n0,4,9\n1,6,8\n", "t=step,x=attn/2", [9, 8]),
    ("step,attn,attn/2\n0,4,9\n1,6,8\n", "t=step,x=attn/2.0", [2, 3]),
    ("step,attn\n0,4\n1,6\n", "t=step,x=attn/2", [2, 3]),
    ("epoch, attention\n0, 1\n1, 2\n", "t=epoch,x=attention", [1, 2]),
    ('step,"attn, head 1"\n0,1\n1,2\n', 't=step,x="attn, head 1"', [1, 2]),
    ("t,seed 1,seed 2\n0,1,2\n1,3,4\n", "t=t,x=seed *", {1: [1, 3], 2: [2, 4]}),
    ("t,loss_2,loss_10\n0,1,2\n1,3,4\n", "t=t,x=loss_*/2", {2: [0.5, 1.5], 10: [1, 2]}),
    ("t,run-a,run-b\n1,3,4\n0,1,2\n", "t=t,x=run-*", {"a": [1, 3], "b": [2, 4]}),
    (
        "who,t,x\nann,0,1\nbob,0,2\nann,1,3\nbob,1,4\n",
        "t=t,x=x,seed=who",
        dict(ann=[1, 3], bob=[2, 4]),
    ),
    ("who,t,x\n1,0,1\n2,0,2\n1,1,3\n", "t=t,x=x,seed=who", {1: [1, 3], 2: [2, np.nan]}),
    ("\ufefft,x\r\n0,NA\r\n\r\n1,2\r\n", "t=t,x=x", [np.nan, 2]),
    ("t;x\n0;0.5\n1;null\n", "t=t,x=x", [0.5, np.nan]),
    ("t\tx\n0\t1\n1\t#N/A\n", "t=t,x=x", [1, np.nan]),
    ("t,x,loss,loss\n0,1,8,9\n1,2,8,9\n", "t=t,x=x", [1, 2]),
    (f"t,x,note\n0,1,{'a' * 1000}\n1,2,\n", "t=t,x=x", [1, 2]),
]


@pytest.mark.parametrize(("content", "columns", "values"), READ, ids=range(len(READ)))
def test_what_can_be_read_is_read_rightly(tmp_path, content, columns, values):
    """Names that look like arithmetic, blanks, quotes, one column per student, names of
    students, separators and missing values.
    """
    curves = tables.read(
        written(tmp_path, content), command.mapped("--columns", columns)
    )
    assert curves.t.values.tolist() == [0, 1]
    if isinstance(values, dict):
        np.testing.assert_equal(
            {s: curves.x.sel(seed=s).values for s in curves.seed.values}, values
        )
    else:
        np.testing.assert_array_equal(curves.x, values)


REFUSED = [
    (
        "step,loss,loss\n0,1,2\n1,2,3\n",
        "t=step,x=loss",
        "2 columns have the name 'loss'",
    ),
    (
        "t,x\n0,1,2\n1,2,3\n",
        "t=t,x=x",
        r"line 2 has 3 cells, the header has 2; .*row.names=FALSE",
    ),
    ("t,x\n0,1\n1\n", "t=t,x=x", "line 3 has 1 cells, the header has 2$"),
    (
        '"t" "x"\n"1" 0 1\n"2" 1 2\n',
        "t=t,x=x",
        r"commas, semicolons or tabs; R's write.csv",
    ),
    (
        '"t"\t"x"\n"1"\t0\t1\n"2"\t1\t2\n',
        "t=t,x=x",
        "write.table puts names .*col.names=NA",
    ),
    ("t,x\n0,1,\n1,2,\n", "t=t,x=x", "line 2 has 3 cells"),
    ('t,x\n0,"1\n1,2\n', "t=t,x=x", "line 3: unexpected end of data"),
    ('t,x\n0,"1,234"\n', "t=t,x=x", "not a number: '1,234' in line 2"),
    ("t;x\n0;0,5\n", "t=t,x=x", "not a number: '0,5' in line 2"),
    ("t,x\n0,12%\n", "t=t,x=x", "not a number: '12%' in line 2"),
    (
        f"t,x,note\n0,1,{'a' * 140_000}\n",
        "t=t,x=x",
        "line 2: field larger than field limit",
    ),
    (b"", "t=t,x=x", "no column 't'; it has none"),
    ("t,x\n0,1\n".encode("utf-16"), "t=t,x=x", "must be a text file in UTF-8"),
    ("t,x\nNA,1\n1,2\n", "t=t,x=x", "t must be finite"),
    (
        "t,loss_1,loss_2,loss_mean\n0,1,2,3\n",
        "t=t,x=loss_*",
        "it stands for 1, 2, mean",
    ),
    ("t,a_1,b_2\n0,1,2\n", "t=t,x=a_*,y=b_*", "y: of other students"),
    ("t,a\n0,1\n", "t=t,x=b_*", "it stands for nothing"),
    (
        "t,x,who\n0,1,ann\n0,2,\n",
        "t=t,x=x,seed=who",
        "must be finite, and each once|neither",
    ),
    (
        "who,t,x\n1,0,1\n2,1,2\n1,1,3\n",
        "t=t,x=x,seed=who",
        "a row at every t.*until it ends",
    ),
    ("t,x\n0,1\n", 't=t,x="x', "must be NAME=WORD"),
    ("0,0.5\n1,0.25\n", "t=0,x=0.5", "line 1 has no names of columns"),
    (
        "t,s,x\n0,nan,1\n0,b,2\n",
        "t=t,seed=s,x=x",
        "a student has neither number nor name",
    ),
]


@pytest.mark.parametrize(
    ("content", "columns", "words"), REFUSED, ids=range(len(REFUSED))
)
def test_what_would_be_read_wrongly_is_refused(tmp_path, content, columns, words):
    """In one line, with the number of the line in the file."""
    path = written(tmp_path, content)
    with pytest.raises(ParameterError, match=words) as caught:
        tables.read(path, command.mapped("--columns", columns))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


def test_no_tables(tmp_path):
    """Devices, pipes, folders and files of another kind, at once."""
    os.mkfifo(tmp_path / "pipe.csv")
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "folder.csv").mkdir()
    written(tmp_path, b"PK\x03\x04" + bytes(100), "damaged.npz")
    np.savez(tmp_path / "objects.npz", t=np.arange(2), x=np.array([{}, None]))
    np.savez(tmp_path / "complex.npz", t=np.arange(2), x=np.array([1j, 2]))
    (tmp_path / "hole.csv").open("wb").truncate(2**40)
    for path in ("/dev/zero", *sorted(tmp_path.iterdir())):
        with pytest.raises(ParameterError) as caught:
            tables.read(path, {"t": "t", "x": "x"})
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_many_columns_take_a_moment(tmp_path):
    """A wrong name among 10^5 is refused as fast, in a line that does not name them
    all.
    """
    names = [f"c{i}" for i in range(10**5)]
    path = written(
        tmp_path, ",".join(names) + "\n" + ",".join(["1"] * len(names)) + "\n"
    )
    begun = time.process_time()
    assert tables.read(path, {"t": "c0", "x": "c99999"}).x.values == [1]
    with pytest.raises(ParameterError, match="no column 'd1'") as caught:
        tables.read(path, {"t": "c0", "x": "d1"})
    assert len(str(caught.value)) < 600 and time.process_time() - begun < 10


def test_rows_are_told_apart_beyond_nine_digits(tmp_path):
    """Numbers of runs that are equal to one part in 10^9."""
    path = written(tmp_path, "run,t,x\n1000000001,0,1\n1000000002,0,2\n")
    assert tables.read(path, {"t": "t", "x": "x"}, {"run": "1000000002"}).x.values == [
        2
    ]


def test_arrays_of_numpy(tmp_path):
    """The same curves from arrays, from an archive, and from long arrays with names of
    students.
    """
    times, x = np.array([2.0, 0.0, 1.0]), np.array([[3, 1, 2], [6, 4, 5]])
    curves = tables.arrays({"t": times, "x": x, "seed": ["ann", "bob"]})
    assert curves.t.values.tolist() == [0, 1, 2] and curves.x.sel(
        seed="bob"
    ).values.tolist() == [4, 5, 6]
    np.savez(tmp_path / "a.npz", step=2 * times, x=x)
    read = tables.read(tmp_path / "a.npz", {"t": "step/2", "x": "x"})
    assert (
        read.seed.values.tolist() == [0, 1] and (read.x.values == curves.x.values).all()
    )
    long = tables.arrays(
        {
            "t": [0, 0, 1, 1],
            "x": np.ma.masked_less([1.0, 4, 2, -1], 0),
            "seed": ["b", "a", "b", "a"],
        }
    )
    assert long.x.sel(seed="b").values.tolist() == [1, 2] and np.isnan(
        long.x.sel(seed="a", t=1)
    )
    np.savez(tmp_path / "b.npz", t=times, x=x.T)
    with pytest.raises(
        ParameterError, match=r"or \(students, times\), not t \(3,\), x \(3, 2\)$"
    ):
        tables.read(tmp_path / "b.npz", {"t": "t", "x": "x"})
    with pytest.raises(ParameterError, match="no column 'attn'; it has t, x"):
        tables.read(tmp_path / "b.npz", {"t": "t", "x": "attn"})
    with zipfile.ZipFile(tmp_path / "c.npz", "w") as archive:
        archive.writestr("x.npy", b"no array")
        archive.write(tmp_path / "b.npz", "t")
    with pytest.raises(ParameterError, match="no column 't'; it has none"):
        tables.read(tmp_path / "c.npz", {"t": "t", "x": "x"})
    header = io.BytesIO()
    form = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    np.lib.format.write_array_header_1_0(header, form)
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("x.npy", header.getvalue())
    with pytest.raises(ParameterError, match="no arrays of numbers"):
        tables.read(tmp_path / "d.npz", {"t": "x", "x": "x"})
    for unread in (np.load(tmp_path / "b.npz"), {"t": times, "x": x}):
        with pytest.raises(
            ParameterError,
            match=r"got .*; of a file verify\.compare\.tables\.read makes one",
        ):
            trajectories.compare(curves, unread)
    with pytest.raises(ParameterError, match="needs --columns"):
        trajectories.main([f"--runs={tmp_path / 'b.npz'}"])
    for wrong in (
        {"t": times, "x": x.T},
        {"t": times, "x": np.eye(3)},  # which axis are the students?
        {"t": times, "x": 1.0},
        {"t": times, "x": ["a", "b", "c"]},
        {"t": times, "x": [1j, 2, 3]},
        {"t": times, "x": [[1, 2, 3], [1, 2]]},
        {"t": times, "x": x, "seed": [1, 2, 3]},
        {"t": times, "x": x, "seed": [1, None]},
        {"t": [0, 0, 1], "x": [1, 2, 3]},
        {"t": ["a", "b", "c"], "x": [1, 2, 3]},
        {"t": times, "x": [1, np.inf, 2]},
        {"t": times, "x": [1, 2, 3], "seed": [0, 0, 1]},
    ):
        with pytest.raises(ParameterError, match="^arrays") as caught:
            tables.arrays(wrong)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("source", ["arrays", "file", "constant"])
def test_published_means_with_standard_deviations(tmp_path, source):
    """A right theory 1.3 standard errors away does not fail, a wrong one does, nor does
    one whose means scatter as those of 20 students.
    """
    students, times = 20, np.linspace(0, 5, 11)
    exact, std = np.exp(-times), 0.1 + 0 * times
    curve = xr.Dataset({"x": ("t", exact)}, {"t": times})

    def verdicts(off):
        mean = exact + off * std / np.sqrt(students)
        if source == "arrays":
            means = tables.arrays({"t": times, "x": mean, "x_std": std})
            return {
                c.verdict
                for c in compare(curve, tables.published(means, students)).checks
            }
        lines = [f"{t},{m},{s}" for t, m, s in zip(times, mean, std, strict=True)]
        path = written(tmp_path, "t,x_mean,x_std\n" + "\n".join(lines))
        columns = {"t": "t", "x": "x_mean", "x_std": "x_std"}
        if source == "constant":
            means = tables.read(path, {**columns, "x_n": str(students)})
        else:
            means = tables.published(tables.read(path, columns), students)
        return {c.verdict for c in compare(curve, means).checks}

    assert "FAIL" not in verdicts(1.3) | verdicts(-1.3)
    assert verdicts(8.0) == {"FAIL"} == verdicts(-8.0)
    rng = np.random.default_rng(0)
    assert all("FAIL" not in verdicts(rng.standard_normal(11)) for _ in range(20))
    with pytest.raises(ParameterError, match="students = 1"):
        tables.published(tables.arrays({"t": times, "x": exact, "x_std": std}), 1)
    with pytest.raises(ParameterError, match="must be x and x_std"):
        tables.published(curve, 20)


@pytest.mark.parametrize("cell", ["1_0", "\u0661", "\u2212" + "1"])
def test_numbers_as_no_table_has_them_are_refused(cell, tmp_path):
    """Python's own reading of numbers takes underscores
    and the digits of every script.
    """
    file = tmp_path / "a.csv"
    file.write_text(f"t,A\n0,{cell}\n1,2\n", encoding="utf-8")
    with pytest.raises(ParameterError, match="a value that is not a number"):
        tables.read(file, {"t": "t", "A": "A"})


def test_summaries_beside_a_column_are_no_students(tmp_path):
    """As Weights & Biases exports them."""
    file = tmp_path / "a.csv"
    file.write_text("Step,r - loss,r - loss__MIN,r - loss__MAX\n0,1,1,1\n1,2,2,2\n")
    with pytest.raises(ParameterError, match="must be students only"):
        tables.read(file, {"t": "Step", "A": "r - loss*"})
    assert "seed" not in tables.read(file, {"t": "Step", "A": "* - loss"}).dims


@pytest.mark.parametrize("word", ["std", "stderr", "ci", "average", "SEM", "upper_95"])
def test_errors_beside_students_are_no_students(word, tmp_path):
    path = written(tmp_path, f"t,x_1,x_2,x_1_{word}\n0,1,1,0\n1,2,2,0\n")
    with pytest.raises(ParameterError, match="must be students only"):
        tables.read(path, {"t": "t", "x": "x_*"})


def test_calls_that_lack_something(tmp_path):
    """In one line, without Python's own words."""
    with pytest.raises(
        ParameterError, match="must be a time and a quantity, the time first: {'t'"
    ):
        tables.read(tmp_path / "nope.csv")
    with pytest.raises(
        ParameterError, match=r"path = 'a\\x00b': must be the name of a file"
    ):
        tables.read("a\0b", {"t": "t", "x": "x"})


def test_columns_named_by_their_number(tmp_path):
    """As of a pandas table of an array."""
    path = written(tmp_path, "0,1,2\n0,5,6\n1,7,8\n")
    assert tables.read(path, {"t": "0", "x": "2"}).x.values.tolist() == [6, 8]
