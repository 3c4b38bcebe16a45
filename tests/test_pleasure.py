"""Usability: short reprs, formulas and tables in notebooks, versions, a user's own data
and parameters.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import sympy as sp
import xarray as xr

import papers
import simulate
import theory
import verify
from simulate.store import runs as store
from theory import state_tracking as st
from theory.call.parameters import BaseParameters, parameter
from theory.call.refusal import ParameterError
from theory.dynamics.flow import Flow
from theory.equations.equation import Equation
from theory.models import command_line
from theory.onset import main as onset_command
from theory.state_tracking import Parameters
from theory.state_tracking.model.symbols import A, R
from theory.symbols import notation
from verify.trajectories import compare

mpl.use("Agg")
ROOT = Path(__file__).parents[1]
DEMO = Parameters.demo()


def test_reprs_are_short_and_parameters_can_be_typed_again():
    """No formula is derived for a repr; every line fits a terminal."""
    p, runs = verify.ensembles("demo")
    found = compare(st.flow().solve(DEMO, alpha=3), runs)
    for thing in (
        DEMO,
        st.flow(),
        st.onset(DEMO),
        found,
        st.flow().equations()["dA_dalpha"],
    ):
        assert len(repr(thing)) < 250, type(thing)
    assert eval(repr(DEMO)) == DEMO and repr(Parameters()) == "Parameters()"
    derived = []
    lazy = Equation(
        "a", sp.Symbol("a"), lambda: derived.append(1) or sp.S.One, "nobody", "exact"
    )
    assert "nobody" in repr(lazy) and not derived


def test_notebooks_show_formulas_and_tables():
    """What IPython asks for: LaTeX of equations and flows, HTML of answers, escaped."""
    law, result = st.equations()["c_omega"], st.onset(DEMO)
    assert law._repr_latex_() == rf"$\displaystyle {law.latex()}$"
    assert (
        st.flow()._repr_latex_().split("\n", 1)[1].rsplit("\n", 1)[0]
        == st.flow().latex()
    )
    assert (
        "alpha_half" in result._repr_html_() and "&gt;" not in result._repr_html_()[:5]
    )
    table = compare(
        st.flow().solve(DEMO, alpha=3), verify.ensembles("demo")[1]
    )._repr_html_()
    assert table.startswith("<pre>") and "predicted" in table and "+- " in table


def test_version_is_one(capsys):
    """Of every package, of every command, and of the citation."""
    assert {p.__version__ for p in (theory, simulate, verify, papers)} == {
        theory.__version__
    }
    assert re.search(
        rf"^version: {theory.__version__}$", (ROOT / "CITATION.cff").read_text(), re.M
    )
    with pytest.raises(SystemExit) as done:
        onset_command(["--version"])
    assert done.value.code == 0 and theory.__version__ in capsys.readouterr().out
    assert all(
        (ROOT / wing / "py.typed").exists() for wing in ("theory", "simulate", "verify")
    )


def test_equations_are_substituted_by_name():
    """By name, by the symbol, or by a symbol made elsewhere, which differs in its
    assumptions.
    """
    flow = st.flow().equations()["dA_dalpha"]
    by_name, by_symbol = flow.subs({"A": 0.5}), flow.subs({A: 0.5})
    assert by_name.rhs == by_symbol.rhs == flow.subs({sp.Symbol("A"): 0.5}).rhs
    assert A not in by_name.rhs.free_symbols and R in by_name.rhs.free_symbols
    assert by_name.lhs == flow.lhs  # a rate at A = 1/2, not the rate of 1/2
    assert flow.subs({"A": R}).lhs == sp.Derivative(R, flow.lhs.variables[0])
    with pytest.raises(ParameterError, match=r"no symbol B; there are A, "):
        flow.subs({"B": 1})


@dataclass(frozen=True)
class Own(BaseParameters):
    """Parameters of a user: plain defaults beside a declared field."""

    gain: float = 2.0
    size: int = 3
    name: str = "x"
    rate: float = parameter(0.5, "declared", above=0)


def test_own_parameters_and_an_own_flow():
    """Fields with plain defaults are held to their kind;
    a flow takes them, or a dict.
    """
    p = Own(gain=3)
    assert (
        p.gain == 3.0 and p.replace(size=4).size == 4 and p.parse(["size=5"]).size == 5
    )
    assert p.as_dict(training_only=True)["gain"] == 3.0 and repr(p) == "Own(gain=3.0)"
    for change in ({"size": 1.5}, {"gain": np.nan}, {"name": 3}, {"rate": -1.0}):
        with pytest.raises(ParameterError, match=next(iter(change))):
            p.replace(**change)
    x, t, gain = sp.Symbol("x"), sp.Symbol("t"), notation.symbol("gain", positive=True)
    own = Flow("decay", t, {x: -gain * x}, {x: sp.S.One}, "own", "exact")
    for given in (p, {"gain": 3.0}):
        curve = own.solve(given, t=1.0, at=[0, 1])
        assert float(curve.x[-1]) == pytest.approx(np.exp(-3), rel=1e-9)
    assert own.solve(p, t=1.0, at=[0, 1], gain=[1.0, 3.0]).x.dims == ("gain", "t")
    with pytest.raises(ParameterError, match="no value for gain"):
        own.solve({}, t=1.0)


def test_any_dataset_is_compared():
    """No attributes, no seeds, another name of the time, unsorted; what cannot be is
    named.
    """
    curve = st.flow().solve(DEMO, alpha=3)
    exact = curve[["A", "R"]].isel(alpha=slice(0, None, 20)).drop_attrs()
    exact = (
        exact + 1e-12 * exact.alpha
    )  # so that no rounding decides where they deviate most
    one = compare(curve, exact)
    assert [c.within for c in one.checks] == [True, True] and not one.inside()
    assert "single curve" in str(one) and "nan" not in str(one)
    off = compare(curve, (1.1 * exact).assign_coords(alpha=exact.alpha))
    assert [c.verdict for c in off.checks] == ["FAIL", "FAIL"]
    # not centred on the curve, so that no rounding decides where it deviates most: at
    # the start
    seeds = xr.concat([exact * 0.99, exact, exact * 1.01 + 1e-3], "seed")
    named = seeds.rename(alpha="when").isel(when=slice(None, None, -1))
    assert [c.within for c in compare(curve, named, time="when").checks] == [True, True]
    for runs, message in (
        (named, "no dimension alpha; say which of"),
        (exact.rename(A="a", R="r"), "no variable over alpha in common"),
        (exact.drop_vars("alpha"), "has no times"),
        (exact.assign_coords(alpha=exact.alpha + 100), "lies outside"),
    ):
        with pytest.raises(ParameterError, match=message):
            compare(curve, runs)
    with pytest.raises(ParameterError, match="time = 'then'"):
        compare(curve, named, time="then")


def test_files_and_ensembles_by_name(tmp_path, monkeypatch):
    """Paths as strings; shipped ensembles by name, with the nearest where there is
    none.
    """
    p, runs = verify.ensembles("table_1")
    assert p == Parameters(n_test=p.n_test, epochs=p.epochs) and runs.sizes["seed"] == 5
    with pytest.raises(ParameterError, match="did you mean 'table_1'"):
        verify.ensembles("table1")
    small = runs[["A"]].isel(alpha=slice(0, 3))
    monkeypatch.chdir(tmp_path)
    store.write(small, "some.nc")
    xr.testing.assert_identical(store.read("some.nc"), small)
    with pytest.raises(ParameterError, match=r"^none.nc: no such file"):
        store.ensemble("none.nc", "state_tracking", Parameters, {})


def test_every_command_knows_its_version():
    """The one parser of all commands."""
    assert "--version" in command_line.parser("x", "y").format_help()


# What theorists ask for first: the cells of that page, with the test of what each
# computes.
PAGE = (ROOT / "docs/how_to/first.md").read_text()
WISHES = dict(
    re.findall(
        r"^## (.*?)\n.*?^```\{code-cell\} ipython3\n(?:---\n.*?^---\n)?(.*?)^```",
        PAGE,
        re.M | re.S,
    )
)
OWN = "Parameters of one's own, trained and followed seed by seed"
HELD = {
    "Times over a parameter, with a plot": lambda x: (
        x["times"].values[[0, -1]] == pytest.approx([1.209, 11.536], abs=1e-3)
    ),
    # Entries of 8 x 8 matrices are few for a theory of averages over them: 0.05 for
    # these seeds.
    OWN: lambda x: float(abs(x["ours"].A - x["runs"].A).max()) < 0.1,
    "When did each seed learn, and when should it have?": lambda x: (
        x["found"].sizes == {"quantity": 2, "seed": 2}
        and float(abs(x["found"].deviation.mean("seed")).max()) < 0.05
    ),
    "A heat map over two fields": lambda x: (
        x["times"].dims == ("L", "N")
        and float(x["times"].sel(L=8, N=16)) == pytest.approx(4.242, abs=1e-3)
    ),
    "Eq. (15) alone, in a paper that compiles": lambda x: (
        "\\begin{aligned}" in x["text"]
        and x["text"].count("alpha") >= 3
        and compiles("paper.tex")
    ),
    "A changed closure and its consequence": lambda x: (
        x["times"][::2] == pytest.approx([4.242, 3.400], abs=1e-3)
        and x["times"][1] > 1.1 * x["times"][0]
    ),
    "How long does an induction head take to emerge, for contexts of up to 1000"
    " pairs?": lambda x: float(x["times"][-1]) == pytest.approx(646853, rel=1e-3),
    "How many facts does one matrix hold?": lambda x: (
        abs(
            x["recall"](x["p"].replace(N=921))["accuracy"].mean()
            - x["superposition"].sphere(x["p"].replace(N=921))
        )
        < 0.04
    ),
    "Attention curves of an ensemble that comes with the code": lambda x: (
        x["runs"].A.dims == ("seed", "alpha")
    ),
}


def compiles(name):
    """Whether a document makes a PDF; where there is no LaTeX, nobody can say."""
    if shutil.which("pdflatex") is None:
        return True
    run = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", name]
    return subprocess.run(run, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    "wish", [pytest.param(w, marks=[pytest.mark.slow] * (w == OWN)) for w in HELD]
)
def test_wishes_take_ten_lines(wish, tmp_path, monkeypatch):
    """Each cell of the page runs as it stands, in at most ten lines, and gives what it
    should.
    """
    assert WISHES.keys() == HELD.keys()
    source = WISHES[wish].replace(
        "[4, 8, 16, 32, 64, 128, 256, 512, 1000]", "[4, 1000]"
    )
    source = source.replace("(0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3)", "(0.03, 0.1)")
    source = source.replace('{24: ":", 48: "--", 96: "-"}', '{24: ":", 96: "-"}')
    assert len([line for line in source.splitlines() if line]) <= 10
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "simulate.training.pool.cores", lambda: 1
    )  # seconds of training, no processes
    if wish.startswith(
        "When did each seed"
    ):  # theories of single students: a second for each
        p, runs = verify.ensembles("demo")
        monkeypatch.setattr(
            verify, "ensembles", lambda name: (p, runs.isel(seed=slice(2)))
        )
    names: dict = {}
    try:
        exec(source, names)
    finally:
        plt.close("all")
    assert HELD[wish](names)
