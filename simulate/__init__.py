"""Students: the networks that the papers train, in PyTorch; results are labelled datasets."""

from theory import __version__

__all__ = ["__version__"]
