"""A. Bietti: slides 'Some mechanisms in transformers and their emergence' (2025), and the papers
behind them.
"""

from papers.bietti2025.figures import FIGURES
from papers.bietti2025.writeup import write_all

__all__ = ["FIGURES", "write_all"]
