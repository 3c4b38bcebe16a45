"""Forner, Kuehn, Thamm, Rosenow: learning dynamics of state tracking in a solvable
transformer (arXiv:2606.18164).
"""

from pathlib import Path

from papers import source as document
from papers.forner2026.figures import FIGURES, SCALES, students
from papers.source import Source, check_table
from theory import state_tracking as st
from theory.models import write_up
from theory.state_tracking import onset
from verify.state_tracking import gradients, trajectories

__all__ = ["FIGURES", "SCALES", "write_all"]


# The write-up

HERE = Path(__file__).parent


def numbers(source: Source) -> str:
    """Table of settings and derived constants."""
    rows = []
    for table in ("table_1", "table_2"):
        p = students(source, table)[0]
        numbers_at = onset(p).numbers
        sizes = (
            f"N = {p.N}, d_g = {p.d_g}, L = {p.L}, d_h = {p.d_h}, eta ="
            f" {p.eta:g}, n = {p.n_train}"
        )
        cells = [
            f"{numbers_at['c_omega']:.8g}",
            f"{numbers_at['T_alpha']:.5g}",
            f"{numbers_at['alpha_half']:.8g}",
            f"{st.initial_variance(p):.4f}",
        ]
        rows.append((table.replace("_", " "), sizes, *cells))
    header = (
        "setting",
        "sizes",
        "c_omega",
        "onset time scale",
        "time of A = 1/2",
        "initial logit variance",
    )
    return document.tabular(header, rows, "lp{52mm}rp{20mm}p{22mm}p{20mm}")


def generate(source: Source) -> str:
    """Whole document."""
    p, runs = students(source, "table_1")
    compared = trajectories.against(p, runs)
    spoken = r"\par ".join(write_up.escape(n) for n in compared.notes if n)
    makers = document.makers(HERE, FIGURES, st.sections)
    makers |= {
        "numbers": lambda _: numbers(source),
        "flow": lambda _: document.flow(st.flow()),
        "comparison": lambda _: f"{check_table(compared.checks)}\n{spoken}",
        "gradients": lambda _: check_table(gradients.checks()),
    }
    return document.fill(HERE, makers)


def write_all(source: Source, out: Path) -> list[Path]:
    """All figures and the write-up."""
    return document.write_all(source, out, FIGURES, lambda: generate(source))
