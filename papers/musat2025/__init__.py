"""Musat et al.: on the emergence of induction heads for in-context learning (arXiv:2511.01033)."""

from papers.musat2025.figures import FIGURES
from papers.musat2025.writeup import write_all

__all__ = ["FIGURES", "write_all"]
