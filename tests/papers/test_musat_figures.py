"""Every figure of Musat et al. and the write-up can be made, at sizes of seconds;
generated parts are marked.
"""

import shutil
from pathlib import Path

import matplotlib as mpl
import pytest

from papers import __main__ as command
from papers import musat2025
from papers.musat2025 import FIGURES, figures, laws, weights_figures
from papers.source import Source
from simulate.induction_heads import Parameters, StandardParameters
from theory import induction_heads as ih
from theory.call.refusal import ParameterError
from theory.runtime import plotting
from verify.induction_heads import flow_laws, gradients, pictures, timescales
from verify.induction_heads.all_weights import gaussian

mpl.use("Agg")


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr("simulate.training.pool.cores", lambda: 1)
    small = Parameters(N=2, D=4, batch_size=4)
    monkeypatch.setattr(Parameters, "structure", classmethod(lambda cls: small))
    monkeypatch.setattr(Parameters, "ablation", classmethod(lambda cls: small))
    for name in ("4", "15", "16"):
        monkeypatch.setitem(figures.ABLATION, name, (2, 4))
    monkeypatch.setitem(pictures.ABLATION, (2, 4), 20)
    monkeypatch.setitem(pictures.STRUCTURE, 4, (4, 8, 16))
    # Figures 6-14 carry their sizes in their names: all of them at the steps of N = 4
    # here.
    monkeypatch.setattr(weights_figures, "structure_runs", _short_structure)
    monkeypatch.setitem(figures.EMERGENCE, "small", (2, 3))
    monkeypatch.setitem(
        weights_figures.STANDARD,
        "small",
        StandardParameters(D=8, vocabulary=8, block=8, pairs=2, batch_size=4, steps=4),
    )
    monkeypatch.setattr(figures, "UNIFORM_SIZES", (4, 8))
    monkeypatch.setattr(figures, "DROP_SIZES", (4, 64))
    for name, value in {"SIZES": (4, 8), "LAW_SIZES": (8, 16), "PATH_SIZE": 8}.items():
        monkeypatch.setattr(laws, name, value)
    for name, value in {
        "SIZES": (2, 3),
        "SEEDS": range(2),
        "NOISE_SIZE": 2,
        "RATE": 0.4,
    }.items():
        monkeypatch.setattr(timescales, name, value)
    for name, value in {
        "DIMENSIONS": (16, 32),
        "SEEDS": range(2),
        "BATCHES": (2, 4),
    }.items():
        monkeypatch.setattr(gaussian, name, value)
    monkeypatch.setattr(laws, "SIZES", (16, 32))
    monkeypatch.setattr(figures.Figure, "write", _once(figures.Figure.write))
    monkeypatch.setattr(
        plotting, "save", _coarse
    )  # most of the time would go into pixels
    monkeypatch.setattr(flow_laws, "EXPONENT_SIZES", (64, 128, 256))
    monkeypatch.setattr(gradients, "checks", lambda: gradients.chain(ih.equations()))
    return Source("small", [0, 1], "cpu", progress=False)


SAME = {
    "3": range(6, 15),
    "4": range(15, 17),
}  # drawn by one function with other numbers: one of each is enough here


def _once(write):
    """Draw one figure of each kind; the others are copies."""

    def wrapped(self, source, out):
        for model, numbers in SAME.items():
            if self.name in map(str, numbers) and self.name != "14":
                return Path(
                    shutil.copy(
                        out / f"figure_{model}.png", out / f"figure_{self.name}.png"
                    )
                )
        return write(self, source, out)

    return wrapped


def _coarse(figure, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=25)
    mpl.pyplot.close(figure)


def _short_structure(source, N):
    """Four steps, called by the step numbers that the figures ask for."""
    p = Parameters(N=2, D=4, batch_size=4, steps=4, eval_every=1)
    runs = source.train(
        figures.partial(figures.train, keep_weights=True), p, source.seeds[:1]
    ).isel(t=slice(0, 3))
    return runs.assign_coords(
        step=(
            "t",
            list({4: (100, 200, 400), 8: (200, 400, 800), 16: (250, 500, 1000)}[N]),
        )
    )


@pytest.mark.slow
def test_all_figures_and_the_write_up(tiny, tmp_path):
    written = musat2025.write_all(tiny, tmp_path / "out")
    assert {f"figure_{name}.png" for name in FIGURES} <= {w.name for w in written}
    assert all(w.stat().st_size > 1_000 for w in written)
    text = (tmp_path / "out" / "writeup.tex").read_text()
    begins = text.count("% begin generated:")
    assert (
        begins
        == text.count("% end generated:")
        == (musat2025.HERE / "template.tex").read_text().count("%!")
    )
    assert "%!" not in text


def test_one_figure_from_the_command(tiny, tmp_path, capsys):
    words = [
        "musat2025",
        "--figure",
        "5",
        "--seeds",
        "1",
        "--out",
        str(tmp_path),
        "--quiet",
        "--device",
        "cpu",
    ]
    assert command.main(words) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "figure_5.png")


def test_unknown_figure():
    with pytest.raises(ParameterError, match="must be one of"):
        command.main(["musat2025", "--figure", "1"])


def test_figures_of_the_paper_are_all_there():
    assert {str(k) for k in range(2, 18)} <= set(FIGURES)
