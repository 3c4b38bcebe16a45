"""Musat et al.: on the emergence of induction heads for in-context learning
(arXiv:2511.01033).
"""

from pathlib import Path

from papers import source as document
from papers.musat2025.figures import FIGURES
from papers.source import Source
from theory import induction_heads as ih
from theory.induction_heads import emergence
from verify.induction_heads import flow_laws, gradients

__all__ = ["FIGURES", "write_all"]


# The write-up

HERE = Path(__file__).parent
SIZES = (1, 2, 4, 16, 64, 1024, 10**4, 10**6)


def numbers() -> str:
    """LaTeX table of emergence times over N."""
    rows = []
    for N in SIZES:
        times = emergence.times(N).values()
        cells = [f"{v:.10g}" if v < float("inf") else "never" for v in times]
        rows.append((f"{N}", *cells))
    header = ("N", "T_gamma", "T_beta", "T_alpha", "T_drop")
    return document.tabular(header, rows, "rrrrr")


def generate() -> str:
    """Whole document."""

    def laws(_: str) -> str:
        checks, _notes = flow_laws.exponents()
        return document.check_table([*flow_laws.constants(), *checks])

    makers = document.makers(HERE, FIGURES, ih.sections)
    makers |= {
        "numbers": lambda _: numbers(),
        "flow": lambda _: document.flow(ih.flow()),
        "gradients": lambda _: document.check_table(gradients.checks()),
        "laws": laws,
    }
    return document.fill(HERE, makers)


def write_all(source: Source, out: Path) -> list[Path]:
    """All figures and the write-up."""
    return document.write_all(source, out, FIGURES, generate)
