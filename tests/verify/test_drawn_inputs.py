"""Inputs of strangers, drawn at random, against plain code of this file: tables as R,
pandas, Excel, Weights & Biases and TensorBoard write them, curves with blanks, damaged
stores, flows with functions and parameters of their own, and values of no sense at all.

Every answer is right, or one line. Could see: a shifted column, a blank that is
counted, a time of another order, a damaged run that is not named, a function of another
meaning.
"""

from __future__ import annotations

import csv
import json
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.integrate
import scipy.optimize
import sympy as sp
import xarray as xr

from simulate.associative_memory import factual_recall
from simulate.store import runs
from theory.call.refusal import ParameterError
from theory.dynamics.flow import Flow
from theory.equations.equation import Equation
from theory.symbols.notation import symbol
from verify.compare import tables
from verify.compare.emergence import first_crossing
from verify.compare.times import emergence_times
from verify.trajectories import compare

t, x, y, k = (symbol(name) for name in "txyk")


def curves(rng, students, times):
    """Times and values of students, some of them blank."""
    t = np.sort(rng.choice(200, times, replace=False)) / 8
    values = np.sin(t / rng.uniform(2, 9)) + 0.1 * rng.standard_normal(
        (students, times)
    )
    kind = rng.integers(4)
    if kind == 1:
        values[rng.random(values.shape) < 0.3] = np.nan
    if kind == 2:
        values[: students // 2 + 1, times // 2 :] = np.nan
    if kind == 3:
        values[0] = np.nan
    return t, values


def written(path, rng, form, t, values, names):
    """A file in the style of a program; the columns to ask for."""
    order = rng.permutation(len(t))
    rows = [(n, t[j], values[i, j]) for i, n in enumerate(names) for j in order]
    long = pd.DataFrame(rows, columns=["who", "step", "loss"])
    columns = {"t": "step", "x": "loss", "seed": "who"}
    wide = pd.DataFrame({f"{n} - loss": values[i, order] for i, n in enumerate(names)})
    wide.insert(0, "Step", t[order])
    if form == "pandas":
        long.to_csv(path)
    elif form == "r":
        long.to_csv(path, index_label="", na_rep="NA", quoting=csv.QUOTE_NONNUMERIC)
    elif form == "excel":
        text = long.to_csv(index=False, sep=";", lineterminator="\r\n")
        path.write_bytes(("\ufeff" + text).encode())
    elif form == "wandb":
        for n in names:
            wide[f"{n} - loss__MIN"] = wide[f"{n} - loss"] - 1
        wide.to_csv(path, index=False, quoting=csv.QUOTE_ALL)
        columns = {"t": "Step", "x": "* - loss"}
    elif form == "tensorboard":
        table = pd.DataFrame({"Wall time": 1.7e9 + t[order], "Step": t[order]})
        table.assign(Value=values[0, order]).to_csv(path, index=False)
        columns = {"t": "Step", "x": "Value"}
    elif form == "numpy":
        np.savez(path, step=t[order], loss=values[:, order], who=names)
    elif form == "comma":
        text = long.to_csv(index=False, sep=";", decimal=",")
        path.write_text(text.replace("nan", ""))
    elif form == "twice":
        pd.concat([long, long[:1]]).to_csv(path, index=False)
    else:
        lines = long.to_csv(index=False, sep=" " if form == "spaces" else ",").split(
            "\n"
        )
        lines[-2] += ",7" if form == "ragged" else ""
        path.write_text("\n".join(lines))
    return columns


WHOLE = ("pandas", "r", "excel", "wandb", "tensorboard", "numpy")
BROKEN = ("comma", "twice", "spaces", "ragged")


@pytest.mark.parametrize("form", WHOLE + BROKEN)
def test_tables_as_programs_write_them(form, tmp_path):
    """The numbers that were written, whatever their order; what is ambiguous is
    refused.
    """
    for seed in range(6):
        rng = np.random.default_rng(seed)
        students, times = rng.integers(2, 5), rng.integers(5, 9)
        t, values = curves(rng, students, times)
        names = np.array(
            [["ann", "bob", "eve", "kim"], [3, 1, 7, 5]][seed % 2][:students]
        )
        path = tmp_path / f"{seed}.{'npz' if form == 'numpy' else 'csv'}"
        columns = written(path, rng, form, t, values, names)
        if form in BROKEN:
            with pytest.raises(ParameterError) as caught:
                tables.read(path, columns)
            assert "\n" not in str(caught.value)
            continue
        found = tables.read(path, columns)
        assert found.t.values.tolist() == t.tolist()
        for name, row in zip(names.tolist(), values, strict=True):
            if form != "tensorboard":
                np.testing.assert_array_equal(found.x.sel(seed=name), row)
        if form == "tensorboard":
            np.testing.assert_array_equal(found.x, values[0])


def shuffled(rng, data):
    """The same students in another order, of times, too, lazily loaded, with more
    beside them.
    """
    order = {d: rng.permutation(data.sizes[d]) for d in data.dims}
    data = data.isel(order).assign(note=("t", ["a"] * data.sizes["t"]))
    return [data, data.chunk(), data.transpose()][rng.integers(3)]


def first(row, t, level, side):
    """Time of the first value beyond a level, by hand."""
    beyond = [j for j in range(len(t)) if side * row[j] >= side * level]
    known = np.flatnonzero(np.isfinite(row))
    if not beyond or (beyond[0] == known[0] and beyond[0] > 0):
        return np.nan
    j = beyond[0]
    slope = (row[j] - row[j - 1]) / (t[j] - t[j - 1]) if j else 1.0
    return t[j] - (row[j] - level) / slope if j else t[0]


def test_times_of_curves_with_blanks_in_any_order():
    """Every student's first crossing, in the direction that the answer names."""
    for seed in range(24):
        rng = np.random.default_rng(seed)
        t, values = curves(rng, rng.integers(1, 6), rng.integers(1, 15))
        data = xr.Dataset(
            {"x": (("seed", "t"), values)}, {"t": t, "seed": range(len(values))}
        )
        found = emergence_times(shuffled(rng, data), data, x=0.25)
        side = -1 if "falling" in found.quantity.item() else 1
        for name, row in enumerate(values):
            expected = first(row, t, 0.25, side)
            measured = found.measured.sel(seed=name).item()
            assert measured == pytest.approx(expected, rel=1e-9, nan_ok=True)


def test_verdicts_of_curves_with_blanks_in_any_order():
    """Mean and standard error at the time that is named, by hand."""
    for seed in range(24):
        rng = np.random.default_rng(seed)
        t, values = curves(rng, rng.integers(1, 9), rng.integers(1, 15))
        if not np.isfinite(values).any():
            continue
        data = xr.Dataset(
            {"x": (("seed", "t"), values)}, {"t": t, "seed": range(len(values))}
        )
        theory = xr.Dataset({"x": ("t", np.cos(t / 5))}, {"t": t})
        (row,) = compare(theory, shuffled(rng, data)).checks
        at = np.abs(t - float(row.name.rpartition("= ")[2])).argmin()
        present = values[:, at][np.isfinite(values[:, at])]
        assert row.predicted == pytest.approx(np.cos(t[at] / 5))
        assert row.measured == pytest.approx(present.mean())
        if row.standard_error:
            error = present.std(ddof=1) / np.sqrt(len(present))
            assert row.standard_error == pytest.approx(error)


DAMAGE = {
    "cut": lambda raw, rng: raw[: rng.integers(len(raw))],
    "flipped": lambda raw, rng: (
        raw[:99] + bytes([raw[99] ^ 1 << rng.integers(8)]) + raw[100:]
    ),
    "empty": lambda raw, rng: b"",
    "text": lambda raw, rng: b"step,loss\n0,1\n",
    "link": None,
    "folder": None,
    "version": None,
}


def test_stores_with_damaged_files(tmp_path):
    """What is whole is read, bit for bit; everything else is named, in a line each."""
    p = factual_recall.Parameters(S=4, R=3, D=2, steps=2, eval_every=1)
    for eta in (0.1, 0.2):
        some = dict(seeds=[0, 1, 2], store=tmp_path, progress=False, workers=1)
        factual_recall.train(p.replace(eta=eta), **some)
    files = sorted(tmp_path.glob("*/*.nc"))
    assert [f for f in tmp_path.rglob("*") if f.is_file()] and not [
        *tmp_path.rglob("*.lock")
    ]
    whole = {f: (runs.read(f), f.read_bytes()) for f in files}
    for seed in range(8):
        rng = np.random.default_rng(seed)
        damaged = rng.choice(len(files), rng.integers(1, 5), replace=False)
        for n in damaged:
            file, kind = files[n], rng.choice([*DAMAGE])
            file.unlink()
            if kind == "link":
                file.symlink_to("/dev/zero")
            elif kind == "folder":
                file.mkdir()
            elif kind == "version":
                run = whole[file][0]
                stored = json.loads(run.attrs["configuration"]) | {"format": 1}
                runs.write(run.assign_attrs(configuration=json.dumps(stored)), file)
            else:
                file.write_bytes(DAMAGE[kind](whole[file][1], rng))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = runs.open(tmp_path)
        left_out = [str(w.message) for w in caught if "left out" in str(w.message)]
        assert len(left_out) == len(damaged) and not any(
            "\n" in line for line in left_out
        )
        for n, (file, (run, raw)) in enumerate(whole.items()):
            if n not in damaged:
                setting = json.loads(run.attrs["configuration"])
                one = found.sel(seed=run.attrs["seed"])
                one = one.sel(eta=setting["eta"]) if "eta" in one.dims else one
                np.testing.assert_array_equal(one.loss.dropna("t"), run.loss)
            elif file.is_dir() and not file.is_symlink():
                file.rmdir()
            else:
                file.unlink()
            file.exists() or file.write_bytes(raw)


FUNCTIONS = [
    sp.erf,
    sp.atan,
    sp.airyai,
    sp.sech,
    sp.Abs,
    sp.fresnels,
    sp.LambertW,
    sp.loggamma,
]
FUNCTIONS += [
    lambda a: sp.besselj(1, a),
    lambda a: sp.Max(a, 1),
    lambda a: sp.legendre(3, a),
]
FUNCTIONS += [
    lambda a: sp.harmonic(a, 2),
    lambda a: sp.uppergamma(2, a),
    sp.bernoulli,
    sp.coth,
]
FUNCTIONS += [
    lambda a: sp.Mod(a, 2),
    lambda a: sp.RisingFactorial(a, 3),
    sp.dirichlet_eta,
]


def test_flows_of_drawn_functions_and_sweeps():
    """States, a sweep and values, against SciPy and mpmath;
    steps of descent by hand.
    """
    for seed in range(18):
        rng = np.random.default_rng(seed)
        of = FUNCTIONS[seed](k + x**2 + sp.Rational(1, 2))
        plain = sp.Symbol("x"), sp.Symbol("k", positive=True)
        rates = {x: y - plain[0] ** 3, y: -plain[1] * x - y + t / 4}
        flow = Flow(
            "own", t, rates, {x: k, y: 0.5}, "own", "exact", observables={"of": of}
        )
        value = round(float(rng.uniform(0.2, 0.9)), 3)
        more = {"events": {"up": sp.Symbol("x", real=True) - y}, "at": [0.0, 1.0]}
        found = flow.solve({}, until=1.0, k=[value, 2.0], **more).isel(k=0)
        exact = scipy.integrate.solve_ivp(
            lambda s, v, a=value: [v[1] - v[0] ** 3, -a * v[0] - v[1] + s / 4],
            (0, 1),
            [value, 0.5],
            method="DOP853",
            rtol=1e-11,
            atol=1e-13,
            dense_output=True,
        )
        np.testing.assert_allclose(
            [found.x[-1], found.y[-1]], exact.y[:, -1], rtol=1e-9
        )
        if np.isfinite(found.up):
            assert np.ptp(exact.sol(found.up.item())) < 1e-9
        end = {x: sp.Float(found.x[-1].item(), 30), k: sp.Float(value, 30)}
        assert found.of[-1].item() == pytest.approx(
            float(of.subs(end).evalf(25)), rel=1e-11
        )
        exactly = Equation("of", x, of, "own", "exact").evaluate(
            {"x": found.x[-1].item(), "k": value}, modules="mpmath"
        )
        assert float(exactly) == pytest.approx(found.of[-1].item(), rel=1e-11)
        step = flow.descend({"k": value}, 0.1, 1)
        assert step.x[-1].item() == pytest.approx(value + 0.1 * (0.5 - value**3))


def test_fixed_points_of_drawn_polynomials_are_all_there():
    """SymPy with decimals gave three of nine in silence; against a search from 80
    points.
    """
    terms = [sp.S.One, x, y, x * y, x**2, y**2, x**3, y**3]
    for seed in range(8):
        rng = np.random.default_rng(seed)
        rates = [
            sum(
                round(rng.uniform(-1, 1), 2) * terms[i]
                for i in rng.choice(8, 3, replace=False)
            )
            for _ in range(2)
        ]
        flow = Flow(
            "own",
            t,
            dict(zip((x, y), rates, strict=True)),
            {x: 1, y: 1},
            "own",
            "exact",
        )
        with warnings.catch_warnings(action="ignore"):
            points = flow.fixed_points()
        found = np.array([[float(p[z]) for z in (x, y)] for p in points if len(p) > 1])
        moved, slopes = (sp.lambdify((x, y), f) for f in (rates, flow.jacobian()))
        assert all(np.abs(moved(*point)).max() < 1e-9 for point in found)
        for start in 2 * rng.normal(size=(80, 2)):
            with np.errstate(all="ignore"):
                end = scipy.optimize.root(lambda z, f=moved: f(*z), start)
            if end.success and abs(np.linalg.det(slopes(*end.x))) > 1e-3:
                assert np.abs(found - end.x).max(1).min() < 1e-6, (seed, end.x)


JUNK = [
    None,
    -1,
    np.nan,
    "x",
    [1, 2],
    {"x": 1},
    {x: None},
    1j,
    sp.oo,
    sp.Matrix([x]),
    object(),
]
JUNK += [
    10**400,
    5e-324,
    np.timedelta64(1, "s"),
    np.ma.masked,
    float,
    sp.true,
    [[1], [2, 3]],
]
JUNK += [
    xr.Dataset({"x": ("t", [1.0, 2.0])}),
    np.array([None]),
    sp.Derivative(sp.Function("f")(x)),
]


@pytest.mark.parametrize("junk", JUNK, ids=range(len(JUNK)))
def test_what_has_no_sense_is_one_line(junk, tmp_path):
    """At every door."""
    rows = xr.Dataset({"x": ("t", [1.0, 2, 4])}, {"t": [0.0, 1, 2]})
    path = tmp_path / "a.csv"
    path.write_text("t,x\n0,1\n1,2\n")
    own = ("own", t, {x: -x}, {x: 1}, "own", "exact")
    doors = [
        *(
            lambda n=n: Flow(*own[:n], junk, *own[n + 1 :]).solve({"x": 1}, t=1)
            for n in (1, 2, 3, 5)
        ),
        *(lambda z=z: Flow(*own, **{z: junk}) for z in ("where", "observables")),
        lambda: Flow(*own).solve({}, t=1, events={"e": junk}),
        lambda: Flow("own", t, {x: junk}, {x: 1}, "own", "exact").solve({}, t=1),
        lambda: Flow("own", t, {x: -x}, {x: junk}, "own", "exact").solve({"x": 1}, t=1),
        lambda: Flow(*own).solve({}, t=1, at=junk),
        lambda: Flow(*own).series(2, junk),
        lambda: Flow(*own).linearised(at=junk),
        lambda: compare(rows, junk),
        lambda: compare(rows, rows, {"x": junk}),
        lambda: first_crossing(junk, 0.5),
        lambda: first_crossing(rows.x, junk),
        lambda: tables.published(junk, 3),
        lambda: tables.published(rows, junk),
        lambda: emergence_times(rows, rows, x=junk),
        lambda: emergence_times(rows, rows, x=0.5, time=junk),
        lambda: tables.read(junk, {"t": "t", "x": "x"}),
        lambda: tables.read(path, {"t": "t", "x": junk}),
        lambda: tables.read(path, {"t": "t", "x": "x"}, junk),
        lambda: tables.arrays({"t": [0, 1], "x": junk}),
        lambda: tables.arrays(junk),
        lambda: runs.open(junk),
    ]
    for door in doors:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                door()
        except (ParameterError, FileNotFoundError) as error:
            assert "\n" not in str(error)
