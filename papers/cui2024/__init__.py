"""Cui, Behrens, Krzakala, Zdeborova: a phase transition between positional and semantic
learning (arXiv:2402.03902).
"""

from pathlib import Path

from papers import source as document
from papers.cui2024.figures import FIGURES
from papers.cui2024.panels import SETTINGS
from papers.source import Source, check_table, tabular
from theory import positional_semantic as ps
from theory.positional_semantic.branches import line
from verify.positional_semantic import gradients

__all__ = ["FIGURES", "write_all"]


# The write-up

HERE = Path(__file__).parent


def thresholds(source: Source) -> str:
    """Table of thresholds over omega for both branches of the proximal operator."""
    setting = SETTINGS[source.scale]
    omegas = [
        w for w in sorted(setting.lines, reverse=True) if round(10 * w, 6) % 1 == 0
    ]
    p = setting.p.replace(order=setting.theory_order)
    by_global, by_local = (
        line(p.replace(prox=prox), omegas) for prox in ("global", "local")
    )
    rows = []
    for w, *both in zip(omegas, by_global, by_local, strict=True):
        cells = [f"{point.alpha_c:.4f}" for point in both]
        cells += [f"{point.alpha_l:.4f}" for point in both]
        rows.append([f"{w:g}", *cells])
    header = (
        "omega",
        "alpha_c, global",
        "alpha_c, local",
        "alpha_l, global",
        "alpha_l, local",
    )
    return tabular(header, rows[::-1], "lllll")


def generate(source: Source) -> str:
    """Whole document."""
    return document.fill(
        HERE,
        document.makers(HERE, FIGURES, ps.sections)
        | {
            "thresholds": lambda _: thresholds(source),
            "gradients": lambda _: check_table(gradients.checks()),
        },
    )


def write_all(source: Source, out: Path) -> list[Path]:
    """All figures and the write-up."""
    return document.write_all(source, out, FIGURES, lambda: generate(source))
