"""Mistakes of users: each is refused in one line with what to type instead, or made
right.
"""

import itertools
import operator
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

import verify
from simulate.training import jobs, pool
from theory import state_tracking as st
from theory.call.refusal import ParameterError, report
from theory.dynamics.flow import Flow
from theory.equations.equation import Equation, Equations, numbers
from theory.explore import main as explore
from theory.latex import main as latex
from theory.models import registry
from theory.onset import main as onset
from theory.runtime import plotting, progress
from theory.statement import draw, eq, gauss, sample, sizes, sort, teacher, weight
from verify.compare import same_students
from verify.trajectories import compare

mpl.use("Agg")
WHOLE = pytest.mark.parametrize(
    "model", [pytest.param(m, id=m.name) for m in registry.TABLE.values()]
)


@WHOLE
def test_equations_are_found_by_their_number(model):
    """In Python as in the shell: by name, by number; unknown ones are refused."""
    listed = model.wing("theory").equations()
    by_number = {}
    for equation in listed.values():
        for number in numbers(equation.reference):
            by_number.setdefault(number, []).append(equation)
    for number, expected in by_number.items():
        found = listed[number] if number not in listed else None
        if found is None:
            continue
        several = isinstance(found, Equations)
        assert (list(found.values()) if several else [found]) == expected
        assert several == (len(expected) > 1)
    with pytest.raises(
        ParameterError, match=r"^equation zzz: there is none; nearest are "
    ):
        listed["zzz"]
    assert "zzz" not in listed and listed.get("zzz") is None


def test_several_equations_of_a_number_are_used_as_one():
    """The flow (15) of the paper is printed and renamed in one go."""
    found = st.equations()["Eq. (15)"]
    assert found.keys() == st.equations()["15"].keys() >= {"dA_dalpha"}
    assert found.latex().count("\\alpha") >= 3
    assert "T" in {
        s.name for e in found.rename({"N": "T"}).values() for s in e.rhs.free_symbols
    }
    assert isinstance(st.equations()["c_omega"], Equation)


@WHOLE
def test_forgotten_parentheses(model):
    """`st.flow.solve`, `st.equations["15"]`: each says what to type, and nothing else
    is hidden.
    """
    wing = model.wing("theory")
    for name in ("flow", "flows", "equations", "sections"):
        if not hasattr(wing, name):
            continue
        function = getattr(wing, name)
        for use in (
            lambda f: f.solve,
            lambda f: f["15"],
            lambda f: [*f],
            lambda f: f.keys(),
        ):
            with pytest.raises(ParameterError, match=rf"call it first: {name}\(\)"):
                use(function)
        assert not hasattr(function, "solve") and callable(function)
    assert isinstance(st.flow(), Flow) and st.flow() is st.flow()


def test_one_value_of_a_field_is_no_sweep():
    """As `replace`, also with output times of its own."""
    p, flow = st.Parameters.demo(), st.flow()
    one = flow.solve(p, alpha=3.0, R_0=0.1)
    assert one.A.equals(flow.solve(p.replace(R_0=0.1), alpha=3.0).A)
    assert flow.solve(p, alpha=3.0, R_0=0.1, at=[0, 1]).A.sizes == {"alpha": 2}


def test_a_time_that_is_not_known_says_why():
    """Beside NaN and infinity, and only there."""
    heads = registry.find("induction_heads").wing("theory")
    p = heads.Parameters(trained="three", data="orthonormal", query="last")
    known = heads.emergence_times(p)
    assert known.T_alpha > 0 and "absent" not in known.T_alpha.attrs
    never = heads.emergence_times(p.replace(N=1, eta=0.01))
    assert never.T_alpha == np.inf and never.T_alpha.attrs["absent"] == "never emerges"


def test_swapped_arguments():
    """Of comparisons and predictions; theory against theory is compared."""
    p, runs = verify.ensembles("demo")
    curve = st.flow().solve(p, alpha=3)
    for ours in (curve, st.predict(p, runs.isel(seed=slice(2)), accuracies=False)):
        with pytest.raises(
            ParameterError,
            match="are swapped: it is compare.curve, runs., and emergence_times.runs",
        ):
            compare(runs, ours)
    same_students.check_curve(curve, curve)
    with pytest.raises(ParameterError, match="Parameters come first"):
        st.predict(runs, p)
    with pytest.raises(ParameterError, match=r"is a preset; call it: .*\.demo\(\)"):
        st.onset(st.Parameters.demo)


@pytest.mark.parametrize(
    ("command", "flag", "name"),
    [
        (explore, "--out", "x.html"),
        (latex, "--out", "x.tex"),
        (onset, "--plot", "x.png"),
    ],
)
def test_no_folder_is_made_by_a_misspelled_path(
    command, flag, name, tmp_path, monkeypatch
):
    """Refused before any work, with the command that makes it; below the working
    directory folders are made.
    """
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr("theory.explorer.sliders.STEPS", 2)
    model = "associative_memory.factual_recall"
    for place in (tmp_path / "no where", Path("../nowhere"), Path("../nowhere/deeper")):
        with pytest.raises(
            ParameterError, match=r"there is no folder .*; make it: mkdir -p "
        ) as no:
            command([model, flag, str(place / name)])
        assert list(tmp_path.iterdir()) == [tmp_path / "work"]
    subprocess.run(str(no.value).partition("make it: ")[2], shell=True, check=True)
    assert Path("../nowhere/deeper").is_dir()
    command([model, flag, f"output/new/{name}"])
    assert Path(f"output/new/{name}").stat().st_size


OPERATORS = [
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.pow),
    *(operator.mod, operator.floordiv, operator.matmul, operator.lt, operator.ge),
]


def test_words_of_a_statement_refuse_what_they_cannot():
    """Arithmetic on indices, sorts, functions, arrays without indices; of numbers, what
    is none.
    """
    place = sort("place", sizes("N"), ordered=True)
    token, direction = sort("token", sizes("S")), sort("direction", 3, vector=True)
    x, f = sample("x", (place,), token), teacher("f", (token,), token)
    p = draw(place)
    words = [place, p, x, x(p), f, weight("W", token), gauss("z", direction)]
    for word, act, other in itertools.product(words, OPERATORS, (1, 2.0, p, place)):
        for sides in ((word, other), (other, word)):
            with pytest.raises(
                ParameterError, match="index|sort|function|array|less or more"
            ):
                act(*sides)
    for word, act in itertools.product(
        words, (operator.neg, abs, float, int, list, range)
    ):
        with pytest.raises(ParameterError):
            act(word)
    with pytest.raises(ParameterError, match=r"^place: is an index"):
        x(p - 1)
    number = weight("W", token)[x(p)]
    assert (2 * number - 1) ** 2 / 3 + eq(x(p), x(p)) is not None
    for act in (operator.mod, operator.floordiv, operator.matmul):
        with pytest.raises(ParameterError, match="takes part in sums"):
            act(number, 2)


def ensemble(seeds):
    """Curves that differ from seed to seed."""
    alpha = np.linspace(0, 1, 7)
    values = np.outer(np.arange(1.0, seeds + 1), alpha)
    return xr.DataArray(values, dims=("seed", "alpha"), coords={"alpha": alpha})


@pytest.mark.parametrize("label", ["students", "mine, of five", "A"])
@pytest.mark.parametrize(
    ("seeds", "single"), [(5, None), (5, False), (5, True), (40, None), (40, True)]
)
def test_a_band_is_drawn_as_told_and_keeps_its_label(label, seeds, single):
    """The label stands in the legend; five seeds can be a band, forty can be lines."""
    figure, axis = plt.subplots()
    plotting.band(axis, ensemble(seeds).rename(seed="draw"), "C0", label, single=single)
    lines = single or (single is None and seeds <= plotting.FEW)
    assert len(axis.collections) == (0 if lines else 1)
    assert len(axis.lines) == (seeds if lines else 1)
    (shown,) = axis.get_legend_handles_labels()[1]
    assert shown.startswith(label)
    plt.close(figure)


def test_a_band_of_what_is_no_ensemble():
    """One curve is a line; a dataset or a grid is refused with what to pass."""
    figure, axis = plt.subplots()
    plotting.band(axis, ensemble(1).isel(seed=0), "C0", "one")
    assert axis.get_legend_handles_labels()[1] == ["one"] and len(axis.lines) == 1
    for wrong in (
        ensemble(3).to_dataset(name="A"),
        ensemble(3).expand_dims("L"),
        [1.0, 2.0],
    ):
        with pytest.raises(
            ParameterError, match=r"one variable over seed and time, as runs\.A; has"
        ):
            plotting.band(axis, wrong, "C0")
    plt.close(figure)


def test_progress_counts_the_epochs_of_a_student(monkeypatch):
    """Not their sum over seeds: four students of 300 epochs make a bar of 300."""
    seen = []

    def work(tick):
        tick(150)
        seen.extend(str(bar) for bar in progress._running if not bar.draw())
        tick(300)

    monkeypatch.setattr(progress, "POLL_SECONDS", 60)
    pool.run([work] * 4, [300] * 4, workers=1, what="training 4 students")
    assert seen[0] == "training 4 students: 13% of 300 epochs"
    assert seen[-1] == "training 4 students: 87% of 300 epochs"
    alike = [
        jobs.Job("", 3, lambda t, w: True, places=(Path("a"), Path("b")), unit="step")
    ] * 2
    assert jobs._what(alike) == "training 4 students" and jobs._what([]) == "training"


SCRIPT = """
from theory import state_tracking as st
def mine():
    return st.Parameters(N={N})
{before}
mine()
"""


@pytest.mark.parametrize(
    "before", ["", "import sys; sys.excepthook = lambda *_: print('theirs')"]
)
def test_a_script_shows_the_line_first(before, tmp_path, forked):
    """Then the caller's own lines, none of the toolkit's; another's hook is theirs."""
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT.format(N=-3, before=before))

    def run():
        sys.excepthook = sys.__excepthook__
        try:
            exec(compile(script.read_text(), script, "exec"), {"__name__": "__main__"})
        except Exception as error:
            error.with_traceback(
                error.__traceback__.tb_next
            )  # as without this function
            sys.excepthook(type(error), error, error.__traceback__)
            sys.exit(1)

    done = forked(run, anew=True)
    assert done.returncode == 1
    if before:
        assert done.stdout == "theirs\n" and not done.stderr
        return
    lines = done.stderr.splitlines()
    assert lines[0].startswith("error: N = -3: must be") and len(lines) <= 7
    assert "mine.py" in lines[1] and "theory" not in "".join(
        x for x in lines if "File" in x
    )


def test_other_errors_and_notebooks(capsys, monkeypatch):
    """Errors of others keep their traceback, ours under -X dev; a notebook gets the
    same lines.
    """
    try:
        raise KeyError("x")
    except KeyError as error:
        report(KeyError, error, error.__traceback__)
    assert capsys.readouterr().err.startswith("Traceback")
    try:
        st.Parameters(N=-3)
    except ParameterError as error:
        first, *others = error._render_traceback_()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "flags", SimpleNamespace(dev_mode=True))
            report(ParameterError, error, error.__traceback__)
    told = capsys.readouterr().err
    assert told.startswith("Traceback") and "ParameterError: N = -3" in told
    assert re.match("error: N = -3: must be", first) and "test_mistakes.py" in others[0]
