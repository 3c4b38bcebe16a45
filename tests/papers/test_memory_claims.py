"""The write-up and figures of the slides: every figure is cited, figures can be drawn,
the document is whole.
"""

from __future__ import annotations

import matplotlib as mpl
from test_ledgers import cited

from papers import __main__ as command
from papers import bietti2025
from papers.bietti2025 import FIGURES
from theory import associative_memory
from theory.associative_memory import noisy_bigram

mpl.use("Agg")


def test_no_figure_is_left_out():
    """Every figure that can be drawn is cited."""
    assert set(cited("bietti2025", "figure")) == set(FIGURES)


def test_a_figure_from_the_command(tmp_path, monkeypatch, capsys):
    """A quick figure, drawn whole."""
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_RUNS", str(tmp_path / "runs"))
    assert (
        command.main(
            ["bietti2025", "--figure", "one_step", "--out", str(tmp_path), "--quiet"]
        )
        == 0
    )
    assert (tmp_path / "figure_one_step.png").stat().st_size > 10_000
    assert capsys.readouterr().out.strip().endswith("figure_one_step.png")


def test_write_up_is_whole():
    """Every equation, every figure and every claim is in the document."""
    text = bietti2025.generate()
    assert all(f"figure_{name}.png" in text for name in FIGURES)
    assert text.count(r"\begin{equation}") == len(associative_memory.equations())
    assert "hallucination plateau" in text and "\\end{document}" in text
    assert noisy_bigram.equations()["value_recovered"].latex() in text
