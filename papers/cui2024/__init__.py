"""Cui, Behrens, Krzakala, Zdeborova: a phase transition between positional and semantic learning
(arXiv:2402.03902).
"""

from papers.cui2024.figures import FIGURES
from papers.cui2024.writeup import write_all

__all__ = ["FIGURES", "write_all"]
