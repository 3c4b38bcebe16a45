"""Every figure and the write-up can be made; generated parts are marked and come out the same
twice.
"""

import matplotlib as mpl
import pytest

from papers import __main__ as command
from papers.forner2026 import FIGURES, figures, robustness, writeup
from papers.source import Source
from theory.parameters import ParameterError
from theory.state_tracking import Parameters

mpl.use("Agg")
TINY = Parameters(N=4, L=3, d_g=4, d_h=8, n_train=128, n_test=32, epochs=160, eval_every=20)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_RUNS", str(tmp_path / "runs"))
    for key in figures.SETTINGS:
        monkeypatch.setitem(
            figures.SETTINGS, key, TINY.replace(rope="plain") if key[1] == "table_2" else TINY
        )
    monkeypatch.setattr(robustness, "SMALL", TINY)
    monkeypatch.setitem(robustness.RANGES, "small", {"eta": (0.5, 1.0), "rope": ("2pi", "linear")})
    monkeypatch.setattr("simulate.pool.cores", lambda: 1)
    return Source("small", [0, 1], "cpu", progress=False)


@pytest.mark.slow
def test_all_figures_and_the_write_up(tiny, tmp_path):
    written = writeup.write_all(tiny, tmp_path / "out")
    names = {w.name for w in written}
    assert {f"figure_{name}.png" for name in FIGURES} <= names
    assert all(w.stat().st_size > 5_000 for w in written)
    text = (tmp_path / "out" / "writeup.tex").read_text()
    begins = text.count("% begin generated:")
    assert (
        begins
        == text.count("% end generated:")
        == (writeup.HERE / "template.tex").read_text().count("%!")
    )
    assert "%!" not in text
    assert writeup.generate(tiny) == text


def test_one_figure_from_the_command(tiny, tmp_path, capsys):
    assert (
        command.main(
            [
                "forner2026",
                "--figure",
                "3",
                "--seeds",
                "2",
                "--out",
                str(tmp_path),
                "--quiet",
                "--device",
                "cpu",
            ]
        )
        == 0
    )
    assert capsys.readouterr().out.strip() == str(tmp_path / "figure_3.png")


@pytest.mark.parametrize("words", [["forner2026", "--figure", "99"], ["forner2025"]])
def test_unknown_names_are_refused_with_the_nearest(words):
    with pytest.raises(ParameterError, match="must be one of"):
        command.main(words)


def test_figures_of_the_paper_are_all_there():
    assert {str(k) for k in range(2, 11)} <= set(FIGURES)
