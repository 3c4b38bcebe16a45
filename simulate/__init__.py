"""What the papers train: PyTorch students that return labelled datasets."""

from theory import __version__

__all__ = ["__version__"]
