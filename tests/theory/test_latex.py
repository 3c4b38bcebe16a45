"""LaTeX: a golden document per model, its compilation by pdflatex, fragments, single
equations, wrong names.

The golden files are written by::

    python -m theory.latex state_tracking --out tests/golden/state_tracking.tex
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import sympy as sp

from theory import latex
from theory import state_tracking as st
from theory.call.refusal import ParameterError
from theory.equations import printing
from theory.equations.equation import Equation, by_number, numbers
from theory.models import registry, write_up
from theory.runtime import output
from theory.state_tracking.model import symbols
from theory.symbols import notation

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
MODELS = pytest.mark.parametrize("model", registry.MODELS)
pdflatex = pytest.mark.skipif(
    shutil.which("pdflatex") is None, reason="pdflatex is not installed"
)


@MODELS
def test_golden_document(model, tmp_path):
    """Every equation prints as it did; see the top of this file for how to accept a
    change.
    """
    target = tmp_path / "document.tex"
    assert latex.main([model, "--out", str(target)]) == 0
    assert target.read_text() == (GOLDEN / f"{model}.tex").read_text()


@pytest.mark.parametrize(
    ("model", "hash_seed"),
    [
        ("positional_semantic", "4711"),
        ("state_tracking", "0"),
        ("state_tracking", "4711"),
    ],
)
@pytest.mark.slow
def test_document_does_not_depend_on_hashing(model, hash_seed, tmp_path):
    """SymPy orders by hash here and there; the document must not. The golden documents
    above are printed under another hash in every process.
    """
    target = tmp_path / "document.tex"
    subprocess.run(
        [sys.executable, "-m", "theory.latex", model, "--out", str(target)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        check=True,
        timeout=120,
    )
    assert target.read_text() == (GOLDEN / f"{model}.tex").read_text()


def compile_(text, folder):
    """Run pdflatex twice, stop at the first error; returns its log."""
    (folder / "main.tex").write_text(text)
    for _ in range(2):
        done = subprocess.run(
            ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main.tex"],
            cwd=folder,
            capture_output=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout[-2000:]
    return (folder / "main.log").read_text(errors="replace")


@pdflatex
@pytest.mark.parametrize(
    "model",
    [
        pytest.param(m, marks=[pytest.mark.slow] * (m != "associative_memory"))
        for m in registry.MODELS
    ],
)
def test_document_compiles(model, tmp_path):
    """No error, nothing undefined, nothing that sticks out of the page by more than 20
    pt.
    """
    log = compile_((GOLDEN / f"{model}.tex").read_text(), tmp_path)
    assert (tmp_path / "main.pdf").stat().st_size > 10_000
    assert "undefined" not in log.lower()
    over = [float(x) for x in re.findall(r"Overfull \\[hv]box \(([\d.]+)pt", log)]
    assert max(over, default=0) <= 20


@pdflatex
@pytest.mark.parametrize(
    "model",
    [
        pytest.param(
            m,
            marks=[pytest.mark.slow] * (m not in ("induction_heads", "state_tracking")),
        )
        for m in registry.MODELS
    ],
)
def test_fragment_compiles(model, tmp_path):
    """After \\input, with AMS packages alone, it runs over several pages; labels can be
    cited.
    """
    assert (
        latex.main([model, "--fragment", "--out", str(tmp_path / "fragment.tex")]) == 0
    )
    text = (tmp_path / "fragment.tex").read_text()
    names = list(registry.find(model).wing("theory").equations())
    assert re.findall(r"\\label\{eq:(.*?)\}", text) == names
    head = (
        "\\documentclass[11pt]{article}\\usepackage[margin=22mm]{geometry}"
        "\\usepackage{amsmath,amssymb}"
    )
    inner = f"\\input{{fragment}}\n\\eqref{{eq:{names[-1]}}}"
    body = f"\\begin{{document}}\n{inner}\n\\end{{document}}\n"
    log = compile_(head + body, tmp_path)
    assert "undefined" not in log.lower()
    assert int(re.findall(r"\((\d+) pages", log)[-1]) > 1 + (len(names) > 100)
    over = [float(x) for x in re.findall(r"Overfull \\[vh]box \(([\d.]+)pt", log)]
    assert max(over, default=0) <= 20


@MODELS
def test_single_equations(model, capsys):
    """One line each, with the equals sign and balanced braces."""
    for name, equation in registry.find(model).wing("theory").equations().items():
        text = equation.latex()
        assert " = " in text and "\n" not in text
        assert text.count("{") == text.count("}"), name
        assert text.count(r"\left") == text.count(r"\right"), name
    assert latex.main([model, "--equation", name]) == 0
    assert capsys.readouterr().out == text + "\n"


def test_house_style(capsys):
    """Derivatives with d, ln, the symbols of the paper."""
    assert latex.main(["state_tracking", "--equation", "dR_dalpha"]) == 0
    assert capsys.readouterr().out.startswith(r"\frac{d}{d \alpha} R = \eta g")
    latex.main(["state_tracking", "--equation", "loss"])
    assert r"\ln" in capsys.readouterr().out
    latex.main(["state_tracking", "--equation", "c_omega"])
    out = capsys.readouterr().out
    assert out.startswith(r"c_{\omega} = ") and "dirichlet_kernel" not in out
    assert r"\sigma^{2}" in out and r"\sin" in out


WRONG = [
    (
        ["--equation", "c_omgea"],
        "error: --equation c_omgea: there is none; nearest are c_omega, ",
    ),
    (
        ["state_trackin"],
        "error: .*no model named 'state_trackin'.*did you mean 'state_tracking'?",
    ),
    (["--fragmet"], "error: unknown flag --fragmet"),
]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [*(pytest.param(*w, marks=pytest.mark.slow) for w in WRONG[:2]), WRONG[2]],
    ids=["equation", "model", "flag"],
)
def test_wrong_names(arguments, message, tmp_path):
    """Exit code 2, one line that names the nearest, no file left behind."""
    target = tmp_path / "deeper" / "out.tex"
    done = subprocess.run(
        [sys.executable, "-m", "theory.latex", *arguments, "--out", str(target)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2 and done.stdout == ""
    assert re.match(message, done.stderr) and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_wrong_name_in_process():
    """The same without a subprocess."""
    with pytest.raises(ParameterError, match="nearest are rollout_mean, "):
        latex.main(["--equation", "rollout_men"])


def test_one_symbol_one_printed_form():
    """A name may not print in two ways, whatever is assumed about it: readers only see
    the print.
    """
    assert notation.symbol("test_only", r"\xi", real=True) == notation.symbol(
        "test_only", r"\xi", real=True
    )
    with pytest.raises(ValueError, match="test_only"):
        notation.symbol("test_only", r"\chi", real=True)
    with pytest.raises(ValueError, match="test_only"):
        notation.symbol("test_only", r"\chi", positive=True)
    with pytest.raises(ValueError, match="test_only"):
        notation.array("test_only", r"\chi")


def test_escape():
    """Plain text becomes printable; mathematics between dollars passes."""
    assert write_up.escape("50% of A_0 & #1 {x} ~^\\ <>|") == (
        r"50\% of A\_0 \& \#1 \{x\} \textasciitilde{}\^{}\textbackslash{}"
        r" \textless{}\textgreater{}"
        r"\textbar{}"
    )
    assert write_up.escape("mass $e^{m}_k$ below_it") == r"mass $e^{m}_k$ below\_it"


def test_escape_of_a_lone_dollar():
    """One dollar opens no formula, so it is a character like any other."""
    assert write_up.escape("$5 & up") == r"\$5 \& up"


@pdflatex
def test_anything_written_about_an_equation_compiles(tmp_path):
    """Names, references, assumptions and titles are plain text, whatever characters
    they hold.
    """
    strange = Equation(
        "a_b",
        sp.Symbol("a"),
        sp.Symbol("b"),
        'x_1 & 50% ~ {#} ^ \\ <ref> | "q"',
        "exact",
        ("100% _sure_", "$x_1 < 2$ and y_2 > 3"),
    )
    log = compile_(write_up.document("100% _title_", {"A & B_1": [strange]}), tmp_path)
    assert "undefined" not in log.lower()


def test_interrupted_write_leaves_nothing(tmp_path):
    """A file appears whole or not at all; an existing one survives."""
    target = tmp_path / "out.tex"
    target.write_text("old")
    with pytest.raises(RuntimeError, match="stop"), output.atomic(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError("stop")
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]


def test_equations_by_number_in_the_paper(capsys):
    """As a reader would ask; equations that only refer to it are not it; each once."""
    said = []
    for asked in ("15", "(15)", "Eq. (15)"):
        assert latex.main(["--equation", asked]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] == said[2]
    assert said[0].count("\n") >= 3 and r"\frac{d}{d \alpha} A" in said[0]
    equations = registry.find("state_tracking").wing("theory").equations()
    assert {e.reference for e in by_number("15", equations)} <= {
        e.reference for e in equations.values() if "beyond" not in e.reference
    }
    latex.main(["--equation", "15", "--equation", "c_omega", "--equation", "Eq. (15)"])
    both = capsys.readouterr().out
    assert both.startswith(said[0]) and both.count("\n") == said[0].count("\n") + 1


def test_ranges_and_lists_of_numbers():
    """What a reference may look like."""
    assert numbers("p, Eqs. (3), (5)-(7)") == ["3", "5", "6", "7"]
    assert numbers("p, Eq. (67a)") == ["67a"]
    assert numbers("p, beyond Eq. (15): sharp onset") == []
    assert numbers("p, Theorem 2, B.4.1") == ["B.4.1"]


def test_unknown_equations_are_answered_with_the_nearest_five():
    """By number, or by name."""
    with pytest.raises(
        ParameterError, match=r"--equation 99: .*nearest are \(91\), (.*, ){3}\(\d+\)$"
    ):
        latex.main(["--equation", "99"])
    with pytest.raises(ParameterError, match=r"nearest are c_omega, (\w+, ){3}\w+$"):
        latex.main(["--equation", "c_omgea"])


@MODELS
def test_long_equations_are_broken(model):
    """No row is wider than the line, none is shrunk; joined again, the rows are the
    equation.
    """
    for equation in registry.find(model).wing("theory").equations().values():
        made = write_up.rows(equation)
        # Joints add up to 1 em; what has no place to break stands into the margin, 22
        # mm or 5.7 em.
        room = printing.ROOM + (1 if len(made) > 1 else 5)
        assert all(printing.width(row) <= room for row in made), equation.name
        for row in made:
            assert row.count(r"\left") == row.count(r"\right"), equation.name
            assert row.count("{") == row.count("}"), equation.name
        if len(made) == 1:
            assert made[0].replace(" &= ", " = ", 1) == equation.latex()


@pytest.mark.parametrize("room", [12, 20, 60])
def test_broken_lines_are_the_formula(room):
    """Without what joins lines, the same characters in the same order."""
    long = (
        r"a + \frac{b}{c} \left(d + e + f - \left(g + h + i\right)^{2} + j\right) - k +"
        r" l + m + n"
    )
    made = printing.broken(long, room)
    assert (len(made) > 1) == (printing.width(long) > room)
    joined = "".join(made).replace(r"\left. ", "").replace(r" \right.", "")
    assert re.sub(r"\s", "", joined) == re.sub(r"\s", "", long)
    assert all(printing.width(line) <= room for line in made)


def test_wide_fractions_are_products():
    """A numerator that is too long becomes a bracket that can be broken."""
    long = " + ".join("abcdefghijkl")
    assert printing.broken(rf"\frac{{{long}}}{{x}}", 15)[0].startswith(
        r"\frac{1}{x} \left(a + b"
    )
    assert r"\right)^{-1}" in printing.broken(rf"\frac{{x}}{{{long}}}", 15)[-1]
    assert printing.broken(rf"e^{{{long}}}", 9)[0].startswith(r"\exp\left(a + b")


@pytest.mark.parametrize(
    "name",
    [m.name for model in registry.MODELS.values() for m in (model.systems or [model])],
)
def test_every_symbol_has_one_meaning(name):
    """Symbols, arrays and undefined functions of every equation that is printed."""
    model = registry.find(name)
    equations = (
        model.wing("theory").equations().values()
    )  # first: loads modules that say meanings
    said = write_up.Meanings(model)
    unclear = {
        f"{x} of {e.name}": said.of(x)
        for e in equations
        for x in write_up.occurring(e)
        if len(said.of(x)) != 1
    }
    assert not unclear


def test_letters_are_shared_without_mixing_their_meanings(monkeypatch):
    """Two modules may mean different things by equal symbols; a function may mean its
    symbol.
    """
    monkeypatch.setattr(notation, "_MEANINGS", dict(notation._MEANINGS))
    for module, means in (
        ("theory.state_tracking.here", "one"),
        ("theory.elsewhere", "other"),
    ):
        names = {"__name__": module, "symbol": notation.symbol, "means": means}
        exec("symbol('q_shared', means=means)", names)  # as if that module called it
    said = write_up.Meanings(registry.find("state_tracking"))
    assert said.of(sp.Symbol("q_shared")) == ["one"]
    assert (
        said.of(sp.Function("A"))
        == said.of(symbols.A)
        == ["attention on the right action"]
    )
    assert said.of(sp.Symbol("nobody")) == []
    field = next(f for f in dataclasses.fields(st.Parameters) if f.name == "n_test")
    assert said.of(sp.Symbol("n_test")) == [field.metadata["doc"]]


def test_symbols_say_what_the_code_says(capsys):
    """Meaning of parameters, and where the others come from."""
    latex.main(["--symbols", "--equation", "c_omega"])
    out = capsys.readouterr().out
    assert r"$\eta$" not in out and r"$d_{g}$ & " in out
    assert r"$c_{\omega}$ & attention constant of the frequencies & by c\_omega" in out
