"""Every figure and the write-up of cui2024 can be made."""

import matplotlib as mpl
import pytest

from papers import cui2024
from papers.cui2024 import FIGURES, panels
from papers.source import Source
from theory.positional_semantic import Parameters
from theory.positional_semantic.model.parameters import HistogramParameters

mpl.use("Agg")
P = Parameters(d=20, steps=5, n_test=40, polish=False)
TINY = panels.Setting(
    P,
    (0.9, 1.5),
    (10, 20),
    (0.1, 0.3),
    (0.8, 1.6),
    2,
    (0.9, 1.5),
    4,
    (0.3,),
    Parameters(
        d=20,
        alpha=2.0,
        start="random",
        optimizer="adam",
        steps=5,
        n_test=40,
        polish=False,
    ),
    2,
    P,
    2,
)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_RUNS", str(tmp_path / "runs"))
    monkeypatch.setitem(panels.SETTINGS, "small", TINY)
    counted = HistogramParameters(
        length=4,
        alphabet=4,
        samples=100,
        width=8,
        hidden=8,
        epochs=1,
        unfrozen_epochs=1,
    )
    monkeypatch.setitem(panels.COUNTING, "small", counted)
    monkeypatch.setattr("simulate.training.pool.cores", lambda: 1)
    return Source("small", [0, 1], "cpu", progress=False)


QUICK = {"4", "5", "6", "7", "table_1"}


@pytest.mark.parametrize(
    "name",
    [
        n if n in QUICK else pytest.param(n, marks=pytest.mark.slow)
        for n in sorted(FIGURES)
    ],
)
def test_figure(name, tiny, tmp_path):
    """Written, and not empty."""
    assert FIGURES[name].write(tiny, tmp_path).stat().st_size > (
        100 if name.startswith("table") else 10_000
    )


def test_all_figures_have_a_caption():
    """Figures 2 to 15 and the table."""
    assert {str(k) for k in range(2, 16)} | {"table_1", "selections"} == set(FIGURES)
    assert all(f.caption.endswith(".") for f in FIGURES.values())


def test_write_up_marks_what_is_generated(tiny, monkeypatch):
    """Every mark of the template is filled in."""
    monkeypatch.setattr(cui2024.gradients, "checks", list)
    monkeypatch.setattr(cui2024, "thresholds", lambda source: "thresholds")
    text = cui2024.generate(tiny)
    assert (
        text.count("% begin generated:") == text.count("% end generated:") > 20
        and "%!" not in text
    )
