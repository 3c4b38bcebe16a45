"""Forner, Kuehn, Thamm, Rosenow: learning dynamics of state tracking in a solvable transformer
(arXiv:2606.18164).
"""

from papers.forner2026.figures import FIGURES, SCALES
from papers.forner2026.writeup import write_all

__all__ = ["FIGURES", "SCALES", "write_all"]
