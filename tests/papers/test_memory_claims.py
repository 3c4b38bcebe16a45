"""The ledger of the slides: every field is legal, every reference exists, figures can be drawn, the write-up is whole."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path

import matplotlib as mpl
import pytest
from addresses import exists

from papers import __main__ as command
from papers import claims
from papers.bietti2025 import FIGURES, writeup
from theory import associative_memory
from theory.associative_memory import noisy_bigram
from verify.associative_memory.factual_recall import gradients as recall_gradients
from verify.associative_memory.gradient_memory import gradients as lemma_gradients

mpl.use("Agg")
ROOT = Path(__file__).parents[2]
LEDGER = claims.load(ROOT / "papers/bietti2025/claims.toml")
SOURCES = "".join(path.read_text() for path in (ROOT / "verify/associative_memory").rglob("*.py"))


def references(kind):
    """Names of one kind of reference in the whole ledger."""
    return sorted({r.split(":", 1)[1] for c in LEDGER for r in c.covered_by if r.startswith(f"{kind}:")})


def test_fields():
    """Unique ids, known words, reasons where nothing covers a claim, evidence where something does."""
    assert [name for name, n in Counter(c.id for c in LEDGER).items() if n > 1] == []
    for c in LEDGER:
        assert c.kind in {"statement", "setting", "extension", "erratum"} and c.verdict in claims.VERDICTS, c.id
        assert 0 < len(c.says) <= 130 and (c.kind == "erratum") == (c.verdict == "erratum"), c.id
        assert all(r.split(":", 1)[0] in {"equation", "check", "test", "code", "figure"} for r in c.covered_by), c.id
        assert bool(c.covered_by) != (c.verdict == "not covered") and (c.covered_by or c.note), c.id


def test_equations_and_figures_exist():
    """No reference to an equation or a figure that is not there; no figure that no claim cites."""
    assert set(references("equation")) <= set(associative_memory.equations())
    assert set(references("figure")) == set(FIGURES)


def pieces(name):
    """A check's name with its computed parts taken out."""
    return [q for q in re.split(r"\d[\d.e-]*%?|W_O2|W_O|W_2|W_1|W_K1|W_K2|interference_wrong|classes_wrong|relation|subject|epsilon|"
                                r"curriculum|direct|in-context accuracy|the noise token|first gradient|second gradient", name) if len(q) > 3]  # fmt: skip


@pytest.fixture(scope="module")
def printed():
    """Names of the rows that the quick checks print."""
    return {c.name for c in [*recall_gradients.checks(), *lemma_gradients.checks()]}


@pytest.mark.parametrize("name", references("check"))
def test_checks_are_written_somewhere(name, printed):
    """The fixed parts of every cited row occur in the checks' source, or the row is printed by the quick checks."""
    assert any(p.startswith(name) for p in printed) or all(q in SOURCES for q in pieces(name)), pieces(name)


def test_files_and_attributes_exist():
    """Test files hold tests; attributes import."""
    for name in references("test"):
        assert exists(name), name
    for path in references("code"):
        module, _, attribute = path.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), path


def test_a_figure_from_the_command(tmp_path, monkeypatch, capsys):
    """A quick figure, drawn whole."""
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_RUNS", str(tmp_path / "runs"))
    assert command.main(["bietti2025", "--figure", "one_step", "--out", str(tmp_path), "--quiet"]) == 0
    assert (tmp_path / "figure_one_step.png").stat().st_size > 10_000
    assert capsys.readouterr().out.strip().endswith("figure_one_step.png")


def test_write_up_is_whole():
    """Every equation, every figure and every claim is in the document."""
    text = writeup.generate()
    assert all(f"figure_{name}.png" in text for name in FIGURES)
    assert text.count(r"\begin{equation}") == len(associative_memory.equations())
    assert "hallucination plateau" in text and "\\end{document}" in text
    assert noisy_bigram.equations()["value_recovered"].latex() in text
